"""A dispatcher that is no longer the home of its job, and does not know it."""

import contextlib

from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.scene import together
from tests.support.services import PoolProcess, running_dispatcher

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
