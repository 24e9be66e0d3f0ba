"""Every job that ends has an end in the record that all dispatchers share, however it ended.

A job's own dispatcher also remembers it for a while, so the record is read at another one.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.pool_client import running_pool
from tests.support.process import SOON_S
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, together
from tests.support.services import DispatcherProcess, PoolProcess, all_running, running_dispatcher

FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
RETRYING = common_pb2.JOB_STATE_RETRYING
WAIT_MS = 300


def started(pool: PoolProcess, redis_url: str, name: str) -> DispatcherProcess:
    return DispatcherProcess(
        pool=pool,
        redis_url=redis_url,
        instance_id=name,
        queue_wait_ms=WAIT_MS,
        ack_timeout_ms=60_000,
        reservation_ttl_ms=90_000,
        node_reconnect_grace_ms=60_000,
    )


@pytest.fixture(scope="module")
def dispatchers(pool_process: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two dispatchers whose jobs do not wait long for room."""
    processes = [started(pool_process, redis_url, f"records-{at}") for at in range(2)]
    with all_running(processes):
        yield processes


async def record(
    reader: Scene,
    job: str,
    wanted: Callable[[dispatcher_pb2.Job], object],
    within: float = SOON_S,
) -> dispatcher_pb2.Job:
    """Waits until the job's shared record satisfies the condition, and returns it."""
    deadline, found = time.monotonic() + within, None
    while time.monotonic() < deadline:
        with contextlib.suppress(grpc.aio.AioRpcError):
            found = (await reader.job(job)).job
            if wanted(found):
                return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"the record still is {found}")


async def ended(reader: Scene, job: str) -> dispatcher_pb2.Job:
    """Waits for the record of a job that ended without a result; it has the reason."""
    return await record(reader, job, lambda each: each.error.reason)


async def listed(reader: Scene, state: common_pb2.JobState.ValueType) -> list[str]:
    """The jobs of this scene in a state, as `lingua jobs list --state` shows them."""
    found, token = [], ""
    while True:
        request = dispatcher_pb2.ListJobsRequest(
            state=state, session_id=reader.spec().session_id, page_token=token
        )
        page = await reader.stub.ListJobs(request)
        found += [job.job_id for job in page.jobs]
        token = page.next_page_token
        if not token:
            return found


async def test_a_job_that_no_node_can_do_has_a_record(at: list[Scene]) -> None:
    home, reader = at
    gateway = home.gateway()
    job = await gateway.submit(home.spec(3))
    await gateway.failed(job)

    found = await ended(reader, job)

    assert (found.state, reason(found.error)) == (FAILED, "NO_CAPABLE_NODE")
    assert (found.session_id, found.utterance_index) == (home.spec().session_id, 3)
    assert (found.pair, found.tenant) == (home.spec().pair, "t")
    assert found.home_instance == "records-0"
    assert found.created_ms
    assert [common_pb2.JobStep.Kind.Name(step.kind) for step in found.steps] == ["KIND_ALLOCATE"]
    assert list(found.attempts) == []
    assert await listed(reader, FAILED) == [job]


async def test_a_job_that_waits_for_room_in_vain_has_a_record(at: list[Scene]) -> None:
    home, reader = at
    node, gateway = await home.node(), home.gateway()
    await gateway.submit(home.spec(0))
    await node.take_job()
    job = await gateway.submit(home.spec(1))
    await gateway.failed(job)
    found = await ended(reader, job)
    assert (found.state, reason(found.error)) == (FAILED, "ALL_CANDIDATES_FULL_OR_FAILED")
    assert await listed(reader, FAILED) == [job]


async def test_a_job_whose_last_attempt_failed_does_not_stay_in_retrying(at: list[Scene]) -> None:
    home, reader = at
    node, gateway = await home.node(), home.gateway()
    job = await gateway.submit(home.spec())
    assign = await node.take_job()
    await node.fail(assign, "MODEL_LOAD_FAILED", worth_retry=True)
    await node.bye()
    await gateway.failed(job)

    found = await ended(reader, job)

    assert found.state == FAILED
    assert found.error.message.endswith("MODEL_LOAD_FAILED")
    assert [each.outcome for each in found.attempts] == ["failed"]
    assert await listed(reader, FAILED) == [job]
    assert await listed(reader, RETRYING) == []


async def test_a_job_that_is_cancelled_while_it_waits_is_cancelled(at: list[Scene]) -> None:
    home, reader = at
    node, gateway = await home.node(), home.gateway()
    await gateway.submit(home.spec(0))
    await node.take_job()
    job = await gateway.submit(home.spec(1))
    await gateway.cancel(job, "the speaker left")
    await gateway.failed(job)
    found = await ended(reader, job)
    assert (found.state, reason(found.error)) == (CANCELLED, "JOB_CANCELLED")
    assert found.error.message == "the speaker left"


async def test_a_job_whose_deadline_passes_while_it_waits_has_timed_out(at: list[Scene]) -> None:
    home, reader = at
    node, gateway = await home.node(), home.gateway()
    await gateway.submit(home.spec(0))
    await node.take_job()
    job = await gateway.submit(home.spec(1, deadline_ms=WAIT_MS // 3))
    await gateway.failed(job)
    found = await ended(reader, job)
    assert (found.state, reason(found.error)) == (FAILED, "JOB_TIMEOUT")
    # It had no other chance.
    await gateway.submit(home.spec(1))
    assert reason(await gateway.failed(job)) == "JOB_TIMEOUT"


async def test_a_job_whose_gateway_is_gone_ends_as_well(at: list[Scene]) -> None:
    home, reader = at
    node, gateway = await home.node(), home.gateway()
    job = await gateway.submit(home.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await gateway.cut()
    await node.fail(assign, "BROKEN", worth_retry=True)
    await node.bye()
    assert (await ended(reader, job)).state == FAILED


async def test_where_a_job_failed_another_dispatcher_says_why(at: list[Scene]) -> None:
    home, other = at
    node, gateway = await home.node(), home.gateway()
    job = await gateway.submit(home.spec())
    await node.fail(await node.take_job(), "BAD_AUDIO", "no header", worth_retry=False)
    told = await gateway.failed(job)
    await ended(other, job)

    again = other.gateway()
    await again.submit(other.spec())
    assert await again.failed(job) == told
    following = other.gateway()
    await following.attach(job)
    assert await following.failed(job) == told


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_job_that_found_no_node_begins_anew_when_it_is_submitted_again(
    at: list[Scene], elsewhere: bool
) -> None:
    home, reader = at
    gateway = home.gateway()
    job = await gateway.submit(home.spec())
    await gateway.failed(job)
    await ended(reader, job)

    node, again = await home.node(), at[elsewhere].gateway()
    await again.submit(home.spec())
    await node.result(await node.take_job())
    await again.delivered(job)

    done = await record(reader, job, lambda each: each.state == common_pb2.JOB_STATE_DONE)
    assert not done.HasField("error")
    assert len(done.attempts) == 1
    assert await listed(reader, FAILED) == []


async def test_a_job_without_a_dispatcher_is_shown_as_failed_and_can_be_cancelled(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                running_dispatcher(
                    pool_process,
                    redis_url,
                    instance_id=name,
                    # After these two, a job can no longer have a result.
                    reservation_ttl_ms=5000,
                    job_timeout_ms=1000,
                )
            )
            for name in ("abandoning", "looking")
        ]
        home, reader = await stack.enter_async_context(together(processes, pool_process))
        node, gateway = await home.node(slots=2), home.gateway()
        jobs = [await gateway.submit(home.spec(index)) for index in range(2)]
        for _ in jobs:
            await node.take_job()
        for job in jobs:
            await record(reader, job, lambda each: each.state == common_pb2.JOB_STATE_ACKED)
        processes[0].kill()

        with redis.Redis.from_url(redis_url) as client:  # or it takes 15 s until that is known
            for key in client.scan_iter(
                f"{pool_process.prefix}:*instance:abandoning", count=10_000
            ):
                client.delete(key)

        request = dispatcher_pb2.CancelJobRequest(job_id=jobs[0], why="nobody has it")
        assert (await reader.stub.CancelJob(request)).state == CANCELLED
        assert (await ended(reader, jobs[0])).error.message == "nobody has it"
        lost = await record(reader, jobs[1], lambda each: each.state == FAILED, within=30)
        assert "'abandoning' is gone" in lost.error.message
        assert jobs[1] in await listed(reader, FAILED)

        # That was only displayed: the job can still be taken up.
        other, again = await reader.node("b"), reader.gateway()
        await again.submit(reader.spec(1))
        await other.result(await other.take_job())
        await again.delivered(jobs[1])
        assert (await reader.job(jobs[1])).job.state == common_pb2.JOB_STATE_DONE


async def test_a_job_that_failed_while_redis_was_away_has_a_record_when_it_is_back(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with (
        running_pool(own_redis.url, prefix) as pool,
        running_dispatcher(
            pool.process,
            own_redis.url,
            limits={"home.delivery._REMEMBER_MS": 500},
            redis_timeout_ms=400,
        ) as home,
        running_dispatcher(pool.process, own_redis.url, redis_timeout_ms=400) as other,
        together([home, other], pool.process) as at,
    ):
        gateway = at[0].gateway()
        own_redis.pause()
        job = await gateway.submit(at[0].spec())
        assert reason(await gateway.failed(job)) == "SCHEDULER_DEPENDENCY_DOWN"
        await asyncio.sleep(1)
        own_redis.resume()
        found = await ended(at[1], job)
        assert (found.state, reason(found.error)) == (FAILED, "SCHEDULER_DEPENDENCY_DOWN")
