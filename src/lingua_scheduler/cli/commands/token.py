"""`lingua token`: the secret and the tokens for a first deployment with auth."""

import functools
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lingua_scheduler.cli.failures import FAILED, USAGE, Failure
from lingua_scheduler.cli.options import Options, json_option, pass_options
from lingua_scheduler.cli.private_files import write_new, write_over
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    variable_name,
)

_SECRET_BYTES = 48
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MAX_LIFE_S = 10 * 366 * 86_400


class _Life(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    name = "TIME"

    def convert(self, value: Any, parameter: Any, context: Any) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d{1,9})([smhd])", value)
        life_s = int(match[1]) * _UNITS[match[2]] if match else 0
        if not 0 < life_s <= _MAX_LIFE_S:
            self.fail(
                f"{value!r} must be a number followed by s, m, h or d, such as 30d, and at most "
                "ten years",
                parameter,
                context,
            )
        return life_s


@dataclass(frozen=True)
class _Signing:
    """Options of all commands that sign."""

    name: str
    secret_file: str | None
    life_s: int
    out: Path | None


def _options(life: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of all commands that sign; they receive them as `signing`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def signs(
            name: str, secret_file: str | None, life_s: int, out: Path | None, **others: Any
        ) -> None:
            command(signing=_Signing(name, secret_file, life_s, out), **others)

        for option in (
            click.option("--name", metavar="TEXT", default="", help="Name of the holder in logs."),
            click.option(
                "--secret-file",
                metavar="FILE",
                help=f"File with secrets; the first one signs [default: "
                f"{variable_name('auth_secret_file')}].",
            ),
            click.option(
                "--for",
                "life_s",
                type=_Life(),
                default=life,
                show_default=True,
                help="Its lifetime, such as 30d, 12h or 90s.",
            ),
            click.option(
                "--out",
                metavar="FILE",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Write it to this file, readable only by you, instead of printing it. "
                "Replaces an existing file.",
            ),
        ):
            signs = option(signs)
        return signs

    return add


@click.group()
def token() -> None:
    """Create and inspect tokens, which identify callers.

    A token is signed with the first secret of LINGUA_AUTH_SECRET_FILE; services with the same
    secret, and LINGUA_AUTH=on, take it. It cannot be called back before it ends.
    """


@token.command()
@click.argument("file", type=click.Path(path_type=Path))
def secret(file: Path) -> None:
    """Write a new random secret to FILE, which must not exist yet."""
    try:
        write_new(file, f"{secrets.token_urlsafe(_SECRET_BYTES)}\n".encode())
    except FileExistsError:
        raise Failure(
            f"{str(file)!r} exists already. To replace a secret, write a new file, add its line "
            "below the old one, wait until all services have read it, and then remove the old one",
            reason="EXISTS",
        ) from None
    shown = file.absolute()
    click.echo(f"Wrote a secret to {shown}. For all services, and for whoever signs tokens:")
    click.echo(f"  export {variable_name('auth')}=on {variable_name('auth_secret_file')}={shown}")


@token.command()
@click.option(
    "--tenant",
    required=True,
    metavar="ID",
    help="The tenant whose sessions and jobs it may access.",
)
@click.option(
    "--sessions", type=click.IntRange(min=0), help="Limit on sessions at a time (0: none)."
)
@click.option("--jobs", type=click.IntRange(min=0), help="Limit on jobs in flight (0: none).")
@click.option(
    "--audio-s-per-minute", type=click.IntRange(min=0), help="Limit on seconds of speech (0: none)."
)
@click.option("--rooms", type=click.IntRange(min=0), help="Limit on rooms (0: none).")
@_options("1h")
def client(tenant: str, signing: _Signing, **limits: Any) -> None:
    """Create a token for an app. Without limits, the services' settings apply."""
    given = {each: value for each, value in limits.items() if value is not None}
    _make(signing, role="client", tenant=tenant, limits=given)


@token.command()
@click.option(
    "--node-id", metavar="ID", default="", help="The only node id that its holder may use."
)
@click.option(
    "--owner",
    metavar="NAME",
    default="",
    help="For all nodes whose id begins with this name and a dot, such as acme.gpu-1. "
    "Together they get one share of the jobs: use it for other people's nodes.",
)
@_options("365d")
def node(node_id: str, owner: str, signing: _Signing) -> None:
    """Create a token for a node, or for all nodes of an owner."""
    if bool(node_id) == bool(owner):
        raise click.UsageError("give one of --node-id and --owner")
    _make(signing, role="node", node_id=node_id, owner=owner)


@token.command()
@_options("30d")
def service(signing: _Signing) -> None:
    """Create a token for a service. A service with the secret signs its own."""
    _make(signing, role="service")


@token.command()
@_options("12h")
def operator(signing: _Signing) -> None:
    """Create a token for the other commands. If the secret is set, they sign their own."""
    _make(signing, role="operator")


@token.command()
@_options("12h")
def viewer(signing: _Signing) -> None:
    """Create a token for people who may look at everything and change nothing."""
    _make(signing, role="viewer")


@token.command()
@click.argument("given", metavar="[TOKEN]", default="-")
@json_option
@pass_options
def show(options: Options, given: str) -> None:
    """Show a token's claims and whether it is valid; "-", the default, reads it from stdin.

    It is checked with the keys of LINGUA_AUTH_SECRET_FILE and LINGUA_AUTH_JWKS_FILE. Exit code 1
    if it is not valid.
    """
    from lingua_scheduler.services.runtime.auth.token_claims import BadClaimsError
    from lingua_scheduler.services.runtime.auth.tokens import read_claims

    text = (sys.stdin.read() if given == "-" else given).strip()
    try:
        header, claims = read_claims(text)
    except BadClaimsError as error:
        raise Failure(f"not a token: {error}", reason="NO_TOKEN", exit_code=USAGE) from None
    problem = _problem(text, load_settings())
    if options.json:
        print_json({"header": header, "claims": claims, "holds": not problem, "problem": problem})
    else:
        for name, value in claims.items():
            click.echo(f"{name:<8} {_shown(name, value)}")
        click.echo(f"{'alg':<8} {header.get('alg')}")
        click.echo(problem or "valid")
    if problem:
        raise click.exceptions.Exit(FAILED)


def _problem(text: str, settings: Settings) -> str:
    """Why services with these settings would refuse the token; "" if they would accept it."""
    from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier
    from lingua_scheduler.services.runtime.errors import UnauthenticatedError

    if not settings.auth_secret_file and not settings.auth_jwks_file:
        return (
            f"it cannot be checked: neither {variable_name('auth_secret_file')} nor "
            f"{variable_name('auth_jwks_file')} is set"
        )
    try:
        TokenVerifier(settings).verify(text)
    except UnauthenticatedError as error:
        return error.message
    return ""


def _shown(name: str, value: Any) -> str:
    is_time = name in ("exp", "iat", "nbf") and isinstance(value, int) and 0 <= value < 2**37
    if is_time:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(value))
    if isinstance(value, dict):
        value = ", ".join(f"{key} {limit}" for key, limit in value.items())
    # The token may contain anything.
    return str(value) if str(value).isprintable() else repr(value)


def _make(signing: _Signing, **claims: Any) -> None:
    """Sign a token, and print it or write it to its file."""
    from lingua_scheduler.services.runtime.auth.token_claims import BadClaimsError
    from lingua_scheduler.services.runtime.auth.tokens import sign_token

    environ = dict(os.environ)
    if signing.secret_file is not None:
        environ[variable_name("auth_secret_file")] = signing.secret_file
    settings = load_settings(environ)
    try:
        signed = sign_token(settings, lifetime_s=signing.life_s, name=signing.name, **claims)
    except BadClaimsError as error:
        raise Failure(
            f"such a token would be refused: {error}", reason="USAGE", exit_code=USAGE
        ) from None
    if signing.out is None:
        click.echo(signed)
        return
    try:
        write_over(signing.out, f"{signed}\n".encode())
    except OSError as error:
        raise Failure(
            f"--out: {signing.out} cannot be written: {error.strerror}",
            reason="USAGE",
            exit_code=USAGE,
        ) from None
    click.echo(f"Wrote a token to {signing.out.absolute()}", err=True)
