"""`lingua sessions`: requests to the gateway, and the output for its answers."""

import json
import time
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import common_pb2, session_pb2
from tests.unit.cli.test_clients import Answer, run

T0 = 1_700_000_000_000


def session(session_id: str = "s1", **fields: Any) -> session_pb2.Session:
    values: dict[str, Any] = {
        "gateway_instance": "g1",
        "epoch": 1,
        "opened_ms": T0,
        "last_chunk_ms": T0 + 5000,
        "next_utterance_index": 6,
        "waiting": [4, 5],
        "results": 3,
        "missing": 1,
        "connected": True,
    }
    return session_pb2.Session(session_id=session_id, **{**values, **fields})


def listed(*sessions: session_pb2.Session, token: str = "") -> Answer:
    response = session_pb2.ListSessionsResponse(sessions=sessions, next_page_token=token)
    return Answer("ListSessions", response)


def shown(found: session_pb2.Session) -> Answer:
    return Answer("GetSession", session_pb2.GetSessionResponse(session=found))


def test_list_shows_each_session_on_an_aligned_line() -> None:
    now = int(time.time() * 1000)
    talking = session("s2", opened_ms=now - 60_500, last_chunk_ms=now - 2500, tenant="t1")
    gone = session(gateway_instance="", connected=False, last_chunk_ms=0, waiting=[])
    result, _ = run("sessions list", listed(gone, talking))
    head, *lines = (line.split() for line in result.stdout.splitlines())
    assert " ".join(head) == (
        "SESSION CLIENT TENANT UTTERANCES WAITING RESULTS MISSING AGE AUDIO GATEWAY"
    )
    assert lines[0] == ["s2", "connected", "t1", "6", "2", "3", "1", "60s", "2s", "ago", "g1"]
    assert lines[1][:7] == ["s1", "away", "-", "6", "0", "3", "1"]
    assert lines[1][8:] == ["never", "-"]
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


def test_list_asks_for_what_was_named() -> None:
    result, requests = run("sessions list --tenant t1 --limit 7", listed())
    assert requests[0] == session_pb2.ListSessionsRequest(tenant="t1", page_size=7)
    assert result.stdout == "no sessions match\n"


def test_list_without_a_tenant_asks_for_all() -> None:
    result, requests = run("sessions list", listed())
    assert requests[0] == session_pb2.ListSessionsRequest(page_size=100)
    assert result.stdout == "there are no sessions\n"


def test_list_reads_pages_to_the_end_and_shows_each_session_once_and_the_newest_first() -> None:
    pages = (
        listed(session("old"), token="17"),
        listed(token="18"),
        listed(session("new", opened_ms=T0 + 5), session("old")),
    )
    result, requests = run("sessions list --json", *pages)
    assert [request.page_token for request in requests] == ["", "17", "18"]
    told = json.loads(result.stdout)
    assert [each["session_id"] for each in told["sessions"]] == ["new", "old"]
    assert told["sessions"][0]["waiting"] == [4, 5]
    assert told["more"] is False


def test_list_reads_no_page_beyond_the_limit_and_says_that_there_may_be_more() -> None:
    full = listed(session("a"), session("b"), token="17")
    result, requests = run("sessions list --limit 2", full)
    assert len(requests) == 1
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["SESSION", "a", "b"]
    assert "--limit" in result.stderr


def test_list_cuts_a_page_that_has_more_than_was_asked_for() -> None:
    result, _ = run("sessions list --limit 1 --json", listed(session("a"), session("b")))
    told = json.loads(result.stdout)
    assert len(told["sessions"]) == 1
    assert told["more"] is True


def test_show_has_every_fact_and_says_where_the_jobs_are() -> None:
    result, requests = run("sessions show s1", shown(session(tenant="t1")))
    assert requests == [session_pb2.GetSessionRequest(session_id="s1")]
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    for fact in (
        ["session", "s1"],
        ["client", "connected"],
        ["tenant", "t1"],
        ["gateway", "g1"],
        ["epoch", "1"],
        ["utterances", "6"],
        ["waiting", "4 5"],
        ["results", "3"],
        ["missing", "1"],
    ):
        assert fact in lines
    assert "2023-11-14 22:13:20.000 UTC" in result.stdout
    assert "lingua jobs list --session s1" in result.stdout


def test_show_says_which_node_holds_a_turn_and_how_often() -> None:
    turn = session_pb2.SessionTurn(
        direction=common_pb2.LanguagePair(src="en", tgt="es"), node_id="n7", holds_in_row=3
    )
    result, _ = run("sessions show s1", shown(session(turns=[turn])))
    assert "en->es next utterance goes to n7, held over 3 pauses in a row" in result.stdout


@pytest.mark.parametrize(
    ("waiting", "words"),
    [([], "none"), (range(25), f"{' '.join(map(str, range(20)))} and 5 more")],
)
def test_what_waits_is_named_within_reason(waiting: Any, words: str) -> None:
    result, _ = run("sessions show s1", shown(session(waiting=waiting)))
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines() if line]
    assert ["waiting", words] in lines


def test_show_as_json_is_the_response() -> None:
    result, _ = run("sessions show s1 --json", shown(session()))
    told = json.loads(result.stdout)["session"]
    assert told["opened_ms"] == T0
    assert told["connected"] is True


def test_a_session_that_is_not_known_is_exit_code_4() -> None:
    error = errors.SessionNotFoundError("there is no session 's1', or it was forgotten")
    result, _ = run("sessions show s1", Answer("GetSession", error=error))
    assert result.exit_code == 4
    assert result.stderr == (
        "Error: there is no session 's1', or it was forgotten; 'lingua sessions list' shows those "
        "that exist\n"
    )


def test_a_gateway_that_is_not_there_is_exit_code_3_and_says_what_to_do() -> None:
    refused = "failed to connect to all addresses; last error: connect: Connection refused (111)"
    answer = Answer("ListSessions", code=grpc.StatusCode.UNAVAILABLE, details=refused)
    result, _ = run("sessions list", answer)
    assert result.exit_code == 3
    assert result.stderr == (
        "Error: cannot reach the session gateway at gateway.test:7730: connection refused. Is it "
        "running? Start it with 'lingua up', or set LINGUA_GATEWAY_ADDRESS or --gateway\n"
    )
