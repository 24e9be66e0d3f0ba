"""Attempts that fail at one real dispatcher, and what follows."""

import time
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.raw_node import whoever_gets_it
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher


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


@pytest.mark.parametrize("worth_retry", [True, False])
async def test_the_only_node_in_sight_does_not_use_up_all_tries_of_a_job(
    patient: Scene, worth_retry: bool
) -> None:
    liar, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    for _ in range(2 if worth_retry else 1):
        assign = await liar.take_job()
        await liar.fail(assign, "BROKEN", worth_retry=worth_retry)
        await liar.expect_received(assign)
    assert await liar.settled() == []

    honest = await patient.node("b")

    await honest.result(await honest.take_job(), "hello")
    assert (await gateway.delivered(job)).result.texts.translated == "hello"


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
