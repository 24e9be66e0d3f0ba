"""Runs a service as a process, from reading its settings to the drain."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from lingua_scheduler.services.runtime.auth.guard import Guard, guard_of
from lingua_scheduler.services.runtime.contract.languages import LANGUAGES, parse_languages
from lingua_scheduler.services.runtime.errors import DependencyDownError, SettingsError
from lingua_scheduler.services.runtime.loop_errors import report_loop_errors
from lingua_scheduler.services.runtime.redis.link import ERROR_KINDS, RedisLink
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.services.runtime.rpc.tls import ServerTls, export_expiry, server_tls
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.signals import stop_signals
from lingua_scheduler.services.runtime.telemetry.logs import configure_logs
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer, new_registry
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing

# Between attempts to reach Redis at the start.
_OPEN_AGAIN_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a service gets from its process."""

    settings: Settings
    link: RedisLink
    registry: CollectorRegistry
    dialer: Dialer


class Service(Protocol):
    """What differs from one service to another."""

    grpc_name: str
    """Full name of its gRPC service."""
    max_request_bytes: int | None
    """Size limit of messages from its callers; None for `max_message_bytes`."""

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


async def run_service(
    settings: Settings,
    name: str,
    build: Callable[[Runtime], Service],
    ready: Callable[[str, str], None],
) -> None:
    """Runs a service until SIGTERM or SIGINT, then drains it.

    If Redis is down at the start, the service reports NOT_SERVING and waits for it.

    Args:
        settings: `redis_url` must be set.
        name: short name; LINGUA_<NAME>_LISTEN and LINGUA_<NAME>_METRICS_LISTEN are its addresses.
        build: makes the service.
        ready: called once the service accepts calls, with its gRPC and its metrics address ("" if
            metrics are off).

    Raises:
        SettingsError: the settings cannot be used.
    """
    if not settings.redis_url:
        raise SettingsError(
            f"LINGUA_REDIS_URL is not set: the {name} service needs a Redis "
            "(or use 'lingua up', which brings its own)"
        )
    configure_logs(settings, name)
    LANGUAGES.allow(parse_languages(settings.languages))
    guard = guard_of(settings, name)
    stop_tracing = configure_tracing(name, settings.instance_id)
    report_loop_errors(asyncio.get_running_loop())
    registry = new_registry()
    _count_tasks(name, registry)
    link = _redis_link(settings, registry)
    tls, dialer = server_tls(settings), Dialer(settings)
    export_expiry(registry, tls, dialer.tls)
    service = build(Runtime(settings, link, registry, dialer))
    server = _grpc_server(settings, name, service, tls, guard, registry)
    metrics = _metrics_server(settings, name, tls, registry)
    _follow_redis(name, link, server, registry)
    try:
        await _serve(service, link, server, metrics, ready)
    finally:
        await link.close()
        await metrics.stop()
        await asyncio.to_thread(stop_tracing)
    _log.info("service ended")


async def _serve(
    service: Service,
    link: RedisLink,
    server: GrpcServer,
    metrics: MetricsServer,
    ready: Callable[[str, str], None],
) -> None:
    """Serves until a signal asks to stop, then drains."""
    working: list[asyncio.Task[None]] = []
    try:
        with stop_signals() as stopping:
            metrics_address = await metrics.start()
            address = await server.start()
            _log.info("listening", extra={"address": address, "metrics": metrics_address})
            opening = asyncio.create_task(_open(link, service, address))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                await opening
                _tune_garbage_collection()
                ready(address, metrics_address)
                working = [asyncio.create_task(work) for work in service.work()]
            opening.cancel()
            await stopped
    finally:
        await server.drain()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        await service.close()
        link.on_change.clear()


async def _open(link: RedisLink, service: Service, address: str) -> None:
    """Opens the link and the service, however long that takes."""
    reason, opened = "", False
    while True:
        try:
            if not opened:
                await link.open()
                opened = True
            await service.open(address)
            return
        except DependencyDownError as error:
            if str(error) != reason:
                reason = str(error)
                _log.error("waiting for a dependency", extra={"reason": reason})
            await asyncio.sleep(_OPEN_AGAIN_S)


def _tune_garbage_collection() -> None:
    """Exempts what has been imported from garbage collection, and makes full collections rare.

    Reference counting frees nearly all garbage. With Python's default thresholds, collections took
    5 % of the dispatcher's time, and a full one, over the tens of thousands of objects of jobs that
    are remembered for a while, stopped everything for up to 80 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 500, 1000)


# ---- the parts of a process ----


def _grpc_server(
    settings: Settings,
    name: str,
    service: Service,
    tls: ServerTls | None,
    guard: Guard | None,
    registry: CollectorRegistry,
) -> GrpcServer:
    server = GrpcServer(
        listen=getattr(settings, f"{name}_listen"),
        variable=variable_name(f"{name}_listen"),
        services=[(service.grpc_name, service.register)],
        instance_id=settings.instance_id,
        max_message_bytes=settings.max_message_bytes,
        max_request_bytes=service.max_request_bytes,
        max_streams_per_connection=settings.max_streams_per_connection,
        keepalive_time_ms=settings.keepalive_time_ms,
        keepalive_timeout_ms=settings.keepalive_timeout_ms,
        drain_grace_ms=settings.drain_grace_ms,
        credentials=tls.credentials() if tls else None,
        probe_listen=getattr(settings, f"{name}_health_listen"),
        probe_variable=variable_name(f"{name}_health_listen"),
        guard=guard,
        registry=registry,
    )
    server.on_drain(service.drain)
    return server


def _metrics_server(
    settings: Settings, name: str, tls: ServerTls | None, registry: CollectorRegistry
) -> MetricsServer:
    return MetricsServer(
        listen=getattr(settings, f"{name}_metrics_listen"),
        registry=registry,
        variable=variable_name(f"{name}_metrics_listen"),
        tls=tls.context if tls and settings.metrics_tls == "on" else None,
    )


def _redis_link(settings: Settings, registry: CollectorRegistry) -> RedisLink:
    link = RedisLink(
        url=settings.redis_url,
        prefix=settings.redis_prefix,
        scripts=load_scripts(),
        timeout_ms=settings.redis_timeout_ms,
    )
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
    link.on_error.append(lambda kind: errors.labels(kind).inc())
    return link


def _follow_redis(
    name: str, link: RedisLink, server: GrpcServer, registry: CollectorRegistry
) -> None:
    """Makes the health of the server follow that of Redis."""
    redis_up = Gauge(
        f"lingua_{name}_redis_up", "1 while Redis answers, 0 while it does not.", registry=registry
    )

    def on_change(up: bool, reason: str) -> None:
        redis_up.set(up)
        server.set_serving(up)
        if up:
            _log.info("redis up")
        else:
            _log.error("redis down", extra={"reason": reason})

    link.on_change.append(on_change)


def _count_tasks(name: str, registry: CollectorRegistry) -> None:
    loop = asyncio.get_running_loop()
    tasks = Gauge(f"lingua_{name}_tasks", "Tasks of the event loop.", registry=registry)
    tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
