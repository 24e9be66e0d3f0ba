"""Work that is repeated in every cell."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells


class CellRounds:
    """Does something in every cell again and again, and at once if the cell is back.

    Each cell has its own rounds: one that is away or slow delays no other.

    Args:
        cells: in which it is done.
        every_s: seconds between the end of a round and the beginning of the next.
        do: one round in a cell.
    """

    def __init__(
        self, cells: Cells, *, every_s: float, do: Callable[[Cell], Awaitable[None]]
    ) -> None:
        self._every_s = every_s
        self._do = do
        self._is_back = {cell: asyncio.Event() for cell in cells.all}

    def on_back(self, cell: Cell) -> None:
        """A cell is available again."""
        self._is_back[cell].set()

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """The rounds, each of which run until cancelled."""
        return [self._rounds(cell, is_back) for cell, is_back in self._is_back.items()]

    async def _rounds(self, cell: Cell, is_back: asyncio.Event) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await is_back.wait()
            is_back.clear()
            await self._do(cell)
