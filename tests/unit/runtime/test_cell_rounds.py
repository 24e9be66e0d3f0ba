"""Rounds in cells: again and again, and independent of each other."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.cells.rounds import CellRounds
from lingua_scheduler.services.runtime.settings.settings import Settings

Eventually = Callable[..., Awaitable[None]]


@contextlib.asynccontextmanager
async def running(rounds: CellRounds) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(work) for work in rounds.work()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def three_cells() -> Cells:
    return Cells(Settings(redis_url="redis://host", cells=3), {})


async def test_a_cell_that_hangs_delays_no_other(eventually: Eventually) -> None:
    cells, done = three_cells(), Counter[int]()

    async def do(cell: Cell) -> None:
        done[cell.number] += 1
        if cell.number == 1:
            await asyncio.Event().wait()

    async with running(CellRounds(cells, every_s=0.001, do=do)):
        await eventually(lambda: min(done[0], done[2]) > 3)
    assert done[1] == 1


async def test_a_cell_that_is_back_has_its_round_at_once_and_no_other(
    eventually: Eventually,
) -> None:
    cells, done = three_cells(), list[int]()

    async def do(cell: Cell) -> None:
        done.append(cell.number)

    rounds = CellRounds(cells, every_s=1000, do=do)
    async with running(rounds):
        rounds.on_back(cells.all[2])
        await eventually(lambda: done == [2])
        rounds.on_back(cells.all[2])
        rounds.on_back(cells.all[0])
        await eventually(lambda: sorted(done) == [0, 2, 2])
