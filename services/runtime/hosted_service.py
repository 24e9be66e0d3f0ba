"""One service of a process: its servers, metrics, traces and background tasks."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from lingua_scheduler.services.runtime.auth.guard import Guard, guard_of
from lingua_scheduler.services.runtime.auth.refusals import Refusals
from lingua_scheduler.services.runtime.instances import Instances
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.server_link import ERROR_KINDS
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.services.runtime.rpc.tls import ServerTls, export_expiry, server_tls
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.telemetry.identity import Identity, set_identity
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer, new_registry
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing

_log = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a service gets from its process."""

    settings: Settings
    cells: Cells
    registry: CollectorRegistry
    dialer: Dialer
    tls: ServerTls | None
    """Of all its servers; None for plain text."""
    guard: Guard | None
    """Decides who may call what; None if everyone may call everything."""
    refusals: Refusals
    instances: Instances
    """Where the service announces itself when it opens; its process does the rest."""


class Service(Protocol):
    """What differs from one service to another."""

    grpc_name: str
    """Full name of its gRPC service."""
    max_request_bytes: int | None
    """Size limit of messages from its callers; None for `max_message_bytes`."""

    @property
    def web_address(self) -> str:
        """Where it serves browsers, once it is open; empty if it does not."""

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server."""

    async def open(self, address: str) -> None:
        """Called when Redis is up and the server listens at `address`.

        Raises:
            SettingsError: the service cannot work with these settings.
            DependencyDownError: the call is repeated.
        """

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Background tasks, each of which runs until it is cancelled."""

    async def drain(self) -> None:
        """Hands over what is under way, within a limited time."""

    async def close(self) -> None:
        """Releases its resources."""


class ServiceKind(NamedTuple):
    """A service that a process can host.

    Attributes:
        name: LINGUA_<NAME>_LISTEN, _METRICS_LISTEN and _HEALTH_LISTEN are its addresses.
        build: makes the service.
    """

    name: str
    build: Callable[[Runtime], Service]


def in_process_address(name: str) -> str:
    """The address of a service for other services of its process."""
    return f"in-process:{name}"


class HostedService:
    """A service from its construction to `close`; each method is called once, in this order.

    Everything of the service runs in a context of its own, so that log lines and spans name it.

    Args:
        kind: the service to host.
        settings: its own, with the id of its instance.
        cells: the process opens and closes them.
        in_process: servers of the services of this process, by the address in the settings.

    Raises:
        SettingsError: the settings cannot be used.
    """

    def __init__(
        self,
        kind: ServiceKind,
        settings: Settings,
        cells: Cells,
        in_process: Mapping[str, InProcessServer],
    ) -> None:
        self.name = kind.name
        self.address = ""
        """Where the gRPC server listens; empty before `start`."""
        self.metrics_address = ""
        """Where metrics are served; empty if they are off."""
        self._settings = settings
        self._registry = new_registry()
        self._redis_up = Gauge(
            f"lingua_{self.name}_redis_up",
            "1 while Redis answers, 0 while it does not.",
            registry=self._registry,
        )
        self._is_open = False
        self._working: list[asyncio.Task[None]] = []
        self._context = copy_context()
        self._context.run(self._build, kind, cells, in_process)

    def _build(
        self, kind: ServiceKind, cells: Cells, in_process: Mapping[str, InProcessServer]
    ) -> None:
        settings, registry = self._settings, self._registry
        set_identity(Identity(self.name, settings.instance_id))
        guard = guard_of(settings, self.name)
        self._stop_tracing = configure_tracing(self.name, settings.instance_id)
        _count_tasks(self.name, registry)
        _count_redis_errors(cells, registry)
        _show_cells(cells, registry)
        tls, dialer = server_tls(settings), Dialer(settings, in_process)
        export_expiry(registry, tls, dialer.tls)
        self._instances = Instances(cells=cells, settings=settings, service=self.name)
        runtime = Runtime(
            settings=settings,
            cells=cells,
            registry=registry,
            dialer=dialer,
            tls=tls,
            guard=guard,
            refusals=Refusals(registry),
            instances=self._instances,
        )
        self._service = kind.build(runtime)
        own = in_process.get(in_process_address(self.name))
        self._server = self._grpc_server(runtime, own)
        self._metrics = MetricsServer(
            listen=getattr(settings, f"{self.name}_metrics_listen"),
            registry=registry,
            variable=variable_name(f"{self.name}_metrics_listen"),
            tls=tls.context if tls and settings.metrics_tls == "on" else None,
        )

    def _grpc_server(self, runtime: Runtime, in_process: InProcessServer | None) -> GrpcServer:
        settings, name, tls = self._settings, self.name, runtime.tls
        server = GrpcServer(
            listen=getattr(settings, f"{name}_listen"),
            variable=variable_name(f"{name}_listen"),
            services=[(self._service.grpc_name, self._service.register)],
            instance_id=settings.instance_id,
            max_message_bytes=settings.max_message_bytes,
            max_request_bytes=self._service.max_request_bytes,
            max_streams_per_connection=settings.max_streams_per_connection,
            keepalive_time_ms=settings.keepalive_time_ms,
            keepalive_timeout_ms=settings.keepalive_timeout_ms,
            drain_grace_ms=settings.drain_grace_ms,
            credentials=tls.credentials() if tls else None,
            probe_listen=getattr(settings, f"{name}_health_listen"),
            probe_variable=variable_name(f"{name}_health_listen"),
            in_process=in_process,
            guard=runtime.guard,
            refusals=runtime.refusals,
            registry=self._registry,
        )
        server.on_drain(self._service.drain)
        return server

    @property
    def web_address(self) -> str:
        """Where it serves browsers; empty if it does not."""
        return self._service.web_address

    async def start(self) -> None:
        """Listens; the health stays NOT_SERVING.

        Raises:
            SettingsError: an address cannot be bound.
        """
        await self._run(self._start())

    async def _start(self) -> None:
        self.metrics_address = await self._metrics.start()
        self.address = await self._server.start()
        facts = {"address": self.address, "metrics": self.metrics_address}
        _log.info("listening", extra=facts)

    async def open(self) -> None:
        """Opens the service once Redis is up. Raises as `Service.open`."""
        await self._run(self._service.open(self.address))

    def serve(self, redis_up: bool) -> None:
        """Sets the health: from now on it follows Redis."""
        self._is_open = True
        self.on_redis(redis_up)

    def on_redis(self, up: bool) -> None:
        """Redis has become available or unavailable."""
        self._redis_up.set(up)
        self._server.set_serving(up and self._is_open)

    def begin_work(self) -> Sequence[asyncio.Task[None]]:
        """Starts the background tasks; none of them may end before `end`."""
        working = (*self._service.work(), self._instances.run())
        self._working = [self._run(_until_cancelled(work)) for work in working]
        return self._working

    def leave(self) -> None:
        """Sets the health to NOT_SERVING for good, because `end` follows."""
        self._server.leave()
        self._instances.drain()

    async def end(self, by: float) -> None:
        """Drains the server, then ends the background tasks and the service.

        Args:
            by: when the grace period is over, by the clock of the event loop.
        """
        await self._run(self._end(by))

    async def _end(self, by: float) -> None:
        await self._server.drain(by)
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)
        await self._instances.leave()
        await self._service.close()

    async def close(self) -> None:
        """Stops the metrics, and sends the remaining spans."""
        await self._metrics.stop()
        await asyncio.to_thread(self._stop_tracing)

    def _run(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        return asyncio.create_task(work, context=self._context)


async def _until_cancelled(work: Coroutine[Any, Any, None]) -> None:
    """Runs a background task; that it ends by itself is a bug."""
    try:
        await work
        raise RuntimeError("it returned")
    except Exception:
        _log.exception("background task ended")
        raise


def _count_redis_errors(cells: Cells, registry: CollectorRegistry) -> None:
    errors = Counter(
        "lingua_redis_errors",
        "Calls to Redis that failed, by kind: away (it was known to be down), timeout, lost (the "
        "connection broke), refused (out of memory, read-only, loading), error (ours).",
        ["kind"],
        registry=registry,
    )
    # Exported from 0 on, so that the first error is an increase.
    for kind in ERROR_KINDS:
        errors.labels(kind)
    for server in cells.servers:
        server.on_error.append(lambda kind: errors.labels(kind).inc())


def _show_cells(cells: Cells, registry: CollectorRegistry) -> None:
    up = Gauge(
        "lingua_redis_cell_up",
        "1 while the Redis of the cell answers, 0 while it does not.",
        ["cell"],
        registry=registry,
    )
    for cell in cells.all:

        def is_up(cell: Cell = cell) -> float:
            return float(cell.up)

        up.labels(cell.number).set_function(is_up)


def _count_tasks(name: str, registry: CollectorRegistry) -> None:
    loop = asyncio.get_running_loop()
    tasks = Gauge(f"lingua_{name}_tasks", "Tasks of the event loop.", registry=registry)
    tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
