"""A dispatcher that is no longer the home of its job, and does not know it."""

import asyncio
import contextlib

from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.process import SOON_S
from tests.support.scene import together
from tests.support.services import PATIENT, PoolProcess, running_dispatcher

JOB_TIMEOUT_MS = 1500


async def test_an_old_home_asks_for_the_result_and_has_nothing_done_twice(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        homes = [
            await stack.enter_async_context(
                running_dispatcher(
                    pool_process, redis_url, instance_id=name, job_timeout_ms=JOB_TIMEOUT_MS
                )
            )
            for name in ("old", "new")
        ]
        old, new = await stack.enter_async_context(together(homes, pool_process))
        node, first, second = await new.node(), old.gateway(), new.gateway()
        job = await first.submit(old.spec())
        assign = await node.take_job()
        await first.accepted(job)
        # Its session has moved to another gateway, which has another dispatcher.
        await second.submit(new.spec())
        again = await node.take_job()
        assert again.attempt == assign.attempt
        await node.result(again)
        await second.delivered(job)
        await node.expect_received(again)
        # The node has forgotten the job, and another job has its slot. The old home may now ask
        # only for the result.
        late = await node.expect_assign(within=5 * JOB_TIMEOUT_MS / 1000)
        assert late.attempt == assign.attempt
        assert late.only_if_known
        assert not late.job.audio
        await node.reject(late, dispatcher_pb2.JobReject.CAUSE_NOT_KNOWN)
        assert "no longer has the result" in (await first.failed(job)).message


async def test_a_drain_does_not_wait_for_a_job_that_has_another_home(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with (
        running_dispatcher(pool_process, redis_url, instance_id="leaves", **PATIENT) as leaves,
        running_dispatcher(pool_process, redis_url, instance_id="stays", **PATIENT) as stays,
        together([leaves, stays], pool_process) as (old, new),
    ):
        node, first, second = await new.node(), old.gateway(), new.gateway()
        job = await first.submit(old.spec())
        await node.take_job()
        await first.accepted(job)
        await second.submit(new.spec())
        again = await node.take_job()
        await first.cut()
        leaves.terminate()
        assert await asyncio.to_thread(leaves.wait_end, SOON_S) == 0
        await node.result(again)
        await second.delivered(job)


async def test_a_drain_waits_for_a_job_whose_gateway_has_left_and_retries_it(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with (
        running_dispatcher(
            pool_process, redis_url, instance_id="home", **(PATIENT | {"drain_grace_ms": 30_000})
        ) as home,
        running_dispatcher(pool_process, redis_url, instance_id="other", **PATIENT) as other,
        together([home, other], pool_process) as (at_home, elsewhere),
    ):
        node, gateway = await at_home.node("a"), at_home.gateway()
        job = await gateway.submit(at_home.spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        good = await elsewhere.node("b")
        home.terminate()
        await at_home.drains()
        await gateway.cut()
        following = elsewhere.gateway()
        await following.attach(job)
        # Longer than a drain that gives up such jobs would take.
        await asyncio.sleep(4)
        await node.fail(assign, "BROKEN", worth_retry=True)
        retried = await good.take_job()
        await good.result(retried, "hola")
        delivered = await following.delivered(job)
        assert delivered.result.texts.translated == "hola"
        # The drain waits until its nodes have left, too.
        await node.cut()
        assert await asyncio.to_thread(home.wait_end, 30) == 0
