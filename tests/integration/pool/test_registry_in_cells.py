"""Registration over several cells: a node is in one of them, the right one if that is possible."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.pool_service.fleet.node_places import best_open
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    NodeIdConflictError,
    QuotaExceededError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import CellState
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import pool_pb2

from .in_cells import InCells, in_cells


@pytest.fixture
async def world(redis_url: str, prefix: str) -> AsyncIterator[InCells]:
    """Four cells on one server."""
    async with in_cells(redis_url, prefix) as made:
        yield made


async def test_a_node_registers_in_the_cell_that_its_id_stands_for(world: InCells) -> None:
    for number in range(4):
        node = world.node_of(number)
        assert (await world.register(node)).cell == number
        assert await world.where(node) == [number]


async def test_an_idle_node_of_another_cell_moves(world: InCells) -> None:
    node = world.node_of(2)
    await world.drain(2)
    before = await world.register(node)
    assert before.cell != 2
    await world.cells.all[2].write_state(CellState.READY)

    after = await world.register(node, stream_id="s2")

    assert after.cell == 2
    assert await world.where(node) == [2]
    assert after.epoch > before.epoch
    assert after.pools_joined == before.pools_joined > 0
    old = world.cells.all[before.cell]
    assert await old.link.command("EXISTS", f"{old.prefix}:pools") == 0


async def test_a_node_that_an_operator_has_drained_stays_so_when_it_moves(world: InCells) -> None:
    node = world.node_of(1)
    await world.register(node)
    cell = world.cells.all[1]
    await cell.link.call("set_node_health", node, 0, 3, 1)
    key = f"{cell.prefix}:node:{node}"
    since = await cell.link.command("HGET", key, "drained_ms")
    await world.drain(1)

    moved = world.cells.all[(await world.register(node, stream_id="s2")).cell]

    assert moved is not cell
    assert (await world.live(node)).drained
    key = f"{moved.prefix}:node:{node}"
    assert await moved.link.command("HGET", key, "drained_ms") == since


async def test_a_busy_node_stays_until_it_is_idle(world: InCells) -> None:
    node = world.node_of(3)
    await world.register(node)
    await world.occupy(node, 3)
    await world.drain(3)
    again = await world.register(node, stream_id="s2", running=[{"job_id": "job", "attempt": 1}])
    assert again.cell == 3

    await world.vacate(node, 3)
    assert (await world.register(node, stream_id="s3")).cell != 3


async def test_a_live_node_of_another_process_keeps_its_id_in_whichever_cell(
    world: InCells,
) -> None:
    node = world.node_of(0)
    await world.drain(0)
    await world.register(node)
    await world.cells.all[0].write_state(CellState.READY)

    with pytest.raises(NodeIdConflictError, match="in use by a live node at dispatcher"):
        await world.register(node, incarnation="another")
    assert await world.where(node) != [0]


async def test_the_nodes_of_an_owner_count_in_all_cells(redis_url: str, prefix: str) -> None:
    async with in_cells(redis_url, prefix, owner_nodes=4, owner_slots=100) as world:
        nodes = [world.node_of(number) for number in range(4)]
        for node in nodes:
            await world.register(node, node_owner="big")
        # The same node again is not one more.
        await world.register(nodes[0], node_owner="big", stream_id="s2")
        with pytest.raises(QuotaExceededError, match="4"):
            await world.register("n1001", node_owner="big")
        await world.register("n1001", node_owner="other", slots=90)
        with pytest.raises(QuotaExceededError):
            await world.register("n1002", node_owner="other", slots=11)
        await world.register("n1002", node_owner="other", slots=10)


async def test_a_node_is_removed_from_wherever_it_is(world: InCells) -> None:
    node = world.node_of(1)
    await world.drain(1)
    await world.register(node)
    removed = await world.registry.remove(pool_pb2.RemoveNodeRequest(node_id=node))
    assert removed.removed
    assert removed.pools_left > 0
    assert await world.where(node) == []
    assert not (await world.registry.remove(pool_pb2.RemoveNodeRequest(node_id=node))).removed


async def test_a_node_whose_cell_is_away_registers_in_another(prefix: str) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis()) for _ in range(2)]
        urls = " ".join(server.url for server in servers)
        async with in_cells(urls, prefix, cells=2, redis_timeout_ms=400) as world:
            node = world.node_of(1)
            first = await world.register(node)
            assert first.cell == 1
            servers[1].kill()
            with pytest.raises(DependencyDownError):
                await world.cells.all[1].link.command("PING")
            assert best_open(world.cells, node) is world.cells.first
            second = await world.register(node, stream_id="s2")
            assert second.cell == 0
            # Another node may be in the cell that is away.
            with pytest.raises(DependencyDownError):
                await world.registry.remove(pool_pb2.RemoveNodeRequest(node_id="unknown"))
            await world.registry.remove(pool_pb2.RemoveNodeRequest(node_id=node))
            assert await world.where(node) == []
