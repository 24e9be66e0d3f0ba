"""Attempts that a dead dispatcher sent: their slots are not freed while a node runs them."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.raw_node import RawNode
from tests.support.scene import Scene, together
from tests.support.services import DispatcherProcess, PoolProcess, running_dispatcher


@pytest.fixture
async def homes(
    pool_process: PoolProcess, redis_url: str
) -> AsyncIterator[tuple[DispatcherProcess, list[Scene]]]:
    """The dispatcher that is going to die, and a scene at it and at another one."""
    settings = {"ack_timeout_ms": 20_000, "reservation_ttl_ms": 30_000}
    async with contextlib.AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(
                running_dispatcher(pool_process, redis_url, instance_id=name, **settings)
            )
            for name in ("dying", "other")
        ]
        scenes = await stack.enter_async_context(together(both, pool_process))
        yield both[0], scenes


async def come_back(scene: Scene, *running: common_pb2.AttemptRef) -> RawNode:
    """Connects the node to that dispatcher, with the attempts that it still runs."""
    return await scene.node(running=running, beats=False)


async def test_a_job_that_its_node_runs_is_not_released_as_not_sent(
    homes: tuple[DispatcherProcess, list[Scene]],
) -> None:
    process, (dying, other) = homes
    node, gateway = await dying.node(), dying.gateway()
    await gateway.submit(dying.spec())
    assign = await node.expect_assign()
    process.kill()
    # The new home gets an attempt at a node behind the dead dispatcher, and cannot reach it.
    idle, gateway = await other.node("idle"), other.gateway()
    job = await gateway.submit(other.spec())
    node = await come_back(other, assign.attempt)
    again = await node.take_job()
    assert again.attempt == assign.attempt
    await node.result(again)
    assert (await gateway.delivered(job)).node_id == node.node_id
    assert "job_assign" not in await idle.settled()


async def test_a_node_gets_nothing_beside_what_it_runs_for_a_dead_home(
    homes: tuple[DispatcherProcess, list[Scene]],
) -> None:
    """The pool may have given its slot away; its dispatcher still knows what it runs."""
    process, (dying, other) = homes
    node, gateway = await dying.node(), dying.gateway()
    await gateway.submit(dying.spec())
    assign = await node.take_job()
    process.kill()
    node = await come_back(other, assign.attempt)
    order = dispatcher_pb2.RelayOrder(home_instance="late", node_id=node.node_id)
    order.assign.attempt.CopyFrom(common_pb2.AttemptRef(job_id="0" * 32, attempt=1))
    order.assign.job.CopyFrom(other.spec(1))
    home = other.stub.Relay()
    await home.write(dispatcher_pb2.RelayRequest(orders=[order]))
    response = await home.read()
    assert isinstance(response, dispatcher_pb2.RelayResponse)
    assert "all slots of the node are taken" in response.reports[0].not_sent.message
    home.cancel()


async def test_a_node_that_its_dispatcher_does_not_have_is_taken_out_of_selection(
    homes: tuple[DispatcherProcess, list[Scene]],
) -> None:
    """The pool may not know yet that the node is gone; no job may spend its tries on it."""
    _, (here, elsewhere) = homes
    node = await here.node()
    known = await here.known_node(node)
    assert known is not None
    order = dispatcher_pb2.RelayOrder(
        home_instance="other", node_id=node.node_id, node_epoch=known.epoch
    )
    order.assign.attempt.CopyFrom(common_pb2.AttemptRef(job_id="0" * 32, attempt=1))
    order.assign.job.CopyFrom(here.spec())
    home = elsewhere.stub.Relay()
    await home.write(dispatcher_pb2.RelayRequest(orders=[order]))
    await home.read()
    offline = common_pb2.NODE_HEALTH_OFFLINE
    await here.until(node, lambda seen: seen is not None and seen.health == offline)
    # It is back as soon as it sends a heartbeat.
    await node.heartbeat()
    ready = common_pb2.NODE_HEALTH_READY
    await here.until(node, lambda seen: seen is not None and seen.health == ready)
    home.cancel()
