"""Cells are added and drained while people speak, as docs/cells.md says: nothing is lost."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import grpc
import pytest

from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.faults.cell_crowd import cell_of, node_in, talking_in
from tests.faults.crowd import LONG, RECOVERED_S
from tests.support.commands import lingua
from tests.support.scheduler import Scheduler
from tests.support.services import addresses
from tests.support.speaker import speaking

CELLS = 4
DRAINED = 3
WORK_MS = 200
SLOTS = 8
DRAIN_S = 15.0
NEW_SESSIONS = 12
NO_CHANCE = 48


@pytest.fixture
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    """Two of each service with one cell, and nodes that will be in a cell each."""
    with Scheduler(redis_url=redis_url, instances=2, cells=1, drain_grace_ms=10_000) as made:
        made.add_nodes(
            [addresses(made.dispatchers)] * CELLS,
            ids=[node_in(cell, range(CELLS)) for cell in range(CELLS)],
            slots=SLOTS,
            work_ms=WORK_MS,
        )
        yield made
        made.check_logs()


@pytest.mark.long
async def test_cells_are_added_and_drained_while_people_speak(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking_in(scheduler, [0] * 4, LONG) as crowd:
        for each in scheduler.services:
            each.change(cells=CELLS)
            each.terminate()
            assert await each.exit_code(DRAIN_S) == 0, each.log()
            await each.restart()
            await crowd.hear_more(1)
        assert await states(scheduler) == ["READY", "NEW", "NEW", "NEW"]
        assert await cells_of_new_sessions(scheduler) == {0}

        for number in range(1, CELLS):
            await say(scheduler, "ready", number)
        took = await until_nodes_are_in(scheduler, range(CELLS))
        record_property("nodes have moved to new cells after, s", round(took, 2))
        await crowd.hear_more(2)
        async with talking_in(scheduler, range(CELLS), LONG) as others:
            await others.hear_more(1)
            await say(scheduler, "drain", DRAINED)
            took = await until_nodes_are_in(scheduler, range(DRAINED))
            record_property("nodes have left a drained cell after, s", round(took, 2))
            await until_new_sessions_avoid(scheduler, DRAINED)
            # Who is there stays there, and is heard.
            await others.hear_more(2)
            assert (await cells(scheduler))[DRAINED].sessions == 1
        others.check("a cell that is drained", record_property)
        assert {cell_of(each) for each in others.people} == set(range(CELLS))
        drained = (await cells(scheduler))[DRAINED]
        assert (drained.sessions, drained.nodes) == (0, 0)
        await crowd.hear_more(1)
    crowd.check("cells that are added", record_property)
    assert {cell_of(each) for each in crowd.people} == {0}


async def say(scheduler: Scheduler, what: str, number: int) -> None:
    """Changes the state of a cell, as an operator does. All processes learn of it soon."""
    pool = scheduler.pools[0].address
    said = await asyncio.to_thread(lingua, "cells", what, str(number), "--pool", pool)
    assert said.returncode == 0, said.stderr


async def cells(scheduler: Scheduler) -> Sequence[pool_pb2.Cell]:
    """All cells."""
    async with grpc.aio.insecure_channel(scheduler.pools[0].address) as channel:
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        return (await stub.ListCells(pool_pb2.ListCellsRequest())).cells


async def states(scheduler: Scheduler) -> list[str]:
    """The states of all cells."""
    names = [pool_pb2.CellState.Name(each.state) for each in await cells(scheduler)]
    return [name.removeprefix("CELL_STATE_") for name in names]


async def until_nodes_are_in(scheduler: Scheduler, wanted: Sequence[int]) -> float:
    """Waits until all nodes are in these cells, and each of these has one; returns the seconds."""
    began = time.monotonic()
    while True:
        counts = [each.nodes for each in await cells(scheduler)]
        if sum(counts) == CELLS and {at for at, n in enumerate(counts) if n} == set(wanted):
            return time.monotonic() - began
        assert time.monotonic() < began + RECOVERED_S, counts
        await asyncio.sleep(0.05)


async def until_new_sessions_avoid(scheduler: Scheduler, cell: int) -> None:
    """Waits until so many sessions in a row are in other cells that it is no chance."""
    deadline, in_a_row = time.monotonic() + RECOVERED_S, 0
    while in_a_row < NO_CHANCE:
        avoided = cell not in await cells_of_new_sessions(scheduler)
        in_a_row = in_a_row + NEW_SESSIONS if avoided else 0
        assert time.monotonic() < deadline, f"sessions are still opened in cell {cell}"


async def cells_of_new_sessions(scheduler: Scheduler) -> set[int]:
    """Opens some sessions; returns their cells."""
    async with contextlib.AsyncExitStack() as stack:
        to = addresses(scheduler.gateways)
        opening = (stack.enter_async_context(speaking(to)) for _ in range(NEW_SESSIONS))
        return {cell_of(each) for each in await asyncio.gather(*opening)}
