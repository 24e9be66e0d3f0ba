"""`lingua up` with real processes: what it starts, how it ends, and that it leaves nothing."""

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import grpc
import pytest
from redis import Redis

from lingua_scheduler.cli.up.errors import PartFailedError
from lingua_scheduler.cli.up.local_scheduler import SERVICES, LocalScheduler
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.commands import WITHIN_S, Start, becomes, environment, lingua

TOPOLOGIES = pytest.mark.parametrize("split", [False, True], ids=["all_in_one", "split"])


def runs(pid: int) -> bool:
    """Whether the process lives; one that only waits for its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] != "Z"
    return True


def gone(*pids: int) -> bool:
    """Waits until none of the processes runs."""
    return becomes(lambda: not any(runs(pid) for pid in pids))


def redis_pid(url: str) -> int:
    with Redis.from_url(url) as client:
        return int(client.info("server")["process_id"])


def register(address: str, node_id: str) -> None:
    request = pool_pb2.RegisterNodeRequest(
        node_id=node_id,
        incarnation="i1",
        stream_id="s1",
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=["zh", "en"],
            semantic_langs=["zh", "en"],
            tts_langs=["zh", "en"],
            nmt_pairs=[
                common_pb2.LanguagePair(src="zh", tgt="en"),
                common_pb2.LanguagePair(src="en", tgt="zh"),
            ],
        ),
        max_concurrent_jobs=4,
        owner_instance="test",
    )
    with grpc.insecure_channel(address) as channel:
        pool_pb2_grpc.PoolServiceStub(channel).RegisterNode(request, timeout=10)


def test_it_ends_by_itself_after_the_seconds_and_says_what_ran() -> None:
    ended = lingua("up", "--seconds", "0.2")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("Talk   http://127.0.0.1:")
    assert "\nRedis  embedded " in ended.stdout
    assert "temporary folder" in ended.stdout
    assert "  export LINGUA_POOL_ADDRESS=127.0.0.1:" in ended.stdout
    assert "lingua nodes list" in ended.stdout
    assert "all | " in ended.stderr
    assert "is taken" not in ended.stdout
    # In a pipe there is no live status.
    assert "\x1b" not in ended.stdout + ended.stderr
    assert ended.stdout.endswith("Ctrl-C ends it now.\nEverything has ended.\n")


def test_ctrl_c_ends_everything_with_exit_code_0(up: Start) -> None:
    running = up()
    told = running.ready()
    pids = [told["services"][0]["pid"], redis_pid(told["redis"])]
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 0
    assert gone(*pids)
    assert "draining" in running.log()
    assert "ended" in running.log()


def test_ctrl_c_while_it_waits_for_redis_ends_it_too(up: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        running = up(LINGUA_REDIS_URL=f"redis://:hush@127.0.0.1:{port}/0")
        assert becomes(lambda: "waiting: Redis" in running.log())
        running.process.send_signal(signal.SIGTERM)
        assert running.end() == 0
    assert "hush" not in running.log()


def test_a_redis_that_is_not_there_ends_it_in_time_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        port = once.getsockname()[1]
    logged: list[str] = []
    environ = environment(LINGUA_REDIS_URL=f"redis://:hush@127.0.0.1:{port}/0")
    scheduler = LocalScheduler(environ=environ, on_log=lambda _name, line: logged.append(line))
    with pytest.raises(PartFailedError, match=r"Tried for 0\.5 s\. Start it, or correct") as caught:
        scheduler.start_redis(within_s=0.5)
    assert caught.value.exit_code == 3
    assert "waiting: Redis" in logged[0]
    assert "hush" not in f"{caught.value} {logged}"


def test_a_redis_that_refuses_the_password_ends_it_at_once_with_what_to_do() -> None:
    with EmbeddedRedis() as redis:
        with Redis.from_url(redis.url) as client:
            client.config_set("requirepass", "secret")
        url = redis.url.replace("redis://", "redis://:wrong@")
        ended = lingua("up", LINGUA_REDIS_URL=url)
    assert ended.returncode == 2, ended.stderr
    assert "password is wrong: write it into LINGUA_REDIS_URL" in ended.stderr
    assert "wrong@" not in ended.stderr


@TOPOLOGIES
def test_every_instance_answers_at_an_address_of_its_own(up: Start, split: bool) -> None:
    told = up("--instances", "2", *(["--split"] if split else [])).ready()
    names = [each["name"] for each in told["services"]]
    assert names == [
        f"{service}-{n}" for service in ("pool", "dispatcher", "gateway") for n in (1, 2)
    ]
    addresses = {each[what] for each in told["services"] for what in ("address", "metrics")}
    assert len(addresses) == 12
    assert len({each["pid"] for each in told["services"]}) == (6 if split else 2)
    first, second = told["services"][:2]
    register(first["address"], "n1")
    shown = lingua("nodes", "list", "--json", "--pool", second["address"])
    assert [node["node_id"] for node in json.loads(shown.stdout)["nodes"]] == ["n1"]


def test_every_instance_knows_all_instances_of_the_services_before_it_its_own_number_first(
    up: Start,
) -> None:
    running = up("--instances", "2", "--split")
    at = {each["name"]: each["address"] for each in running.ready()["services"]}
    pools = [at["pool-1"], at["pool-2"]]
    connected = "peer connected peer=pool"
    assert becomes(lambda: running.log().count(connected) == 2)
    said = {line.split(" | ")[0]: line for line in running.log().splitlines() if connected in line}
    assert f" address={pools[0]},{pools[1]}" in said["dispatcher-1"]
    assert f" address={pools[1]},{pools[0]}" in said["dispatcher-2"]


def test_services_that_have_no_ipv4_address_are_named_one_by_one() -> None:
    environ = environment(LINGUA_POOL_LISTEN="localhost:0")
    with LocalScheduler(instances=2, environ=environ) as scheduler:
        pools = [scheduler.address("pool", number) for number in (1, 2)]
        assert [scheduler.addresses("pool", number) for number in (1, 2)] == pools
        assert all(address.startswith("localhost:") for address in pools)
        assert len(scheduler.addresses("dispatcher").split(",")) == 2


def test_a_taken_port_makes_way_for_a_free_one(up: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = up(LINGUA_POOL_LISTEN=address).ready()
    assert told["services"][0]["address"] != address
    assert told["notes"] == [f"{address} is in use: pool listens on a free port instead"]


def test_a_bad_setting_is_exit_code_2_with_its_name() -> None:
    ended = lingua("up", LINGUA_SAMPLE_K="many")
    assert ended.returncode == 2
    assert "LINGUA_SAMPLE_K='many'" in ended.stderr
    assert ended.stdout == ""


def test_a_setting_that_only_the_service_can_judge_is_exit_code_2_too() -> None:
    # 192.0.2.1 is reserved for documentation: no machine has it.
    ended = lingua("up", LINGUA_POOL_LISTEN="192.0.2.1:7710", LINGUA_LISTEN_WITHOUT_AUTH="yes")
    assert ended.returncode == 2
    assert "could not start: exit code 2" in ended.stderr
    assert "LINGUA_POOL_LISTEN" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_service_that_is_killed_comes_back_at_the_same_addresses(up: Start) -> None:
    running = up("--instances", "2", "--split")
    services = {each["name"]: each for each in running.ready()["services"]}
    for name in ("pool-2", "dispatcher-1", "gateway-2"):
        killed = services[name]
        os.kill(killed["pid"], signal.SIGKILL)
        assert becomes(lambda name=name: f"{name} | is back at" in running.log()), running.log()
        words = f"{name} | pid {killed['pid']} ended unexpectedly: killed by SIGKILL; restarting it"
        assert words in running.log()
        assert f"{name} | is back at {killed['address']} (pid" in running.log()
    asked = lingua(
        "health",
        LINGUA_POOL_ADDRESS=services["pool-2"]["address"],
        LINGUA_DISPATCHER_ADDRESS=services["dispatcher-1"]["address"],
        LINGUA_GATEWAY_ADDRESS=services["gateway-2"]["address"],
    )
    assert asked.returncode == 0, asked.stdout
    with socket.create_connection(_host_and_port(services["pool-2"]["metrics"]), timeout=WITHIN_S):
        pass
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 0


def test_a_process_of_all_services_that_is_killed_comes_back_at_the_same_addresses(
    up: Start,
) -> None:
    running = up("--instances", "2")
    second = [each for each in running.ready()["services"] if each["name"].endswith("-2")]
    (pid,) = {each["pid"] for each in second}
    os.kill(pid, signal.SIGKILL)
    where = ", ".join(each["address"] for each in second)
    assert becomes(lambda: f"all-2 | is back at {where} (pid" in running.log()), running.log()
    words = f"all-2 | pid {pid} ended unexpectedly: killed by SIGKILL; restarting it"
    assert words in running.log()
    asked = lingua(
        "health",
        **{f"LINGUA_{each['service'].upper()}_ADDRESS": each["address"] for each in second},
    )
    assert asked.returncode == 0, asked.stdout
    for each in second:
        with socket.create_connection(_host_and_port(each["metrics"]), timeout=WITHIN_S):
            pass
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 0


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@pytest.mark.long
def test_a_service_that_cannot_stay_up_ends_all_with_exit_code_1_and_clear_words(
    up: Start,
) -> None:
    running = up()
    told = running.ready()
    server = redis_pid(told["redis"])
    # Somebody else sits on its port, so that no later process of it can start.
    host, port = _host_and_port(told["services"][0]["address"])
    os.kill(told["services"][0]["pid"], signal.SIGKILL)
    with contextlib.ExitStack() as stack:
        assert becomes(lambda: _sits_on(stack, host, port))
        assert running.end() == 1
    assert gone(server)
    error = json.loads(running.log().splitlines()[-1])["error"]
    assert "all (pid " in error["message"]
    assert "cannot stay up" in error["message"]
    assert "LINGUA_POOL_LISTEN" in error["message"], "the last lines of its log"


def _sits_on(stack: contextlib.ExitStack, host: str, port: int) -> bool:
    try:
        stack.enter_context(socket.create_server((host, port)))
    except OSError:
        return False
    return True


def test_a_redis_that_is_killed_ends_all_with_exit_code_1(up: Start) -> None:
    running = up()
    told = running.ready()
    os.kill(redis_pid(told["redis"]), signal.SIGKILL)
    assert running.end() == 1
    assert gone(told["services"][0]["pid"])
    assert "the embedded Redis" in running.log()


def test_killed_itself_it_leaves_no_process_behind(up: Start) -> None:
    running = up("--instances", "2")
    told = running.ready()
    pids = [redis_pid(told["redis"]), *(each["pid"] for each in told["services"])]
    running.process.kill()
    running.process.wait(WITHIN_S)
    assert gone(*pids)


def test_a_second_ctrl_c_kills_at_once(up: Start) -> None:
    running = up(LINGUA_DRAIN_GRACE_MS="600000")
    told = running.ready()
    pid = told["services"][0]["pid"]
    # A service that is stopped cannot drain.
    os.kill(pid, signal.SIGSTOP)
    running.process.send_signal(signal.SIGINT)
    assert becomes(lambda: "once more kills" in running.log())
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 1
    assert gone(pid)


def test_health_asks_each_of_several_addresses(up: Start) -> None:
    services = up("--instances", "2").ready()["services"]
    lists = {
        f"LINGUA_{service.upper()}_ADDRESS": ",".join(
            each["address"] for each in services if each["service"] == service
        )
        for service in SERVICES
    }
    asked = lingua("health", **lists)
    assert asked.returncode == 0, asked.stdout
    expected = [[each["service"], each["address"], "SERVING"] for each in services]
    assert [line.split() for line in asked.stdout.splitlines()] == expected

    with socket.create_server(("127.0.0.1", 0)) as once:
        nobody = f"127.0.0.1:{once.getsockname()[1]}"
    pools = f"{lists['LINGUA_POOL_ADDRESS']}, {nobody}"
    for where in ([pools], ["--service", "pool", "--pool", pools.replace(" ", "")]):
        asked = lingua("health", "--json", *where)
        assert asked.returncode == 3
        told = json.loads(asked.stdout)["health"]
        assert [(each["address"], each["exit_code"]) for each in told] == [
            (services[0]["address"], 0),
            (services[1]["address"], 0),
            (nobody, 3),
        ]


def test_the_client_commands_work_on_what_runs(up: Start) -> None:
    # The node sends no heartbeats, and the commands take a while.
    address = up(LINGUA_HEARTBEAT_STALE_MS="600000").ready()["services"][0]["address"]
    register(address, "n1")

    def ask(*args: str) -> str:
        ended = lingua(*args, LINGUA_POOL_ADDRESS=address)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert ask("nodes", "list", "--pair", "zh:en").splitlines()[1].split()[:3] == [
        "n1",
        "ready",
        "0/4",
    ]
    assert "recognises" in ask("nodes", "show", "n1")
    assert "has none now" in ask("nodes", "drain", "n1", "--wait", "--within", "30")
    assert "empty, began" in ask("nodes", "show", "n1")
    assert "draining (drained)" in ask("nodes", "list")
    assert "n1 is ready" in ask("nodes", "ready", "n1")
    assert "1  4/4" in ask("pools")
    assert "n1 is removed" in ask("nodes", "remove", "n1", "--yes")
    assert lingua("nodes", "show", "n1", LINGUA_POOL_ADDRESS=address).returncode == 4
    assert lingua("nodes", "show", "a b", LINGUA_POOL_ADDRESS=address).returncode == 2


def test_without_a_service_a_client_command_is_exit_code_3() -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        address = f"127.0.0.1:{once.getsockname()[1]}"
    ended = lingua("nodes", "list", LINGUA_POOL_ADDRESS=address)
    assert ended.returncode == 3
    assert f"cannot reach the pool service at {address}: connection refused" in ended.stderr


def test_data_in_a_folder_outlives_the_run(tmp_path: Path) -> None:
    environ = environment(LINGUA_REDIS_DIR=str(tmp_path / "data"))
    with LocalScheduler(environ=environ) as scheduler:
        register(scheduler.address("pool"), "n1")
        assert str(tmp_path) in scheduler.redis_words
    with LocalScheduler(environ=environ) as scheduler:
        shown = lingua("nodes", "show", "n1", "--json", "--pool", scheduler.address("pool"))
    assert json.loads(shown.stdout)["node"]["node_id"] == "n1"


def test_from_a_program_a_service_that_cannot_start_is_an_exception_and_leaves_nothing() -> None:
    listen = {"LINGUA_POOL_LISTEN": "192.0.2.1:7710", "LINGUA_LISTEN_WITHOUT_AUTH": "yes"}
    scheduler = LocalScheduler(environ=environment(**listen))
    with pytest.raises(PartFailedError, match="LINGUA_POOL_LISTEN"):
        scheduler.start()
    assert scheduler.services == []


def test_services_load_side_by_side_and_each_is_named_when_it_is_ready() -> None:
    loading: dict[str, int] = {}

    def on_ready(name: str) -> None:
        loading[name] = sum(each.runs and not each.endpoints for each in scheduler.processes)

    scheduler = LocalScheduler(split=True, environ=environment(), on_ready=on_ready)
    with scheduler:
        pass
    assert loading == {"redis": 0, "pool": 2, "dispatcher": 1, "gateway": 0}


@TOPOLOGIES
def test_instances_with_one_given_name_do_not_share_it(split: bool) -> None:
    logged: list[str] = []
    environ = environment(LINGUA_INSTANCE_ID="box", LINGUA_LOG_FORMAT="json")
    with LocalScheduler(
        instances=2, split=split, environ=environ, on_log=lambda _name, line: logged.append(line)
    ):
        pass
    lines = [json.loads(line) for line in logged]
    names = {(each["service"], each["instance"]) for each in lines}
    expected = {(service, f"box-{n}-{service}") for service in SERVICES for n in (1, 2)}
    # Some lines are of the process, not of one of its services.
    assert names == expected | (set() if split else {("all", "box-1"), ("all", "box-2")})
