"""The subprotocols that clients of the web entry offer, tokens among them. Pure."""

from collections.abc import Iterable

PROTOCOL = "lingua.v1"
_BEARER = "bearer."


def subprotocols(headers: Iterable[str]) -> list[str]:
    """The subprotocols that a client offers, in its order."""
    return [each.strip() for header in headers for each in header.split(",") if each.strip()]


def offered_tokens(offered: Iterable[str]) -> list[str]:
    """The tokens among the subprotocols."""
    return [each[len(_BEARER) :] for each in offered if each.startswith(_BEARER)]
