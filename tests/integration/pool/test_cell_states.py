"""The states of cells: how they begin, and what operators see and change."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.pool_service.cells.states import CellStates
from lingua_scheduler.services.pool_service.main import POOL
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InvalidMessageError,
    SettingsError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import CellState
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.conftest import Eventually
from tests.support.hosted import hosted
from tests.support.pool_client import registration
from tests.support.rpc_errors import failure

from .in_cells import InCells, in_cells

READY, NEW = pool_pb2.CELL_STATE_READY, pool_pb2.CELL_STATE_NEW
DRAINING = pool_pb2.CELL_STATE_DRAINING


@pytest.fixture
async def world(redis_url: str, prefix: str) -> AsyncIterator[InCells]:
    """Four cells on one server."""
    async with in_cells(redis_url, prefix) as made:
        yield made


def states_of(world: InCells) -> CellStates:
    return CellStates(cells=world.cells, settings=world.settings, nodes=world.nodes)


async def listed(states: CellStates) -> list[pool_pb2.Cell]:
    return list((await states.list_cells(pool_pb2.ListCellsRequest())).cells)


async def change(states: CellStates, number: int, state: int) -> pool_pb2.Cell:
    request = pool_pb2.SetCellStateRequest(number=number, state=state)
    return (await states.set_cell_state(request)).cell


async def state_kept(world: InCells, number: int) -> bytes | None:
    cell = world.cells.all[number]
    return await cell.link.command("HGET", f"{cell.prefix}:cell", "state")


async def test_the_cells_of_a_new_deployment_are_ready(world: InCells) -> None:
    await states_of(world).open()
    assert [await state_kept(world, number) for number in range(4)] == [b"ready"] * 4


async def test_cells_that_are_added_are_new_until_an_operator_says_otherwise(
    redis_url: str, prefix: str
) -> None:
    for count, expected in ((2, [READY] * 2), (4, [READY] * 2 + [NEW] * 2)):
        async with in_cells(redis_url, prefix, cells=count) as world:
            # As often as instances start.
            for _ in range(3):
                await states_of(world).open()
            assert [cell.state for cell in await listed(states_of(world))] == expected
    async with in_cells(redis_url, prefix, cells=4) as world:
        states = states_of(world)
        await states.open()
        assert (await change(states, 3, READY)).state == READY
        assert [cell.state for cell in await listed(states)] == [READY, READY, NEW, READY]
        assert {world.cells.for_new().number for _ in range(100)} == {0, 1, 3}


async def test_cells_that_are_added_to_a_single_one_are_new(redis_url: str, prefix: str) -> None:
    async with in_cells(redis_url, prefix, cells=1) as world:
        await states_of(world).open()
        first = world.cells.first
        assert await first.link.command("EXISTS", f"{prefix}:cell") == 0
        assert [cell.state for cell in await listed(states_of(world))] == [READY]
    async with in_cells(redis_url, prefix, cells=2) as world:
        await states_of(world).open()
        assert [cell.state for cell in await listed(states_of(world))] == [READY, NEW]


async def test_operators_see_what_each_cell_has(world: InCells) -> None:
    states = states_of(world)
    await states.open()
    node = world.node_of(2)
    await world.register(node, slots=5)
    await world.occupy(node, 2)
    await world.registry.of_cell[2].leave([node], 0)
    cell = world.cells.all[2]
    for key, ends in (("sessions", 4_000_000_000_000), ("rooms", 4_000_000_000_000)):
        await cell.link.command("ZADD", f"{cell.prefix}:{key}", ends, "a", 1, "expired")

    shown = await listed(states)

    assert [each.number for each in shown] == [0, 1, 2, 3]
    assert all(each.is_up and each.address.startswith("redis://") for each in shown)
    has = [(each.nodes, each.slots, each.used_slots, each.sessions, each.rooms) for each in shown]
    assert has == [(0,) * 5, (0,) * 5, (1, 5, 1, 1, 1), (0,) * 5]


async def test_a_cell_is_drained_and_made_ready_again(world: InCells) -> None:
    states = states_of(world)
    await states.open()
    assert (await change(states, 1, DRAINING)).state == DRAINING
    assert await state_kept(world, 1) == b"draining"
    assert world.cells.all[1].state is CellState.DRAINING
    # A process that starts does not end that.
    await states_of(world).open()
    assert (await change(states, 1, READY)).state == READY


async def test_the_last_cell_that_is_ready_cannot_be_drained(world: InCells) -> None:
    states = states_of(world)
    await states.open()
    for number in range(3):
        await change(states, number, DRAINING)
    with pytest.raises(InvalidMessageError, match="no other cell than 3 is ready"):
        await change(states, 3, DRAINING)
    await change(states, 0, READY)
    assert (await change(states, 3, DRAINING)).state == DRAINING


async def test_a_single_cell_cannot_be_drained(redis_url: str, prefix: str) -> None:
    async with in_cells(redis_url, prefix, cells=1) as world:
        with pytest.raises(InvalidMessageError, match="no other cell than 0 is ready"):
            await change(states_of(world), 0, DRAINING)
        assert (await change(states_of(world), 0, READY)).state == READY


@pytest.mark.parametrize(("number", "state"), [(4, READY), (0, NEW), (0, 0), (0, 7)])
async def test_a_wrong_change_is_refused(world: InCells, number: int, state: int) -> None:
    with pytest.raises(InvalidMessageError):
        await change(states_of(world), number, state)


async def test_a_cell_with_pools_of_another_size_is_refused(redis_url: str, prefix: str) -> None:
    async with in_cells(redis_url, prefix, cells=2, pool_size=50) as world:
        await states_of(world).open()
    async with in_cells(redis_url, prefix, cells=2, pool_size=51) as world:
        with pytest.raises(SettingsError, match="set LINGUA_POOL_SIZE=50"):
            await states_of(world).open()


async def test_a_cell_that_is_away_is_listed_as_such_and_prepared_when_it_comes(
    prefix: str, eventually: Eventually
) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis()) for _ in range(2)]
        urls = " ".join(server.url for server in servers)
        servers[1].kill()
        async with in_cells(urls, prefix, cells=2, redis_timeout_ms=400) as world:
            states = states_of(world)
            await states.open()
            first, second = await listed(states)
            assert (first.is_up, first.down_reason) == (True, "")
            assert not second.is_up
            assert second.down_reason
            with pytest.raises(DependencyDownError):
                await change(states, 1, DRAINING)
            with pytest.raises(InvalidMessageError, match="no other cell than 0 is ready and up"):
                await change(states, 0, DRAINING)
            servers[1].restart()
            work = asyncio.create_task(states.run())
            try:
                await eventually(lambda: states.is_prepared)
            finally:
                work.cancel()
            assert await state_kept(world, 1) == b"ready"


async def test_a_pool_service_serves_nodes_of_four_cells(redis_url: str, prefix: str) -> None:
    async with (
        hosted(POOL, redis_url=redis_url, prefix=prefix, cells=4) as service,
        service.channel() as channel,
    ):
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        placed = {f"n{n}": await stub.RegisterNode(registration(f"n{n}")) for n in range(20)}
        beats = [
            pool_pb2.NodeBeat(node_id=node, epoch=each.epoch, cell=each.cell)
            for node, each in placed.items()
        ]
        answer = await stub.Heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
        assert not answer.problems
        cells = (await stub.ListCells(pool_pb2.ListCellsRequest())).cells
        assert sum(cell.nodes for cell in cells) == 20
        assert all(cell.nodes for cell in cells)
        drain = pool_pb2.SetCellStateRequest(number=1, state=DRAINING)
        assert (await stub.SetCellState(drain)).cell.state == DRAINING
        wrong = pool_pb2.SetCellStateRequest(number=1000, state=DRAINING)
        _, reason, _ = await failure(stub.SetCellState(wrong))
        assert reason == "INVALID_MESSAGE"
