"""The whole scheduler as processes, each killable: shared by tests of the whole path."""

import asyncio
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.service_process import START_S, ServiceProcess, WatchedProcess

ROOT = Path(__file__).parents[2]

# No chunk is late: a word lasts longer than a hangover. Silence is soon a pause, though not sooner
# than a busy machine may take to send a word.
SETTINGS: dict[str, str | int] = {
    "pause_ms": 800,
    "max_duration_ms": 1500,
    "hangover_manual_ms": 50,
    "hangover_auto_ms": 50,
    "short_merge_ms": 50,
    "node_heartbeat_ms": 500,
    "heartbeat_batch_ms": 200,
    "node_reconnect_grace_ms": 2000,
    "job_timeout_ms": 10_000,
    "running_lease_ms": 15_000,
    # A busy machine is no reason for these tests to fail.
    "queue_wait_ms": 10_000,
    "affinity_wait_ms": 5000,
    "affinity_away_ms": 5000,
    "ack_timeout_ms": 6000,
    "reservation_ttl_ms": 8000,
    "redis_timeout_ms": 4000,
}


class PoolService(ServiceProcess):
    """A pool service."""

    name = "pool"
    package = "pool_service"


class Dispatcher(ServiceProcess):
    """A dispatcher."""

    name = "dispatcher"
    package = "dispatcher"


class Gateway(ServiceProcess):
    """A session gateway."""

    name = "gateway"
    package = "session_gateway"


class NodeProcess(WatchedProcess):
    """A listening node, from its start to its end; it can be started again."""

    def __init__(self, node_id: str, dispatchers: str, **options: int) -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self._arguments = ["--id", node_id, "--dispatchers", dispatchers]
        for name, value in options.items():
            self._arguments += [f"--{name.replace('_', '-')}", str(value)]
        self._make_folder("node")

    def start(self) -> None:
        """Starts the process; it is not connected yet."""
        with self._file("out").open("ab") as out, self._file("err").open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.listening_node", *self._arguments],
                cwd=ROOT,
                stdout=out,
                stderr=err,
            )

    def told(self, *what: str) -> list[dict[str, Any]]:
        """What it has said of itself so far, over all starts: all of it, or only this."""
        # The last line may be under way, or cut by a kill.
        lines = self._file("out").read_text().split("\n")[:-1]
        records: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
        return [each for each in records if not what or each["what"] in what]

    @property
    def running(self) -> int:
        """Jobs that it has begun and not finished since it was started last."""
        told = [each["what"] for each in self.told("began", "started", "finished")]
        told = told[len(told) - told[::-1].index("began") :]
        return told.count("started") - told.count("finished")

    def wait_connected(self, times: int = 1, within: float = START_S) -> None:
        """Returns when it has been taken in by a dispatcher so many times."""
        deadline = time.monotonic() + within
        while len(self.told("connected")) < times:
            assert self.process.poll() is None, f"{self.node_id} ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.node_id} is not connected:\n{self.log()}"
            time.sleep(0.02)

    async def restart(self) -> None:
        """Starts it again after it has ended; returns when it is connected."""
        assert self.process.poll() is not None, "end it first"
        times = len(self.told("connected"))
        self.start()
        await asyncio.to_thread(self.wait_connected, times + 1)


class Scheduler:
    """Every service as a process of its own, so many of each, and nodes. A context manager.

    Args:
        redis_url: of its Redis, in which it has keys of its own.
        instances: of each service.
        settings: fields of Settings, for all services.
    """

    def __init__(self, *, redis_url: str, instances: int = 1, **settings: str | int) -> None:
        self.pools: list[ServiceProcess] = []
        self.dispatchers: list[ServiceProcess] = []
        self.gateways: list[ServiceProcess] = []
        self.nodes: list[NodeProcess] = []
        self._instances = instances
        self._settings: dict[str, Any] = {
            "redis_url": redis_url,
            "prefix": f"test:{uuid.uuid4().hex[:8]}",
            **SETTINGS,
            **settings,
        }

    def __enter__(self) -> Self:
        try:
            self._start(self.pools, PoolService)
            self._start(self.dispatchers, Dispatcher, pool_address=addresses(self.pools))
            for _ in range(self._instances):
                self.gateways.append(self._gateway())
            start_all(self.gateways)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def services(self) -> list[ServiceProcess]:
        """All of them."""
        return [*self.pools, *self.dispatchers, *self.gateways]

    def add_gateway(self, **settings: str | int) -> ServiceProcess:
        """One more gateway, with settings of its own."""
        gateway = self._gateway(**settings)
        self.gateways.append(gateway)
        start_all([gateway])
        return gateway

    def add_nodes(self, dispatchers: Sequence[str], **options: int) -> list[NodeProcess]:
        """A node for each of these addresses or lists of addresses; returns when all are in."""
        first = len(self.nodes)
        new = [NodeProcess(f"n{first + at}", to, **options) for at, to in enumerate(dispatchers)]
        self.nodes += new
        for node in new:
            node.start()
        for node in new:
            node.wait_connected()
        return new

    def told(self, *what: str) -> list[dict[str, Any]]:
        """What all nodes have said of themselves."""
        return [each for node in self.nodes for each in node.told(*what)]

    async def total(self, services: Sequence[ServiceProcess], name: str, **labels: str) -> float:
        """A metric over several services."""
        return sum([await each.metric(name, **labels) for each in services])

    def check_logs(self) -> None:
        """No service has met a bug."""
        for each in self.services:
            assert not each.faults(), f"{each.name} at {each.address}:\n{each.log()}"

    def stop(self) -> None:
        """Ends all processes."""
        for node in self.nodes:
            node.stop()
        for service in reversed(self.services):
            service.stop()

    def _gateway(self, **settings: str | int) -> ServiceProcess:
        to = {"dispatcher_address": addresses(self.dispatchers)}
        return Gateway(**{**self._settings, **to, **settings})

    def _start(
        self, where: list[ServiceProcess], kind: type[ServiceProcess], **settings: Any
    ) -> None:
        where += [kind(**self._settings, **settings) for _ in range(self._instances)]
        start_all(where)


def start_all(services: Sequence[ServiceProcess]) -> None:
    """Starts them side by side; returns when all are ready."""
    for each in services:
        each.start()
    for each in services:
        each.wait_ready()


def addresses(services: Sequence[ServiceProcess]) -> str:
    """Of all, as settings and the SDK take them."""
    return ",".join(each.address for each in services)
