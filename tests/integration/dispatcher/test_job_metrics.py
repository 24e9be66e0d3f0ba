"""The metrics of dispatchers and gateways about jobs and utterances, on real processes."""

from collections.abc import Iterator

import pytest

from lingua_scheduler.v1 import dispatcher_pb2, session_pb2
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.rpc_errors import reason
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

WAIT = "lingua_dispatcher_queue_wait_seconds"


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """The gateway of the tests in this file."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=0,
    ) as process:
        yield process
        assert not process.faults(), process.log()


async def test_a_wait_that_ends_with_a_node_is_measured(patient: Scene) -> None:
    metric = patient.dispatcher.metric
    node, gateway = await patient.node(slots=1), patient.gateway()
    waits = await metric(f"{WAIT}_count", outcome="placed")
    seconds = await metric(f"{WAIT}_sum", outcome="placed")
    over = await metric(f"{WAIT}_count", outcome="over")
    await gateway.submit(patient.spec())
    first = await node.take_job()
    assert await metric("lingua_dispatcher_waiting_jobs") == 0
    await gateway.submit(patient.spec(1))
    await patient.dispatcher.reaches(1, "lingua_dispatcher_waiting_jobs")
    assert await metric(f"{WAIT}_count", outcome="placed") == waits

    await node.result(first)
    await node.take_job()

    assert await metric(f"{WAIT}_count", outcome="placed") == waits + 1
    assert 0 < await metric(f"{WAIT}_sum", outcome="placed") - seconds < 60
    assert await metric(f"{WAIT}_count", outcome="over") == over
    assert await metric("lingua_dispatcher_waiting_jobs") == 0


async def test_a_wait_in_vain_is_measured_as_such(hasty: Scene) -> None:
    metric = hasty.dispatcher.metric
    node, gateway = await hasty.node(slots=1), hasty.gateway()
    over = await metric(f"{WAIT}_count", outcome="over")
    seconds = await metric(f"{WAIT}_sum", outcome="over")
    await gateway.submit(hasty.spec(deadline_ms=60_000))
    await node.take_job()
    job = await gateway.submit(hasty.spec(1))
    assert reason(await gateway.failed(job)) == "ALL_CANDIDATES_FULL_OR_FAILED"

    assert await metric(f"{WAIT}_count", outcome="over") == over + 1
    # queue_wait_ms of this dispatcher.
    assert await metric(f"{WAIT}_sum", outcome="over") - seconds >= 0.45
    assert await metric("lingua_dispatcher_waiting_jobs") == 0


async def test_a_job_that_finds_room_at_once_has_not_waited(patient: Scene) -> None:
    node, gateway = await patient.node(slots=1), patient.gateway()
    waits = await patient.dispatcher.metric(f"{WAIT}_count")
    job = await gateway.submit(patient.spec())
    await node.result(await node.take_job())
    await gateway.delivered(job)

    assert await patient.dispatcher.metric(f"{WAIT}_count") == waits


async def test_rejects_are_counted_by_cause_and_the_retries_that_follow_by_reason(
    patient: Scene,
) -> None:
    metric = patient.dispatcher.metric
    causes = ("full", "bad_job", "unknown")
    before = [await metric("lingua_dispatcher_rejects_total", cause=each) for each in causes]
    retries = await metric("lingua_dispatcher_retries_total", reason="job_failed")
    cause = dispatcher_pb2.JobReject.Cause
    given = (cause.CAUSE_FULL, cause.CAUSE_BAD_JOB, cause.ValueType(99))
    first, gateway = await patient.node("a"), patient.gateway()
    for index, each in enumerate(given):
        job = await gateway.submit(patient.spec(index, preferred_node_id=first.node_id))
        assign = await first.expect_assign()
        second = await patient.node(f"b{index}")
        await first.reject(assign, each)
        again = await second.take_job()
        await gateway.accepted(job)
        await second.result(again)
        await gateway.delivered(job)
        await second.bye()

    after = [await metric("lingua_dispatcher_rejects_total", cause=each) for each in causes]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1, 1]
    told = await metric("lingua_dispatcher_retries_total", reason="job_failed")
    assert told == retries + 3


async def test_an_utterance_that_is_missing_is_counted_by_its_reason(
    gateway: GatewayProcess, patient: Scene
) -> None:
    failed = await gateway.metric("lingua_gateway_missing_total", reason="job_failed")
    missing = await gateway.metric("lingua_gateway_missing_total")
    node = await patient.node()
    async with raw_client(gateway.address) as client:
        await client.open(new_session(patient.src, patient.tgt))
        await client.send(speech(1), final=True)
        await node.fail(await node.take_job(), "BROKEN", "no voice in it", worth_retry=False)
        assert reason(await client.missing(0)) == "JOB_FAILED"

    assert await gateway.metric("lingua_gateway_missing_total", reason="job_failed") == failed + 1
    assert await gateway.metric("lingua_gateway_missing_total") == missing + 1


async def test_a_result_is_measured_from_the_cut_to_its_delivery(
    gateway: GatewayProcess, patient: Scene
) -> None:
    async def measured() -> list[float]:
        names = ("dispatch", "node", "deliver", "result")
        return [await gateway.metric(f"lingua_gateway_{each}_seconds_sum") for each in names]

    results = await gateway.metric("lingua_gateway_result_seconds_count")
    before = await measured()
    async with working(await patient.node()), raw_client(gateway.address) as client:
        await client.open(new_session(patient.src, patient.tgt))
        await client.send(speech(1), final=True)
        await client.result(0)

    assert await gateway.metric("lingua_gateway_result_seconds_count") == results + 1
    *parts, whole = (now - then for now, then in zip(await measured(), before, strict=True))
    assert sum(parts) == pytest.approx(whole)
    assert 0 < whole < 60


async def test_a_session_that_cannot_be_resumed_is_counted_by_the_reason(
    gateway: GatewayProcess,
) -> None:
    async def refused(why: str) -> float:
        return await gateway.metric("lingua_gateway_opens_refused_total", reason=why)

    unknown, invalid = await refused("session_not_found"), await refused("invalid_message")
    async with raw_client(gateway.address) as client:
        resume = session_pb2.ResumeSession(session_id="s" * 24, resume_token="t" * 32)
        await client.say(open=session_pb2.Open(resume=resume))
        await client.refused("SESSION_NOT_FOUND")
    async with raw_client(gateway.address) as client:
        await client.say(close=session_pb2.Close())
        await client.refused("INVALID_MESSAGE")

    assert await refused("session_not_found") == unknown + 1
    assert await refused("invalid_message") == invalid + 1
