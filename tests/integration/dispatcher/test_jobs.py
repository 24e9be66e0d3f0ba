"""Jobs at one real dispatcher, with nodes and gateways that do what they please."""

import asyncio
import time
from collections.abc import AsyncIterator

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.raw_gateway import as_told, id_of
from tests.support.raw_node import whoever_gets_it
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION
HELD = dispatcher_pb2.JobResult.KIND_HELD

# Limits so small that a test reaches them with little.
SMALL = {"gateways.streams._MAX_BYTES": 2_000_000, "nodes.admission.MAX_BYTES": 2_000_000}


@pytest.fixture
async def hedging(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that tries a second node early."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            hedge_after_ms=100,
            ack_timeout_ms=60_000,
            reservation_ttl_ms=90_000,
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.fixture
async def watchful(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that wants many heartbeats."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            node_heartbeat_ms=500,
            heartbeat_batch_ms=50,
            heartbeat_stale_ms=5000,
            node_reconnect_grace_ms=100,
            queue_wait_ms=10_000,
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.fixture
async def narrow(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that keeps little for peers that do not read."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            limits=SMALL,
            ack_timeout_ms=60_000,
            reservation_ttl_ms=90_000,
            queue_wait_ms=60_000,
            node_reconnect_grace_ms=60_000,
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


# ---- the straight way ----


async def test_a_job_is_accepted_and_delivered_and_confirmed_only_when_it_is_taken(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())

    assign = await node.expect_assign()
    assert assign.attempt == common_pb2.AttemptRef(job_id=job, attempt=1)
    assert assign.job == as_told(patient.spec())
    assert await gateway.settled() == []
    await node.ack(assign)
    accepted = await gateway.accepted(job)
    assert (accepted.node_id, accepted.attempt) == (node.node_id, 1)
    await node.result(assign, "hola")
    event = await gateway.expect(job, "delivered")

    assert (event.session_id, event.utterance_index) == (patient.spec().session_id, 0)
    assert event.delivered.result.texts.translated == "hola"
    assert event.delivered.node_id == node.node_id
    assert await node.settled() == []
    await gateway.taken(job)
    await node.expect_received(assign)
    assert await gateway.settled() == []


async def test_a_job_that_is_submitted_again_runs_once_and_its_events_go_to_the_new_gateway(
    patient: Scene,
) -> None:
    node, first, second = await patient.node(slots=5), patient.gateway(), patient.gateway()
    job = await first.submit(patient.spec())
    assign = await node.take_job()
    await first.accepted(job)

    assert await second.submit(patient.spec()) == job
    await second.accepted(job)
    await node.result(assign)

    await second.delivered(job)
    await node.expect_received(assign)
    assert await first.settled() == []
    assert await node.settled() == []


async def test_jobs_that_differ_in_what_they_ask_for_are_different_jobs(patient: Scene) -> None:
    node, gateway = await patient.node(slots=5), patient.gateway()
    specs = [
        patient.spec(),
        patient.spec(features={"voice": "low"}),
        patient.spec(require_tts=False),
        patient.spec(job_type="summarise"),
    ]
    await gateway.submit(*specs)
    given = {(await node.take_job()).attempt.job_id for _ in specs}
    assert given == {id_of(spec) for spec in specs}


async def test_partial_results_pass_and_also_count_as_an_acknowledgement(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec(partial_interval_ms=1))
    assign = await node.expect_assign()

    for seq, text in enumerate(("he", "hel", "hello"), start=1):
        await node.partial(assign, text, seq)
        event = await gateway.expect(job, "partial")
        assert event.partial.texts.source == text
        await asyncio.sleep(0.01)  # what comes more often than it is wanted is dropped

    await gateway.accepted(job)
    await node.result(assign)
    await gateway.delivered(job)


async def test_dispatch_answers_when_a_node_has_acknowledged_and_the_result_is_fetched(
    patient: Scene,
) -> None:
    node = await patient.node()
    call = asyncio.ensure_future(
        patient.stub.Dispatch(dispatcher_pb2.DispatchRequest(job=patient.spec()))
    )
    assign = await node.take_job()
    answer = await call
    await node.result(assign, "hola")
    await node.expect_received(assign)

    assert answer == dispatcher_pb2.DispatchResponse(
        job_id=assign.attempt.job_id, node_id=node.node_id, attempt_id=1
    )
    fetched = await patient.job(answer.job_id, with_result=True)
    assert fetched.job.state == common_pb2.JOB_STATE_DONE
    assert fetched.result.texts.translated == "hola"


async def test_dispatch_fails_with_the_reason_of_the_job(patient: Scene) -> None:
    request = dispatcher_pb2.DispatchRequest(job=patient.spec())
    _, why, _ = await failure(patient.stub.Dispatch(request))
    assert why == "NO_CAPABLE_NODE"
    request.job.audio = b""
    _, why, said = await failure(patient.stub.Dispatch(request))
    assert why == "INVALID_MESSAGE"
    assert [each.field for each in said.field_violations] == ["job.audio"]


@pytest.mark.parametrize("strict", [False, True])
async def test_dispatch_where_all_are_full_says_how_many_were(hasty: Scene, strict: bool) -> None:
    node, gateway = await hasty.node(), hasty.gateway()
    await gateway.submit(hasty.spec())
    await node.take_job()
    wish = {"preferred_node_id": node.node_id, "strict": True} if strict else {}

    request = dispatcher_pb2.DispatchRequest(job=hasty.spec(1, **wish))
    code, why, said = await failure(hasty.stub.Dispatch(request))
    assert (code, why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "ALL_CANDIDATES_FULL_OR_FAILED")
    assert dict(said.metadata) == {"drawn": "1", "full": "1"}
    assert said.retry_after_ms > 0

    request = dispatcher_pb2.DispatchRequest(job=hasty.spec(2, deadline_ms=100, **wish))
    code, why, said = await failure(hasty.stub.Dispatch(request))
    assert (code, why) == (grpc.StatusCode.DEADLINE_EXCEEDED, "JOB_TIMEOUT")
    assert dict(said.metadata) == {"drawn": "1", "full": "1"}
    assert "1 full" in said.message


async def test_dispatch_says_which_stage_no_node_offers(patient: Scene) -> None:
    await patient.node()
    spec = patient.spec(required_stages=[common_pb2.STAGE_KIND_TONE])
    code, why, said = await failure(patient.stub.Dispatch(dispatcher_pb2.DispatchRequest(job=spec)))
    assert (code, why) == (grpc.StatusCode.FAILED_PRECONDITION, "NO_CAPABLE_NODE")
    assert dict(said.metadata) == {"drawn": "1", "stage": "1"}
    assert "1 without a required stage" in said.message


async def test_dispatch_fails_as_its_job_fails_on_its_node(patient: Scene) -> None:
    node = await patient.node()
    request = dispatcher_pb2.DispatchRequest(job=patient.spec())
    call = asyncio.ensure_future(failure(patient.stub.Dispatch(request)))
    await node.fail(await node.expect_assign(), "BAD_AUDIO", worth_retry=False)
    code, why, said = await call
    assert (code, why) == (grpc.StatusCode.ABORTED, "JOB_FAILED")
    assert "BAD_AUDIO" in said.message


async def test_dispatch_says_whether_it_knew_the_job(patient: Scene) -> None:
    node = await patient.node(slots=2)
    request = dispatcher_pb2.DispatchRequest(job=patient.spec())
    first = asyncio.ensure_future(patient.stub.Dispatch(request))
    assign = await node.take_job()
    assert not (await first).existing
    again = await patient.stub.Dispatch(request)
    assert again == dispatcher_pb2.DispatchResponse(
        job_id=assign.attempt.job_id, node_id=node.node_id, attempt_id=1, existing=True
    )


async def test_a_job_that_its_only_node_fails_has_as_many_tries_and_says_that_the_node_failed_it(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    for attempt in (1, 2, 3):
        assign = await node.take_job()
        assert assign.attempt.attempt == attempt
        await node.fail(assign, "MODEL_LOAD_FAILED", worth_retry=True)
    failed = await gateway.failed(job)
    assert reason(failed) == "JOB_FAILED"
    assert "attempt 3" in failed.message
    assert "MODEL_LOAD_FAILED" in failed.message


# ---- attempts that fail ----


async def test_without_an_acknowledgement_in_time_the_job_goes_elsewhere_and_late_words_are_dropped(
    hasty: Scene,
) -> None:
    nodes, gateway = [await hasty.node("a"), await hasty.node("b")], hasty.gateway()
    job = await gateway.submit(hasty.spec())
    slow, old = await whoever_gets_it(nodes)
    (fast,) = [node for node in nodes if node is not slow]

    new = await fast.take_job()
    await slow.expect_cancel(old)
    retrying = await gateway.retrying(job)
    assert (retrying.attempt, reason(retrying.why)) == (1, "JOB_TIMEOUT")
    assert (await gateway.accepted(job)).node_id == fast.node_id
    assert (old.attempt.attempt, new.attempt.attempt) == (1, 2)

    await slow.ack(old)
    await slow.expect_cancel(old)
    await slow.result(old, "too late")
    await slow.expect_received(old)
    await fast.result(new, "in time")
    delivered = await gateway.delivered(job)
    assert delivered.result.texts.translated == "in time"
    await fast.expect_received(new)
    assert await gateway.settled() == []
    assert await hasty.dispatcher.metric("lingua_dispatcher_ack_timeouts_total") >= 1


async def test_a_late_result_of_an_older_attempt_is_confirmed_though_nobody_took_the_newer_one(
    patient: Scene,
) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    old = await first.take_job()
    second = await patient.node("b")
    await first.fail(old, worth_retry=True)
    await first.expect_received(old)
    new = await second.take_job()
    await second.result(new)
    await gateway.delivered(job, take=False)

    await first.result(old, "changed its mind")
    await first.expect_received(old)
    assert await second.settled() == []
    await gateway.taken(job)
    await second.expect_received(new)
    assert [kind for _, kind in await gateway.settled()] == ["accepted", "retrying", "accepted"]


async def test_a_rejected_job_goes_elsewhere_at_once(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await first.expect_assign()
    second = await patient.node("b")

    await first.reject(assign, detail="the card is busy")
    await first.reject(assign)

    assert (await second.take_job()).attempt.attempt == 2
    retrying = await gateway.retrying(job)
    assert retrying.why.message.endswith("rejected: FULL")
    assert (await gateway.accepted(job)).node_id == second.node_id
    record = (await patient.job(job)).job
    assert record.attempts[0].detail == "rejected: the card is busy"


async def test_a_rejection_for_a_cause_of_a_newer_contract_is_a_rejection(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    await gateway.submit(patient.spec())
    assign = await first.expect_assign()
    second = await patient.node("b")
    await first.reject(assign, dispatcher_pb2.JobReject.Cause.ValueType(99))
    await second.take_job()
    assert await first.settled() == []


async def test_a_stream_that_breaks_before_the_acknowledgement_sends_the_job_elsewhere_at_once(
    patient: Scene,
) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    await first.expect_assign()
    second = await patient.node("b")

    await first.cut()

    assert (await second.take_job()).attempt.attempt == 2
    assert (await gateway.accepted(job)).node_id == second.node_id
    attempts = (await patient.job(job)).job.attempts
    assert attempts[1].reserved_ms - attempts[0].reserved_ms < 10_000


async def test_a_node_that_comes_back_in_time_keeps_its_job(patient: Scene) -> None:
    node, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await patient.node("b")

    await node.cut()
    back = await patient.node("a", running=[assign.attempt])
    again = await back.take_job()
    assert again.attempt == assign.attempt
    await back.result(again)

    assert (await gateway.delivered(job)).node_id == back.node_id
    await back.expect_received(assign)
    assert await gateway.settled() == []
    assert len((await patient.job(job)).job.attempts) == 1


async def test_a_result_that_was_not_confirmed_is_sent_again_and_delivered_once(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.result(assign)
    await gateway.delivered(job, take=False)

    await node.cut()
    back = await patient.node(unconfirmed=[assign.attempt])
    await back.result(assign)
    await back.result(assign)
    assert await back.settled() == []
    await gateway.taken(job)

    await back.expect_received(assign)
    assert [kind for _, kind in await gateway.settled()] == ["accepted"]


async def test_a_result_made_while_the_stream_was_broken_is_taken_when_the_node_is_back(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await node.cut()

    back = await patient.node(unconfirmed=[assign.attempt])
    await back.result(assign, "kept")

    assert (await gateway.delivered(job)).result.texts.translated == "kept"
    await back.expect_received(assign)


async def test_a_node_that_does_not_come_back_loses_its_job_after_the_grace(hasty: Scene) -> None:
    first, gateway = await hasty.node("a"), hasty.gateway()
    job = await gateway.submit(hasty.spec())
    await first.take_job()
    await gateway.accepted(job)
    second = await hasty.node("b")

    cut_at = time.monotonic()
    await first.cut()
    assign = await second.take_job()

    assert time.monotonic() - cut_at >= 0.4
    assert assign.attempt.attempt == 2
    assert reason((await gateway.retrying(job)).why) == "JOB_FAILED"
    await second.result(assign)
    await gateway.delivered(job)


async def test_a_node_that_falls_silent_is_let_go_and_its_work_goes_elsewhere(
    watchful: Scene,
) -> None:
    silent, gateway = await watchful.node("a", beats=False), watchful.gateway()
    job = await gateway.submit(watchful.spec())
    await silent.take_job()
    await gateway.accepted(job)
    second = await watchful.node("b")

    await silent.ended()
    assign = await second.take_job()
    assert (assign.attempt.job_id, assign.attempt.attempt) == (job, 2)
    known = await watchful.known_node(silent)
    assert known is not None
    assert known.health == common_pb2.NODE_HEALTH_OFFLINE
    assert await watchful.dispatcher.metric("lingua_dispatcher_silent_nodes_total") == 1


async def test_a_failure_after_the_acknowledgement_sends_the_job_elsewhere(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    old = await first.take_job()
    second = await patient.node("b")

    await first.fail(old, "MODEL_LOAD_FAILED", "x" * 5000, worth_retry=True)

    await first.expect_received(old)
    new = await second.take_job()
    assert "MODEL_LOAD_FAILED" in (await gateway.retrying(job)).why.message
    await second.result(new)
    await gateway.delivered(job)
    record = await patient.ended(job)
    assert [each.outcome for each in record.attempts] == ["failed", "done"]
    assert record.attempts[0].detail.startswith("MODEL_LOAD_FAILED")
    assert len(record.attempts[0].detail) <= 200


async def test_a_job_that_two_nodes_call_not_worth_a_retry_has_failed(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await first.take_job()
    second, third = await patient.node("b"), await patient.node("c")

    await first.fail(assign, "BAD_AUDIO", "no header", worth_retry=False)
    await first.expect_received(assign)
    other, again = await whoever_gets_it([second, third])
    await other.ack(again)
    await other.fail(again, "BAD_AUDIO", "no samples", worth_retry=False)

    error = await gateway.failed(job)
    assert reason(error) == "JOB_FAILED"
    assert error.message.endswith("BAD_AUDIO")
    await other.expect_received(again)
    assert await (third if other is second else second).settled() == []
    record = await patient.ended(job)
    assert record.state == common_pb2.JOB_STATE_FAILED
    assert [each.detail for each in record.attempts] == [
        "BAD_AUDIO: no header",
        "BAD_AUDIO: no samples",
    ]


async def test_a_node_that_calls_a_good_job_hopeless_keeps_nobody_from_its_result(
    patient: Scene,
) -> None:
    liar, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await liar.take_job()
    honest = await patient.node("b")

    await liar.fail(assign, "BAD_AUDIO", worth_retry=False)

    await honest.result(await honest.take_job(), "hello")
    delivered = await gateway.delivered(job)
    assert (delivered.result.texts.translated, delivered.attempts) == ("hello", 2)


async def test_a_job_that_fails_everywhere_has_as_many_tries_as_are_allowed(
    patient: Scene,
) -> None:
    nodes, gateway = [await patient.node(name) for name in "abcd"], patient.gateway()
    job = await gateway.submit(patient.spec())
    tried = []
    for _ in range(3):
        node, assign = await whoever_gets_it(nodes)
        await node.ack(assign)
        await node.fail(assign, worth_retry=True)
        tried.append(node.node_id)

    assert reason(await gateway.failed(job)) == "JOB_FAILED"
    assert len(set(tried)) == 3
    assert [each.node_id for each in (await patient.job(job)).job.attempts] == tried


async def test_a_job_that_takes_too_long_goes_elsewhere(hasty: Scene) -> None:
    first, gateway = await hasty.node("a"), hasty.gateway()
    job = await gateway.submit(hasty.spec())
    old = await first.take_job()
    assert old.time_left_ms == 1000
    second = await hasty.node("b")

    await first.expect_cancel(old)
    assert reason((await gateway.retrying(job)).why) == "JOB_TIMEOUT"
    new = await second.take_job()
    await second.result(new)

    await gateway.delivered(job)
    outcomes = [each.outcome for each in (await hasty.ended(job)).attempts]
    assert outcomes == ["timed_out", "done"]


async def test_a_second_acknowledgement_changes_nothing(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.ack(assign)
    assert await node.settled() == []
    await gateway.accepted(job)
    assert await gateway.settled() == []
    await node.result(assign)
    await gateway.delivered(job)
    await node.ack(assign)
    await node.expect_received(assign)
    assert await gateway.settled() == []


async def test_a_result_without_an_acknowledgement_is_a_result(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.expect_assign()
    await node.result(assign)
    await gateway.delivered(job)
    await node.expect_received(assign)
    following = await gateway.submit(patient.spec(1))
    assert (await node.expect_assign()).attempt.job_id == following


async def test_a_late_acknowledgement_tries_a_second_node_and_the_first_to_answer_wins(
    hedging: Scene,
) -> None:
    nodes, gateway = [await hedging.node(name) for name in "ab"], hedging.gateway()
    job = await gateway.submit(hedging.spec())
    slow, old = await whoever_gets_it(nodes)
    fast, new = await whoever_gets_it([node for node in nodes if node is not slow])
    assert (old.attempt.attempt, new.attempt.attempt) == (1, 2)

    await fast.ack(new)
    await slow.expect_cancel(old)
    assert (await gateway.accepted(job)).node_id == fast.node_id
    await slow.ack(old)
    await slow.expect_cancel(old)
    await fast.result(new)
    await gateway.delivered(job)
    assert await gateway.settled() == []


async def test_where_the_first_node_answers_after_all_the_hedge_is_cancelled(
    hedging: Scene,
) -> None:
    nodes, gateway = [await hedging.node(name) for name in "ab"], hedging.gateway()
    job = await gateway.submit(hedging.spec())
    first, old = await whoever_gets_it(nodes)
    hedge, new = await whoever_gets_it([node for node in nodes if node is not first])

    await first.ack(old)
    await hedge.expect_cancel(new)
    await first.result(old)
    assert (await gateway.delivered(job)).result.attempt.attempt == 1


# ---- cancelling ----


async def test_a_job_that_waits_for_room_can_be_cancelled(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    await gateway.submit(patient.spec())
    assign = await node.take_job()
    job = await gateway.submit(patient.spec(1))
    await gateway.cancel(job, "the speaker left")

    error = await gateway.failed(job)
    assert (reason(error), error.message) == ("JOB_CANCELLED", "the speaker left")
    following = await gateway.submit(patient.spec(2))
    await node.result(assign)
    assert (await node.expect_assign()).attempt.job_id == following


@pytest.mark.parametrize("acknowledged", [False, True])
async def test_a_job_that_is_cancelled_is_stopped_on_its_node(
    patient: Scene, acknowledged: bool
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.expect_assign()
    if acknowledged:
        await node.ack(assign)
        await gateway.accepted(job)

    await gateway.cancel(job, "the speaker left")

    assert await node.expect_cancel(assign) == "the speaker left"
    assert reason(await gateway.failed(job)) == "JOB_CANCELLED"
    following = await gateway.submit(patient.spec(1))
    assert (await node.expect_assign()).attempt.job_id == following
    await node.result(assign)
    await node.expect_received(assign)
    assert await gateway.settled() == []
    assert (await patient.job(job)).job.state == common_pb2.JOB_STATE_CANCELLED


async def test_to_cancel_a_job_that_is_over_changes_nothing(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    await node.result(await node.take_job())
    await gateway.delivered(job)
    await gateway.cancel(job)
    assert [kind for _, kind in await gateway.settled()] == ["accepted"]

    request = dispatcher_pb2.CancelJobRequest(job_id=job)
    assert (await patient.stub.CancelJob(request)).state == common_pb2.JOB_STATE_DONE


async def test_operators_cancel_jobs_as_well(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    request = dispatcher_pb2.CancelJobRequest(job_id=job, why="by hand")
    assert (await patient.stub.CancelJob(request)).state == common_pb2.JOB_STATE_CANCELLED
    assert await node.expect_cancel(assign) == "by hand"
    assert (await gateway.failed(job)).message == "by hand"

    unknown = dispatcher_pb2.CancelJobRequest(job_id="nobody")
    assert (await failure(patient.stub.CancelJob(unknown)))[1] == "JOB_NOT_FOUND"


# ---- which node, and when ----


async def test_where_all_are_full_jobs_wait_and_the_first_to_come_is_the_first_to_go(
    narrow: Scene,
) -> None:
    node, gateway, other = await narrow.node(slots=2), narrow.gateway(), narrow.gateway()
    jobs = [await gateway.submit(narrow.spec(index)) for index in range(3)]
    under_way = [await node.take_job(), await node.take_job()]
    await narrow.dispatcher.reaches(1, "lingua_dispatcher_waits_total")
    # One waits. Whoever comes now, by whatever gateway, has to go behind it.
    for index in range(3, 10):
        peer = (gateway, other)[index % 2]
        jobs.append(await peer.submit(narrow.spec(index)))
        await peer.settled()
    given = [assign.attempt.job_id for assign in under_way]
    while under_way:
        assert (await node.settled()) == []
        await node.result(under_way.pop(0))
        if len(given) < len(jobs):
            under_way.append(await node.take_job())
            given.append(under_way[-1].attempt.job_id)
    assert set(given[:2]) == set(jobs[:2])
    assert given[2:] == jobs[2:]


async def test_a_node_that_connects_is_room_for_those_that_wait(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    await gateway.submit(patient.spec())
    await first.take_job()
    jobs = [await gateway.submit(patient.spec(index)) for index in (1, 2)]
    second = await patient.node("b", slots=2)
    assert {(await second.take_job()).attempt.job_id for _ in jobs} == set(jobs)


async def test_a_job_that_has_waited_long_enough_fails(hasty: Scene) -> None:
    node, gateway = await hasty.node(), hasty.gateway()
    await gateway.submit(hasty.spec())
    await node.expect_assign()
    began = time.monotonic()
    job = await gateway.submit(hasty.spec(1))

    error = await gateway.failed(job)

    assert reason(error) == "ALL_CANDIDATES_FULL_OR_FAILED"
    assert error.retry_after_ms > 0
    assert time.monotonic() - began >= 0.4


async def test_without_a_node_for_the_direction_a_job_fails_at_once(patient: Scene) -> None:
    gateway = patient.gateway()
    job = await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"


async def test_a_preferred_node_is_taken_and_another_one_where_it_is_full(patient: Scene) -> None:
    nodes, gateway = {name: await patient.node(name) for name in "abcd"}, patient.gateway()
    wanted = nodes["c"]
    first = await gateway.submit(patient.spec(preferred_node_id=wanted.node_id))
    assert (await wanted.take_job()).attempt.job_id == first

    second = await gateway.submit(patient.spec(1, preferred_node_id=wanted.node_id))
    got, assign = await whoever_gets_it(list(nodes.values()))
    assert got is not wanted
    assert assign.attempt.job_id == second


async def test_strictly_preferred_means_that_node_or_none(hasty: Scene) -> None:
    wanted, other, gateway = await hasty.node("a"), await hasty.node("b"), hasty.gateway()
    strict = {"preferred_node_id": wanted.node_id, "strict": True}
    await gateway.submit(hasty.spec(0, **strict))
    await wanted.expect_assign()
    job = await gateway.submit(hasty.spec(1, **strict))
    assert reason(await gateway.failed(job)) == "ALL_CANDIDATES_FULL_OR_FAILED"
    assert await other.settled() == []


async def test_who_waits_for_one_node_does_not_hold_up_those_that_others_have_room_for(
    patient: Scene,
) -> None:
    wanted, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await wanted.take_job()
    await gateway.accepted(job)
    strict = {"preferred_node_id": wanted.node_id, "strict": True}
    waits = [await gateway.submit(patient.spec(index, **strict)) for index in (1, 2)]
    await gateway.settled()
    other = await patient.node("b", slots=10)
    for index in range(3, 8):
        free = await gateway.submit(patient.spec(index))
        assert (await other.take_job()).attempt.job_id == free
    assert await wanted.settled() == []

    for job in waits:
        await wanted.result(assign)
        assign = await wanted.take_job()
        assert assign.attempt.job_id == job


async def test_a_preferred_node_that_cannot_do_it_is_an_error(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    spec = patient.spec(preferred_node_id=node.node_id)
    spec.pair.tgt = "fr"
    job = await gateway.submit(spec)
    assert reason(await gateway.failed(job)) == "PREFERRED_NODE_NOT_CAPABLE"


async def test_a_job_ends_at_its_deadline_and_its_node_knows_how_long_it_has(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec(deadline_ms=600))
    assign = await node.take_job()
    assert 0 < assign.time_left_ms <= 600

    assert reason(await gateway.failed(job)) == "JOB_TIMEOUT"
    await node.expect_cancel(assign)


async def test_audio_that_a_node_holds_binds_the_next_job_of_the_turn_to_it(
    patient: Scene,
) -> None:
    nodes, gateway = [await patient.node(name) for name in "abcde"], patient.gateway()
    for turn in range(3):
        session = f"{patient.src}-{turn}"
        job = await gateway.submit(patient.spec(0, session_id=session, reason=TIMEOUT))
        holder, assign = await whoever_gets_it(nodes)
        await holder.ack(assign)
        await holder.held(assign)
        assert (await gateway.delivered(job)).result.kind == HELD

        job = await gateway.submit(patient.spec(1, session_id=session, reason=TIMEOUT))
        got, assign = await whoever_gets_it(nodes)
        assert got is holder
        await got.result(assign)
        await gateway.delivered(job)


async def test_speech_that_goes_on_stays_on_its_node_until_it_ends(patient: Scene) -> None:
    nodes, gateway = [await patient.node(name) for name in "abcde"], patient.gateway()
    reasons = [MAX_DURATION, common_pb2.FINALIZE_REASON_MAX_LENGTH, MAX_DURATION, TIMEOUT]
    got, begins = [], []
    for index, why in enumerate([*reasons, TIMEOUT]):
        job = await gateway.submit(patient.spec(index, reason=why))
        node, assign = await whoever_gets_it(nodes)
        await node.ack(assign)
        await node.result(assign)
        await gateway.delivered(job)
        got.append(node.node_id)
        begins.append(assign.begins_turn)
    assert len(set(got[:-1])) == 1
    # A node is told of the others that what it may still hold is no part of them.
    assert begins == [True, False, False, False, True]


async def test_a_turn_waits_for_its_node_as_long_as_its_deadline_allows(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec(0, reason=MAX_DURATION))
    assign = await first.take_job()
    second = await patient.node("b")
    following = await gateway.submit(patient.spec(1, reason=MAX_DURATION))
    # In time, the bound node has room again.
    await first.result(assign)
    assert not (await gateway.delivered(job)).turn_broken
    assign = await first.take_job()
    assert assign.attempt.job_id == following

    # It stays full: the turn goes on elsewhere while there is still time for that.
    last = await gateway.submit(patient.spec(2, deadline_ms=1500))
    assign = await second.take_job()
    assert assign.attempt.job_id == last
    await second.result(assign)
    assert (await gateway.delivered(last)).turn_broken


async def test_the_rest_of_a_sentence_goes_before_others_that_wait_for_its_node(
    patient: Scene,
) -> None:
    node, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec(0, reason=TIMEOUT))
    await node.held(await node.take_job())
    await gateway.delivered(job)
    busy = await gateway.submit(patient.spec(0, session_id="another"))
    assign = await node.take_job()
    others = [patient.spec(at, session_id="more") for at in range(3)]
    await gateway.submit(*others)
    async with asyncio.timeout(10):
        while await patient.dispatcher.metric("lingua_dispatcher_waiting_jobs") < len(others):
            await gateway.is_answered()
    rest = await gateway.submit(patient.spec(1, held_utterances=[0]))
    # It has asked, and one slot is kept for it.
    await gateway.is_answered()
    await node.result(assign)
    await gateway.delivered(busy)
    assert (await node.take_job()).attempt.job_id == rest


# ---- what operators see ----


async def test_a_job_has_a_record_of_its_attempts_and_times(patient: Scene) -> None:
    before = time.time() * 1000
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec(7, reason=TIMEOUT))
    old = await first.expect_assign()
    state = (await patient.job(job)).job.state
    second = await patient.node("b")
    await first.reject(old)
    new = await second.take_job()
    await second.result(new)
    await gateway.delivered(job)

    record = await patient.ended(job)
    spec = patient.spec(7)
    assert state == common_pb2.JOB_STATE_DISPATCHED
    assert record.state == common_pb2.JOB_STATE_DONE
    assert (record.tenant, record.session_id, record.utterance_index) == ("t", spec.session_id, 7)
    assert (record.pair, record.reason) == (spec.pair, TIMEOUT)
    assert record.home_instance
    one, two = record.attempts
    assert [one.node_id, two.node_id] == [first.node_id, second.node_id]
    assert (one.outcome, one.acked_ms, two.outcome) == ("released", 0, "done")
    # Redis and this process have one clock, but they round.
    assert before - 5 <= record.created_ms <= one.reserved_ms <= one.ended_ms <= two.reserved_ms
    assert two.reserved_ms <= two.acked_ms <= two.ended_ms <= time.time() * 1000 + 5


async def test_jobs_are_listed_by_session_node_and_state(patient: Scene) -> None:
    node, gateway = await patient.node(slots=4), patient.gateway()
    mine, other = f"{patient.src}-mine", f"{patient.src}-other"
    done = await gateway.submit(patient.spec(0, session_id=mine))
    await node.result(await node.take_job())
    await gateway.delivered(done)
    await patient.ended(done)
    runs = await gateway.submit(patient.spec(1, session_id=mine))
    await node.take_job()
    await gateway.accepted(runs)
    elsewhere = await gateway.submit(patient.spec(0, session_id=other))
    await node.take_job()
    await gateway.accepted(elsewhere)

    async def listed(**wanted: object) -> set[str]:
        request = dispatcher_pb2.ListJobsRequest(page_size=1000, **wanted)  # type: ignore[arg-type]
        found: set[str] = set()
        while True:
            answer = await patient.stub.ListJobs(request)
            found |= {job.job_id for job in answer.jobs}
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    assert await listed(session_id=mine) == {done, runs}
    assert await listed(node_id=node.node_id) == {done, runs, elsewhere}
    state = common_pb2.JOB_STATE_DONE
    assert await listed(node_id=node.node_id, state=state) == {done}
    assert await listed(session_id="nobody") == set()
    bad = dispatcher_pb2.ListJobsRequest(page_size=5000, session_id="no id")
    assert {each.field for each in (await failure(patient.stub.ListJobs(bad)))[2].field_violations}


# ---- gateways that misbehave ----


async def test_a_bad_job_fails_with_the_names_of_its_fields_and_the_others_go_on(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    bad = patient.spec(3, session_id="no id", audio=b"", strict=True)
    bad.audio_format.sample_rate_hz = 1
    job = id_of(bad)
    good = await gateway.submit(bad, patient.spec())

    error = await gateway.failed(job)
    assert reason(error) == "INVALID_MESSAGE"
    fields = {each.field for each in error.field_violations}
    assert fields == {"session_id", "audio", "audio_format.sample_rate_hz", "strict"}
    assert (await node.take_job()).attempt.job_id == good


async def test_an_empty_submission_does_no_harm(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    await gateway.cancel("nobody")
    await gateway.taken("nobody")
    job = await gateway.submit(patient.spec())
    await node.take_job()
    await gateway.accepted(job)


async def test_a_result_that_finds_no_gateway_is_kept_for_the_one_that_attaches(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await gateway.cut()

    await node.settled()
    await node.result(assign, "kept")
    # It is safe, though no gateway has it.
    await node.expect_received(assign)

    following = patient.gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_a_result_that_its_gateway_had_no_time_to_take_is_kept(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.result(assign, "kept")
    await gateway.delivered(job, take=False)
    await gateway.cut()

    await node.expect_received(assign)
    following = patient.gateway()
    await following.submit(patient.spec())
    assert (await following.delivered(job)).result.texts.translated == "kept"
    assert await node.settled() == []


@pytest.mark.parametrize("attach", [True, False])
async def test_a_kept_result_outlives_its_dispatcher(
    pool_process: PoolProcess, redis_url: str, attach: bool
) -> None:
    async with (
        running_dispatcher(pool_process, redis_url) as process,
        scene(process, pool_process) as made,
    ):
        node, gateway = await made.node(), made.gateway()
        job = await gateway.submit(made.spec())
        assign = await node.take_job()
        await node.result(assign, "kept")
        await gateway.delivered(job, take=False)
        await gateway.cut()
        await node.expect_received(assign)

        process.kill()
        await process.restart()
        following = made.gateway()
        if attach:
            await following.attach(job)
        else:
            await following.submit(made.spec())
        assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_a_gateway_that_does_not_read_loses_its_stream_and_nothing_else(
    narrow: Scene,
) -> None:
    node, gateway = await narrow.node(slots=100), narrow.gateway()
    await gateway.settled()
    gateway.stop_reading()
    before = narrow.dispatcher.memory_bytes()
    jobs = []
    for index in range(20):
        jobs.append(await gateway.submit(narrow.spec(index)))
        await node.result(await node.take_job(), speech=bytes(1_000_000))
    for _ in jobs:
        # All of them are safe: taken in by nobody, but kept.
        await node.expect("result_received")

    dropped = await narrow.dispatcher.metric("lingua_dispatcher_backpressure_total", peer="gateway")
    assert dropped >= 1
    assert narrow.dispatcher.memory_bytes() - before < 100_000_000
    gateway.read_on()
    await gateway.ended()
    following = narrow.gateway()
    for job in jobs:
        await following.attach(job)
        assert len((await following.delivered(job)).result.speech) == 1_000_000


async def test_a_node_that_does_not_read_gets_no_more_jobs_and_others_do_them(
    narrow: Scene,
) -> None:
    stuck, gateway = await narrow.node("a", slots=100, reads=False), narrow.gateway()
    audio = bytes(500_000)
    specs = [narrow.spec(index, audio=audio) for index in range(20)]
    for spec in specs:
        await gateway.submit(spec)
    await narrow.dispatcher.reaches(1, "lingua_dispatcher_backpressure_total", peer="node")

    second = await narrow.node("b", slots=100)
    given = {(await second.take_job()).attempt.job_id for _ in specs}

    assert given == {id_of(spec) for spec in specs}
    stuck.read_on()
    await stuck.ended()


async def test_the_stream_of_a_gateway_can_break_at_any_time(patient: Scene) -> None:
    node = await patient.node(slots=50)
    for index in range(10):
        gateway = patient.gateway()
        await gateway.submit(patient.spec(index))
        await gateway.cut()
    gateway = patient.gateway()
    job = await gateway.submit(patient.spec(99))
    while (await node.take_job()).attempt.job_id != job:
        pass
    await gateway.accepted(job)
    with pytest.raises(grpc.aio.AioRpcError):
        await patient.stub.GetJob(dispatcher_pb2.GetJobRequest(job_id=""))
