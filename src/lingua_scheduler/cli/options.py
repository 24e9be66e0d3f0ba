"""Options shared by all commands, accepted before or after the command's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import grpc

DEFAULT_TIMEOUT_S = 5.0

# Names of the services in help texts.
_SERVICES = {
    "pool": "the pool service",
    "dispatcher": "the dispatcher",
    "gateway": "the session gateway",
}

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass
class Options:
    """Values of the shared options.

    `addresses` has the addresses that were given, by service. `connect` opens a channel to an
    address; None uses the default.
    """

    addresses: dict[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    json: bool = False
    connect: Callable[[str], grpc.Channel] | None = None


def _address(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    # Not at the top: `lingua --help` does not need the services' code.
    from pydantic import TypeAdapter

    from lingua_scheduler.services.runtime.settings.network_fields import Targets

    try:
        TypeAdapter(Targets).validate_python(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} must be host:port, [IPv6]:port or dns:///host:port, or several IPv4 "
            "addresses separated by commas"
        ) from None
    assert parameter.name is not None
    context.ensure_object(Options).addresses[parameter.name] = value


def _timeout(context: click.Context, parameter: click.Parameter, value: float | None) -> None:
    if value is not None:
        context.ensure_object(Options).timeout_s = value


def _json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    # The option may also precede the command's name, so its absence here must not reset it.
    if value:
        context.ensure_object(Options).json = True


def json_option(command: Command) -> Command:
    """Add `--json`."""
    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_json,
        help="Print one JSON document to stdout, and errors as a JSON object to stderr.",
    )(command)


def seconds_option(command: Command) -> Command:
    """Add `--seconds`, for commands that run until they are stopped."""
    return click.option(
        "--seconds",
        type=click.FloatRange(min=0, min_open=True),
        help="Stop after this time (default: run until Ctrl-C).",
    )(command)


def limit_option(command: Command) -> Command:
    """Add `--limit`, for lists that are read page by page."""
    return click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, 1_000_000),
        default=100,
        show_default=True,
        help="Stop after this many entries; they are not necessarily the newest.",
    )(command)


def client_options(*services: str) -> Callable[[Command], Command]:
    """Add the address of each service, such as `--pool`, and `--timeout` and `--json`."""
    timeout = click.option(
        "--timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        expose_value=False,
        callback=_timeout,
        help=f"Time limit of a call (default: {DEFAULT_TIMEOUT_S:g}).",
    )

    def add(command: Command) -> Command:
        command = timeout(json_option(command))
        # The option that is added last comes first in the help.
        for service in reversed(services):
            command = _address_option(service)(command)
        return command

    return add


def _address_option(service: str) -> Callable[[Command], Command]:
    return click.option(
        f"--{service}",
        metavar="ADDRESS",
        expose_value=False,
        callback=_address,
        help=f"Address of {_SERVICES[service]} (default: LINGUA_{service.upper()}_ADDRESS).",
    )


pass_options = click.make_pass_decorator(Options, ensure=True)
