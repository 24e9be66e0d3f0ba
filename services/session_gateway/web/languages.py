"""The directions that nodes offer, for pages that let people choose their languages."""

import asyncio
import json
import logging

from lingua_scheduler.services.runtime.contract.offers import (
    NOTHING,
    Offers,
    offers_key,
    unpacked,
)
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells

# How long an answer is repeated without a look at Redis. The pool service writes less often.
_FRESH_S = 2.0

_log = logging.getLogger(__name__)


class Languages:
    """Reads what the pool service has written, at most once in two seconds."""

    def __init__(self, *, cells: Cells) -> None:
        self._cells = cells
        self._body = ""
        self._read_at_s = 0.0
        self._lock = asyncio.Lock()

    async def body(self) -> str:
        """The answer as JSON. If Redis is unavailable it is the last one, which says how old it is.

        Raises:
            DependencyDownError: there is none.
        """
        loop = asyncio.get_running_loop()
        async with self._lock:
            if not self._body or loop.time() - self._read_at_s >= _FRESH_S:
                self._read_at_s = loop.time()
                try:
                    self._body = _body(await self._read_all())
                except DependencyDownError:
                    if not self._body:
                        raise
            return self._body

    async def _read_all(self) -> Offers:
        """All cells have the same, unless one was away."""
        found: list[Offers] = await self._cells.each(_read)
        if found:
            return max(found, key=lambda offers: offers.as_of_ms)
        raise DependencyDownError("the directions cannot be read", why="all cells are away")


async def _read(cell: Cell) -> Offers:
    value = await cell.link.command("GET", offers_key(cell.prefix))
    if value is None:
        return NOTHING
    try:
        return unpacked(value)
    except ValueError as error:
        _log.warning("directions are not readable", extra={"reason": str(error)})
        return NOTHING


def _body(offers: Offers) -> str:
    directions = [each._asdict() for each in offers.directions]
    # As protobuf's JSON form writes numbers of 64 bits.
    return json.dumps({"directions": directions, "asOfMs": str(offers.as_of_ms)})
