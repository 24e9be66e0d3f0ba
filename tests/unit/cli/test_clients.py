"""`lingua nodes` and `lingua pools`: requests to the service, and the output for its answers."""

import copy
import json
import queue
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc
import grpc_testing
import pytest
from click.testing import CliRunner, Result

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.clients.pool import MAX_POOLS
from lingua_scheduler.cli.commands import nodes as nodes_command
from lingua_scheduler.cli.options import Options
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, session_pb2

SERVICES = (
    pool_pb2.DESCRIPTOR.services_by_name["PoolService"],
    dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"],
    session_pb2.DESCRIPTOR.services_by_name["SessionGateway"],
)
METHODS = {method.name: method for service in SERVICES for method in service.methods}


class Answer(NamedTuple):
    """The answer to one call: a response, an error with details, or a bare status code."""

    method: str
    response: Any = None
    error: errors.LinguaError | None = None
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""


def run(
    args: str | Sequence[str], *answers: Answer, typed: str = "", env: dict[str, str] | None = None
) -> tuple[Result, list[Any]]:
    """Run a command against a service with these answers; also returns its requests."""
    channel = grpc_testing.channel(SERVICES, grpc_testing.strict_real_time())
    ports = {"pool": 7710, "dispatcher": 7720, "gateway": 7730}
    addresses = {service: f"{service}.test:{port}" for service, port in ports.items()}
    options = Options(addresses=addresses, connect=lambda _address: channel)
    results: queue.SimpleQueue[Result] = queue.SimpleQueue()

    words = args.split() if isinstance(args, str) else args

    def invoke() -> None:
        results.put(CliRunner(env=env).invoke(app, words, input=typed, obj=options))

    # A daemon, so that a call that nobody answers fails one test and holds up no other.
    threading.Thread(target=invoke, daemon=True).start()
    requests = []
    for answer in answers:
        _, request, call = channel.take_unary_unary(METHODS[answer.method])
        # The channel passes messages by reference, and the client may change its own.
        requests.append(copy.deepcopy(request))
        call.send_initial_metadata(())
        if answer.error:
            details = errors.to_trailing_metadata(answer.error)
            call.terminate(None, details, answer.error.code, answer.error.message)
        else:
            call.terminate(answer.response, (), answer.code, answer.details)
    return results.get(timeout=30), requests


def node(node_id: str = "n1", **fields: Any) -> pool_pb2.Node:
    values: dict[str, Any] = {
        "health": common_pb2.NODE_HEALTH_READY,
        "max_concurrent_jobs": 8,
        "reserved": 1,
        "running": 2,
        "load": 0.25,
        "last_heartbeat_ms": int(time.time() * 1000) - 3500,
        "owner_instance": "d1",
        "pools": 4,
    }
    return pool_pb2.Node(node_id=node_id, **{**values, **fields})


def listed(*nodes: pool_pb2.Node, token: str = "") -> Answer:
    return Answer("ListNodes", pool_pb2.ListNodesResponse(nodes=nodes, next_page_token=token))


def pools_of(*pools: tuple[str, str, int, int, int, int], token: str = "") -> Answer:
    found = [
        pool_pb2.Pool(
            pair=common_pb2.LanguagePair(src=src, tgt=tgt),
            shards=1,
            nodes=nodes,
            ready_nodes=ready,
            slots=slots,
            free_slots=free,
        )
        for src, tgt, nodes, ready, slots, free in pools
    ]
    return Answer("ListPools", pool_pb2.ListPoolsResponse(pools=found, next_page_token=token))


def test_list_shows_each_node_on_an_aligned_line_without_colours_on_a_pipe() -> None:
    result, _ = run("nodes list", listed(node("b", drained_by_operator=True), node("alpha")))
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["ID", "HEALTH", "SLOTS", "LOAD", "HEARD", "POOLS", "DISPATCHER"]
    assert lines[0].split() == ["alpha", "ready", "3/8", "0.25", "3s", "ago", "4", "d1"]
    assert lines[1].split()[:3] == ["b", "ready", "(drained)"]
    assert len({line.index("3/8") for line in lines}) == 1
    assert "\x1b" not in result.stdout
    assert result.exit_code == 0


def test_list_asks_for_the_health_and_the_direction_that_were_named() -> None:
    result, requests = run("nodes list --health READY --pair zh:en", listed())
    assert requests[0].health == common_pb2.NODE_HEALTH_READY
    assert requests[0].pair == common_pb2.LanguagePair(src="zh", tgt="en")
    assert result.stdout == "no nodes match\n"


def test_list_without_a_direction_sends_none() -> None:
    result, requests = run("nodes list", listed())
    assert not requests[0].HasField("pair")
    assert requests[0].health == common_pb2.NODE_HEALTH_UNSPECIFIED
    assert result.stdout == "there are no nodes\n"


def test_list_reads_every_page_and_shows_each_node_once() -> None:
    first, second = listed(node("n2"), node("n1"), token="17"), listed(node("n2"), node("n3"))
    result, requests = run("nodes list --json", first, second)
    assert [request.page_token for request in requests] == ["", "17"]
    shown = json.loads(result.stdout)
    assert [each["node_id"] for each in shown["nodes"]] == ["n1", "n2", "n3"]
    assert list(shown) == ["nodes"]


def test_json_has_the_field_names_of_the_contract_names_of_enums_and_plain_numbers() -> None:
    result, _ = run("--json nodes list", listed(node(epoch=7, last_heartbeat_ms=1_700_000_000_000)))
    shown = json.loads(result.stdout)["nodes"][0]
    assert shown["health"] == "READY"
    assert shown["epoch"] == 7
    assert shown["last_heartbeat_ms"] == 1_700_000_000_000
    assert shown["drained_by_operator"] is False
    assert "capabilities" not in shown


def test_a_heartbeat_from_a_clock_that_is_ahead_is_heard_now() -> None:
    ahead = node(last_heartbeat_ms=int(time.time() * 1000) + 60_000)
    result, _ = run("nodes list", listed(ahead))
    assert " 0s ago " in result.stdout


def test_show_has_languages_and_leases() -> None:
    able = common_pb2.NodeCapabilities(
        asr_langs=["en", "zh"],
        semantic_langs=["en"],
        tts_langs=["fr"],
        nmt_pairs=[common_pb2.LanguagePair(src="en", tgt="fr")],
    )
    lease = pool_pb2.Lease(
        attempt=common_pb2.AttemptRef(job_id="job-9", attempt=2),
        running=True,
        ends_ms=int(time.time() * 1000) + 20_500,
    )
    shown = pool_pb2.GetNodeResponse(node=node(capabilities=able), leases=[lease])
    result, requests = run("nodes show n1", Answer("GetNode", shown))
    assert requests[0].node_id == "n1"
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    assert ["recognises", "en zh"] in lines
    assert ["repairs", "en"] in lines
    assert ["translates", "en:fr"] in lines
    assert ["speaks", "fr"] in lines
    assert ["slots", "1 reserved + 2 running of 8"] in lines
    assert result.stdout.splitlines()[-1].split()[:4] == ["job-9", "2", "running", "in"]


def test_show_as_json_is_the_response() -> None:
    response = pool_pb2.GetNodeResponse(node=node())
    result, _ = run("nodes show n1 --json", Answer("GetNode", response))
    shown = json.loads(result.stdout)
    assert shown["node"]["node_id"] == "n1"
    assert shown["leases"] == []


def test_drain_is_an_operators_wish() -> None:
    drained = node(health=common_pb2.NODE_HEALTH_DRAINING, drained_by_operator=True)
    answer = Answer("SetNodeHealth", pool_pb2.SetNodeHealthResponse(node=drained))
    result, requests = run("nodes drain n1", answer)
    assert requests[0] == pool_pb2.SetNodeHealthRequest(
        node_id="n1", health=common_pb2.NODE_HEALTH_DRAINING, by_operator=True
    )
    assert "n1 is drained" in result.stdout
    assert "still has 3" in result.stdout


def draining(used: int, **fields: Any) -> pool_pb2.Node:
    """A node that was drained a minute ago, when three of its slots were in use."""
    values: dict[str, Any] = {
        "health": common_pb2.NODE_HEALTH_DRAINING,
        "drained_by_operator": True,
        "drained_ms": int(time.time() * 1000) - 60_000,
        "slots_used_at_drain": 3,
        "used_slots": used,
        "reserved": 0,
        "running": used,
    }
    return node(**{**values, **fields})


def drained(used: int) -> Answer:
    return Answer("SetNodeHealth", pool_pb2.SetNodeHealthResponse(node=draining(used)))


def polled(used: int, **fields: Any) -> Answer:
    return Answer("GetNode", pool_pb2.GetNodeResponse(node=draining(used, **fields)))


def test_drain_can_wait_until_the_node_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_command, "_POLL_S", 0.01)
    result, requests = run("nodes drain n1 --wait", drained(3), polled(3), polled(1), polled(0))
    assert result.exit_code == 0
    assert result.stdout == "n1 is drained: it gets no new jobs and has none now\n"
    assert requests[1:] == [pool_pb2.GetNodeRequest(node_id="n1")] * 3
    result, _ = run("nodes drain n1 --wait --json", drained(1), polled(0))
    assert json.loads(result.stdout)["node"]["used_slots"] == 0


def test_drain_waits_also_at_a_service_that_counts_no_used_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes_command, "_POLL_S", 0.01)
    # As a service of an earlier version answers.
    older = {"used_slots": 0, "drained_ms": 0, "slots_used_at_drain": 0}
    busy = pool_pb2.SetNodeHealthResponse(node=draining(2, **older))
    answers = (Answer("SetNodeHealth", busy), polled(1, **older), polled(0, **older))
    result, requests = run("nodes drain n1 --wait", *answers)
    assert (result.exit_code, len(requests)) == (0, 3)


def test_drain_asks_no_more_if_the_node_is_empty_at_once() -> None:
    result, requests = run("nodes drain n1 --wait", drained(0))
    assert (result.exit_code, len(requests)) == (0, 1)


def test_drain_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_command, "_POLL_S", 60.0)
    result, _ = run("nodes drain n1 --wait --within 0.05", drained(3), polled(2))
    assert result.exit_code == 1
    assert "n1 is not empty after 0.05 s (slots in use: 2); it stays drained" in result.stderr


def test_drain_waits_for_no_node_that_was_made_ready_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes_command, "_POLL_S", 0.01)
    again = polled(2, drained_by_operator=False)
    result, _ = run("nodes drain n1 --wait --json", drained(3), again)
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"]["reason"] == "NOT_DRAINED"


def test_a_time_limit_of_a_drain_needs_something_to_wait_for() -> None:
    result, requests = run("nodes drain n1 --within 5")
    assert (result.exit_code, requests) == (2, [])
    assert "--within needs --wait" in result.stderr


@pytest.mark.parametrize(
    ("used", "fields", "words"),
    [
        (2, {}, "2 of 3 jobs left, began 60s ago"),
        (0, {}, "empty, began 60s ago"),
        # Drained through a service of an earlier version.
        (2, {"drained_ms": 0}, "2 jobs left"),
        (1, {"drained_ms": 0}, "1 job left"),
    ],
)
def test_show_says_how_far_a_drain_is(used: int, fields: dict[str, int], words: str) -> None:
    result, _ = run("nodes show n1", polled(used, **fields))
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("drain "))
    assert line.split(maxsplit=1)[1] == words
    result, _ = run("nodes show n1", Answer("GetNode", pool_pb2.GetNodeResponse(node=node())))
    assert "\ndrain" not in result.stdout


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (common_pb2.NODE_HEALTH_READY, "n1 is ready: it gets jobs"),
        (common_pb2.NODE_HEALTH_OFFLINE, "n1 is no longer drained, but it is offline"),
    ],
)
def test_ready_takes_the_wish_back_and_says_what_the_node_is_now(
    health: common_pb2.NodeHealth.ValueType, words: str
) -> None:
    response = pool_pb2.SetNodeHealthResponse(node=node(health=health))
    result, requests = run("nodes ready n1", Answer("SetNodeHealth", response))
    assert requests[0].health == common_pb2.NODE_HEALTH_READY
    assert requests[0].by_operator
    assert words in result.stdout


def test_show_names_the_cell_if_it_is_not_the_first() -> None:
    for number, lines in ((3, ["cell 3"]), (0, [])):
        shown = pool_pb2.GetNodeResponse(node=node(cell=number))
        result, _ = run("nodes show n1", Answer("GetNode", shown))
        words = [" ".join(line.split()) for line in result.stdout.splitlines()]
        assert [line for line in words if line.startswith("cell")] == lines


def test_remove_needs_yes_where_nobody_can_be_asked() -> None:
    result, requests = run("nodes remove n1")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert not requests


def test_remove_with_yes_removes() -> None:
    answer = Answer("RemoveNode", pool_pb2.RemoveNodeResponse(removed=True, pools_left=4))
    result, requests = run("nodes remove n1 --yes --json", answer)
    assert requests == [pool_pb2.RemoveNodeRequest(node_id="n1")]
    assert json.loads(result.stdout) == {"removed": True, "pools_left": 4}


def test_remove_asks_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_command, "_can_ask", lambda: True)
    answer = Answer("RemoveNode", pool_pb2.RemoveNodeResponse(removed=True, pools_left=4))
    result, _ = run("nodes remove n1", answer, typed="y\n")
    assert "Remove n1?" in result.stderr
    assert result.stdout == "n1 is removed; it was in 4 pools\n"


def test_remove_does_nothing_unless_the_answer_is_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes_command, "_can_ask", lambda: True)
    result, requests = run("nodes remove n1", typed="n\n")
    assert result.exit_code == 1
    assert not requests


def test_removing_what_is_not_there_is_not_found() -> None:
    result, _ = run("nodes remove n1 --yes", Answer("RemoveNode", pool_pb2.RemoveNodeResponse()))
    assert result.exit_code == 4
    assert "there is no node 'n1'" in result.stderr


def test_a_node_that_is_not_known_is_exit_code_4() -> None:
    error = errors.NodeNotFoundError("there is no node 'n1'")
    result, _ = run("nodes show n1", Answer("GetNode", error=error))
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: there is no node 'n1'; 'lingua nodes list' shows those that exist\n"
    )
    assert result.stdout == ""


def test_an_error_with_json_is_an_object_on_stderr_and_nothing_on_stdout() -> None:
    error = errors.NodeNotFoundError("there is no node 'n1'")
    result, _ = run("nodes show n1 --json", Answer("GetNode", error=error))
    told = json.loads(result.stderr)["error"]
    assert told["reason"] == "NODE_NOT_FOUND"
    assert "there is no node 'n1'" in told["message"]
    assert result.stdout == ""
    assert result.exit_code == 4


def test_wrong_usage_with_json_is_an_object_too() -> None:
    result, _ = run("nodes list --json --health well")
    assert json.loads(result.stderr)["error"]["reason"] == "USAGE"
    assert result.exit_code == 2


def test_a_redis_that_is_down_is_exit_code_3() -> None:
    error = errors.DependencyDownError("Redis is down: connection refused")
    result, _ = run("nodes list", Answer("ListNodes", error=error))
    assert result.exit_code == 3
    assert "pool.test:7710 answers, but its Redis does not" in result.stderr


def test_a_service_that_is_not_there_is_exit_code_3_and_says_what_to_do() -> None:
    refused = "failed to connect to all addresses; last error: connect: Connection refused (111)"
    answer = Answer("ListNodes", code=grpc.StatusCode.UNAVAILABLE, details=refused)
    result, _ = run("nodes list", answer)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: cannot reach the pool service at pool.test:7710: connection refused. Is it "
        "running? Start it with 'lingua up', or set LINGUA_POOL_ADDRESS or --pool\n"
    )


def test_no_answer_in_time_is_exit_code_3() -> None:
    # A real channel: that of grpc_testing knows no deadlines.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        args = ["--timeout", "0.1", "nodes", "list", "--pool", address]
        result = CliRunner().invoke(app, args)
    assert result.exit_code == 3
    assert f"no answer from the pool service at {address} within 0.1 s" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidMessageError("node_id: 'a b' must be ..."), 2),
        (errors.NodeEpochOldError("a newer connection exists"), 1),
        (errors.InternalError("see the log"), 1),
        (errors.DrainingError("going away"), 3),
    ],
)
def test_what_the_service_says_is_shown_as_it_is(error: errors.LinguaError, code: int) -> None:
    result, _ = run("nodes drain n1", Answer("SetNodeHealth", error=error))
    assert result.stderr == f"Error: {error.message}\n"
    assert result.exit_code == code


def test_another_server_at_the_address_is_named_as_such() -> None:
    result, _ = run("pools", Answer("ListPools", code=grpc.StatusCode.UNIMPLEMENTED))
    assert "is not a pool service" in result.stderr
    assert result.exit_code == 1


def test_pools_are_a_matrix_of_nodes_and_free_slots() -> None:
    answer = pools_of(("en", "zh", 2, 2, 8, 7), ("zh", "en", 3, 2, 8, 0))
    result, requests = run("pools", answer)
    assert requests[0] == pool_pb2.ListPoolsRequest(page_size=500)
    lines = [line.split() for line in result.stdout.splitlines()[:3]]
    assert lines == [["SRC\\TGT", "en", "zh"], ["en", "-", "2", "7/8"], ["zh", "3", "0/8", "-"]]


def test_pools_asks_for_the_languages_and_text() -> None:
    result, requests = run("pools --src zh --tgt en --text", pools_of())
    assert requests[0] == pool_pb2.ListPoolsRequest(src="zh", tgt="en", text=True, page_size=500)
    assert result.stdout == "no text pools match\n"


LIST = [["SRC", "TGT", "NODES", "READY", "FREE/SLOTS"], ["en", "zh", "2", "1", "3/4"]]


def lines_of(result: Result) -> Sequence[list[str]]:
    return [line.split() for line in result.stdout.splitlines()]


def test_pools_are_a_list_when_asked() -> None:
    result, _ = run("pools --list", pools_of(("en", "zh", 2, 1, 4, 3)))
    assert lines_of(result) == LIST


def test_pools_are_a_list_where_the_matrix_is_wider_than_the_terminal() -> None:
    answer = pools_of(("en", "zh", 2, 1, 4, 3))
    result, _ = run("pools", answer, env={"COLUMNS": "12"})
    assert lines_of(result) == LIST


def test_pools_of_all_pages_are_shown_once_and_in_order() -> None:
    zh, en = ("zh", "en", 1, 1, 2, 2), ("en", "zh", 1, 1, 2, 2)
    result, requests = run("pools --json", pools_of(zh, token="17"), pools_of(en, zh))
    assert [request.page_token for request in requests] == ["", "17"]
    shown = json.loads(result.stdout)
    assert [each["pair"]["src"] for each in shown["pools"]] == ["en", "zh"]
    assert not shown["more"]


def test_no_more_pools_are_read_than_can_be_shown() -> None:
    codes = [f"q{a}{b}" for a in "abcd" for b in "abcdefghijklmnopqrstuvwxyz"]
    page = pools_of(*((src, tgt, 1, 1, 2, 2) for src in codes for tgt in codes), token="17")
    result, requests = run("pools --list", page)
    assert len(requests) == 1
    assert len(lines_of(result)) == 1 + MAX_POOLS
    assert result.stderr == "There may be more: --src and --tgt narrow the choice.\n"


def test_pools_as_json_are_the_response() -> None:
    result, _ = run("pools --json", pools_of(("en", "zh", 2, 1, 4, 3)))
    assert json.loads(result.stdout)["pools"] == [
        {
            "pair": {"src": "en", "tgt": "zh"},
            "text": False,
            "shards": 1,
            "nodes": 2,
            "ready_nodes": 1,
            "slots": 4,
            "free_slots": 3,
        }
    ]


def test_an_option_takes_several_addresses_as_the_settings_do() -> None:
    # A real channel: that of grpc_testing looks at no address.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        args = ["--timeout", "0.1", "nodes", "list", "--pool", f"{address},{address}"]
        result = CliRunner().invoke(app, args)
    assert f"no answer from the pool service at {address},{address} within" in result.stderr


@pytest.mark.parametrize(
    "args",
    ["--pool nope nodes list", "nodes list --pool host:0", "nodes list --pool host:1,host:2"],
)
def test_an_address_that_cannot_be_one_is_wrong_usage(args: str) -> None:
    result, _ = run(args)
    assert result.exit_code == 2
    assert "must be host:port" in result.stderr


@pytest.mark.parametrize("pair", ["zh", "zh:", ":en"])
def test_a_pair_that_cannot_be_one_is_wrong_usage(pair: str) -> None:
    result, _ = run(f"nodes list --pair {pair}")
    assert result.exit_code == 2
    assert "two languages such as zh:en" in result.stderr
