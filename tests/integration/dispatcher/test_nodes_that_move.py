"""Nodes leave a cell that is drained, at a real dispatcher and pool service."""

import itertools
from collections.abc import AsyncIterator

import grpc
import pytest

from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell, ranked
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.raw_node import RawNode
from tests.support.scene import Scene, scene
from tests.support.services import PATIENT, DispatcherProcess, PoolProcess

CELLS = 4
MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION


@pytest.fixture
async def at(redis_url: str, prefix: str) -> AsyncIterator[Scene]:
    """A scene at services with four cells on one server, and quick heartbeats."""
    settings = {
        **PATIENT,
        "cells": CELLS,
        "redis_timeout_ms": 4000,
        "node_heartbeat_ms": 100,
        "heartbeat_batch_ms": 50,
    }
    with (
        PoolProcess(redis_url=redis_url, prefix=prefix, **settings) as pool,
        DispatcherProcess(pool=pool, redis_url=redis_url, **settings) as dispatcher,
    ):
        async with scene(dispatcher, pool) as made:
            yield made


async def node_of(at: Scene, *order: int) -> RawNode:
    """A node that prefers these cells, in this order."""
    names = (f"n{number}" for number in itertools.count())
    found = next(
        name
        for name in names
        if tuple(ranked(at.hello(name).node_id, range(CELLS))[: len(order)]) == order
    )
    return await at.node(found, slots=4)


async def drain(at: Scene, cell: int) -> None:
    async with grpc.aio.insecure_channel(at.pool_address) as channel:
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        state = pool_pb2.CELL_STATE_DRAINING
        await stub.SetCellState(pool_pb2.SetCellStateRequest(number=cell, state=state))


async def until_in(at: Scene, node: RawNode, cell: int) -> None:
    def is_there(known: pool_pb2.Node | None) -> bool:
        ready = common_pb2.NODE_HEALTH_READY
        return known is not None and (known.cell, known.health) == (cell, ready)

    await at.until(node, is_there)


async def test_a_busy_node_finishes_its_job_and_then_moves(at: Scene) -> None:
    node, gateway = await node_of(at, 2, 3), at.gateway()
    job = await gateway.submit(at.spec())
    assign = await node.take_job()
    await drain(at, 2)
    await until_in(at, node, 2)

    await node.result(assign, "well")
    assert (await gateway.delivered(job)).result.texts.translated == "well"

    await until_in(at, node, 3)
    following = await gateway.submit(at.spec(1))
    await node.result(await node.take_job(), "better")
    assert (await gateway.delivered(following)).result.texts.translated == "better"


@pytest.mark.parametrize("home", [0, 2, 3])
async def test_a_turn_follows_its_node_into_another_cell(at: Scene, home: int) -> None:
    # The cell of the session: a third one, the one that the node leaves, or the one it goes to.
    node, gateway = await node_of(at, 2, 3), at.gateway()
    session = id_in_cell(f"s-{at.src}", home)
    await gateway.submit(at.spec(0, session_id=session, reason=MAX_DURATION))
    await node.held(await node.take_job())
    # Others could do the rest, and would not have its beginning.
    for order in ((0,), (1,), (3,)):
        await node_of(at, *order)
    await drain(at, 2)
    await until_in(at, node, 3)

    rest = await gateway.submit(at.spec(1, session_id=session))
    await node.result(await node.take_job(), "both", joins=True)
    assert (await gateway.delivered(rest)).result.texts.translated == "both"
