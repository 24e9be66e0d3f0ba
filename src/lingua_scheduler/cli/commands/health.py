"""`lingua health`: whether services are serving. The image's HEALTHCHECK runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, UNREACHABLE
from lingua_scheduler.cli.options import Options, client_options, pass_options

if TYPE_CHECKING:
    import grpc

    from lingua_scheduler.services.runtime.settings.settings import Settings

SERVICES = ("pool", "dispatcher", "gateway")
ALL = "all"
# It speaks HTTP, and is asked only by --pid.
CONSOLE = "console"
SERVING = "SERVING"


class _Asked(NamedTuple):
    service: str
    address: str
    # The listener for probes, which serves only health, without TLS.
    probes: bool = False


class _Answer(NamedTuple):
    status: str
    exit_code: int


@click.command()
@click.argument("address", required=False)
@click.option("--service", type=click.Choice(SERVICES), help="Check only this service.")
@click.option(
    "--pid",
    type=int,
    help="Check all that 'lingua serve' runs in this local process; succeeds if it runs something "
    "else.",
)
@click.option(
    "--name",
    default="",
    help="Check one part: liveness, or the full name of a gRPC service (default: the whole).",
)
@client_options(*SERVICES)
@pass_options
def health(
    options: Options, address: str | None, service: str | None, pid: int | None, name: str
) -> None:
    """Check whether services are serving.

    By default checks all three services; with ADDRESS, the server at that address. If there are
    several addresses ("a:1,b:2", here or in LINGUA_POOL_ADDRESS and so on), it checks each. It uses
    the listener for probes if one is set (LINGUA_POOL_HEALTH_LISTEN and so on). Exit code 0: all
    are serving; 1: one is not; 3: one is unreachable; 4: one has no such part. With --json each
    address has its own.
    """
    if sum(each is not None for each in (address, service, pid)) > 1:
        raise click.UsageError("give one of ADDRESS, --service and --pid")
    asked = _each(_Asked("", address)) if address else _by_settings(options, service, pid)
    answers = [
        (
            each,
            _ask_console(each, options.timeout_s)
            if each.service == CONSOLE
            else _ask(each, name, options.timeout_s),
        )
        for each in asked
    ]
    if options.json:
        from lingua_scheduler.cli.views.output import print_json

        told = [
            {
                "service": each.service,
                "address": each.address,
                "status": answer.status,
                "exit_code": answer.exit_code,
            }
            for each, answer in answers
        ]
        print_json({"health": told})
    else:
        for each, answer in answers:
            click.echo(f"{each.service:<10} {each.address}  {_coloured(answer.status)}".lstrip())
    click.get_current_context().exit(max((answer.exit_code for _, answer in answers), default=0))


def _coloured(status: str) -> str:
    from lingua_scheduler.cli.views.states import state

    word, colon, rest = status.partition(":")
    return f"{state(word)}{colon}{rest}"


def _by_settings(options: Options, service: str | None, pid: int | None) -> list[_Asked]:
    from lingua_scheduler.services.runtime.settings.settings import load_settings

    settings = load_settings()
    if pid is not None:
        return [_local(settings, each) for each in services_of(pid)]
    found = (
        _Asked(each, options.addresses[each])
        if each in options.addresses
        else _found(settings, each)
        for each in ([service] if service else SERVICES)
    )
    return [one for each in found for one in _each(each)]


def _each(asked: _Asked) -> list[_Asked]:
    """One entry per address."""
    listed = [part.strip() for part in asked.address.split(",")]
    return [asked._replace(address=part) for part in listed if part]


def services_of(pid: int) -> tuple[str, ...]:
    """What `lingua serve` runs in this process; nothing if it is another command."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    at = command.index("serve") + 1 if "serve" in command else len(command)
    named = next((each for each in command[at:] if each in (*SERVICES, CONSOLE, ALL)), "")
    if named == ALL:
        return SERVICES
    return (named,) if named else ()


def _local(settings: Settings, service: str) -> _Asked:
    from lingua_scheduler.cli.up.listening import reachable

    probes: str = getattr(settings, f"{service}_health_listen")
    listen: str = getattr(settings, f"{service}_listen")
    return _Asked(service, reachable(probes or listen), probes=bool(probes))


def _found(settings: Settings, service: str) -> _Asked:
    if getattr(settings, f"{service}_health_listen"):
        return _local(settings, service)
    return _Asked(service, getattr(settings, f"{service}_address"))


def _ask(asked: _Asked, name: str, timeout_s: float) -> _Answer:
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from lingua_scheduler.cli.clients.service import connect

    with (
        grpc.insecure_channel(asked.address) if asked.probes else connect(asked.address) as channel
    ):
        request = health_pb2.HealthCheckRequest(service=name)
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
        except grpc.RpcError as error:
            return _failed(error)
    status = str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
    return _Answer(status, 0 if status == SERVING else FAILED)


def _ask_console(asked: _Asked, timeout_s: float) -> _Answer:
    import ssl
    import urllib.error
    import urllib.request

    from lingua_scheduler.services.runtime.settings.settings import load_settings

    scheme = "https" if load_settings().tls_cert_file and not asked.probes else "http"
    # A process of this machine, whose certificate has another name.
    anyone = ssl.create_default_context()
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    # No proxy that the environment names.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anyone)
    )
    try:
        with opener.open(f"{scheme}://{asked.address}/healthz", timeout=timeout_s):
            return _Answer(SERVING, 0)
    except urllib.error.HTTPError as error:
        return _Answer(f"NOT_SERVING: status {error.code}", FAILED)
    except OSError as error:
        return _Answer(f"UNAVAILABLE: {getattr(error, 'reason', error)}", UNREACHABLE)


def _failed(error: grpc.RpcError) -> _Answer:
    import grpc

    from lingua_scheduler.cli.clients.service import gist

    code: grpc.StatusCode = getattr(error, "code", lambda: grpc.StatusCode.UNKNOWN)()
    status = f"{code.name}: {gist(str(getattr(error, 'details', lambda: '')() or ''))}"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return _Answer(status, UNREACHABLE)
    return _Answer(status, NOT_FOUND if code is grpc.StatusCode.NOT_FOUND else FAILED)
