"""Heartbeats over several cells, and how they make nodes move to the right one."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    NodeNotFoundError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import CellState
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.conftest import Eventually

from .in_cells import InCells, in_cells


@pytest.fixture
async def world(redis_url: str, prefix: str) -> AsyncIterator[InCells]:
    """Four cells on one server."""
    async with in_cells(redis_url, prefix) as made:
        yield made


async def marks(world: InCells, number: int) -> list[int]:
    """Why each node of a cell gets no jobs, in any order."""
    cell = world.cells.all[number]
    packed = await cell.link.command("HVALS", f"{cell.prefix}:nodes:live")
    # lua/lib/live.lua
    return [record[53] for record in packed]


async def test_heartbeats_reach_the_nodes_of_all_cells(world: InCells) -> None:
    nodes = [world.node_of(number) for number in range(4)]
    registered = [(node, await world.register(node)) for node in nodes]
    before = [(await world.live(node)).beat_ms for node in nodes]
    assert await world.beat(*registered) == set()
    after = [(await world.live(node)).beat_ms for node in nodes]
    assert all(late >= early for early, late in zip(before, after, strict=True))
    load = common_pb2.NodeLoad(cpu=0.5)
    beats = [
        pool_pb2.NodeBeat(node_id=node, epoch=each.epoch, cell=each.cell, load=load)
        for node, each in registered
    ]
    await world.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
    assert [(await world.live(node)).load for node in nodes] == [0.5] * 4


async def test_heartbeats_of_one_cell_show_that_the_nodes_of_the_others_are_silent(
    world: InCells,
) -> None:
    await world.beat((world.node_of(2), await world.register(world.node_of(2))))
    heard = [
        await cell.link.command("EXISTS", f"{cell.prefix}:hearing:since")
        for cell in world.cells.all
    ]
    assert heard == [1] * 4


async def test_a_node_that_names_a_wrong_cell_registers_again(world: InCells) -> None:
    node = world.node_of(2)
    registered = await world.register(node)
    for wrong in (1, 4, 999):
        registered.cell = wrong
        assert await world.beat((node, registered)) == {node}


async def test_idle_nodes_of_a_drained_cell_leave_it_a_few_at_a_time(world: InCells) -> None:
    names = [f"n{n}" for n in range(200)]
    nodes = [name for name in names if world.cells.of_new_node(name).number == 1][:40]
    registered = {node: await world.register(node) for node in nodes}
    assert len(nodes) == 40
    assert await world.beat(*registered.items()) == set()
    await world.drain(1)

    left = await world.beat(*registered.items())

    assert len(left) == 2
    # Until they have registered again they are told so, and get no jobs.
    assert left < await world.beat(*registered.items())
    for node in left:
        assert (await world.live(node)).health == codes.LEAVING
        registered[node] = await world.register(node)
        assert registered[node].cell != 1
        assert len(await world.where(node)) == 1
    assert await world.beat(*((node, registered[node]) for node in left)) == set()


async def test_a_busy_node_gets_no_new_jobs_until_it_can_leave(world: InCells) -> None:
    node = world.node_of(1)
    registered = await world.register(node)
    await world.occupy(node, 1)
    await world.drain(1)
    assert await world.beat((node, registered)) == set()
    assert await marks(world, 1) == [codes.MOVING]
    # No operator has drained it.
    view = (await world.nodes.get_node(pool_pb2.GetNodeRequest(node_id=node))).node
    assert (view.drained_by_operator, view.health) == (False, common_pb2.NODE_HEALTH_READY)

    await world.vacate(node, 1)
    assert await world.beat((node, registered)) == {node}
    assert (await world.register(node)).cell != 1


async def test_a_busy_node_is_free_again_if_its_cell_is_ready_again(world: InCells) -> None:
    node = world.node_of(1)
    registered = await world.register(node)
    await world.occupy(node, 1)
    await world.drain(1)
    await world.beat((node, registered))
    await world.cells.all[1].write_state(CellState.READY)
    assert await world.beat((node, registered)) == set()
    assert await marks(world, 1) == [0]


async def test_few_busy_nodes_are_marked_at_a_time(world: InCells) -> None:
    names = [f"n{n}" for n in range(200)]
    nodes = [name for name in names if world.cells.of_new_node(name).number == 3][:40]
    registered = [(node, await world.register(node)) for node in nodes]
    for node in nodes:
        await world.occupy(node, 3)
    await world.drain(3)
    for _ in range(3):
        assert await world.beat(*registered) == set()
        assert (await marks(world, 3)).count(codes.MOVING) == 2


async def test_an_operator_drains_a_node_in_whichever_cell(world: InCells) -> None:
    node = world.node_of(2)
    await world.drain(2)
    cell = (await world.register(node)).cell
    request = pool_pb2.SetNodeHealthRequest(
        node_id=node, health=common_pb2.NODE_HEALTH_DRAINING, by_operator=True
    )
    view = (await world.reports.set_node_health(request)).node
    assert (view.cell, view.drained_by_operator) == (cell, True)
    with pytest.raises(NodeNotFoundError):
        await world.reports.set_node_health(
            pool_pb2.SetNodeHealthRequest(node_id="unknown", health=1)
        )


async def test_only_the_nodes_of_a_cell_that_is_away_are_affected(
    prefix: str, eventually: Eventually
) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis()) for _ in range(2)]
        urls = " ".join(server.url for server in servers)
        async with in_cells(urls, prefix, cells=2, redis_timeout_ms=400) as world:
            nodes = [world.node_of(0), world.node_of(1)]
            registered = [(node, await world.register(node)) for node in nodes]
            servers[1].kill()
            assert await world.beat(*registered) == set()
            with pytest.raises(DependencyDownError):
                await world.beat(registered[1])
            listed = await world.nodes.list_nodes(pool_pb2.ListNodesRequest())
            assert [node.node_id for node in listed.nodes] == nodes[:1]
            with pytest.raises(DependencyDownError):
                await world.nodes.get_node(pool_pb2.GetNodeRequest(node_id=nodes[1]))
            # It connects again meanwhile, and goes back when its cell has returned.
            again = await world.register(nodes[1], stream_id="s2")
            assert again.cell == 0
            assert await world.beat((nodes[1], again)) == set()
            servers[1].restart()
            await eventually(lambda: world.cells.all[1].up)
            assert await world.beat((nodes[1], again)) == {nodes[1]}
            assert (await world.register(nodes[1], stream_id="s3")).cell == 1
            assert await world.where(nodes[1]) == [1]
