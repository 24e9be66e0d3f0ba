"""The pools of all cells as operators see them: those of one direction are one pool. Reads only."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from lingua_scheduler.services.pool_service.fleet.cell_pools import CellPools, Drawn
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes, read_token, write_token
from lingua_scheduler.services.runtime.contract.capabilities import ANY, normal
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

# Pools that one step of a page reads.
_SCAN_A_PAGE = 100
# A page ends after this many pools, nodes in them or steps of the scan, whichever comes first.
_POOLS_A_PAGE = 1000
_NODES_A_PAGE = 10_000
_STEPS_A_PAGE = 20
# Pools read concurrently: few enough that other calls do not wait long.
_POOLS_AT_ONCE = 16

# By number of the cell, and there by name of the pool.
_Sizes = Mapping[int, Mapping[str, int]]


class Pools:
    """Reads pools, and the slots of their nodes. Changes nothing."""

    def __init__(self, *, cells: Cells, settings: Settings, nodes: Nodes) -> None:
        self._cells = cells
        self._nodes = nodes
        self.of_cell: Sequence[CellPools] = [
            CellPools(cell=cell, settings=settings) for cell in cells.all
        ]
        """Those of each cell, by its number."""

    async def list_pools(self, request: pool_pb2.ListPoolsRequest) -> pool_pb2.ListPoolsResponse:
        """Returns a page of the pools of the requested directions, with their slots.

        A pool that is in several cells is listed with the first of them. Cells that are away are
        left out, unless all are.
        """
        src, tgt = normal(request.src), normal(request.tgt)
        cursor, number = self._begin(request.page_token)
        page: dict[int, dict[str, Drawn]] = defaultdict(dict)
        names: set[str] = set()
        for _ in range(_STEPS_A_PAGE):
            cursor, sizes = await self._step(number, cursor)
            wanted = [name for name in sizes if _serves(name, src, tgt, text=request.text)]
            everywhere = await self._sizes_everywhere(number, sizes, wanted)
            is_first = (
                name
                for name in wanted
                if not any(name in everywhere[other] for other in everywhere if other < number)
            )
            names.update(await self._draw(is_first, everywhere, page))
            if cursor == "0":
                number += 1
            nodes_read = sum(len(pool.weights) for some in page.values() for pool in some.values())
            is_full = len(names) >= (request.page_size or _POOLS_A_PAGE)
            if number == len(self._cells.all) or is_full or nodes_read >= _NODES_A_PAGE:
                break
        pools = await self._shown(page)
        pools.sort(key=lambda pool: (pool.pair.src, pool.pair.tgt))
        return pool_pb2.ListPoolsResponse(pools=pools, next_page_token=self._next(cursor, number))

    def _begin(self, token: str) -> tuple[str, int]:
        return (token or "0", 0) if self._cells.one else read_token(self._cells, token)

    def _next(self, cursor: str, number: int) -> str:
        if number == len(self._cells.all):
            return ""
        return cursor if self._cells.one else write_token(cursor, number)

    async def _step(self, number: int, cursor: str) -> tuple[str, dict[str, int]]:
        try:
            return await self.of_cell[number].scan(cursor, _SCAN_A_PAGE)
        except DependencyDownError:
            if self._cells.one or not self._cells.up:
                raise
            return "0", {}

    async def _sizes_everywhere(
        self, number: int, sizes: Mapping[str, int], names: Sequence[str]
    ) -> _Sizes:
        """The sizes of these pools in the cells that have them; `sizes` are those in one cell."""
        if self._cells.one:
            return {number: sizes}

        async def look(cell: Cell) -> tuple[int, Mapping[str, int]]:
            if cell.number == number:
                return number, sizes
            return cell.number, await self.of_cell[cell.number].sizes_of(names)

        return dict(await self._cells.each(look))

    async def _draw(
        self, names: Iterable[str], sizes: _Sizes, page: Mapping[int, dict[str, Drawn]]
    ) -> Sequence[str]:
        """Reads the nodes of these pools into the page. Returns their names."""
        rest, found = iter(names), list[str]()
        while some := list(islice(rest, _POOLS_AT_ONCE)):
            parts = [(cell, name) for name in some for cell in sizes if name in sizes[cell]]
            drawn = await asyncio.gather(
                *(self.of_cell[cell].drawn(name, sizes[cell][name]) for cell, name in parts),
                return_exceptions=not self._cells.one,
            )
            for (cell, name), pool in zip(parts, drawn, strict=True):
                if isinstance(pool, Drawn):
                    page[cell][name] = pool
                elif not isinstance(pool, DependencyDownError):
                    raise pool
            found += some
        return found

    async def _shown(self, page: Mapping[int, Mapping[str, Drawn]]) -> list[pool_pb2.Pool]:
        pools: dict[str, pool_pb2.Pool] = {}
        for number, drawn in page.items():
            ids = {each for pool in drawn.values() for each in pool.weights}
            rooms = await self._nodes.of_cell[number].rooms(ids)
            for name, pool in drawn.items():
                shown = self.of_cell[number].shown(name, pool, rooms)
                if name in pools:
                    _add(pools[name], shown)
                else:
                    pools[name] = shown
        return list(pools.values())


def _add(pool: pool_pb2.Pool, other: pool_pb2.Pool) -> None:
    """Adds what another cell has of the same pool."""
    pool.shards += other.shards
    pool.nodes += other.nodes
    pool.ready_nodes += other.ready_nodes
    pool.slots += other.slots
    pool.free_slots += other.free_slots


def _serves(pool: str, src: str, tgt: str, *, text: bool) -> bool:
    """Returns whether a pool serves this direction; an empty language means any."""
    *kind, pool_src, pool_tgt = pool.split(":")
    return bool(kind) == text and src in ("", pool_src) and (not tgt or pool_tgt in (tgt, ANY))
