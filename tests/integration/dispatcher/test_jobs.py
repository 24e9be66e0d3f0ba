"""Jobs at one real dispatcher: submitted, delivered, cancelled, and shown to operators.

Each test runs over both transports: gateways and operators call a dispatcher that is a process of
its own, or one within this process.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest

from lingua_scheduler.services.dispatcher.main import DISPATCHER
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from tests.support.hosted import hosted
from tests.support.raw_gateway import as_told, id_of
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import PATIENT, DispatcherProcess, PoolProcess
from tests.support.transports import IN_PROCESS, TRANSPORTS

TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT


@pytest.fixture(params=TRANSPORTS)
async def patient(
    request: pytest.FixtureRequest,
    patient_process: DispatcherProcess,
    pool_process: PoolProcess,
    redis_url: str,
) -> AsyncIterator[Scene]:
    """A scene at a patient dispatcher."""
    async with scene(patient_process, pool_process) as made:
        if request.param != IN_PROCESS:
            yield made
            return
        async with (
            hosted(
                DISPATCHER,
                redis_url=redis_url,
                prefix=pool_process.prefix,
                pool_address=pool_process.address,
                **PATIENT,
            ) as service,
            service.channel() as channel,
        ):
            stub = dispatcher_pb2_grpc.DispatcherStub(channel)
            within = replace(made, hosted=service, stub=stub, _open=[])  # type: ignore[arg-type]
            yield within
            await within.close()


# ---- delivery ----


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


# ---- records ----


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
