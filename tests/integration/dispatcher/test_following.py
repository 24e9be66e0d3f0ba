"""A gateway asks a dispatcher for a job whose home is another one: only its end comes, by Redis.

The home is d0 in all of these, and the gateway that asks is at d1.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign
from tests.support.pool_client import running_pool
from tests.support.process import SOON_S
from tests.support.raw_gateway import RawGateway
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, together
from tests.support.services import DispatcherProcess, PoolProcess, all_running, running_dispatcher

# Its jobs have ids of their own, and its keys are those of one cell.
pytestmark = pytest.mark.usefixtures("one_cell")

COUNT = 2
# Long enough for several polls.
A_WHILE_S = 1.0
# How long these tests wait for a result that is not kept.
KEPT_WITHIN_S = 4


def started(pool: PoolProcess, redis_url: str, at: int) -> DispatcherProcess:
    return DispatcherProcess(
        pool=pool,
        redis_url=redis_url,
        limits={
            "home.delivery._TAKEN_WITHIN_MS": 2000,
            "gateways.followed_jobs._KEPT_WITHIN_S": KEPT_WITHIN_S,
        },
        instance_id=f"d{at}",
        ack_timeout_ms=60_000,
        reservation_ttl_ms=90_000,
        queue_wait_ms=60_000,
        node_reconnect_grace_ms=60_000,
    )


@pytest.fixture(scope="module")
def dispatchers(pool_process: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two dispatchers that do not wait long for a gateway to take a result."""
    processes = [started(pool_process, redis_url, at) for at in range(COUNT)]
    with all_running(processes):
        yield processes


@pytest.fixture
def store(redis_url: str) -> Iterator["redis.Redis[bytes]"]:
    """The shared Redis."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


async def begun(home: Scene, index: int = 0) -> tuple[RawNode, RawGateway, str, JobAssign]:
    """A job that runs on a node of its home."""
    node, gateway = await home.node(slots=2), home.gateway()
    job = await gateway.submit(home.spec(index))
    assign = await node.take_job()
    await gateway.accepted(job)
    # So that the record has it as well.
    deadline = time.monotonic() + SOON_S
    while not (await home.job(job)).job.attempts[-1].acked_ms:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return node, gateway, job, assign


async def hears_nothing(gateway: RawGateway) -> None:
    """Checks that there is no event, neither now nor after a few polls."""
    await asyncio.sleep(A_WHILE_S)
    assert await gateway.settled() == []


async def test_a_result_that_comes_later_is_delivered_with_all_that_is_known_of_it(
    at: list[Scene],
) -> None:
    node, gateway, job, assign = await begun(at[0], 7)
    following = at[1].gateway()
    await following.attach(job)
    await hears_nothing(following)

    await gateway.leave(job)
    await gateway.settled()
    await node.result(assign, "hello")
    event = await following.expect(job, "delivered")
    assert (event.session_id, event.utterance_index) == (at[0].spec().session_id, 7)
    assert event.delivered.result.texts.translated == "hello"
    assert (event.delivered.node_id, event.delivered.attempts) == (node.node_id, 1)
    await following.taken(job)
    await hears_nothing(following)


async def test_a_result_that_is_kept_already_is_delivered_with_its_node_and_attempts(
    at: list[Scene],
) -> None:
    nodes, gateway = [await at[0].node(name) for name in "ab"], at[0].gateway()
    job = await gateway.submit(at[0].spec(3))
    first, assign = await whoever_gets_it(nodes)
    await first.reject(assign)
    second, again = await whoever_gets_it(nodes)
    await second.ack(again)
    await gateway.accepted(job)
    await gateway.cut()
    await second.result(again, "kept")
    await second.expect_received(again)
    await at[0].ended(job)

    following = at[1].gateway()
    await following.attach(job)
    event = await following.expect(job, "delivered")
    assert (event.session_id, event.utterance_index) == (at[0].spec().session_id, 3)
    assert event.delivered.result.texts.translated == "kept"
    assert (event.delivered.node_id, event.delivered.attempts) == (second.node_id, 2)


async def test_a_result_that_the_old_gateway_does_not_take_comes_after_a_while(
    at: list[Scene],
) -> None:
    node, gateway, job, assign = await begun(at[0])
    following = at[1].gateway()
    await following.attach(job)
    await node.result(assign, "hello")
    await gateway.delivered(job, take=False)
    assert (await following.delivered(job)).result.texts.translated == "hello"


async def test_a_job_that_fails_at_its_home_has_failed(at: list[Scene]) -> None:
    node, _, job, assign = await begun(at[0], 2)
    following = at[1].gateway()
    await following.attach(job)
    await node.fail(assign, "BROKEN_AUDIO", "no samples", worth_retry=False)
    event = await following.expect(job, "failed")
    assert (event.session_id, event.utterance_index) == (at[0].spec().session_id, 2)
    assert reason(event.failed) == "JOB_FAILED"
    assert event.failed.message.endswith("BROKEN_AUDIO")
    # If the job is over already, the event comes at once.
    await following.attach(job)
    assert reason(await following.failed(job)) == "JOB_FAILED"


async def test_a_job_that_is_cancelled_at_its_home_is_cancelled(at: list[Scene]) -> None:
    node, gateway, job, assign = await begun(at[0])
    following = at[1].gateway()
    await following.attach(job)
    await gateway.cancel(job, "the app was closed")
    await node.expect_cancel(assign)
    error = await following.failed(job)
    assert (reason(error), error.message) == ("JOB_CANCELLED", "the app was closed")


async def test_a_job_whose_record_is_gone_is_not_found(
    at: list[Scene], pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    _, _, job, _ = await begun(at[0])
    following = at[1].gateway()
    await following.attach(job)
    await hears_nothing(following)
    store.delete(f"{pool_process.prefix}:job:{job}")
    assert reason(await following.failed(job)) == "JOB_NOT_FOUND"


@pytest.mark.parametrize("job", ["", "no id", "0" * 200, "a:result"])
async def test_what_is_no_job_s_id_is_refused(at: list[Scene], job: str) -> None:
    gateway = at[1].gateway()
    await gateway.attach(job)
    assert reason(await gateway.failed(job)) == "INVALID_MESSAGE"


async def test_a_result_that_was_taken_by_somebody_else_is_waited_for_only_so_long(
    at: list[Scene],
) -> None:
    node, gateway, job, assign = await begun(at[0])
    following = at[1].gateway()
    await following.attach(job)
    since = time.monotonic()
    await node.result(assign)
    await gateway.delivered(job)
    error = await following.failed(job)
    assert reason(error) == "JOB_NOT_FOUND"
    assert "not kept any more" in error.message
    assert time.monotonic() - since > KEPT_WITHIN_S


@pytest.mark.parametrize("how", ["leave", "cancel", "taken"])
async def test_a_gateway_that_does_not_want_it_any_more_hears_nothing(
    at: list[Scene], how: str
) -> None:
    node, gateway, job, assign = await begun(at[0])
    following = at[1].gateway()
    await following.attach(job)
    await getattr(following, how)(job)
    # The job itself is not affected.
    await gateway.leave(job)
    await gateway.settled()
    await node.result(assign, "kept")
    await node.expect_received(assign)
    await hears_nothing(following)


async def test_the_gateway_that_asked_last_is_told_and_the_others_can_not_stop_that(
    at: list[Scene],
) -> None:
    node, gateway, job, assign = await begun(at[0])
    first, second = at[1].gateway(), at[1].gateway()
    await first.attach(job, 4)
    await first.settled()
    await second.attach(job, 5)
    await second.settled()
    await first.leave(job)
    await first.cancel(job)
    await first.attach(job, 4)
    assert reason(await first.failed(job)) == "SESSION_TAKEN_OVER"
    await first.submit(at[1].spec(session_epoch=4))
    assert reason(await first.failed(job)) == "SESSION_TAKEN_OVER"
    await first.cut()

    await gateway.cut()
    await node.settled()
    await node.result(assign, "hello")
    assert (await second.delivered(job)).result.texts.translated == "hello"


async def test_a_gateway_that_is_gone_is_not_waited_for(at: list[Scene]) -> None:
    node, gateway, job, assign = await begun(at[0])
    gone = at[1].gateway()
    await gone.attach(job)
    await gone.settled()
    await gone.cut()
    await gateway.cut()
    await node.settled()
    await node.result(assign, "hello")
    await node.expect_received(assign)
    following = at[1].gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "hello"


async def test_a_job_that_is_then_submitted_has_its_home_here(at: list[Scene]) -> None:
    node, gateway, job, assign = await begun(at[0])
    waiting, following = at[1].gateway(), at[1].gateway()
    await waiting.attach(job, 2)
    await waiting.settled()
    await gateway.cut()
    assert await following.submit(at[1].spec(session_epoch=2)) == job
    again = await node.take_job()
    assert again.attempt == assign.attempt
    await following.accepted(job)
    await node.result(again, "hello")
    assert (await following.delivered(job)).result.texts.translated == "hello"
    await node.expect_received(again)
    await hears_nothing(waiting)
    assert await following.settled() == []


async def test_very_many_jobs_are_followed_at_once(
    at: list[Scene], pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    names = [f"followed-{at[0].src}-{number}" for number in range(1500)]
    keys = [f"{pool_process.prefix}:job:{name}" for name in names]
    record = {"state": "acked", "attempt": 1, "1:node": "n", "1:state": "running", "session": "s"}
    with store.pipeline() as pipeline:
        for key in keys:
            pipeline.hset(key, mapping=record)
            pipeline.pexpire(key, 60_000)
        pipeline.execute()
    following = at[1].gateway()
    for name in names:
        await following.attach(name)
    await hears_nothing(following)

    results = [
        dispatcher_pb2.JobResult(
            attempt={"job_id": name, "attempt": 1}, texts=dispatcher_pb2.Texts(translated=name)
        )
        for name in names
    ]
    with store.pipeline() as pipeline:
        for key, result in zip(keys, results, strict=True):
            pipeline.set(f"{key}:result", result.SerializeToString(), px=60_000)
        pipeline.execute()
    for name in names:
        delivered = await following.delivered(name)
        assert (delivered.result.texts.translated, delivered.node_id) == (name, "n")
    assert await following.settled() == []


async def test_results_of_which_many_are_large_come_as_fast_as_they_are_read(
    at: list[Scene], pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    names = [f"large-{at[0].src}-{number}" for number in range(80)]
    speech = bytes(3_000_000)
    for name in names:
        result = dispatcher_pb2.JobResult(speech=speech).SerializeToString()
        store.set(f"{pool_process.prefix}:job:{name}:result", result, px=60_000)
    following = at[1].gateway()
    await following.settled()
    following.stop_reading()
    for name in names:
        await following.attach(name)
    await asyncio.sleep(A_WHILE_S)
    following.read_on()
    for name in names:
        await following.delivered(name)
    for name in names:
        store.delete(f"{pool_process.prefix}:job:{name}:result")
    # The stream held only some of them at a time, and was not ended.
    assert await following.settled() == []


async def test_while_redis_is_away_a_job_is_followed_on(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with (
        running_pool(own_redis.url, prefix) as pool,
        running_dispatcher(pool.process, own_redis.url, redis_timeout_ms=400) as home,
        running_dispatcher(
            pool.process,
            own_redis.url,
            limits={"gateways.followed_jobs._KEPT_WITHIN_S": KEPT_WITHIN_S},
            redis_timeout_ms=400,
        ) as other,
        together([home, other], pool.process) as at,
    ):
        node, gateway, job, assign = await begun(at[0])
        following = at[1].gateway()
        await following.attach(job)
        await following.settled()
        await node.result(assign, "hello")
        await gateway.delivered(job, take=False)

        own_redis.pause()
        unknown = "nobody"
        await following.attach(unknown)
        # Longer than the wait for a result while Redis is up.
        await asyncio.sleep(KEPT_WITHIN_S + 1)
        assert [each.job_id for each in following.inbox.waiting] == []
        own_redis.resume()
        assert reason(await following.failed(unknown)) == "JOB_NOT_FOUND"
        await gateway.leave(job)
        assert (await following.delivered(job)).result.texts.translated == "hello"


async def test_a_result_of_a_node_that_was_not_given_the_job_is_not_kept(at: list[Scene]) -> None:
    node, gateway, job, assign = await begun(at[0])
    stranger = await at[1].node("stranger")

    await stranger.result(assign, "forged")
    await stranger.settled()
    await asyncio.sleep(A_WHILE_S)

    assert not (await at[0].job(job, with_result=True)).HasField("result")
    await node.result(assign, "true")
    assert (await gateway.delivered(job)).result.texts.translated == "true"
