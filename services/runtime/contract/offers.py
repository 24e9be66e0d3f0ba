"""The directions that nodes offer, as the pool service writes them for gateways. Pure.

One value in Redis has all of them. It is derived, so that losing it costs nothing, and it is
bounded, because the directions with labels of their own are.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

# How long the value is kept if no pool service renews it.
TTL_MS = 180_000


class Offer(NamedTuple):
    """A direction that at least one node serves.

    Attributes:
        src: the source language.
        tgt: the target language; "*" for any.
        speech: whether a node speaks the target language; otherwise results have text only.
        room: whether a slot is free.
    """

    src: str
    tgt: str
    speech: bool
    room: bool


class Offers(NamedTuple):
    """All directions at one time, in ms since the epoch; 0 if nothing is known."""

    as_of_ms: int
    directions: tuple[Offer, ...]


NOTHING = Offers(0, ())


def offers_key(prefix: str) -> str:
    """The key of the value."""
    return f"{prefix}:offers"


def packed(as_of_ms: int, directions: Iterable[Offer]) -> str:
    """The value."""
    return json.dumps([as_of_ms, [list(each) for each in sorted(directions)]])


def unpacked(value: bytes) -> Offers:
    """Reads the value. Raises ValueError if it is from a version that writes another form."""
    try:
        as_of_ms, listed = json.loads(value)
        return Offers(int(as_of_ms), tuple(Offer(*each) for each in listed))
    except TypeError as error:
        raise ValueError(str(error)) from None
