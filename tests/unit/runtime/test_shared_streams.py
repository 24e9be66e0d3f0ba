"""No event breaks a stream that others share: what fits into no message fails its own job."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.dispatcher.gateways.streams import GatewayStream
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.relay_server import HomeStream
from lingua_scheduler.services.pool_service.stream import OperateStream
from lingua_scheduler.services.runtime.rpc.message_sizes import HEADROOM_BYTES, batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import MAX_TAKE_EVENTS, Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

LIMIT = 65_536
LARGEST = LIMIT + HEADROOM_BYTES
REF = common_pb2.AttemptRef(job_id="j", attempt=1)


@pytest.fixture
def metrics() -> DispatcherMetrics:
    return DispatcherMetrics(CollectorRegistry())


def result(size: int) -> dispatcher_pb2.JobResult:
    return dispatcher_pb2.JobResult(attempt=REF, speech=bytes(size))


async def test_a_result_too_large_for_a_gateway_fails_its_job(metrics: DispatcherMetrics) -> None:
    gateway = GatewayStream(metrics, LIMIT)
    event = dispatcher_pb2.JobEvent(job_id="j", session_id="s", utterance_index=3)
    # What came in one message fits with what is said of it.
    event.delivered.result.CopyFrom(result(LIMIT))
    assert gateway.put(event)
    event.delivered.result.CopyFrom(result(LARGEST))
    assert gateway.put(event)
    fits, failed = [
        dispatcher_pb2.SubmitResponse.FromString(each).events[0]
        for _ in range(2)
        for each in await gateway.outbox.take()
    ]
    assert fits.HasField("delivered")
    assert (failed.job_id, failed.session_id, failed.utterance_index) == ("j", "s", 3)
    assert failed.failed.reason == common_pb2.ERROR_REASON_JOB_FAILED


async def test_a_partial_too_large_for_a_gateway_is_dropped(metrics: DispatcherMetrics) -> None:
    gateway = GatewayStream(metrics, LIMIT)
    event = dispatcher_pb2.JobEvent(job_id="j")
    event.partial.texts.source = "x" * LARGEST
    assert gateway.put(event, droppable=True)
    assert len(gateway.outbox) == 0


async def test_a_report_too_large_for_a_relay_fails_its_attempt(metrics: DispatcherMetrics) -> None:
    home = HomeStream(metrics, LIMIT, give_up=lambda *_: None)
    home.on_report("n", result(LARGEST))
    (data,) = await home.outbox.take()
    report = dispatcher_pb2.RelayResponse.FromString(data).reports[0]
    assert report.failed.cause == "INVALID_MESSAGE"
    assert report.attempt == report.failed.attempt == REF


async def test_an_answer_too_large_for_a_message_fails_its_operation_only() -> None:
    stream = OperateStream(
        operations=None,  # type: ignore[arg-type]
        reach_store=None,  # type: ignore[arg-type]
        in_order=True,
        spans=None,
        instance_id="p",
        max_message_bytes=10_000,
    )
    response = pool_pb2.OperateResponse()
    for number, size in enumerate((10, 20_000, 10)):
        node = response.results.add(id=number).set_node_health.node
        node.node_id = "x" * size
    parts = [pool_pb2.OperateResponse.FromString(each) for each in stream._parts(response)]
    answers = {each.id: each for part in parts for each in part.results}
    assert [answers[number].HasField("error") for number in range(3)] == [False, True, False]
    assert all(part.ByteSize() <= 10_000 for part in parts)


async def test_a_message_has_no_more_events_than_its_receiver_takes() -> None:
    outbox: Outbox[int] = Outbox(10_000, 10_000)
    for number in range(2500):
        outbox.put(number, 1)
    taken = [await outbox.take() for _ in range(3)]
    assert [len(each) for each in taken] == [MAX_TAKE_EVENTS, MAX_TAKE_EVENTS, 500]
    assert [number for each in taken for number in each] == list(range(2500))
    waiting = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("limit", [65_536, 1_000_000, 4_194_304, 268_435_456])
def test_a_batch_stays_below_the_limit_of_a_message(limit: int) -> None:
    assert batch_bytes(limit) < limit
    assert batch_bytes(limit) <= 3 * 1024 * 1024
