"""How a process puts services together: the order of their starts and ends, and what may fail.

The services of these tests do nothing but tell what is done to them.
"""

import json
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.commands import becomes
from tests.support.process import Process, environment

# Services by the names of the real ones, which settings know. TEST_ORDERS has an order for each.
_RUNNER = """
import asyncio, json, logging, os, sys
from lingua_scheduler.services.runtime.errors import DependencyDownError, SettingsError
from lingua_scheduler.services.runtime.hosted_service import ServiceKind
from lingua_scheduler.services.runtime.service_process import WorkEndedError, run_services
from lingua_scheduler.services.runtime.settings.settings import load_settings

orders = json.loads(os.environ["TEST_ORDERS"])
links = set()

def tell(*words):
    print(*words, flush=True)

class Told:
    max_request_bytes = None
    web_address = ""

    def __init__(self, name, runtime):
        self.name, self.order = name, orders.get(name, "")
        self.grpc_name = f"test.{name}"
        self.log = logging.getLogger("shared")
        links.add(id(runtime.cells.first.link))
        self.peers = runtime.settings.pool_address, runtime.settings.dispatcher_address
        tell("built", name, runtime.settings.instance_id, *self.peers)

    def register(self, server):
        pass

    async def open(self, address):
        if self.order == "refuse":
            raise SettingsError(f"{self.name} will not do")
        if self.order in ("wait", "wait on"):
            if self.order == "wait":
                self.order = ""
            raise DependencyDownError("not yet")
        assert len(links) == 1
        self.log.info("opened")
        tell("opened", self.name)

    def work(self):
        tell("works", self.name)
        return (self.run(),)

    async def run(self):
        if self.order == "die":
            raise ValueError("of the test")
        await asyncio.sleep(3600)

    async def drain(self):
        tell("drains", self.name)
        if self.order == "stay":
            await asyncio.sleep(3600)
        await asyncio.sleep(0.05)

    async def close(self):
        tell("closed", self.name)
        if self.order == "trip":
            raise ValueError("of the test")

def kind(name):
    return ServiceKind(name, lambda runtime: Told(name, runtime))

def ready(service, address, metrics, web):
    tell("ready", service, address)

kinds = [kind(name) for name in os.environ["TEST_SERVICES"].split()]
try:
    asyncio.run(run_services(load_settings(), kinds, ready))
except (SettingsError, WorkEndedError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

ALL = ("pool", "dispatcher", "gateway")


class Told(Process):
    """A process of such services, and what they told."""

    def __init__(self, redis_url: str, orders: dict[str, str], services: str, **settings: Any):
        super().__init__("told")
        listens = {
            f"{name}_{what}": "127.0.0.1:0" for name in ALL for what in ("listen", "metrics_listen")
        }
        given = {
            "redis_url": redis_url,
            "redis_prefix": f"test:{uuid.uuid4().hex[:8]}",
            "instance_id": "box",
            "log_format": "json",
            **listens,
        }
        orders_given = {"TEST_ORDERS": json.dumps(orders), "TEST_SERVICES": services}
        self._env = {**environment(**{**given, **settings}), **orders_given}

    def start(self) -> None:
        """Starts the process."""
        self.fork(_RUNNER, env=self._env)

    def told(self, *what: str) -> list[str]:
        """Which services told this, in order."""
        lines = [line.split() for line in self.output().splitlines()]
        return [line[1] for line in lines if line[0] in what]

    def until(self, what: str, count: int) -> None:
        """Returns when so many services told this."""
        assert becomes(lambda: len(self.told(what)) >= count), self.output() + self.log()


@pytest.fixture
def processes(redis_url: str) -> Iterator[Any]:
    """Starts processes; kills what still runs at the end of the test."""
    started: list[Told] = []

    def start(orders: dict[str, str] | None = None, services: str = " ".join(ALL), **settings: Any):
        process = Told(redis_url, orders or {}, services, **settings)
        started.append(process)
        process.start()
        return process

    yield start
    for each in started:
        each.stop()


def test_services_open_in_order_and_are_ready_together(processes: Any) -> None:
    process = processes()
    process.until("works", 3)
    assert process.told("opened", "ready") == [*ALL, *ALL]
    lines = [line.split() for line in process.output().splitlines()]
    built = {line[1]: line[2:] for line in lines if line[0] == "built"}
    peers = ["in-process:pool", "in-process:dispatcher"]
    assert built == {name: [f"box-{name}", *peers] for name in ALL}
    wrote = [json.loads(line) for line in process.log().splitlines()]
    opened = [each["service"] for each in wrote if each["event"] == "opened"]
    assert opened == list(ALL), "one logger, three services"


def test_a_service_alone_has_the_settings_as_they_are(processes: Any) -> None:
    process = processes(services="dispatcher", pool_address="127.0.0.1:7999")
    process.until("works", 1)
    assert "built dispatcher box 127.0.0.1:7999 127.0.0.1:7720" in process.output()
    process.terminate()
    assert process.wait_end() == 0
    services = {json.loads(line)["service"] for line in process.log().splitlines()}
    assert services == {"dispatcher"}


def test_callers_drain_and_close_before_those_they_call(processes: Any) -> None:
    process = processes()
    process.until("works", 3)
    process.terminate()
    assert process.wait_end() == 0
    ended = [line for line in process.output().splitlines() if line.startswith(("drains", "clos"))]
    assert ended == [f"{what} {name}" for name in reversed(ALL) for what in ("drains", "closed")]


def test_clients_that_stay_do_not_take_the_time_of_the_others(processes: Any) -> None:
    process = processes({"gateway": "stay"}, drain_grace_ms=10_000)
    process.until("works", 3)
    process.terminate()
    assert process.wait_end() == 0
    assert process.told("drains") == ["gateway", "dispatcher", "pool"]
    # The dispatcher is done before the gateway gives up; the pool service ends last in any case.
    assert process.told("closed") == ["dispatcher", "gateway", "pool"]
    wrote = [json.loads(line) for line in process.log().splitlines()]
    late = [each["service"] for each in wrote if each["event"] == "drain incomplete"]
    assert late == ["gateway"]


def test_all_are_out_of_service_while_the_first_still_drains(processes: Any) -> None:
    process = processes({"gateway": "stay"}, drain_grace_ms=600_000)
    process.until("works", 3)
    lines = [line.split() for line in process.output().splitlines()]
    address = {line[1]: line[2] for line in lines if line[0] == "ready"}
    assert {name: health(address[name]) for name in ALL} == dict.fromkeys(ALL, "SERVING")
    process.terminate()
    process.until("drains", 1)
    assert {name: health(address[name]) for name in ALL} == dict.fromkeys(ALL, "NOT_SERVING")
    process.terminate()
    assert process.wait_end() == 128 + signal.SIGTERM


def health(address: str) -> str:
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@pytest.mark.parametrize("name", ALL)
def test_a_service_that_refuses_its_settings_ends_the_process_and_the_others(
    processes: Any, name: str
) -> None:
    process = processes({name: "refuse"})
    assert process.wait_end() == 1
    assert f"SettingsError: {name} will not do" in process.log()
    assert process.told("opened") == list(ALL[: ALL.index(name)])
    assert process.told("ready", "works") == []
    assert process.told("closed") == list(reversed(ALL))


def test_a_service_that_has_to_wait_holds_up_those_after_it_only(processes: Any) -> None:
    process = processes({"dispatcher": "wait"})
    process.until("works", 3)
    assert process.told("opened") == list(ALL)
    assert process.log().count("waiting for a dependency") == 1


def test_none_is_in_service_before_the_last_has_opened(processes: Any) -> None:
    process = processes({"gateway": "wait on"})
    assert becomes(lambda: "waiting for a dependency" in process.log())
    wrote = [json.loads(line) for line in process.log().splitlines()]
    assert "redis up" in [each["event"] for each in wrote]
    at = {each["service"]: each["address"] for each in wrote if each["event"] == "listening"}
    assert {name: health(at[name]) for name in ALL} == dict.fromkeys(ALL, "NOT_SERVING")
    process.terminate()
    assert process.wait_end() == 0
    assert process.told("closed") == list(reversed(ALL))


@pytest.mark.parametrize("name", ALL)
def test_a_background_task_that_dies_ends_the_process(processes: Any, name: str) -> None:
    """The service would look healthy, and not be."""
    process = processes({name: "die"})
    assert process.wait_end() == 1
    assert process.told("ready") == list(ALL)
    assert process.told("drains") == list(reversed(ALL))
    wrote = [json.loads(line) for line in process.log().splitlines() if line.startswith("{")]
    (died,) = [each for each in wrote if each["event"] == "background task ended"]
    assert "ValueError: of the test" in died["exception"]
    assert died["service"] == name
    assert "WorkEndedError: a background task" in process.log()


def test_a_service_that_fails_to_close_does_not_keep_the_others_from_it(processes: Any) -> None:
    process = processes({"gateway": "trip"})
    process.until("works", 3)
    process.terminate()
    assert process.wait_end() == 1
    assert process.told("closed") == list(reversed(ALL))
