"""Sessions for operators: one by one, in pages, and as metrics."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import session_pb2, session_pb2_grpc
from tests.support.audio import speech
from tests.support.raw_client import RawClient, new_session, raw_client, working
from tests.support.rpc_errors import failure
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that the tests of this file share."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=0,
        instance_id="gateway-7",
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture
async def stub(gateway: GatewayProcess) -> AsyncIterator[Any]:
    """The RPCs of an operator."""
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        yield session_pb2_grpc.SessionGatewayStub(channel)


async def seen_as(
    stub: Any, session_id: str, holds: Callable[[session_pb2.Session], bool]
) -> session_pb2.Session:
    """Returns the session once it meets a condition."""
    deadline = time.monotonic() + 10
    while True:
        answer = await stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
        session: session_pb2.Session = answer.session
        if holds(session):
            return session
        assert time.monotonic() < deadline, session
        await asyncio.sleep(0.02)


async def test_a_session_shows_when_audio_last_came_though_nothing_was_cut(
    client: RawClient, stub: Any
) -> None:
    opened = await client.open(new_session("en"))
    await client.say(playback_started=session_pb2.PlaybackStarted())
    before = await seen_as(stub, opened.session_id, lambda _: True)
    assert before.last_chunk_ms == 0

    began = time.time() * 1000
    await client.send(speech(1))
    session = await seen_as(stub, opened.session_id, lambda each: each.last_chunk_ms > 0)
    assert session.next_utterance_index == 0
    assert began - 1000 <= session.last_chunk_ms <= time.time() * 1000


async def test_a_session_shows_how_far_it_is(
    client: RawClient, patient: Scene, gateway: GatewayProcess, stub: Any
) -> None:
    node = await patient.node(slots=2)
    began = time.time() * 1000
    opened = await client.open(new_session(patient.src, patient.tgt))
    session = await seen_as(stub, opened.session_id, lambda _: True)
    assert abs(session.opened_ms - began) < 10_000
    assert session == session_pb2.Session(
        session_id=opened.session_id,
        tenant="t",
        gateway_instance="gateway-7",
        epoch=1,
        opened_ms=session.opened_ms,
        connected=True,
    )
    for mark in range(2):
        await client.send(speech(mark), final=True)
        await client.utterance(mark, "finalized")
    session = await seen_as(stub, opened.session_id, lambda _: True)
    assert (session.next_utterance_index, list(session.waiting)) == (2, [0, 1])
    assert began <= session.last_chunk_ms + 1000
    async with working(node):
        await client.result(1)
    await client.say(results_seen=1)
    # A claim that is refused changes nothing.
    await client.say(results_seen=7)
    await client.error("INVALID_MESSAGE")
    await client.close()
    session = await seen_as(stub, opened.session_id, lambda each: not each.connected)
    assert (session.gateway_instance, session.results, session.missing) == ("", 1, 0)
    assert (session.next_utterance_index, list(session.waiting)) == (2, [1])

    async with raw_client(gateway.address) as again:
        await again.resume(opened, results_seen=1, next_seq=2)
        session = await seen_as(stub, opened.session_id, lambda each: each.connected)
        assert (session.epoch, session.gateway_instance) == (2, "gateway-7")
        await again.result(1)
        await again.say(results_seen=2, close=session_pb2.Close())
        await again.status()
    code, why, _ = await failure(
        stub.GetSession(session_pb2.GetSessionRequest(session_id=opened.session_id))
    )
    assert (code, why) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")


async def test_a_session_shows_the_node_that_holds_its_turn(
    client: RawClient, patient: Scene, stub: Any
) -> None:
    node = await patient.node()
    opened = await client.open(new_session(patient.src, patient.tgt))
    session = await seen_as(stub, opened.session_id, lambda each: each.connected)
    assert not session.turns
    await client.send(speech(1, ms=600), client_ms=1000)
    await client.send(speech(2), client_ms=1_000_000)  # after a pause, by the client's own clock
    assign = await node.take_job()
    await node.held(assign)
    await client.result(0)
    session = await seen_as(stub, opened.session_id, lambda each: bool(each.turns))
    (turn,) = session.turns
    assert (turn.direction.src, turn.direction.tgt) == (patient.src, patient.tgt)
    assert (turn.node_id, turn.holds_in_row) == (node.node_id, 1)


async def test_a_session_whose_stream_was_ended_for_a_fault_has_no_client(
    gateway: GatewayProcess, patient: Scene, stub: Any
) -> None:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        call: Any = channel.stream_stream("/lingua_scheduler.v1.SessionGateway/Converse")()
        start = session_pb2.Open(new=new_session(patient.src, patient.tgt))
        await call.write(session_pb2.ClientMessage(open=start).SerializeToString())
        opened = session_pb2.ServerMessage.FromString(await call.read()).events[0].opened
        await seen_as(stub, opened.session_id, lambda each: each.connected)
        await call.write(b"\xff\xff\xff")
        await seen_as(stub, opened.session_id, lambda each: not each.connected)


@pytest.mark.parametrize("session_id", ["", "a:b", "x" * 129])
async def test_a_bad_id_is_named(stub: Any, session_id: str) -> None:
    code, why, error = await failure(
        stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
    )
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    assert [each.field for each in error.field_violations] == ["session_id"]


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"tenant": "a b"}, "tenant"),
        ({"page_size": 1001}, "page_size"),
        ({"page_token": "next"}, "page_token"),
    ],
)
async def test_a_bad_page_is_named(stub: Any, request_fields: dict[str, Any], field: str) -> None:
    code, why, error = await failure(
        stub.ListSessions(session_pb2.ListSessionsRequest(**request_fields))
    )
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    assert [each.field for each in error.field_violations] == [field]


async def test_sessions_are_listed_by_tenant_and_in_pages(
    gateway: GatewayProcess, stub: Any
) -> None:
    tenants = [f"t-{uuid.uuid4().hex[:6]}" for _ in range(2)]
    async with contextlib.AsyncExitStack() as stack:
        ids: dict[str, list[str]] = {tenant: [] for tenant in tenants}
        for number in range(14):
            client = await stack.enter_async_context(raw_client(gateway.address))
            tenant = tenants[number % 2]
            opened = await client.open(new_session("en", "es", tenant=tenant))
            ids[tenant].append(opened.session_id)
        for tenant in tenants:
            answer = await stub.ListSessions(session_pb2.ListSessionsRequest(tenant=tenant))
            assert {each.session_id for each in answer.sessions} == set(ids[tenant])
            assert {each.tenant for each in answer.sessions} == {tenant}
            assert all(each.connected for each in answer.sessions)
            times = [each.opened_ms for each in answer.sessions]
            assert times == sorted(times, reverse=True)
            assert answer.next_page_token == ""
        found, token = set(), ""
        while True:
            request = session_pb2.ListSessionsRequest(page_size=1, page_token=token)
            answer = await stub.ListSessions(request)
            found |= {each.session_id for each in answer.sessions}
            token = answer.next_page_token
            if not token:
                break
        assert found >= {each for some in ids.values() for each in some}
    none = await stub.ListSessions(session_pb2.ListSessionsRequest(tenant="nobody"))
    assert none == session_pb2.ListSessionsResponse()


async def test_sessions_and_utterances_are_counted(gateway: GatewayProcess, patient: Scene) -> None:
    async def finalized(why: str) -> float:
        return await gateway.metric("lingua_gateway_finalized_total", reason=why)

    async def counted() -> list[float]:
        names = ("chunks", "results", "missing", "late_results", "refused_chunks")
        return [await gateway.metric(f"lingua_gateway_{name}_total") for name in names]

    sessions = await gateway.metric("lingua_gateway_sessions")
    opened = await gateway.metric("lingua_gateway_sessions_opened_total", how="new")
    resumed = await gateway.metric("lingua_gateway_sessions_opened_total", how="resume")
    closed = await gateway.metric("lingua_gateway_sessions_ended_total", how="closed")
    left = await gateway.metric("lingua_gateway_sessions_ended_total", how="left")
    manual, close = await finalized("is_final"), await finalized("session_close")
    seconds = await gateway.metric("lingua_gateway_audio_seconds_total")
    timed = await gateway.metric("lingua_gateway_dispatch_seconds_count")
    before = await counted()
    async with working(await patient.node()):
        async with raw_client(gateway.address) as client:
            session = await client.open(new_session(patient.src, patient.tgt))
            assert await gateway.metric("lingua_gateway_sessions") == sessions + 1
            await client.send(speech(0), final=True)
            await client.result(0)
        await gateway.reaches(left + 1, "lingua_gateway_sessions_ended_total", how="left")
        assert await gateway.metric("lingua_gateway_sessions") == sessions
        async with raw_client(gateway.address) as client:
            await client.resume(session, results_seen=1, next_seq=1)
            await client.send(speech(1))
            await client.say(close=session_pb2.Close())
            await client.event("closed")
            await client.say(results_seen=2)
            await client.status()
    await gateway.reaches(closed + 1, "lingua_gateway_sessions_ended_total", how="closed")
    assert await gateway.metric("lingua_gateway_sessions_opened_total", how="new") == opened + 1
    assert await gateway.metric("lingua_gateway_sessions_opened_total", how="resume") == resumed + 1
    assert (await finalized("is_final"), await finalized("session_close")) == (
        *(manual + 1, close + 1),
    )
    assert [now - then for now, then in zip(await counted(), before, strict=True)] == [
        *(2, 2, 0, 0, 0),
    ]
    added = await gateway.metric("lingua_gateway_audio_seconds_total") - seconds
    assert added == pytest.approx(0.2)
    assert await gateway.metric("lingua_gateway_dispatch_seconds_count") == timed + 2
    assert await gateway.metric("lingua_gateway_dispatcher_up") == 1
    assert await gateway.metric("lingua_gateway_jobs") == 0
