"""`lingua certs`: certificates for a first deployment with TLS."""

import ipaddress
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lingua_scheduler.cli.failures import NOT_FOUND, Failure
from lingua_scheduler.cli.options import Options, json_option, pass_options

if TYPE_CHECKING:
    from cryptography import x509

    from lingua_scheduler.cli.certificates import Wanted

Command = TypeVar("Command", bound=Callable[..., Any])

CONSOLE = "console"
SERVICES = ("pool", "dispatcher", "gateway", CONSOLE)

_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def _life(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([mhd])", value)
    if match is None or int(match[1]) == 0:
        raise click.BadParameter(f"{value!r} must be a number followed by m, h or d, such as 90d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _id(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _ID.fullmatch(value):
        raise click.BadParameter(f"{value!r} must be 1 to 128 characters of A-Z a-z 0-9 . _ -")
    return value


def _host_names(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    for value in values:
        if not _HOST.fullmatch(value) and not _is_ip(value):
            raise click.BadParameter(f"{value!r} must be a host name or an IP address")
    return values


def _role_option(role: str, metavar: str, text: str) -> Callable[[Command], Command]:
    return click.option(f"--{role}", metavar=metavar, callback=_id, help=text)


_folder = click.argument(
    "folder", metavar="DIR", type=click.Path(file_okay=False, resolve_path=True, path_type=Path)
)
_hosts = click.option(
    "--host",
    "hosts",
    metavar="NAME_OR_IP",
    multiple=True,
    callback=_host_names,
    help="A host name or IP address of the server; may be repeated.",
)


@click.group()
def certs() -> None:
    """Create certificates for TLS: an authority and what it issues.

    With mutual TLS a certificate also identifies the caller and its role.
    """


@certs.command()
@_folder
@_hosts
def init(folder: Path, hosts: tuple[str, ...]) -> None:
    """Create an authority in DIR, and a certificate for each service.

    The certificates are valid for localhost, lingua.internal and each --host. Services present them
    to callers and to each other. Keep ca.key off the machines that run services.
    """
    from lingua_scheduler.cli.certificates import SERVER_NAME, Authority, check_free

    check_free(folder, ("ca", *SERVICES))
    authority = Authority.made(folder)
    for service in SERVICES:
        authority.issue(_server(service, hosts))
    ca = folder / "ca.crt"
    _say("For every service:")
    _set("TLS_CA_FILE", ca)
    _set("TLS_SERVER_NAME", SERVER_NAME)
    for service in SERVICES:
        _say(f"\nFor the {service}:")
        _set("TLS_CERT_FILE", folder / f"{service}.crt")
        _set("TLS_KEY_FILE", folder / f"{service}.key")
        if service == "pool":
            # Only services and operators call it; apps and nodes may have tokens instead.
            _set("TLS_CLIENT_CA_FILE", ca)
    _say(
        "\nLINGUA_TLS_CLIENT_CA_FILE makes a service ask every caller for a certificate. If you "
        "set it for the dispatcher and the gateway as well, apps, nodes and people need one:\n"
        f"  lingua certs issue {shlex.quote(str(folder))} --client TENANT (or --node, --owner, "
        "--operator)"
    )


@certs.command()
@_folder
@_role_option("client", "TENANT", "For an app of this tenant.")
@_role_option("node", "ID", "For the node with this id.")
@_role_option("owner", "NAME", "For nodes whose id begins with NAME and a dot.")
@_role_option("operator", "NAME", "For a person or a tool that operates the scheduler.")
@_role_option("viewer", "NAME", "For a person or a tool that may look and change nothing.")
@_role_option("service", "NAME", "For a caller with the rights of a service.")
@_role_option(
    "server", "NAME", "For a service, as 'init' creates it, for calling and being called."
)
@_hosts
@click.option(
    "--for",
    "life",
    metavar="TIME",
    default="90d",
    show_default=True,
    callback=_life,
    help="Its lifetime, such as 90d, 12h or 30m.",
)
def issue(folder: Path, hosts: tuple[str, ...], life: timedelta, **roles: str | None) -> None:
    """Issue one certificate with the authority in DIR."""
    from lingua_scheduler.cli.certificates import Authority, Wanted

    given = [(role, name) for role, name in roles.items() if name is not None]
    if len(given) != 1:
        raise click.UsageError(
            "give one of --client, --node, --owner, --operator, --viewer, --service and --server"
        )
    ((role, name),) = given
    if hosts and role != "server":
        raise click.UsageError("--host is valid only with --server: the other roles are not called")
    if role == "owner" and "." in name:
        raise click.UsageError("--owner: the name of an owner must not contain a dot")
    if role == "server":
        wanted = _server(name, hosts, life)
    else:
        wanted = Wanted(name=f"{role}-{name}", uri=f"lingua:{role}/{name}", life=life)
    path = Authority.found(folder).issue(wanted)
    server = role == "server"
    _say(f"Issued until {datetime.now(UTC) + life:%F %H:%M} UTC. To use it, set")
    _set("TLS_CA_FILE", folder / "ca.crt")
    _set("TLS_CERT_FILE" if server else "TLS_CLIENT_CERT_FILE", path)
    _set("TLS_KEY_FILE" if server else "TLS_CLIENT_KEY_FILE", path.with_name(f"{path.stem}.key"))


@certs.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--ca",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The authority that should have issued it (default: ca.crt beside it).",
)
@json_option
@pass_options
def show(options: Options, file: Path, ca: Path | None) -> None:
    """Show the role and expiry of the certificate FILE, and whether the authority issued it.

    Fails with exit code 1 if it has expired or was not issued by the authority.
    """
    from lingua_scheduler.cli.certificates import is_issued_by, names_of, read_certificate
    from lingua_scheduler.cli.views.output import print_json

    certificate = read_certificate(file)
    ca = ca or file.with_name("ca.crt")
    if not ca.exists():
        raise Failure(
            f"{ca} does not exist: set the authority with --ca",
            reason="NO_FILE",
            exit_code=NOT_FOUND,
        )
    authority = read_certificate(ca)
    hosts, uris = names_of(certificate)
    ends = certificate.not_valid_after_utc
    told = {
        "subject": certificate.subject.rfc4514_string(),
        "hosts": hosts,
        "uris": uris,
        "role": _role(certificate, uris),
        "not_after": ends.isoformat(),
        "expired": ends <= datetime.now(UTC),
        "issued_by_authority": is_issued_by(certificate, authority),
    }
    if options.json:
        print_json(told)
    else:
        left = ends - datetime.now(UTC)
        rest = f"{left.days} days left" if left > timedelta() else "expired"
        for head, value in (
            ("subject", told["subject"]),
            ("role", told["role"]),
            ("hosts", ", ".join(hosts) or "none"),
            ("uris", ", ".join(uris) or "none"),
            ("not after", f"{ends:%F %T} UTC ({rest})"),
            ("issued by", f"{'' if told['issued_by_authority'] else 'not '}the authority"),
        ):
            _say(f"{head:<10} {value}")
    if told["expired"]:
        raise Failure(f"{file} expired at {ends:%F %T} UTC", reason="EXPIRED")
    if not told["issued_by_authority"]:
        raise Failure(f"{file} was not issued by that authority", reason="FOREIGN")


def _server(name: str, hosts: tuple[str, ...], life: timedelta | None = None) -> "Wanted":
    from lingua_scheduler.cli.certificates import LOCAL_HOSTS, SERVER_LIFE, Wanted

    # The console only looks; who acts there does so with a token of its own.
    role = "viewer" if name == CONSOLE else "service"
    return Wanted(
        name=name,
        uri=f"lingua:{role}/{name}",
        life=life or SERVER_LIFE,
        hosts=(*hosts, *LOCAL_HOSTS),
    )


def _role(certificate: "x509.Certificate", uris: list[str]) -> str:
    from cryptography import x509

    try:
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "authority"
    except x509.ExtensionNotFound:
        pass
    return next((uri.removeprefix("lingua:") for uri in uris if uri.startswith("lingua:")), "none")


def _is_ip(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _say(line: str) -> None:
    click.echo(line)


def _set(name: str, value: object) -> None:
    click.echo(f"  LINGUA_{name}={shlex.quote(str(value))}")
