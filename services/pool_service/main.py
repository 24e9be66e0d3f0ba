"""The pool service as a process: from its settings to its end."""

import asyncio
import functools
import logging
from collections.abc import Callable

from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.pool_metrics import PoolMetrics
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.service import PoolServicer
from lingua_scheduler.services.pool_service.sweeper import Sweeper
from lingua_scheduler.services.pool_service.views import Views
from lingua_scheduler.services.runtime.errors import DependencyDownError, SettingsError
from lingua_scheduler.services.runtime.grpc_server import GrpcServer
from lingua_scheduler.services.runtime.logs import configure_logs
from lingua_scheduler.services.runtime.lua_scripts import load_scripts
from lingua_scheduler.services.runtime.metrics import MetricsServer, new_registry
from lingua_scheduler.services.runtime.redis_link import RedisLink
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.services.runtime.signals import stop_signals
from lingua_scheduler.services.runtime.telemetry import configure_tracing
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc

SERVICE = "pool"
_GRPC_NAME = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].full_name

# Between tries to reach a Redis that was not there at the start.
_OPEN_AGAIN_S = 0.5

_log = logging.getLogger(__name__)


async def serve(settings: Settings, ready: Callable[[str, str], None]) -> None:
    """Runs the pool service until SIGTERM or SIGINT, then drains.

    Without Redis it starts too, says NOT_SERVING, and waits.

    Args:
        settings: `redis_url` must be set.
        ready: called once with the gRPC and the metrics address ("" where off), when calls are
            answered.

    Raises:
        SettingsError: a setting does not fit: an address is taken, Redis may evict keys, the pools
            there have another size.
    """
    if not settings.redis_url:
        raise SettingsError(
            "LINGUA_REDIS_URL is not set: the pool service needs a Redis "
            "(or use 'lingua up', which brings its own)"
        )
    configure_logs(settings, SERVICE)
    stop_tracing = configure_tracing(f"lingua-{SERVICE}", settings.instance_id)
    prometheus = new_registry()
    metrics = PoolMetrics(prometheus)
    link = RedisLink(
        url=settings.redis_url,
        prefix=settings.redis_prefix,
        scripts=load_scripts(),
        timeout_ms=settings.redis_timeout_ms,
    )
    views = Views(link=link, settings=settings)
    registry = Registry(link=link, settings=settings)
    servicer = PoolServicer(
        operations=Operations(link=link, settings=settings, metrics=metrics, views=views),
        registry=registry,
        views=views,
        instance_id=settings.instance_id,
        max_message_bytes=settings.max_message_bytes,
    )
    sweeper = Sweeper(link=link, settings=settings, registry=registry, views=views, metrics=metrics)
    server = GrpcServer(
        listen=settings.pool_listen,
        variable="LINGUA_POOL_LISTEN",
        services=[
            (
                _GRPC_NAME,
                functools.partial(pool_pb2_grpc.add_PoolServiceServicer_to_server, servicer),
            )
        ],
        instance_id=settings.instance_id,
        max_message_bytes=settings.max_message_bytes,
        keepalive_time_ms=settings.keepalive_time_ms,
        keepalive_timeout_ms=settings.keepalive_timeout_ms,
        drain_grace_ms=settings.drain_grace_ms,
        registry=prometheus,
    )
    server.on_drain(servicer.end_streams)
    exposition = MetricsServer(
        listen=settings.pool_metrics_listen,
        registry=prometheus,
        variable="LINGUA_POOL_METRICS_LISTEN",
    )

    def on_redis(up: bool, reason: str) -> None:
        metrics.redis_up.set(up)
        server.set_serving(up)
        if up:
            _log.info("Redis answers")
        else:
            _log.error("Redis is down: %s", reason)

    link.on_change.append(on_redis)
    sweeping: asyncio.Task[None] | None = None
    try:
        with stop_signals() as stopping:
            metrics_address = await exposition.start()
            address = await server.start()
            _log.info("listening", extra={"address": address, "metrics": metrics_address})
            opening = asyncio.create_task(_open(link, settings))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                await opening
                ready(address, metrics_address)
                sweeping = asyncio.create_task(sweeper.run())
            opening.cancel()
            await stopped
    finally:
        if sweeping:
            sweeping.cancel()
        await server.drain()
        link.on_change.clear()
        await link.close()
        await exposition.stop()
        await asyncio.to_thread(stop_tracing)
    _log.info("ended")


async def _open(link: RedisLink, settings: Settings) -> None:
    """Opens the link, however long that takes, and checks that the pools there fit."""
    told, opened = "", False
    while True:
        try:
            if not opened:
                await link.open()
                opened = True
            await _check_layout(link, settings)
            return
        except DependencyDownError as error:
            if str(error) != told:
                told = str(error)
                _log.error("waiting for Redis: %s", error)
            await asyncio.sleep(_OPEN_AGAIN_S)


async def _check_layout(link: RedisLink, settings: Settings) -> None:
    key = f"{settings.redis_prefix}:layout"
    await link.command("HSETNX", key, "pool_size", settings.pool_size)
    kept = int(await link.command("HGET", key, "pool_size"))
    if kept != settings.pool_size:
        raise SettingsError(
            f"LINGUA_POOL_SIZE={settings.pool_size}: this Redis has pools of {kept} nodes a shard; "
            f"set LINGUA_POOL_SIZE={kept}, or use another LINGUA_REDIS_PREFIX"
        )
