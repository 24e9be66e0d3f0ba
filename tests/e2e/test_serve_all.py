"""`lingua serve all`: what it prints, where it listens, and how it ends."""

import json
import signal
import socket
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.server_link import CONNECTIONS
from tests.support.all_in_one import SERVICES, AllInOneProcess
from tests.support.commands import LinguaProcess, becomes, lingua
from tests.support.node_process import NodeProcess
from tests.support.scheduler import SETTINGS
from tests.support.speaker import sentences, speaking


class ServeAll(LinguaProcess):
    """A `lingua serve all --announce`."""

    def __init__(self, *, redis_url: str, prefix: str, **variables: str) -> None:
        given = {"LINGUA_REDIS_URL": redis_url, "LINGUA_REDIS_PREFIX": prefix, **variables}
        super().__init__("serve", "all", "--announce", **given)

    def announced(self) -> dict[str, dict[str, Any]]:
        """Waits until all services are ready; returns what each line says, by service."""
        self.wait_for(lambda: self.output().count("\n") == len(SERVICES), "ready", 60)
        told = [json.loads(line) for line in self.output().splitlines()]
        assert [each["service"] for each in told] == list(SERVICES)
        return {each["service"]: each for each in told}

    def events(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log().splitlines()]


@pytest.fixture
def prefix() -> str:
    """Keys of one test."""
    return f"test:{uuid.uuid4().hex[:8]}"


@pytest.fixture
def own_redis() -> Iterator[EmbeddedRedis]:
    """A Redis that a test can stop."""
    with EmbeddedRedis() as server:
        yield server


def metrics_of(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return str(response.read().decode())


def addresses_of(told: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {f"LINGUA_{name.upper()}_ADDRESS": each["address"] for name, each in told.items()}


def test_each_service_has_its_own_port_health_and_metrics(redis_url: str, prefix: str) -> None:
    with ServeAll(redis_url=redis_url, prefix=prefix, LINGUA_INSTANCE_ID="box") as running:
        told = running.announced()
        assert {each["pid"] for each in told.values()} == {running.process.pid}
        asked = lingua("health", **addresses_of(told))
        assert asked.returncode == 0, asked.stdout
        expected = [[name, each["address"], "SERVING"] for name, each in told.items()]
        assert [line.split() for line in asked.stdout.splitlines()] == expected
        for name, each in told.items():
            text = metrics_of(each["metrics"])
            assert f"lingua_{name}_redis_up 1.0" in text
            assert f"lingua_{name}_tasks " in text
            others = [other for other in SERVICES if other != name]
            assert not [other for other in others if f"lingua_{other}_" in text], name
        assert "lingua_dispatcher_pool_up 1.0" in metrics_of(told["dispatcher"]["metrics"])
        assert "lingua_gateway_dispatcher_up 1.0" in metrics_of(told["gateway"]["metrics"])
        # Each has announced itself.
        with Redis.from_url(redis_url, decode_responses=True) as client:
            for name in SERVICES:
                at = client.get(f"{prefix}:instance:box-{name}")
                assert at == told[name]["address"]
        running.terminate()
        assert running.wait_end() == 0
        with Redis.from_url(redis_url) as client:
            assert not list(client.scan_iter(f"{prefix}:instance*"))


def test_log_lines_name_the_service_that_wrote_them(redis_url: str, prefix: str) -> None:
    with ServeAll(redis_url=redis_url, prefix=prefix, LINGUA_INSTANCE_ID="box") as running:
        running.announced()
        running.terminate()
        assert running.wait_end() == 0
        wrote = {(each["event"], each["service"], each["instance"]) for each in running.events()}
    own = {("listening", name, f"box-{name}") for name in SERVICES}
    # Both are written by code that the services share.
    own |= {("peer connected", name, f"box-{name}") for name in ("dispatcher", "gateway")}
    process = {(event, "all", "box") for event in ("redis up", "draining", "service ended")}
    assert own | process <= wrote
    assert {service for event, service, _ in wrote if event == "redis up"} == {"all"}


def test_it_is_connected_to_redis_once(own_redis: EmbeddedRedis, prefix: str) -> None:
    with (
        AllInOneProcess(redis_url=own_redis.url, prefix=prefix) as running,
        Redis.from_url(own_redis.url) as client,
    ):
        # It connects when it has something to say.
        asked = lingua("nodes", "list", LINGUA_POOL_ADDRESS=running.pool.address)
        assert asked.returncode == 0, asked.stderr
        others = [each for each in client.client_list() if each["cmd"] != "client|list"]
        assert 1 <= len(others) <= CONNECTIONS


@pytest.mark.parametrize("what", ["POOL_LISTEN", "GATEWAY_LISTEN", "DISPATCHER_METRICS_LISTEN"])
def test_a_port_that_is_taken_ends_it_with_exit_code_2_and_the_name_of_the_setting(
    redis_url: str, prefix: str, what: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"LINGUA_REDIS_URL": redis_url, "LINGUA_REDIS_PREFIX": prefix}
        ended = lingua("serve", "all", **given, **{f"LINGUA_{what}": address})
    assert ended.returncode == 2, ended.stderr
    assert f"LINGUA_{what}='{address}': cannot listen there: Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_redis_it_says_what_is_missing() -> None:
    ended = lingua("serve", "all")
    assert ended.returncode == 2
    assert "LINGUA_REDIS_URL is not set: the services need a Redis" in ended.stderr


class Listening(AllInOneProcess):
    """It need not be ready, only listen."""

    def wait_ready(self) -> None:
        """Returns when it listens."""
        self.wait_listening()


@pytest.mark.parametrize("from_the_start", [True, False])
def test_the_health_of_all_services_follows_redis(
    own_redis: EmbeddedRedis, prefix: str, from_the_start: bool
) -> None:
    def health() -> list[str]:
        at = {f"LINGUA_{part.service.upper()}_ADDRESS": part.address for part in running.parts}
        return [line.split()[2] for line in lingua("health", **at).stdout.splitlines()]

    if from_the_start:
        own_redis.kill()
    with Listening(redis_url=own_redis.url, prefix=prefix) as running:
        if not from_the_start:
            assert becomes(lambda: health() == ["SERVING"] * 3)
            own_redis.kill()
        assert becomes(lambda: health() == ["NOT_SERVING"] * 3)
        own_redis.restart()
        assert becomes(lambda: health() == ["SERVING"] * 3)
        assert not running.faults(), running.log()


def test_it_can_be_ended_while_it_waits_for_redis(own_redis: EmbeddedRedis, prefix: str) -> None:
    own_redis.kill()
    with Listening(redis_url=own_redis.url, prefix=prefix) as running:
        assert becomes(lambda: "waiting for a dependency" in running.log())
        running.terminate()
        assert running.wait_end() == 0
        assert not running.faults(), running.log()


def test_a_second_signal_ends_it_at_once(redis_url: str, prefix: str) -> None:
    with (
        AllInOneProcess(redis_url=redis_url, prefix=prefix, drain_grace_ms=600_000) as running,
        NodeProcess("n0", dispatchers=running.dispatcher.address) as node,
        node.frozen(),
    ):
        # The node does not leave, so the drain does not end.
        running.terminate()
        assert becomes(lambda: '"draining"' in running.log())
        running.terminate()
        assert running.wait_end() == 128 + signal.SIGTERM
        assert "ending at once on a second signal" in running.log()


async def test_speech_goes_on_where_it_was_when_the_only_process_is_replaced(
    redis_url: str, prefix: str
) -> None:
    """Nobody can go elsewhere meanwhile; the SDKs keep what was said until it is back."""
    with (
        AllInOneProcess(redis_url=redis_url, prefix=prefix, **SETTINGS) as running,
        NodeProcess("n0", dispatchers=running.dispatcher.address, work_ms=200),
    ):
        async with speaking(running.gateway.address) as speaker:
            for at, words in enumerate(sentences(2, (4, 8, 12, 6, 9, 5))):
                await speaker.say_sentence(*words, pace=True)
                if at == 2:
                    running.terminate()
                    assert await running.exit_code() == 0, running.log()
                    await running.restart()
        speaker.check_all_heard()
        assert not running.faults(), running.log()
