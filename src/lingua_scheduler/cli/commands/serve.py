"""`lingua serve`: one service, or all of them, in the foreground."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

import click

from lingua_scheduler.cli import event_loop
from lingua_scheduler.cli.child_options import (
    announce_ready,
    child_options,
    end_with_stdin,
    read_settings,
)
from lingua_scheduler.cli.options import json_option
from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.service_process import Ready

Serve: TypeAlias = "Callable[[Settings, Ready], Awaitable[None]]"


@click.group()
def serve() -> None:
    """Run one service, or all of them in one process, in the foreground.

    Environment variables configure it ('lingua config' shows them); all but the console need
    LINGUA_REDIS_URL. SIGTERM and Ctrl-C let it finish its work; a second one ends it at once.
    """


@serve.command()
@child_options
@json_option
def pool(**child: bool) -> None:
    """Run the pool service: nodes, pools, selection, reservation."""
    from lingua_scheduler.services.pool_service.main import serve as serve_pool

    _run(serve_pool, **child)


@serve.command()
@child_options
@json_option
def dispatcher(**child: bool) -> None:
    """Run the dispatcher: node streams, jobs, relay. It finds the pool by LINGUA_POOL_ADDRESS."""
    from lingua_scheduler.services.dispatcher.main import serve as serve_dispatcher

    _run(serve_dispatcher, **child)


@serve.command()
@child_options
@json_option
def gateway(**child: bool) -> None:
    """Run the session gateway: speech in, results out, in order.

    It finds dispatchers by LINGUA_DISPATCHER_ADDRESS.
    """
    from lingua_scheduler.services.session_gateway.main import serve as serve_gateway

    _run(serve_gateway, **child)


@serve.command()
@child_options
@json_option
def console(**child: bool) -> None:
    """Run the operators' console: pages and a JSON API about the scheduler.

    It needs no Redis, and finds the services by LINGUA_POOL_ADDRESS, LINGUA_DISPATCHER_ADDRESS and
    LINGUA_GATEWAY_ADDRESS.
    """
    from lingua_scheduler.services.console.main import serve as serve_console

    _run(serve_console, **child)


@serve.command("all")
@child_options
@json_option
def all_in_one(**child: bool) -> None:
    """Run all three services in one process; the console always has its own.

    Each has its own addresses, health and metrics, as in a process of its own. They call each
    other within the process: LINGUA_POOL_ADDRESS and LINGUA_DISPATCHER_ADDRESS are not used.
    """
    from lingua_scheduler.services.all_in_one.main import serve as serve_all

    _run(serve_all, **child)


def _run(serve: Serve, *, announce: bool, await_settings: bool, until_eof: bool) -> None:
    if await_settings and not read_settings():
        return
    settings = load_settings()

    def ready(service: str, address: str, metrics: str, web: str) -> None:
        if announce:
            announce_ready(service, address=address, metrics=metrics, web=web)

    async def run() -> None:
        await serve(settings, ready)

    if until_eof:
        end_with_stdin()
    event_loop.run(run())
