"""Calls that are abandoned or refused leave nothing behind, even if no collector looks for it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest

from lingua_scheduler.sdk import Node, NoSpeech
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from tests.conftest import Eventually
from tests.support.audio import FORMAT, speech
from tests.support.cells import in_one_cell
from tests.support.live_objects import CountedProcess, counting
from tests.support.raw_client import new_session
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

# Enough to tell what each leaves from what is there anyway.
TIMES = 500
THOUSANDS = 3000

Stub = Callable[[CountedProcess, type[Any]], Any]


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """Makes a stub for a service."""
    channels: list[grpc.aio.Channel] = []

    def make(process: CountedProcess, kind: type[Any]) -> Any:
        channels.append(grpc.aio.insecure_channel(process.service.address))
        return kind(channels[-1])

    yield make
    for channel in channels:
        await channel.close()


@pytest.fixture(scope="module")
def gateway(redis_url: str, patient_process: DispatcherProcess) -> Iterator[CountedProcess]:
    pool = patient_process
    options: dict[str, Any] = {"pool": pool, "dispatchers": patient_process.address}
    with counting(GatewayProcess, redis_url=redis_url, **options) as process:
        yield process


@pytest.fixture(scope="module")
def dispatcher(redis_url: str, pool_process: PoolProcess) -> Iterator[CountedProcess]:
    with counting(
        DispatcherProcess,
        redis_url=redis_url,
        pool=pool_process,
        node_reconnect_grace_ms=500,
        # A job is remembered for some seconds after its end.
        limits={"home.delivery._REMEMBER_MS": 500.0, "home.delivery._TAKEN_WITHIN_MS": 500.0},
    ) as process:
        yield process


@pytest.fixture(scope="module")
def pool(redis_url: str) -> Iterator[CountedProcess]:
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with counting(PoolProcess, redis_url=redis_url, prefix=prefix) as process:
        yield process


async def opened(stub: Any, new: session_pb2.NewSession) -> Any:
    """A Converse stream on which the server has said something."""
    call = stub.Converse()
    await call.write(session_pb2.ClientMessage(open=session_pb2.Open(new=new)))
    assert (await call.read()).events
    return call


async def test_thousands_of_abandoned_sessions_leave_nothing_behind(
    gateway: CountedProcess, stub: Stub
) -> None:
    sessions = stub(gateway, session_pb2_grpc.SessionGatewayStub)

    async def abandon() -> None:
        call = await opened(sessions, new_session("en"))
        for seq in range(2):
            chunk = session_pb2.AudioChunk(seq=seq, data=speech(1))
            await call.write(session_pb2.ClientMessage(audio=chunk))
        call.cancel()

    await gateway.keeps_nothing_of(THOUSANDS, abandon)


# Each cell holds on to the last sessions that used it, until the next ones do.
@in_one_cell
async def test_sessions_whose_connection_breaks_leave_nothing_behind(
    gateway: CountedProcess,
) -> None:
    async def abandon() -> None:
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = grpc.aio.insecure_channel(gateway.service.address, options=options)
        await opened(session_pb2_grpc.SessionGatewayStub(channel), new_session("en"))
        await channel.close()

    await gateway.keeps_nothing_of(TIMES, abandon, at_once=20)


async def test_sessions_that_are_refused_leave_nothing_behind(
    gateway: CountedProcess, stub: Stub
) -> None:
    sessions = stub(gateway, session_pb2_grpc.SessionGatewayStub)

    async def refused() -> None:
        call = await opened(sessions, new_session(""))
        with suppress(grpc.aio.AioRpcError):
            await call.read()

    await gateway.keeps_nothing_of(TIMES, refused)


async def test_nodes_that_vanish_leave_nothing_behind(
    dispatcher: CountedProcess, stub: Stub
) -> None:
    nodes = stub(dispatcher, dispatcher_pb2_grpc.DispatcherStub)

    async def vanish() -> None:
        call = nodes.Connect()
        hello = dispatcher_pb2.Hello(
            node_id=uuid.uuid4().hex,
            incarnation="1",
            max_concurrent_jobs=1,
            capabilities=common_pb2.NodeCapabilities(asr_langs=["en"], semantic_langs=["en"]),
        )
        event = dispatcher_pb2.NodeEvent(hello=hello)
        await call.write(dispatcher_pb2.NodeMessage(events=[event]))
        assert (await call.read()).events[0].HasField("welcome")
        call.cancel()

    await dispatcher.keeps_nothing_of(TIMES, vanish)


async def test_streams_of_gateways_that_vanish_leave_nothing_behind(
    dispatcher: CountedProcess, stub: Stub
) -> None:
    gateways = stub(dispatcher, dispatcher_pb2_grpc.DispatcherStub)

    async def vanish() -> None:
        call = gateways.Submit()
        await call.write(dispatcher_pb2.SubmitRequest())
        await call.read()
        call.cancel()

    await dispatcher.keeps_nothing_of(TIMES, vanish)


async def test_calls_that_fail_leave_nothing_behind(
    dispatcher: CountedProcess, pool: CountedProcess, stub: Stub
) -> None:
    jobs = stub(dispatcher, dispatcher_pb2_grpc.DispatcherStub)
    nodes = stub(pool, pool_pb2_grpc.PoolServiceStub)

    async def no_job() -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await jobs.GetJob(dispatcher_pb2.GetJobRequest(job_id="none"))

    async def no_node() -> None:
        with pytest.raises(grpc.aio.AioRpcError):
            await nodes.GetNode(pool_pb2.GetNodeRequest(node_id="none"))

    await dispatcher.keeps_nothing_of(TIMES, no_job)
    await pool.keeps_nothing_of(TIMES, no_node)


async def test_streams_of_dispatchers_that_vanish_leave_nothing_behind(
    pool: CountedProcess, stub: Stub
) -> None:
    dispatchers = stub(pool, pool_pb2_grpc.PoolServiceStub)

    async def vanish() -> None:
        call = dispatchers.Operate()
        await call.write(pool_pb2.OperateRequest())
        await call.wait_for_connection()
        call.cancel()

    await pool.keeps_nothing_of(TIMES, vanish)


async def test_jobs_whose_gateway_vanishes_leave_nothing_behind(
    dispatcher: CountedProcess, stub: Stub, eventually: Eventually
) -> None:
    gateways = stub(dispatcher, dispatcher_pb2_grpc.DispatcherStub)
    node = Node(node_id=uuid.uuid4().hex, asr=["fr"], semantic=["fr"], slots=50)
    node.load = lambda: (0.0, 0.0)
    node.handler(lambda job: NoSpeech())
    serving = asyncio.create_task(node.serve(dispatcher.service.address))

    async def vanish() -> None:
        job = dispatcher_pb2.JobSpec(
            session_id=uuid.uuid4().hex,
            pair=common_pb2.LanguagePair(src="fr", tgt="en"),
            audio=speech(1),
            audio_format=FORMAT,
        )
        call = gateways.Submit()
        submission = dispatcher_pb2.Submission(job=job)
        await call.write(dispatcher_pb2.SubmitRequest(submissions=[submission]))
        assert not (await call.read()).events[0].HasField("failed")
        call.cancel()

    try:
        await eventually(lambda: node.connected)
        await dispatcher.keeps_nothing_of(TIMES, vanish, at_once=25)
    finally:
        await node.stop()
        await serving
