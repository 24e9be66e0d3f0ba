"""Jobs that wait for a node that has not failed them, at one real dispatcher."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.raw_gateway import id_of
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

# More than a round of the direction's queue passes over.
FAILED = 10
_FOR_LONG = 120_000


@asynccontextmanager
async def dispatcher(
    pool_process: PoolProcess, redis_url: str, **settings: int
) -> AsyncIterator[Scene]:
    """A dispatcher whose jobs have one more try, which waits for another node."""
    async with (
        running_dispatcher(
            pool_process, redis_url, max_retry=1, other_nodes_wait_ms=_FOR_LONG, **settings
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.mark.parametrize("worth_retry", [True, False])
async def test_jobs_that_wait_for_another_node_do_not_hold_up_other_jobs(
    pool_process: PoolProcess, redis_url: str, worth_retry: bool
) -> None:
    async with dispatcher(pool_process, redis_url) as here:
        node, gateway = await here.node("a", slots=50), here.gateway()
        failed = [here.spec(session_id=f"bad-{i}-{here.src}") for i in range(FAILED)]
        for spec in failed:
            await gateway.submit(spec)
        for _ in failed:
            await node.fail(await node.take_job(), worth_retry=worth_retry)
        await here.dispatcher.reaches(FAILED, "lingua_dispatcher_waiting_jobs")

        # The node that failed them has room, which others may use.
        for index in range(3):
            good = await here.gateway().submit(here.spec(index, session_id=f"good-{here.src}"))
            assign = await node.take_job()
            assert assign.attempt.job_id == good
            await node.result(assign)

        # The next node gets all of them.
        other = await here.node("b", slots=50)
        assigns = [await other.take_job() for _ in failed]
        assert {each.attempt.job_id for each in assigns} == {id_of(spec) for spec in failed}
        for each in assigns:
            await other.result(each)
            await gateway.delivered(each.attempt.job_id)


@pytest.mark.parametrize("worth_retry", [True, False])
async def test_a_job_that_may_not_wait_for_another_node_does_not_hang(
    pool_process: PoolProcess, redis_url: str, worth_retry: bool
) -> None:
    async with dispatcher(pool_process, redis_url, waiting_bytes_max=65_536) as here:
        node, gateway = await here.node("a"), here.gateway()
        job = await gateway.submit(here.spec(audio=bytes(50_000)))
        await node.fail(await node.take_job(), worth_retry=worth_retry)
        if worth_retry:
            # There is no time for another node, so the same one has the last try.
            await node.fail(await node.take_job(), worth_retry=True)

        assert reason(await gateway.failed(job)) == "JOB_FAILED"
