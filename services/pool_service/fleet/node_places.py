"""Which cell a node should be in, and which one has it."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.runtime.contract.cell_names import ranked
from lingua_scheduler.services.runtime.errors import DependencyDownError, NodeNotFoundError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells

# Nodes whose best cell is remembered: it takes longer to compute than to read a heartbeat.
_REMEMBERED = 50_000


class Place(NamedTuple):
    """A cell that knows a node."""

    cell: Cell
    packed: bytes

    @property
    def epoch(self) -> int:
        """Of the node in this cell."""
        return LiveNode.unpack(self.packed).epoch


def best_open(cells: Cells, node_id: str) -> Cell | None:
    """The cell in which a node should be: of those that are open; None if none is."""
    if cells.one:
        return cells.first
    best = _first(node_id, tuple(cell.number for cell in cells.all if cell.is_open))
    return None if best is None else cells.all[best]


@lru_cache(_REMEMBERED)
def _first(node_id: str, numbers: tuple[int, ...]) -> int | None:
    return ranked(node_id, numbers)[0] if numbers else None


async def places_of(cells: Cells, node_id: str) -> Sequence[Place]:
    """The cells that know a node, the one in which it registered last before all others.

    There are several only if it had to leave one that was away.

    Raises:
        NodeNotFoundError: there is no node with this id.
        DependencyDownError: it may be in a cell that is away.
    """

    async def look(cell: Cell) -> Place | None:
        packed = await cell.link.command("HGET", f"{cell.prefix}:nodes:live", node_id)
        return None if packed is None else Place(cell, packed)

    replies = await asyncio.gather(*(look(cell) for cell in cells.all), return_exceptions=True)
    places: list[Place] = []
    failure: BaseException | None = None
    for reply in replies:
        if isinstance(reply, Place):
            places.append(reply)
        elif reply is not None:
            failure = reply
            if not isinstance(reply, DependencyDownError):
                raise reply
    if not places:
        raise failure or NodeNotFoundError(f"there is no node {node_id!r}")
    return sorted(places, key=lambda place: place.epoch, reverse=True)
