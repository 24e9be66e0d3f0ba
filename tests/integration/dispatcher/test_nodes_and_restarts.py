"""Nodes while a dispatcher drains, and while the pool service or Redis restarts."""

import asyncio

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.support.pool_client import running_pool
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

READY = common_pb2.NODE_HEALTH_READY


def is_ready(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == READY


def is_free(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.running == node.reserved == 0


def runs_one(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.running == 1


async def test_sigterm_finishes_what_is_in_flight_and_sends_the_nodes_elsewhere(
    brisk: Scene,
) -> None:
    nodes, gateway = [await brisk.node(name) for name in "ab"], brisk.gateway()
    job = await gateway.submit(brisk.spec())
    node, assign = await whoever_gets_it(nodes)
    await node.ack(assign)
    await gateway.accepted(job)

    brisk.dispatcher.terminate()
    await brisk.drains()
    refused = await gateway.submit(brisk.spec(1))
    assert reason(await gateway.failed(refused)) == "DRAINING"
    request = dispatcher_pb2.DispatchRequest(job=brisk.spec(2))
    assert (await failure(brisk.stub.Dispatch(request)))[1] == "DRAINING"
    await node.result(assign)
    await gateway.delivered(job)
    for each in nodes:
        await each.expect("reconnect")
        await each.cut()
    assert await brisk.dispatcher.exit_code() == 0


async def test_a_result_that_nobody_took_before_the_end_is_kept(brisk: Scene) -> None:
    node, gateway = await brisk.node(), brisk.gateway()
    job = await gateway.submit(brisk.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    brisk.dispatcher.terminate()
    await brisk.drains()
    await node.result(assign, "kept")
    await gateway.delivered(job, take=False)
    await node.expect_received(assign)
    await node.expect("reconnect")
    await node.cut()
    assert await brisk.dispatcher.exit_code() == 0

    await brisk.dispatcher.restart()
    following = brisk.gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_the_streams_of_other_dispatchers_do_not_keep_a_drained_one(
    brisk: Scene, patient: Scene
) -> None:
    node, gateway = await brisk.node(), patient.gateway()
    job = await gateway.submit(brisk.spec())
    assign = await node.take_job()
    assert (await gateway.accepted(job)).node_id == node.node_id
    await node.result(assign)
    await gateway.delivered(job)
    await node.expect_received(assign)

    brisk.dispatcher.terminate()
    await node.expect("reconnect")
    await node.cut()
    # Long before the grace period is over.
    assert await brisk.dispatcher.exit_code(within=10) == 0


async def test_the_pool_service_can_be_restarted_under_it(redis_url: str, prefix: str) -> None:
    async with running_pool(redis_url, prefix, redis_timeout_ms=4000) as pool:
        process = pool.process
        async with (
            running_dispatcher(process, redis_url, heartbeat_batch_ms=50) as dispatcher,
            scene(dispatcher, process) as made,
        ):
            node, gateway = await made.node(slots=2), made.gateway()
            job = await gateway.submit(made.spec())
            assign = await node.take_job()
            await gateway.accepted(job)

            process.process.kill()
            process.process.wait()
            refused = await gateway.submit(made.spec(9))
            assert reason(await gateway.failed(refused)) == "SCHEDULER_DEPENDENCY_DOWN"
            await node.result(assign)
            await gateway.delivered(job)
            again = PoolProcess(
                redis_url=redis_url,
                prefix=prefix,
                redis_timeout_ms=4000,
                pool_listen=process.address,
            )
            again.start()
            try:
                await asyncio.to_thread(again.wait_ready)
                # The slot of the first job is given back as soon as somebody takes it.
                await made.until(node, is_free)
                for index in (1, 2):
                    job = await gateway.submit(made.spec(index))
                    assert (await node.take_job()).attempt.job_id == job
            finally:
                await asyncio.to_thread(again.stop)


async def test_a_redis_that_comes_back_empty_gets_its_nodes_again(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with (
        running_pool(own_redis.url, prefix) as pool,
        running_dispatcher(
            pool.process,
            own_redis.url,
            redis_timeout_ms=400,
            node_heartbeat_ms=600,
            heartbeat_batch_ms=50,
        ) as dispatcher,
        scene(dispatcher, pool.process) as made,
    ):
        node, gateway = await made.node(slots=2, beats=False), made.gateway()
        job = await gateway.submit(made.spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        await made.until(node, runs_one)
        beating = asyncio.create_task(_beat(node, assign.attempt))

        own_redis.kill()
        await asyncio.to_thread(own_redis.restart)
        await pool.serves(30)
        # With the slot of what it runs.
        await made.until(node, lambda known: is_ready(known) and runs_one(known))
        second = await gateway.submit(made.spec(1))
        assert (await node.take_job()).attempt.job_id == second
        await node.result(assign)
        await gateway.delivered(job)
        beating.cancel()


async def _beat(node: RawNode, *running: common_pb2.AttemptRef) -> None:
    while True:
        await node.heartbeat(running=running)
        await asyncio.sleep(0.2)
