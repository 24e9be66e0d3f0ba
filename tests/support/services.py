"""The services as processes of their own, on real sockets, with settings of a test's choice."""

import asyncio
import contextlib
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, ClassVar

from tests.support.process import SOON_S, Process, environment

SET_LIMITS = """
import importlib, json, os
services = "lingua_scheduler.services"
package = f"{services}.{os.environ['TEST_PACKAGE']}"
for name, value in json.loads(os.environ["TEST_LIMITS"]).items():
    module, _, constant = name.rpartition(".")
    parent = services if module.startswith("runtime.") else package
    module = importlib.import_module(f"{parent}.{module}")
    assert hasattr(module, constant), name
    setattr(module, constant, value)
"""

RUNNER = (
    SET_LIMITS
    + """
import asyncio, sys
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import load_settings

def ready(service, address, metrics, web):
    print("ready", service, address, metrics, flush=True)

try:
    asyncio.run(importlib.import_module(f"{package}.main").serve(load_settings(), ready))
except SettingsError as error:
    sys.exit(f"refused: {error}")
"""
)

# A busy machine is no reason for a test to fail.
PATIENT_REDIS_MS = 4000
# Consoles watch the fleet ten times as fast as outside of tests.
WATCH_MS = 200
# Time limits of a dispatcher that no test reaches.
PATIENT = {
    "ack_timeout_ms": 60_000,
    "reservation_ttl_ms": 90_000,
    "queue_wait_ms": 60_000,
    "node_reconnect_grace_ms": 60_000,
}

_FAULTS = ("Traceback", "never retrieved", "never awaited", "Exception ignored")


class ServiceProcess(Process):
    """One process of a service. It keeps its address over a restart.

    Args:
        redis_url: of its Redis.
        prefix: of its keys.
        limits: constants of modules of the service, such as {"nodes.admission.MAX_BYTES": 1000},
            or of the runtime, such as {"runtime.web.listener._PAUSE_S": 1}.
        environ: further variables.
        runner: the code that the process runs.
        settings: fields of Settings.
    """

    service: ClassVar[str]
    """Its name in settings, such as `pool` in pool_listen."""
    package: ClassVar[str]
    """Its folder in services/."""

    def __init__(
        self,
        *,
        redis_url: str,
        prefix: str,
        limits: dict[str, float] | None = None,
        environ: dict[str, str] | None = None,
        runner: str = RUNNER,
        **settings: str | int,
    ) -> None:
        super().__init__(self.service)
        self.prefix = prefix
        self.address = ""
        self.metrics_address = ""
        self._runner = runner
        self._settings: dict[str, str | int] = {
            "redis_url": redis_url,
            "redis_prefix": prefix,
            **self.listens(),
            "log_format": "json",
            **settings,
        }
        self._environ = {
            "TEST_PACKAGE": self.package,
            "TEST_LIMITS": json.dumps(limits or {}),
            **(environ or {}),
        }

    def listens(self) -> dict[str, str]:
        """Settings that say where it listens at its first start."""
        return {f"{self.service}_{what}": "127.0.0.1:0" for what in ("listen", "metrics_listen")}

    def change(self, **settings: str | int) -> None:
        """Has other settings from its next start on."""
        self._settings |= settings

    def start(self) -> None:
        """Starts the process; it is not ready yet."""
        self.fork(self._runner, env={**environment(**self._settings), **self._environ})

    def wait_ready(self) -> None:
        """Returns when the service answers calls."""
        self.wait_for(lambda: self.output().endswith("\n"), "ready")
        _, _, address, metrics_address = self.output().split()
        self._has_addresses(address, metrics_address)

    def wait_listening(self) -> None:
        """Returns when the service listens, which it does before it has found Redis."""
        self.wait_for(lambda: self._events("listening"), "listening")
        record = self._events("listening")[-1]
        self._has_addresses(record["address"], record["metrics"])

    def faults(self) -> list[str]:
        """Lines of the log that only a bug writes."""
        lines = self.log().splitlines()
        return [line for line in lines if any(mark in line for mark in _FAULTS)]

    async def logs(self, text: str, within: float = SOON_S) -> None:
        """Returns when the log has this text."""
        deadline = time.monotonic() + within
        while text not in self.log():
            assert time.monotonic() < deadline, f"no {text!r} in the log:\n{self.log()}"
            await asyncio.sleep(0.02)

    async def samples(self, name: str) -> list[tuple[str, float]]:
        """The labels of a metric as they are written, and its value for them."""
        text = await asyncio.to_thread(_fetch, f"http://{self.metrics_address}/metrics")
        lines = (line.rsplit(" ", 1) for line in text.splitlines())
        split = ((head.partition("{"), value) for head, value in lines if not head.startswith("#"))
        return [(labels, float(value)) for (found, _, labels), value in split if found == name]

    async def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, summed over all labels that are not given; 0 if it is unknown."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = await self.samples(name)
        return sum(value for given, value in found if all(label in given for label in wanted))

    async def reaches(self, value: float, name: str, **labels: str) -> None:
        """Returns when a metric is at least this value."""
        deadline = time.monotonic() + SOON_S
        while (now := await self.metric(name, **labels)) < value:
            assert time.monotonic() < deadline, f"{name} is {now}, not {value}"
            await asyncio.sleep(0.01)

    def _has_addresses(self, address: str, metrics_address: str) -> None:
        self.address, self.metrics_address = address, metrics_address
        self._settings[f"{self.service}_listen"] = address
        self._settings[f"{self.service}_metrics_listen"] = metrics_address

    def _events(self, name: str) -> list[dict[str, Any]]:
        """The records of the log with this event."""
        records = []
        for line in self.log().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                records.append(json.loads(line))
        return [each for each in records if each["event"] == name]


class PoolProcess(ServiceProcess):
    """A pool service."""

    service = "pool"
    package = "pool_service"

    def __init__(self, *, redis_url: str, prefix: str, **settings: Any) -> None:
        settings = {"fleet_watch_ms": WATCH_MS, **settings}
        super().__init__(redis_url=redis_url, prefix=prefix, **settings)


class DispatcherProcess(ServiceProcess):
    """A dispatcher of the scheduler that a pool service belongs to."""

    service = "dispatcher"
    package = "dispatcher"

    def __init__(self, *, pool: ServiceProcess, redis_url: str, **settings: Any) -> None:
        settings = {
            "pool_address": pool.address,
            "redis_timeout_ms": PATIENT_REDIS_MS,
            **settings,
        }
        super().__init__(redis_url=redis_url, prefix=pool.prefix, **settings)


class GatewayProcess(ServiceProcess):
    """A session gateway of the scheduler that a pool service belongs to.

    Args:
        dispatchers: addresses of its dispatchers, with commas between them.
    """

    service = "gateway"
    package = "session_gateway"

    def __init__(
        self, *, pool: ServiceProcess, redis_url: str, dispatchers: str, **settings: Any
    ) -> None:
        settings = {
            "redis_timeout_ms": PATIENT_REDIS_MS,
            "gateway_web_listen": "127.0.0.1:0",
            **settings,
        }
        self.web_address = ""
        super().__init__(
            redis_url=redis_url, prefix=pool.prefix, dispatcher_address=dispatchers, **settings
        )

    def _has_addresses(self, address: str, metrics_address: str) -> None:
        super()._has_addresses(address, metrics_address)
        # It is not there yet if the gateway listens but has not found Redis.
        for record in self._events("listening for web")[-1:]:
            self.web_address = self._settings["gateway_web_listen"] = record["address"]


def start_all(services: Sequence[ServiceProcess]) -> None:
    """Starts services side by side; returns when all are ready."""
    for each in services:
        each.start()
    for each in services:
        each.wait_ready()


@contextlib.contextmanager
def all_running(services: Sequence[ServiceProcess]) -> Iterator[None]:
    """Services that are ready inside the block."""
    try:
        start_all(services)
        yield
    finally:
        for each in reversed(services):
            each.stop()


@contextlib.asynccontextmanager
async def running(*services: ServiceProcess) -> AsyncIterator[None]:
    """As `all_running`, without blocking the event loop."""
    try:
        await asyncio.to_thread(start_all, services)
        yield
    finally:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in services))


@contextlib.asynccontextmanager
async def running_dispatcher(
    pool: PoolProcess,
    redis_url: str,
    limits: dict[str, int] | None = None,
    **settings: str | int,
) -> AsyncIterator[DispatcherProcess]:
    """A dispatcher of the test's own."""
    process = DispatcherProcess(pool=pool, redis_url=redis_url, limits=limits, **settings)
    async with running(process):
        yield process


def addresses(services: Sequence[ServiceProcess]) -> str:
    """The addresses of all services, as settings and the SDK take them."""
    return ",".join(each.address for each in services)


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SOON_S) as response:
        return str(response.read().decode())
