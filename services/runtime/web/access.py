"""Which hosts and origins an HTTP server accepts. Pure.

A browser lets any page open WebSockets to any address, also to the visitor's own machine, and lets
any page read from a name that its owner points there (DNS rebinding). The browser tells where the
page is from (Origin) and which name it used (Host), and both are checked.
"""

import ipaddress
import re

_ANY = "*"

_PORTS = {"http": 80, "https": 443}
# `name`, `name:port`, `[IPv6]` or `[IPv6]:port`.
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")


class Hosts:
    """The names by which callers may reach this server.

    IP addresses are always accepted, because nobody can point them elsewhere, and so is localhost.

    Args:
        allowed: further names, with commas between; "*" for any.
    """

    def __init__(self, allowed: str) -> None:
        self._names = frozenset(_listed(allowed))

    def accepts(self, host: str) -> bool:
        """Whether a request with this Host header may be served."""
        parts = _AUTHORITY.fullmatch(host)
        if parts is None:
            return False
        if _ANY in self._names:
            return True
        name = parts[1].lower()
        return _is_local_or_address(name) or name.rstrip(".") in self._names


class Origins:
    """The origins whose pages may use this server.

    Pages of this server itself always may, and so may callers that are no browsers and send no
    origin.

    Args:
        allowed: further origins such as `https://example.com`, with commas between; "*" for any.
    """

    def __init__(self, allowed: str) -> None:
        self._origins = frozenset(_listed(allowed))

    def accepts(self, origin: str | None, host: str) -> bool:
        """Whether a page of this origin may make a request to this Host."""
        if origin is None or _ANY in self._origins or origin.lower() in self._origins:
            return True
        # The scheme is not compared, because a proxy may terminate TLS.
        scheme, _, authority = origin.lower().partition("://")
        if scheme not in _PORTS:
            return False
        port = _PORTS[scheme]
        return _AUTHORITY.fullmatch(authority) is not None and _same(authority, host, port)


def _listed(value: str) -> list[str]:
    return [each.strip().lower() for each in value.split(",") if each.strip()]


def _is_local_or_address(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _same(one: str, other: str, default_port: int) -> bool:
    return _split(one, default_port) == _split(other.lower(), default_port)


def _split(authority: str, default_port: int) -> tuple[str, int]:
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        return "", 0
    return parts[1], int(parts[2]) if parts[2] else default_port
