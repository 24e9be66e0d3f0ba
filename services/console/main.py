"""The process of the console."""

import asyncio
import logging
from collections.abc import Callable

from lingua_scheduler.services.console.backend import build_backend
from lingua_scheduler.services.console.http.backend import Backend
from lingua_scheduler.services.console.http.server import ConsoleServer
from lingua_scheduler.services.console.metrics import ConsoleMetrics
from lingua_scheduler.services.runtime.auth.guard import guard_of
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.loop_errors import report_loop_errors
from lingua_scheduler.services.runtime.rpc.tls import export_expiry, server_tls
from lingua_scheduler.services.runtime.service_process import Ready, WorkEndedError
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.signals import stop_signals
from lingua_scheduler.services.runtime.telemetry.identity import Identity, set_identity
from lingua_scheduler.services.runtime.telemetry.logs import configure_logs
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer, new_registry
from lingua_scheduler.services.runtime.version import version

NAME = "console"

_log = logging.getLogger(__name__)

Build = Callable[[Settings, ConsoleMetrics, Callable[[], str]], Backend]
"""Makes the backend. The last argument returns where the console listens."""


async def serve(settings: Settings, ready: Ready) -> None:
    """Runs the console until it is told to stop; see `run_console`."""
    await run_console(settings, ready, build_backend)


async def run_console(settings: Settings, ready: Ready, build: Build) -> None:
    """Runs the console in this process until SIGTERM or SIGINT, then ends the event streams.

    It serves at once, whether the services answer or not: its documents tell what it cannot read.

    Args:
        settings: of the process.
        ready: called once it listens.
        build: makes the backend.

    Raises:
        SettingsError: the settings cannot be used.
        WorkEndedError: the backend ended by itself, which is a bug.
    """
    if not settings.console_listen:
        raise SettingsError(f"{variable_name('console_listen')} is empty: the console needs one")
    configure_logs(settings, NAME)
    set_identity(Identity(NAME, settings.instance_id))
    report_loop_errors(asyncio.get_running_loop())
    registry = new_registry()
    guard, tls = guard_of(settings, NAME), server_tls(settings)
    export_expiry(registry, tls, None)
    metrics = ConsoleMetrics(registry)
    backend = build(settings, metrics, lambda: server.address)
    server = ConsoleServer(
        settings=settings, version=version(), backend=backend, guard=guard, tls=tls, metrics=metrics
    )
    metrics_server = MetricsServer(
        listen=settings.console_metrics_listen,
        registry=registry,
        variable=variable_name("console_metrics_listen"),
        tls=tls.context if tls and settings.metrics_tls == "on" else None,
    )
    try:
        with stop_signals() as stopping:
            metrics_address = await metrics_server.start()
            await server.start()
            facts = {
                "address": server.address,
                "metrics": metrics_address,
                "health": server.health_address,
            }
            _log.info("listening", extra=facts)
            ready(NAME, server.address, metrics_address, "")
            try:
                await _until_stopped(stopping, backend)
            finally:
                await server.end(settings.drain_grace_ms / 1000)
    finally:
        await backend.close()
        await metrics_server.stop()
    _log.info("service ended")


async def _until_stopped(stopping: asyncio.Event, backend: Backend) -> None:
    stopped = asyncio.create_task(stopping.wait())
    working = asyncio.create_task(backend.run())
    tasks = (stopped, working)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            error = working.exception()
            raise WorkEndedError(f"a background task ended: {error!r}") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
