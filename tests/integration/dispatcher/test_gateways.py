"""What gateways ask of a real dispatcher besides new jobs, and how sessions move between them."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import redis

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.raw_gateway import RawGateway, as_told, id_of
from tests.support.raw_node import whoever_gets_it
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

# A result that nobody takes is kept after 5 s. A result kept at once is there well before that.
AT_ONCE_S = 4.0


@pytest.fixture
def store(redis_url: str) -> Iterator["redis.Redis[bytes]"]:
    """The shared Redis."""
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
async def own(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that a test may stop."""
    async with (
        running_dispatcher(pool_process, redis_url, queue_wait_ms=100) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.fixture
async def forgetful(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that forgets a job soon after its end."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            limits={"home.delivery._REMEMBER_MS": 500},
            ack_timeout_ms=60_000,
            reservation_ttl_ms=90_000,
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


# ---- messages that are none ----


@pytest.mark.parametrize("method", ["Submit", "Relay"])
async def test_bytes_that_are_no_message_end_the_stream_with_an_error(
    patient: Scene, method: str
) -> None:
    async with grpc.aio.insecure_channel(patient.dispatcher.address) as channel:
        call: Any = channel.stream_stream(f"/lingua_scheduler.v1.Dispatcher/{method}")()
        await call.write(b"\xff\xff\xff")
        code, why, _ = await failure(call.read())
        assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")

    node, gateway = await patient.node(), patient.gateway()
    await gateway.submit(patient.spec())
    await node.take_job()


async def read_to_the_end(call: Any) -> None:
    """Reads the rest of the stream; raises its status."""
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_bytes_that_are_no_message_end_a_node_s_stream_with_a_reason(patient: Scene) -> None:
    node = await patient.node()
    async with grpc.aio.insecure_channel(patient.dispatcher.address) as channel:
        call: Any = channel.stream_stream("/lingua_scheduler.v1.Dispatcher/Connect")()
        hello = dispatcher_pb2.NodeEvent(hello=patient.hello("b"))
        await call.write(dispatcher_pb2.NodeMessage(events=[hello]).SerializeToString())
        welcome = dispatcher_pb2.DispatcherMessage.FromString(await call.read())
        assert welcome.events[0].HasField("welcome")
        await call.write(b"\xff\xff\xff")
        with pytest.raises(grpc.aio.AioRpcError, match="not a valid message") as ended:
            await read_to_the_end(call)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await node.settled() == []


# ---- somebody is there ----


async def test_an_empty_request_is_answered_on_a_stream_that_is_otherwise_idle(
    patient: Scene,
) -> None:
    gateway = patient.gateway()
    for _ in range(3):
        await gateway.is_answered()
    assert gateway.answers == 3
    assert await gateway.settled() == []


async def test_every_empty_request_is_answered_and_no_event_is_lost_between(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(slots=50), patient.gateway()
    jobs = []
    for index in range(20):
        jobs.append(await gateway.submit(patient.spec(index)))
        await gateway.say_nothing()
        await node.result(await node.take_job())
        await gateway.say_nothing()
    for job in jobs:
        await gateway.delivered(job)
    await gateway.is_answered()
    await gateway.settled()
    assert gateway.answers == 41


async def test_an_empty_request_is_answered_while_the_dispatcher_drains(own: Scene) -> None:
    node, gateway = await own.node(), own.gateway()
    await gateway.submit(own.spec())
    await node.take_job()
    own.dispatcher.terminate()
    await own.drains()
    await gateway.is_answered()
    await own.gateway().is_answered()


# ---- sessions that leave ----


async def test_when_its_session_leaves_a_result_that_was_not_taken_is_kept_at_once(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.result(assign, "kept")
    await gateway.delivered(job, take=False)

    await gateway.leave(job)
    await node.expect("result_received", within=AT_ONCE_S)
    assert (await patient.job(job, with_result=True)).result.texts.translated == "kept"
    following = patient.gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_when_its_session_has_left_a_job_goes_on_and_its_result_is_kept(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(slots=2), patient.gateway()
    job, other = await gateway.submit(patient.spec()), await gateway.submit(patient.spec(1))
    given = {each.attempt.job_id: each for each in (await node.take_job(), await node.take_job())}
    await gateway.accepted(job)
    await gateway.accepted(other)

    await gateway.leave(job)
    await gateway.settled()
    await node.result(given[job], "kept")
    await node.expect("result_received", within=AT_ONCE_S)
    assert await gateway.settled() == []
    # The stream and its other jobs are still there.
    await node.result(given[other], "mine")
    assert (await gateway.delivered(other)).result.texts.translated == "mine"


async def test_only_the_gateway_that_has_a_job_can_leave_it(patient: Scene) -> None:
    node, first, second = await patient.node(), patient.gateway(), patient.gateway()
    job = await first.submit(patient.spec())
    assign = await node.take_job()
    await first.accepted(job)
    await second.attach(job)
    await second.accepted(job)

    # Too late: its session is at the other gateway already.
    await first.leave(job)
    await first.leave("nobody")
    await first.settled()
    await node.result(assign, "hello")
    assert (await second.delivered(job)).result.texts.translated == "hello"
    await node.expect_received(assign)


async def test_a_gateway_cannot_cancel_a_job_that_another_one_has_but_one_that_nobody_has(
    patient: Scene,
) -> None:
    node, first, second = await patient.node(), patient.gateway(), patient.gateway()
    job = await first.submit(patient.spec())
    assign = await node.take_job()
    await first.accepted(job)
    await second.attach(job)
    await second.accepted(job)

    await first.cancel(job)
    await first.settled()
    assert await node.settled() == []
    await second.leave(job)
    await second.settled()
    await first.cancel(job, "nobody wants it")
    assert await node.expect_cancel(assign) == "nobody wants it"


# ---- epochs ----


async def takes_over(gateway: RawGateway, spec: dispatcher_pb2.JobSpec, attach: bool) -> None:
    if attach:
        await gateway.attach(id_of(spec), spec.session_epoch)
    else:
        await gateway.submit(spec)


@pytest.mark.parametrize("attach", [True, False])
async def test_an_older_epoch_of_the_session_is_refused_and_steals_nothing(
    patient: Scene, attach: bool
) -> None:
    node, current, old = await patient.node(), patient.gateway(), patient.gateway()
    job = await current.submit(patient.spec(7, session_epoch=5))
    assign = await node.take_job()
    await current.accepted(job)

    await takes_over(old, patient.spec(7, session_epoch=4), attach)
    event = await old.expect(job, "failed")
    assert reason(event.failed) == "SESSION_TAKEN_OVER"
    assert (event.session_id, event.utterance_index) == (patient.spec().session_id, 7)
    await node.result(assign)
    await current.delivered(job)
    assert await old.settled() == []


@pytest.mark.parametrize("attach", [True, False])
@pytest.mark.parametrize("epoch", [5, 6, 0])
async def test_the_same_or_a_newer_epoch_or_none_at_all_takes_a_job_up(
    patient: Scene, epoch: int, attach: bool
) -> None:
    node, first, second = await patient.node(), patient.gateway(), patient.gateway()
    job = await first.submit(patient.spec(session_epoch=5))
    assign = await node.take_job()
    await first.accepted(job)

    await takes_over(second, patient.spec(session_epoch=epoch), attach)
    await second.accepted(job)
    await node.result(assign)
    await second.delivered(job)
    # The highest epoch counts, whichever came last.
    await takes_over(first, patient.spec(session_epoch=4), attach)
    assert reason(await first.failed(job)) == "SESSION_TAKEN_OVER"


async def test_a_job_that_has_begun_goes_on_when_its_session_is_taken_over(
    patient: Scene, pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    nodes, gateway = [await patient.node(name) for name in "ab"], patient.gateway()
    job = await gateway.submit(patient.spec(session_epoch=1))
    node, assign = await whoever_gets_it(nodes)
    await node.ack(assign)
    await gateway.accepted(job)

    # The session's next gateway has not asked for the job yet.
    store.hset(f"{pool_process.prefix}:session:{patient.spec().session_id}", "epoch", 2)
    await node.fail(assign, worth_retry=True)
    other, again = await whoever_gets_it(nodes)
    assert other is not node
    await other.ack(again)
    following = patient.gateway()
    await following.attach(job, 2)
    await following.accepted(job)


async def test_a_job_that_its_session_s_old_gateway_could_not_begin_is_begun_by_the_new_one(
    patient: Scene, pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    node, old, new = await patient.node(), patient.gateway(), patient.gateway()
    await old.submit(patient.spec(session_id="s-other"))
    busy = await node.take_job()
    waits = await patient.dispatcher.metric("lingua_dispatcher_waits_total")
    job = await old.submit(patient.spec(1, session_epoch=1))
    await patient.dispatcher.reaches(waits + 1, "lingua_dispatcher_waits_total")
    store.hset(f"{pool_process.prefix}:session:{patient.spec().session_id}", "epoch", 2)
    await node.result(busy)
    assert reason(await old.failed(job)) == "SESSION_TAKEN_OVER"

    assert await new.submit(patient.spec(1, session_epoch=2)) == job
    await node.take_job()
    await new.accepted(job)
    await old.submit(patient.spec(1, session_epoch=1))
    assert reason(await old.failed(job)) == "SESSION_TAKEN_OVER"


async def test_a_job_that_is_taken_up_while_the_pool_is_asked_for_the_old_gateway_goes_on(
    patient: Scene, pool_process: PoolProcess, store: "redis.Redis[bytes]"
) -> None:
    node, old, new = await patient.node(), patient.gateway(), patient.gateway()
    pool_process.process.send_signal(signal.SIGSTOP)
    try:
        job = await old.submit(patient.spec(1, session_epoch=1))
        await old.is_answered()
        store.hset(f"{pool_process.prefix}:session:{patient.spec().session_id}", "epoch", 2)
        assert await new.submit(patient.spec(1, session_epoch=2)) == job
        await new.is_answered()
    finally:
        pool_process.process.send_signal(signal.SIGCONT)
    await node.take_job()
    await new.accepted(job)


# ---- no node just now ----


async def test_a_job_without_a_capable_node_begins_anew_when_it_is_submitted_again(
    patient: Scene,
) -> None:
    gateway = patient.gateway()
    job = await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"
    await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"

    node = await patient.node()
    spec = patient.spec(audio=b"\2\3" * 100, deadline_ms=50_000)
    assert await gateway.submit(spec) == job
    assign = await node.take_job()
    assert (assign.attempt.attempt, assign.job) == (1, as_told(spec))
    await gateway.accepted(job)
    await node.result(assign)
    await gateway.delivered(job)
    await node.expect_received(assign)
    assert await gateway.settled() == []


async def test_a_job_that_waited_in_vain_begins_anew_when_it_is_submitted_again(
    hasty: Scene,
) -> None:
    node, gateway = await hasty.node(slots=1), hasty.gateway()
    first = await gateway.submit(hasty.spec(deadline_ms=60_000))
    await node.take_job()
    job = await gateway.submit(hasty.spec(1))
    assert reason(await gateway.failed(job)) == "ALL_CANDIDATES_FULL_OR_FAILED"

    await gateway.submit(hasty.spec(1))
    await gateway.cancel(first)
    assign = await node.take_job()
    assert assign.attempt == common_pb2.AttemptRef(job_id=job, attempt=1)
    await gateway.accepted(job)


async def test_a_job_that_was_rejected_and_then_found_no_node_goes_on_with_its_next_attempt(
    own: Scene,
) -> None:
    node, gateway = await own.node(), own.gateway()
    job = await gateway.submit(own.spec())
    before = await node.expect_assign()
    await node.reject(before)
    assert reason(await gateway.failed(job)) == "ALL_CANDIDATES_FULL_OR_FAILED"

    await gateway.submit(own.spec())
    assign = await node.take_job()
    assert assign.attempt.attempt == 2
    await gateway.accepted(job)
    # Reports from before are late, and do not affect the new run.
    await node.ack(before)
    await node.expect_cancel(before)
    await node.result(assign)
    delivered = await gateway.delivered(job)
    assert (delivered.attempts, delivered.result.attempt.attempt) == (2, 2)
    await node.expect_received(assign)
    states = [each.outcome for each in (await own.ended(job)).attempts]
    assert states == ["released", "done"]


async def test_a_job_that_began_anew_is_not_forgotten_with_the_one_before(
    forgetful: Scene,
) -> None:
    gateway = forgetful.gateway()
    job = await gateway.submit(forgetful.spec())
    await gateway.failed(job)
    node = await forgetful.node()
    await gateway.submit(forgetful.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    # Longer than the earlier run would have been remembered.
    await asyncio.sleep(1.0)
    await node.result(assign, "late")
    assert (await gateway.delivered(job)).result.texts.translated == "late"
    await node.expect_received(assign)


async def test_a_job_that_failed_on_its_node_is_not_tried_again_by_a_repeat(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    await node.fail(await node.take_job(), "BROKEN_AUDIO", worth_retry=False)
    assert reason(await gateway.failed(job)) == "JOB_FAILED"
    await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "JOB_FAILED"
    assert await node.settled() == ["result_received"]


# ---- drain ----


@pytest.mark.parametrize("attach", [True, False])
async def test_while_it_drains_a_known_job_is_taken_up_and_no_new_one_begun(
    own: Scene, attach: bool
) -> None:
    node, gateway = await own.node(), own.gateway()
    job = await gateway.submit(own.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    hopeless = own.spec(1, strict=True, preferred_node_id="nobody")
    failed = await gateway.submit(hopeless)
    await gateway.failed(failed)

    own.dispatcher.terminate()
    await own.drains()
    await gateway.cut()
    following = own.gateway()
    await takes_over(following, own.spec(), attach)
    await following.accepted(job)
    new = await following.submit(own.spec(2))
    assert reason(await following.failed(new)) == "DRAINING"
    # It would have to begin anew.
    await following.submit(hopeless)
    assert reason(await following.failed(failed)) == "DRAINING"
    await node.result(assign, "hello")
    assert (await following.delivered(job)).result.texts.translated == "hello"
    await following.ended()


async def test_a_stream_that_comes_when_all_jobs_of_a_draining_dispatcher_are_over_is_ended(
    own: Scene,
) -> None:
    # A node that does not go keeps the process.
    await own.node()
    gateway = own.gateway()
    await gateway.is_answered()
    own.dispatcher.terminate()
    await gateway.ended()
    await own.gateway().ended()
