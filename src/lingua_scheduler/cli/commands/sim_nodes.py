"""`lingua sim-nodes`: simulated nodes for trials and load tests."""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import click

from lingua_scheduler.cli import event_loop
from lingua_scheduler.cli.failures import FAILED, USAGE, Failure
from lingua_scheduler.cli.options import Options, json_option, pass_options, seconds_option
from lingua_scheduler.cli.views.output import print_json

STATUS_EVERY_S = 2.0

_RATE = click.FloatRange(0, 1)


def _rate(name: str, what: str) -> Callable[[Any], Any]:
    return click.option(
        name, type=_RATE, default=0.0, metavar="0..1", help=f"Share of {what} (default: 0)."
    )


@click.command(name="sim-nodes")
@click.option("--count", type=click.IntRange(1, 100_000), default=10, show_default=True)
@click.option(
    "--dispatcher",
    metavar="ADDRESS[,..]",
    help="Addresses of the dispatchers (default: LINGUA_DISPATCHER_ADDRESS).",
)
@click.option("--slots", type=click.IntRange(1, 1000), default=2, show_default=True)
@click.option(
    "--langs",
    metavar="LANG,..",
    default="en,es,zh",
    show_default=True,
    help="Languages that each node recognises, repairs and speaks.",
)
@click.option("--prefix", default="sim", show_default=True, help="Prefix of the nodes' ids.")
@click.option("--latency-ms", type=click.FloatRange(min=0), default=200.0, show_default=True)
@click.option("--latency-jitter-ms", type=click.FloatRange(min=0), default=0.0, show_default=True)
@_rate("--fail-rate", "jobs that fail")
@_rate("--reject-rate", "assignments that are rejected as FULL")
@_rate("--silence-rate", "jobs that are acknowledged but never answered")
@_rate("--no-ack-rate", "assignments that are not acknowledged")
@_rate("--hold-rate", "jobs whose audio is held, if more may follow")
@click.option(
    "--speech-bytes",
    type=click.IntRange(0, 3 * 1024 * 1024),
    default=32_000,
    show_default=True,
    help="Size of each result's speech, if requested. 32000 bytes are a second of 16 kHz audio.",
)
@seconds_option
@click.option("--seed", type=int, help="Seed for the random behaviour of the nodes.")
@json_option
@pass_options
def sim_nodes(
    options: Options,
    /,
    count: int,
    dispatcher: str | None,
    langs: str,
    prefix: str,
    seconds: float | None,
    seed: int | None,
    **behaviour: Any,
) -> None:
    """Run simulated nodes in one process, over real streams.

    They measure the audio: their texts contain its duration and peak. A status line goes to stderr
    every few seconds, and a summary to stdout. Ctrl-C drains; a second one ends at once.
    """
    # Not at the top: `lingua --help` does not need gRPC.
    from lingua_scheduler.cli.clients.sdk_access import may_not, node_token, tls_of
    from lingua_scheduler.cli.simulated_nodes import Behaviour, SimulatedNodes
    from lingua_scheduler.sdk import NodeRefusedError
    from lingua_scheduler.services.runtime.settings.settings import load_settings

    settings = load_settings()
    addresses = dispatcher or options.addresses.get("dispatcher") or settings.dispatcher_address
    # Otherwise a thousand nodes that lose one dispatcher would log a thousand lines.
    logging.getLogger("lingua_scheduler.sdk").setLevel(logging.ERROR)
    spoken = [lang.strip() for lang in langs.split(",") if lang.strip()]

    async def run() -> dict[str, Any]:
        nodes = SimulatedNodes(
            count=count,
            addresses=addresses,
            behaviour=Behaviour(langs=spoken, **behaviour),
            prefix=prefix,
            seed=seed,
            token=functools.partial(node_token, settings),
            tls=tls_of(settings),
        )
        return await _watch(nodes, seconds)

    try:
        summary = event_loop.run(run())
    except ValueError as error:
        raise Failure(str(error), reason="USAGE", exit_code=USAGE) from error
    except NodeRefusedError as error:
        hint = may_not(error.reason, "node")
        exit_code = USAGE if hint else FAILED
        raise Failure(f"{error}{hint}", reason=error.reason, exit_code=exit_code) from error
    if options.json:
        print_json(summary)
    else:
        click.echo(_words(summary))


async def _watch(nodes: Any, seconds: float | None) -> dict[str, Any]:
    """Serve until a signal or the time limit, with status lines; returns a summary."""
    from lingua_scheduler.services.runtime.signals import stop_signals

    started = time.monotonic()
    most_connected = 0
    with stop_signals() as stopping:
        serving = asyncio.create_task(nodes.serve())
        ticking = asyncio.create_task(stopping.wait())
        while not serving.done() and not stopping.is_set():
            left = float("inf") if seconds is None else started + seconds - time.monotonic()
            if left <= 0:
                break
            await asyncio.wait(
                (serving, ticking),
                timeout=min(STATUS_EVERY_S, left),
                return_when=asyncio.FIRST_COMPLETED,
            )
            most_connected = max(most_connected, nodes.connected)
            click.echo(_status(nodes), err=True)
        ticking.cancel()
        if stopping.is_set():
            click.echo("Draining; press Ctrl-C again to end at once.", err=True)
        if not serving.done():
            await nodes.stop()
        await serving
    return {
        "seconds": round(time.monotonic() - started, 1),
        "most_connected": most_connected,
        **{name: nodes.outcomes[name] for name in _OUTCOMES},
    }


_OUTCOMES = (
    "done",
    "held",
    "failed",
    "rejected",
    "unacknowledged",
    "silent",
    "cancelled",
)


def _status(nodes: Any) -> str:
    told = nodes.outcomes
    return (
        f"connected {nodes.connected}  running {nodes.running}  done {told['done']}"
        f"  held {told['held']}  failed {told['failed']}"
    )


def _words(summary: dict[str, Any]) -> str:
    counts = ", ".join(f"{summary[name]} {name}" for name in _OUTCOMES)
    most = summary["most_connected"]
    return f"After {summary['seconds']:g} s with up to {most} nodes connected: {counts}."
