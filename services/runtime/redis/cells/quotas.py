"""Limits of tenants that hold over all cells."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from weakref import WeakValueDictionary

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.script_calls import count_holds


class QuotaOverCells:
    """Counts what a tenant has in other cells, for the script that adds one more.

    Only one cell knows its count for certain, so a limit may be exceeded: by one for each other
    instance that adds one at the same moment in another cell, and by what is in cells that are
    away.

    Args:
        cells: that are counted.
        what: the name of the quota in lua/lib/quota.lua.
    """

    def __init__(self, cells: Cells, what: str) -> None:
        self._cells = cells
        self._what = what
        # Tenants that are adding something here.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def elsewhere(self, tenant: str, limit: int, cell: Cell) -> AsyncIterator[int]:
        """Gives what a tenant has outside a cell. Inside the block, it adds nothing else here.

        Args:
            tenant: whose it is.
            limit: of the tenant; 0 for none: then nothing is counted.
            cell: that is left out.
        """
        if self._cells.one or not limit:
            yield 0
            return
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            others = (other for other in self._cells.all if other is not cell)
            yield sum(await asyncio.gather(*(self._count(other, tenant) for other in others)))

    async def _count(self, cell: Cell, tenant: str) -> int:
        try:
            return int(await cell.link.call(*count_holds(tenant=tenant, what=self._what)))
        except DependencyDownError:
            return 0
