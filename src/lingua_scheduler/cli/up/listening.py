"""Addresses that a service listens on, and those that its clients call."""

import errno
import ipaddress
import socket

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def is_taken(address: str) -> bool:
    """Whether another process listens there. Also False if no process could listen there.

    What is wrong then, the service itself says best.
    """
    host, port = split_address(address)
    if port == 0:
        return False
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_refuses(*each) for each in found)


def _refuses(family: int, kind: int, protocol: int, _name: str, target: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def is_ipv4(address: str) -> bool:
    """Whether its host is an IPv4 address: only these may be part of a list."""
    try:
        ipaddress.IPv4Address(split_address(address)[0])
    except ValueError:
        return False
    return True


def any_port(address: str) -> str:
    """The same host, with any free port."""
    return join_address(split_address(address)[0], 0)


def reachable(address: str) -> str:
    """The address for a client on this machine: 0.0.0.0 cannot be called."""
    host, port = split_address(address)
    return join_address(_LOOPBACK.get(host, host), port)


def listen_variables(
    settings: Settings, service: str, *, name: str, is_first: bool, notes: list[str]
) -> dict[str, str]:
    """The variables that say where an instance of a service listens.

    The first instance takes the addresses of the settings, or a free port if one is taken, which
    becomes a note. Others take free ports.
    """
    titles = {
        f"{service}_listen": name,
        f"{service}_metrics_listen": f"{name}'s metrics",
        f"{service}_health_listen": f"{name}'s health service",
    }
    if service == "gateway":
        titles["gateway_web_listen"] = f"{name}'s web entry"
    chosen = {}
    for field, title in titles.items():
        address: str = getattr(settings, field)
        if address and is_first and is_taken(address):
            notes.append(f"{address} is in use: {title} listens on a free port instead")
            address = any_port(address)
        elif address and not is_first:
            address = any_port(address)
        chosen[variable_name(field)] = address
    return chosen
