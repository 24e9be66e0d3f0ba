"""A service as a process, from its settings to its end: what all of them do alike."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from prometheus_client import CollectorRegistry, Counter, Gauge

from lingua_scheduler.services.runtime.auth.guard import guard_of
from lingua_scheduler.services.runtime.contract.languages import LANGUAGES, parse_languages
from lingua_scheduler.services.runtime.errors import DependencyDownError, SettingsError
from lingua_scheduler.services.runtime.loop_errors import report_loop_errors
from lingua_scheduler.services.runtime.redis.link import ERROR_KINDS, RedisLink
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.services.runtime.rpc.tls import export_expiry, server_tls
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.signals import stop_signals
from lingua_scheduler.services.runtime.telemetry.logs import configure_logs
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer, new_registry
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing

# Between tries to reach a Redis that was not there at the start.
_OPEN_AGAIN_S = 0.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a service is built on."""

    settings: Settings
    link: RedisLink
    registry: CollectorRegistry
    dialer: Dialer


class Service(Protocol):
    """What makes a process this service and no other."""

    grpc_name: str
    """Full name of its gRPC service."""
    max_request_bytes: int | None
    """Bytes of the largest message that its callers send; None for `max_message_bytes`."""

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server."""

    async def open(self, address: str) -> None:
        """Redis answers, calls are taken at `address`: last checks, connections to others.

        Raises:
            SettingsError: it cannot work like this.
            DependencyDownError: it is called again.
        """

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What it does besides calls, each until it is cancelled."""

    async def drain(self) -> None:
        """Hands over what is under way; the time for it is limited."""

    async def close(self) -> None:
        """Lets go of what it holds."""


async def run_service(
    settings: Settings,
    name: str,
    build: Callable[[Runtime], Service],
    ready: Callable[[str, str], None],
) -> None:
    """Runs a service until SIGTERM or SIGINT, then drains.

    Without Redis it starts too, says NOT_SERVING, and waits.

    Args:
        settings: `redis_url` must be set.
        name: short name; LINGUA_<NAME>_LISTEN and LINGUA_<NAME>_METRICS_LISTEN are its addresses.
        build: makes the service.
        ready: called once with the gRPC and the metrics address ("" where off), when calls are
            answered.

    Raises:
        SettingsError: a setting does not fit.
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
    registry = new_registry()
    redis_up = Gauge(
        f"lingua_{name}_redis_up", "1 while Redis answers, 0 while it does not.", registry=registry
    )
    loop = asyncio.get_running_loop()
    report_loop_errors(loop)
    tasks = Gauge(f"lingua_{name}_tasks", "Tasks of the event loop.", registry=registry)
    tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
    link = RedisLink(
        url=settings.redis_url,
        prefix=settings.redis_prefix,
        scripts=load_scripts(),
        timeout_ms=settings.redis_timeout_ms,
    )
    _count_redis_errors(link, registry)
    tls, dialer = server_tls(settings), Dialer(settings)
    export_expiry(registry, tls, dialer.tls)
    service = build(Runtime(settings, link, registry, dialer))
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
    exposition = MetricsServer(
        listen=getattr(settings, f"{name}_metrics_listen"),
        registry=registry,
        variable=variable_name(f"{name}_metrics_listen"),
        tls=tls.context if tls and settings.metrics_tls == "on" else None,
    )

    def on_redis(up: bool, reason: str) -> None:
        redis_up.set(up)
        server.set_serving(up)
        if up:
            _log.info("redis up")
        else:
            _log.error("redis down", extra={"reason": reason})

    link.on_change.append(on_redis)
    working: list[asyncio.Task[None]] = []
    try:
        with stop_signals() as stopping:
            metrics_address = await exposition.start()
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
        await link.close()
        await exposition.stop()
        await asyncio.to_thread(stop_tracing)
    _log.info("service ended")


def _tune_garbage_collection() -> None:
    """What was imported is looked at no more, and what has once been found alive rarely.

    Nearly all garbage goes without it. With Python's own thresholds it took a twentieth of the
    dispatcher's time, and a look at all that lives, tens of thousands of objects of jobs that are
    remembered for a while, stops everything for up to 80 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 500, 1000)


def _count_redis_errors(link: RedisLink, registry: CollectorRegistry) -> None:
    errors = Counter(
        "lingua_redis_errors",
        "Calls to Redis that failed, by kind: away (it was known to be down), timeout, lost (the "
        "connection broke), refused (out of memory, read-only, loading), error (ours).",
        ["kind"],
        registry=registry,
    )
    # From 0, or the first error of a kind would be no increase.
    for kind in ERROR_KINDS:
        errors.labels(kind)
    link.on_error.append(lambda kind: errors.labels(kind).inc())


async def _open(link: RedisLink, service: Service, address: str) -> None:
    """Opens the link and the service, however long that takes."""
    told, opened = "", False
    while True:
        try:
            if not opened:
                await link.open()
                opened = True
            await service.open(address)
            return
        except DependencyDownError as error:
            if str(error) != told:
                told = str(error)
                _log.error("waiting for a dependency", extra={"reason": str(error)})
            await asyncio.sleep(_OPEN_AGAIN_S)
