"""Runs one service or several as a process, from reading the settings to the drain."""

import asyncio
import gc
import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context

from lingua_scheduler.services.runtime.contract.languages import LANGUAGES, parse_languages
from lingua_scheduler.services.runtime.errors import DependencyDownError, SettingsError
from lingua_scheduler.services.runtime.hosted_service import (
    HostedService,
    ServiceKind,
    in_process_address,
)
from lingua_scheduler.services.runtime.loop_errors import report_loop_errors
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.settings.general_fields import extended_id
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.signals import stop_signals
from lingua_scheduler.services.runtime.telemetry.logs import configure_logs

ALL = "all"
"""The service in log lines of a process that hosts several, if none of them wrote the line."""

Ready = Callable[[str, str, str, str], None]
"""Called with a service's name and its addresses: of gRPC, of metrics ("" if they are off), and for
browsers ("" if it serves none)."""

# Between attempts to reach Redis at the start.
_OPEN_AGAIN_S = 0.5
# Shares of the grace period: after the first, the next service drains even if clients have not
# left; the last is for the service that all others call.
_FIRST_SHARE, _LAST_SHARE = 0.5, 0.1

_log = logging.getLogger(__name__)


class WorkEndedError(Exception):
    """A background task of a service ended by itself, which is a bug."""


async def run_services(settings: Settings, kinds: Sequence[ServiceKind], ready: Ready) -> None:
    """Runs services in this process until SIGTERM or SIGINT, then drains them.

    If Redis is down at the start, the services report NOT_SERVING and wait for it. They share the
    links to Redis. Several services call each other within the process, whatever the addresses of
    the settings are, and each has an instance id of its own: `<instance_id>-<name>`.

    Args:
        settings: `redis_url` must be set.
        kinds: the services; each calls only those before it.
        ready: called for each service once all accept calls.

    Raises:
        SettingsError: the settings cannot be used, or no longer, since Redis has other data.
        WorkEndedError: a background task ended.
    """
    names = [kind.name for kind in kinds]
    is_alone = len(kinds) == 1
    if not settings.redis_url:
        who = f"the {names[0]} service needs" if is_alone else "the services need"
        raise SettingsError(
            f"LINGUA_REDIS_URL is not set: {who} a Redis (or use 'lingua up', which brings its own)"
        )
    configure_logs(settings, names[0] if is_alone else ALL)
    LANGUAGES.allow(parse_languages(settings.languages))
    report_loop_errors(asyncio.get_running_loop())
    cells = Cells(settings, load_scripts())
    servers = {} if is_alone else {in_process_address(name): InProcessServer() for name in names}
    hosted: list[HostedService] = []
    try:
        for kind in kinds:
            own = settings if is_alone else _settings_of(kind.name, names, settings)
            hosted.append(HostedService(kind, own, cells, servers))
        _follow_redis(cells, hosted)
        await _serve(hosted, cells, settings.drain_grace_ms / 1000, ready)
    finally:
        # Not cleared before: a service that drains still has to know.
        for server in cells.servers:
            server.on_change.clear()
        await cells.close()
        await asyncio.gather(*(each.close() for each in hosted))
    _log.info("service ended")


def _settings_of(name: str, names: Sequence[str], settings: Settings) -> Settings:
    """Settings of a service that shares the process with others."""
    peers = {f"{peer}_address": in_process_address(peer) for peer in names}
    own = {"instance_id": extended_id(settings.instance_id, name)}
    # A copy is not validated: no variable may have an address within the process.
    return settings.model_copy(update={**peers, **own})


def _follow_redis(cells: Cells, hosted: Sequence[HostedService]) -> None:
    """Makes the health of the services follow that of Redis."""
    process = copy_context()

    def log(cell: Cell, up: bool, reason: str) -> None:
        which = {} if cells.one else {"cell": cell.number}
        if up:
            _log.info("redis up", extra=which)
        else:
            _log.error("redis down", extra={**which, "reason": reason})

    def on_change(cell: Cell, up: bool, reason: str) -> None:
        for each in hosted:
            each.on_redis(cells.up)
        # The link runs in the context of whichever service called it last.
        process.copy().run(log, cell, up, reason)

    cells.on_change(on_change)


async def _serve(
    hosted: Sequence[HostedService], cells: Cells, grace_s: float, ready: Ready
) -> None:
    """Serves until a signal asks to stop, then drains."""
    with stop_signals() as stopping:
        try:
            for each in hosted:
                await each.start()
            opening = asyncio.create_task(_open(cells, hosted))
            stopped = asyncio.create_task(stopping.wait())
            await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                opening.cancel()
                await asyncio.wait((opening,))
                return
            await opening
            _tune_garbage_collection()
            for each in hosted:
                each.serve(cells.up)
            for each in hosted:
                ready(each.name, each.address, each.metrics_address, each.web_address)
            working = [task for each in hosted for task in each.begin_work()]
            working.append(asyncio.create_task(cells.run()))
            try:
                await _until_stopped(stopped, working)
            finally:
                working[-1].cancel()
        finally:
            await _end(hosted, grace_s)


async def _open(cells: Cells, hosted: Sequence[HostedService]) -> None:
    """Opens the links and then each service, however long that takes."""
    steps = [cells.open, *(each.open for each in hosted)]
    reason = ""
    while steps:
        try:
            await steps[0]()
            del steps[0]
        except DependencyDownError as error:
            if str(error) != reason:
                reason = str(error)
                _log.error("waiting for a dependency", extra={"reason": reason})
            await asyncio.sleep(_OPEN_AGAIN_S)


async def _until_stopped(
    stopped: asyncio.Task[bool], working: Sequence[asyncio.Task[None]]
) -> None:
    await asyncio.wait((stopped, *working), return_when=asyncio.FIRST_COMPLETED)
    for task in working:
        if task.done():
            error = task.exception()
            if isinstance(error, SettingsError):
                raise error
            raise WorkEndedError(f"a background task ended: {error!r}") from error


async def _end(hosted: Sequence[HostedService], grace_s: float) -> None:
    """Drains and closes the services within one grace period, callers before those they call.

    So a service still finds the others while it drains. Only the first to drain has clients that
    may not leave; after half of the time the next one drains, too. The last one drains when all
    others have ended.
    """
    end = asyncio.get_running_loop().time() + grace_s
    for each in hosted:
        each.leave()
    ending: list[asyncio.Task[None]] = []
    for each in reversed(hosted):
        is_last = each is hosted[0]
        by = end if is_last else end - grace_s * _LAST_SHARE
        ending.append(asyncio.create_task(each.end(by)))
        alone = len(ending) == 1 < len(hosted)
        await asyncio.wait(ending, timeout=grace_s * _FIRST_SHARE if alone else None)
    await asyncio.gather(*ending)


def _tune_garbage_collection() -> None:
    """Exempts what has been imported from garbage collection, and makes full collections rare.

    Reference counting frees nearly all garbage. With Python's default thresholds, collections took
    5 % of the dispatcher's time, and a full one, over the tens of thousands of objects of jobs that
    are remembered for a while, stopped everything for up to 80 ms.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(2000, 500, 1000)
