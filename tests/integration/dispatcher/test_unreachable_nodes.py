"""Nodes that the pool considers alive and nobody can reach: no job is lost on them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import pytest

from lingua_scheduler.services.dispatcher.job.model import MAX_MISSES
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, PoolProcess, running_dispatcher


@pytest.fixture
async def at(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A scene at a dispatcher whose jobs wait long for room."""
    async with (
        running_dispatcher(
            pool_process, redis_url, instance_id="home", queue_wait_ms=60_000
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


async def haunt(at: Scene, dispatcher: DispatcherProcess) -> None:
    """Keeps a dead node alive in the pool, so that it is chosen again and again."""
    hello = at.hello("ghost", slots=8)
    request = pool_pb2.RegisterNodeRequest(
        node_id=hello.node_id,
        incarnation="1",
        stream_id="s",
        capabilities=hello.capabilities,
        max_concurrent_jobs=8,
        health=common_pb2.NODE_HEALTH_READY,
        owner_instance="home",
        owner_address=dispatcher.address,
    )
    async with grpc.aio.insecure_channel(at.pool_address) as channel:
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        while True:
            await stub.RegisterNode(request)
            await asyncio.sleep(0.02)


async def test_a_job_that_no_node_has_had_outlasts_a_node_that_cannot_be_reached(
    at: Scene,
) -> None:
    node, gateway = await at.node(), at.gateway()
    busy = await gateway.submit(at.spec(0))
    assign = await node.take_job()
    haunted = asyncio.create_task(haunt(at, at.dispatcher))
    try:
        await at.until(at.hello("ghost"), lambda seen: seen is not None)
        job = await gateway.submit(at.spec(1, deadline_ms=60_000))
        missed = [(await gateway.retrying(job)).attempt for _ in range(MAX_MISSES + 1)]
        assert missed == sorted(set(missed))
    finally:
        haunted.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await haunted
    await node.result(assign)
    await gateway.delivered(busy)
    assign = await node.take_job()
    assert assign.attempt.job_id == job
    await node.result(assign)
    await gateway.delivered(job)
    # It was taken out of selection, and has been silent since.
    offline = common_pb2.NODE_HEALTH_OFFLINE
    await at.until(at.hello("ghost"), lambda seen: seen is not None and seen.health == offline)


async def test_a_node_that_was_not_reached_and_then_fails_the_job_is_not_asked_again(
    at: Scene,
) -> None:
    """Otherwise one bad node, missed once, could use up all tries while the others are full."""
    node, gateway = await at.node(), at.gateway()
    await gateway.submit(at.spec(0))
    assign = await node.take_job()
    haunted = asyncio.create_task(haunt(at, at.dispatcher))
    try:
        await at.until(at.hello("ghost"), lambda seen: seen is not None)
        job = await gateway.submit(at.spec(1, deadline_ms=60_000))
        for _ in range(2):
            await gateway.retrying(job)
    finally:
        haunted.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await haunted
    bad = await at.node("ghost")
    taken = await bad.take_job()
    await bad.fail(taken, worth_retry=True)
    while (await gateway.retrying(job)).attempt != taken.attempt.attempt:
        pass
    await node.result(assign)
    assert (await node.take_job()).attempt.job_id == job
    assert "job_assign" not in await bad.settled()
