"""Network addresses in the form of the settings: `host:port`, IPv6 hosts in brackets."""

import re

_ADDRESS = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>\d{1,5})"
)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of an address.

    Raises:
        ValueError: it is not `host:port` or `[v6]:port` with a port from 0 to 65535.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError("must be host:port or [IPv6]:port")
    return match["v6"] or match["host"], int(match["port"])


def join_address(host: str, port: int) -> str:
    """The opposite of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
