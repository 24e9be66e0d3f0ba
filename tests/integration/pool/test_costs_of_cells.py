"""What a job costs Redis with twelve cells, counted: at home as much as with one cell."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import pool_pb2
from tests.integration.pool.in_cells import InCells, in_cells
from tests.support.pool_client import allocation, criteria

CELLS = 12
LATER_MS = 600_000


class Pool:
    """Twelve cells on one server, and how many commands each operation takes."""

    def __init__(self, parts: InCells, store: "redis.Redis[bytes]") -> None:
        self.parts = parts
        self.operations = Operations(
            cells=parts.cells,
            settings=parts.settings,
            metrics=parts.metrics,
            reports=parts.reports,
        )
        self._store = store
        self._jobs = 0

    async def cost(self, call: Awaitable[Any]) -> tuple[Any, int, int]:
        """The answer, how many scripts were called, and how many commands they took."""
        before = self._counted()
        answer = await call
        spent = self._counted() - before
        return answer, spent.pop("evalsha", 0), spent.total()

    def _counted(self) -> Counter[str]:
        stats: Any = self._store.info("commandstats")
        aside = re.compile("info|hello|client|ping|script|select")
        names = {name: name.removeprefix("cmdstat_") for name in stats}
        return Counter(
            {name: stats[key]["calls"] for key, name in names.items() if not aside.match(name)}
        )

    def job(self, home: int, direction: str = "zh>en") -> pool_pb2.AllocateRequest:
        """A new job of a session in a cell."""
        self._jobs += 1
        return allocation(
            f"{self._jobs:029x}{home:03x}",
            session_id=id_in_cell(f"s{self._jobs}", home),
            wants=criteria(direction),
        )

    async def fill(self, cell: int, **fields: Any) -> None:
        """Registers a node in a cell that has one slot, which is taken."""
        node_id = self.parts.node_of(cell)
        await self.parts.register(node_id, slots=1, **fields)
        answer = await self.operations.allocate(self.job(cell))
        assert answer.placement.node_id == node_id


@asynccontextmanager
async def pool_of(server: EmbeddedRedis, prefix: str, cells: int) -> AsyncIterator[Pool]:
    # Nothing ends by itself: a lease that ends costs more.
    later = dict.fromkeys(("heartbeat_stale_ms", "running_lease_ms"), LATER_MS)
    with redis.Redis.from_url(server.url, protocol=2) as store:
        async with in_cells(
            server.url,
            prefix,
            cells=cells,
            node_forget_ms=2 * LATER_MS,
            reservation_ttl_ms=60_000,
            **later,
        ) as parts:
            yield Pool(parts, store)


@pytest.fixture
async def pool(own_redis: EmbeddedRedis, prefix: str) -> AsyncIterator[Pool]:
    async with pool_of(own_redis, prefix, CELLS) as pool:
        yield pool


def committed(answer: pool_pb2.AllocateResponse) -> pool_pb2.CommitRequest:
    there = answer.placement
    return pool_pb2.CommitRequest(attempt=answer.attempt, node_id=there.node_id, cell=there.cell)


def completed(answer: pool_pb2.AllocateResponse) -> pool_pb2.CompleteRequest:
    there = answer.placement
    return pool_pb2.CompleteRequest(
        attempt=answer.attempt,
        node_id=there.node_id,
        cell=there.cell,
        outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
    )


async def at_home(pool: Pool) -> set[tuple[tuple[int, int], ...]]:
    """The script calls and commands of each operation of a job, in each cell, with a node each."""
    cells, found = range(len(pool.parts.cells.all)), set()
    for cell in cells:
        await pool.parts.register(pool.parts.node_of(cell))
    for cell in cells:
        answer, *allocate = await pool.cost(pool.operations.allocate(pool.job(cell)))
        assert answer.placement.cell == cell
        _, *commit = await pool.cost(pool.operations.commit(committed(answer)))
        _, *complete = await pool.cost(pool.operations.complete(completed(answer)))
        found.add((tuple(allocate), tuple(commit), tuple(complete)))
    return found


async def test_a_job_with_room_at_home_costs_as_much_with_twelve_cells_as_with_one(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    found = []
    for cells in (1, CELLS):
        async with pool_of(own_redis, f"{prefix}-{cells}", cells) as pool:
            found.append(await at_home(pool))
    one, many = found
    assert one == many
    assert {allocate for allocate, _, _ in one} == {(1, 13)}


async def test_a_job_whose_cell_is_full_costs_four_calls_more(pool: Pool) -> None:
    await pool.fill(0)
    for cell in range(1, CELLS):
        await pool.parts.register(pool.parts.node_of(cell))
    answer, calls, allocate = await pool.cost(pool.operations.allocate(pool.job(0)))
    assert answer.placement.cell != 0
    # Home refuses, another cell gives a slot, home confirms it.
    assert calls == 3
    _, calls, commit = await pool.cost(pool.operations.commit(committed(answer)))
    assert calls == 2
    _, calls, complete = await pool.cost(pool.operations.complete(completed(answer)))
    assert calls == 2
    # A job at home takes 30 to 32.
    assert allocate + commit + complete <= 64


async def test_cells_without_nodes_for_a_direction_are_not_asked_again_at_once(
    pool: Pool,
) -> None:
    await pool.parts.register(pool.parts.node_of(5), slots=50)
    asked = []
    for _ in range(20):
        answer, calls, _ = await pool.cost(pool.operations.allocate(pool.job(0)))
        assert answer.placement.cell == 5
        # Without the two calls at home and the one where there is a node.
        asked.append(calls - 3)
    # Each of the ten other cells once, in whatever order, however many jobs there are.
    assert sum(asked) <= CELLS - 2


async def test_heartbeats_cost_one_call_for_each_cell_that_has_nodes(pool: Pool) -> None:
    beats = []
    for number in range(60):
        registered = await pool.parts.register(f"n{number}")
        beats.append(
            pool_pb2.NodeBeat(node_id=f"n{number}", epoch=registered.epoch, cell=registered.cell)
        )
    cells = {beat.cell for beat in beats}
    request = pool_pb2.HeartbeatRequest(beats=beats)
    await pool.parts.reports.heartbeat(request)
    answer, calls, commands = await pool.cost(pool.parts.reports.heartbeat(request))
    assert not answer.problems
    assert (calls, commands) == (len(cells), 4 * len(cells))
