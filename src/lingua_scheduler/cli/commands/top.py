"""`lingua top`: the overview of the console, live in a terminal."""

import asyncio
import contextlib
import time
from typing import Any

import click

from lingua_scheduler.cli import event_loop
from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.colour import can_rewrite
from lingua_scheduler.cli.failures import UNREACHABLE, Failure
from lingua_scheduler.cli.options import Options, client_options, pass_options, seconds_option
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.services.console.documents.backend import Backend
from lingua_scheduler.services.runtime.auth.own_token import OwnToken
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.settings.settings import load_settings

REFRESH_S = 1.0
_POLL_S = 0.05
# Streams end with their token. The command opens a new one with a new token then.
_TOKEN_S = 3600.0
# Rates need two announcements of each instance, which come every 2 s.
_RATES_WITHIN_S = 10.0


@click.command()
@click.option(
    "--kind",
    type=click.Choice(["speech", "text"]),
    default="speech",
    show_default=True,
    help="Show directions of this kind.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Print one overview, after the few seconds that rates need, and exit (default if stdout "
    "is not a terminal).",
)
@seconds_option
@client_options("pool")
@pass_options
def top(options: Options, kind: str, once: bool, seconds: float | None) -> None:
    """Show the scheduler live: load, latency, shortages, instances that are down.

    The same numbers as the overview of the console. Rates are those of the last minute, sparklines
    grow while the command runs. Ctrl-C ends it. With --json it prints one overview and exits.
    """
    with PoolClient.opened(options) as client:
        # Reports the usual error if the service cannot be reached, or refuses the caller.
        client.list_instances(with_settings=False)
    once = once or options.json or not can_rewrite()
    with contextlib.suppress(KeyboardInterrupt):
        event_loop.run(_top(options, kind, once=once, seconds=seconds))


async def _top(options: Options, kind: str, *, once: bool, seconds: float | None) -> None:
    settings = load_settings()
    if address := options.addresses.get("pool"):
        settings = settings.model_copy(update={"pool_address": address})
    backend = Backend.of(
        settings,
        token=OwnToken(settings, role=Role.OPERATOR, lifetime_s=_TOKEN_S),
        timeout_s=options.timeout_s,
    )
    following = asyncio.create_task(backend.sources.run(with_jobs=False))
    try:
        await _first_numbers(backend, options.timeout_s, with_rates=once)
        if not once:
            await _live(backend, kind, seconds)
        elif options.json:
            print_json(await _overview(backend, kind))
        else:
            _print(await _overview(backend, kind))
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await backend.close()


async def _first_numbers(backend: Backend, timeout_s: float, *, with_rates: bool) -> None:
    """Returns when all nodes are known, and the rates if they are wanted."""
    sources = backend.sources
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not (sources.fleet.is_known and sources.instances.as_of_ms):
        if loop.time() - began > timeout_s:
            raise _not_read(backend, timeout_s)
        await asyncio.sleep(_POLL_S)
    while with_rates and sources.instances.rates().jobs_per_s is None:
        if loop.time() - began > timeout_s + _RATES_WITHIN_S:
            raise _not_read(backend, timeout_s + _RATES_WITHIN_S)
        await asyncio.sleep(_POLL_S)
    if with_rates:
        sources.add_point()


def _not_read(backend: Backend, within_s: float) -> Failure:
    problems = backend.sources.problems.document()
    told = "; ".join(str(each["message"]) for each in problems.values()) or "no answer"
    return Failure(
        f"the pool service does not tell about its nodes and instances within {within_s:g} s: "
        f"{told}; --timeout allows more time",
        reason="UNAVAILABLE",
        exit_code=UNREACHABLE,
    )


async def _overview(backend: Backend, kind: str) -> dict[str, Any]:
    return await backend.documents.get("overview", {"kind": kind})


async def _live(backend: Backend, kind: str, seconds: float | None) -> None:
    from rich.console import Console
    from rich.live import Live

    from lingua_scheduler.cli.views.overview import overview_view

    console = Console(highlight=False)
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds if seconds is not None else None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while ends is None or loop.time() < ends:
            document = await _overview(backend, kind)
            view = overview_view(document, now_ms=_now_ms(), sparklines=_has_bars(console))
            live.update(view, refresh=True)
            await asyncio.sleep(REFRESH_S)


def _print(document: dict[str, Any]) -> None:
    """Prints it once: at most 80 columns, plain unless stdout is a terminal."""
    from rich.console import Console

    from lingua_scheduler.cli.views.overview import WIDTH, overview_view

    console = Console(highlight=False)
    console.width = min(WIDTH, console.width)
    view = overview_view(document, now_ms=_now_ms(), sparklines=_has_bars(console))
    console.print(view)


def _has_bars(console: Any) -> bool:
    return str(console.encoding).lower().startswith("utf")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
