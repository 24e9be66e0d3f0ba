"""Each stream between services, with a peer that is frozen (SIGSTOP) or does not know of pings.

A frozen process keeps its connections. Without questions it would be found by HTTP/2 keepalive
alone, after 20 s of silence and 5 s more; all other times here are longer than that.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.sdk import Reconnecting, Resumed, Session
from lingua_scheduler.v1 import dispatcher_pb2, dispatcher_pb2_grpc, pool_pb2
from tests.support.audio import speech
from tests.support.pool_client import Pool, registration, running_pool
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.scene import Scene, scene, together
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    running_dispatcher,
)

# About 3 s, and what a busy machine adds.
FOUND_WITHIN_S = 15.0
PATIENT: dict[str, Any] = {
    "ack_timeout_ms": 60_000,
    "reservation_ttl_ms": 90_000,
    "queue_wait_ms": 60_000,
    "node_heartbeat_ms": 40_000,
    "heartbeat_stale_ms": 120_000,
}
# Of a test that waits for what does not happen: short, and it waits for some of them.
SHORT_SILENCE_MS = 400


async def test_a_home_leaves_the_dispatcher_of_a_node_that_is_frozen(
    pool_process: PoolProcess, redis_url: str
) -> None:
    """The job that is with the node is done by another one."""
    times = {**PATIENT, "node_reconnect_grace_ms": 500}
    async with (
        running_dispatcher(pool_process, redis_url, instance_id="owner", **times) as owner,
        running_dispatcher(pool_process, redis_url, instance_id="home", **times) as home,
        together([owner, home], pool_process) as at,
    ):
        node, gateway = await at[0].node("a"), at[1].gateway()
        job = await gateway.submit(at[1].spec())
        await node.take_job()
        await gateway.accepted(job)
        other = await at[1].node("b")
        with owner.frozen():
            again = await other.expect_assign(FOUND_WITHIN_S)
            await other.ack(again)
            await other.result(again, "from the other")
            assert (await gateway.delivered(job)).node_id == other.node_id
        assert "has said nothing" in home.log()


@pytest.mark.parametrize("dies", [False, True])
async def test_a_result_for_a_home_that_is_frozen_or_dies_with_it_is_kept_for_others(
    pool_process: PoolProcess, redis_url: str, dies: bool
) -> None:
    """As if its gateway were in the same process: nobody else has the audio."""
    async with (
        running_dispatcher(pool_process, redis_url, instance_id="owner", **PATIENT) as owner,
        running_dispatcher(pool_process, redis_url, instance_id="home", **PATIENT) as home,
        together([owner, home], pool_process) as at,
    ):
        node, gateway = await at[0].node("a"), at[1].gateway()
        job = await gateway.submit(at[1].spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        following = at[0].gateway()
        with home.frozen():
            await node.result(assign, "hello")
            await node.settled()
            if dies:
                home.kill()
            await following.attach(job)
            event = await following.expect(job, "delivered", FOUND_WITHIN_S)
        assert event.delivered.result.texts.translated == "hello"
        assert (event.delivered.node_id, event.delivered.attempts) == (node.node_id, 1)
        if not dies:
            await node.expect_received(assign)


class OldOwner(dispatcher_pb2_grpc.DispatcherServicer):
    """A dispatcher of before there were pings: it ignores what it does not know."""

    def __init__(self) -> None:
        self.pings = 0
        self.orders: asyncio.Queue[dispatcher_pb2.RelayOrder] = asyncio.Queue()
        self.reports: asyncio.Queue[dispatcher_pb2.RelayReport] = asyncio.Queue()
        self.ended = False

    async def Relay(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[dispatcher_pb2.RelayRequest], context: Any
    ) -> None:
        async def read() -> None:
            async for request in request_iterator:
                self.pings += request.ping
                for order in request.orders:
                    self.orders.put_nowait(order)

        reading = asyncio.create_task(read())
        try:
            while True:
                report = await self.reports.get()
                await context.write(dispatcher_pb2.RelayResponse(reports=[report]))
        finally:
            self.ended = True
            reading.cancel()


@contextlib.asynccontextmanager
async def old_owner() -> AsyncIterator[tuple[OldOwner, str]]:
    """It, and where it is."""
    owner, server = OldOwner(), grpc.aio.server()
    dispatcher_pb2_grpc.add_DispatcherServicer_to_server(owner, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield owner, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_dispatcher_that_does_not_know_pings_is_not_left_for_its_silence(
    pool_process: PoolProcess, pool: Pool, redis_url: str
) -> None:
    times = {**PATIENT, "peer_silence_ms": SHORT_SILENCE_MS}
    async with (
        old_owner() as (owner, address),
        running_dispatcher(pool_process, redis_url, instance_id="home", **times) as home,
        scene(home, pool_process) as at,
    ):
        node = registration(
            "far", asr=(at.src,), tts=(at.tgt,), owner_instance="old", owner_address=address
        )
        await pool.stub.RegisterNode(node)
        gateway = at.gateway()
        job = await gateway.submit(at.spec())
        async with asyncio.timeout(FOUND_WITHIN_S):
            order = await owner.orders.get()
        report = dispatcher_pb2.RelayReport(node_id="far", attempt=order.assign.attempt)
        report.ack.attempt.CopyFrom(order.assign.attempt)
        owner.reports.put_nowait(report)
        await gateway.accepted(job)
        await asyncio.sleep(6 * SHORT_SILENCE_MS / 1000)
        assert (owner.pings, owner.ended) == (1, False)
        report.result.attempt.CopyFrom(order.assign.attempt)
        report.result.kind = dispatcher_pb2.JobResult.KIND_NO_SPEECH
        owner.reports.put_nowait(report)
        assert (await gateway.delivered(job)).node_id == "far"


async def test_a_gateway_leaves_a_frozen_dispatcher_before_it_has_a_job_for_it(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dispatchers = [
            await stack.enter_async_context(
                running_dispatcher(pool_process, redis_url, instance_id=f"d{at}", **PATIENT)
            )
            for at in range(2)
        ]
        # So the gateway uses the first.
        dispatchers[1].kill()
        gateway = GatewayProcess(
            pool=pool_process,
            redis_url=redis_url,
            dispatchers=",".join(each.address for each in dispatchers),
            hangover_manual_ms=0,
        )
        stack.callback(gateway.stop)
        gateway.start()
        await asyncio.to_thread(gateway.wait_ready)
        await dispatchers[1].restart()
        at = await stack.enter_async_context(scene(dispatchers[1], pool_process))
        node = await at.node()
        with dispatchers[0].frozen():
            await reconnects(gateway)
            client = await stack.enter_async_context(raw_client(gateway.address))
            await client.open(new_session(at.src, at.tgt))
            await client.send(speech(1), final=True)
            await node.result(await node.take_job(), "1")
            await client.result(0)
        assert not gateway.faults(), gateway.log()


async def test_a_dispatcher_leaves_a_frozen_pool_service_before_it_has_an_operation_for_it(
    redis_url: str,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        prefix = f"test:{uuid.uuid4().hex[:8]}"
        pools = [
            stack.enter_context(
                PoolProcess(redis_url=redis_url, prefix=prefix, redis_timeout_ms=4000)
            )
            for _ in range(2)
        ]
        # So the dispatcher uses the first.
        pools[1].kill()
        both = ",".join(each.address for each in pools)
        dispatcher = await stack.enter_async_context(
            running_dispatcher(pools[0], redis_url, pool_address=both, **PATIENT)
        )
        await pools[1].restart()
        at = await stack.enter_async_context(scene(dispatcher, pools[1]))
        with pools[0].frozen():
            await reconnects(dispatcher)
            node, gateway = await at.node(), at.gateway()
            job = await gateway.submit(at.spec())
            await node.result(await node.take_job(), "1")
            await gateway.delivered(job)


async def test_streams_that_end_while_a_pool_service_is_frozen_make_it_log_no_bug(
    redis_url: str, prefix: str
) -> None:
    """What their peers wrote meanwhile and that they are gone reach it in the same moment."""
    async with running_pool(redis_url, prefix, redis_timeout_ms=4000) as pool:
        calls = [pool.stub.Operate() for _ in range(10)]
        for call in calls:
            await call.write(pool_pb2.OperateRequest())
            await call.read()
        with pool.process.frozen():
            for call in calls:
                for _ in range(5):
                    await call.write(pool_pb2.OperateRequest())
                call.cancel()
        await pool.serves()
        # It has done with all of them.
        again = pool.stub.Operate()
        await again.write(pool_pb2.OperateRequest())
        await again.read()
        again.cancel()
        await pool.serves()
        assert not pool.process.faults(), pool.process.log()


@pytest.fixture(scope="module")
def live_gateway(
    pool_process: PoolProcess, redis_url: str, patient_process: DispatcherProcess
) -> Iterator[GatewayProcess]:
    """A gateway that says something every 200 ms, and reads two utterances ahead."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=0,
        session_utterances_max=2,
        peer_silence_ms=SHORT_SILENCE_MS,
    ) as process:
        yield process
        assert not process.faults(), process.log()


async def hears(client: RawClient, wanted: int) -> None:
    """Returns when so many messages have come."""
    deadline = time.monotonic() + FOUND_WITHIN_S
    while client.messages < wanted:
        assert time.monotonic() < deadline, f"{client.messages} of {wanted}: {client.told()}"
        await asyncio.sleep(0.01)


async def test_a_gateway_answers_a_client_that_asks_and_says_when_it_would_be_silent(
    live_gateway: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(live_gateway.address) as client:
        opened = await client.open(new_session(patient.src, patient.tgt))
        assert opened.limits.silence_ms == SHORT_SILENCE_MS
        events = len(client.events)
        for _ in range(3):
            heard = client.messages
            await asyncio.sleep(SHORT_SILENCE_MS / 2000)
            await client.say()
            await hears(client, heard + 1)
        assert len(client.events) == events


async def test_a_gateway_says_something_while_somebody_speaks_and_nothing_happens(
    live_gateway: GatewayProcess, patient: Scene
) -> None:
    async with raw_client(live_gateway.address) as client:
        await client.open(new_session(patient.src, patient.tgt))
        began = time.monotonic()
        # Opened is one.
        while client.messages < 6:
            assert time.monotonic() < began + FOUND_WITHIN_S, client.told()
            await client.send()
            await asyncio.sleep(0.02)
        # No more than one in each half of the silence.
        assert time.monotonic() - began >= 4 * SHORT_SILENCE_MS / 2000
        assert set(client.told()) == {"opened"}


async def test_a_gateway_says_something_while_it_does_not_read(
    live_gateway: GatewayProcess, patient: Scene
) -> None:
    """What its client asks meanwhile it does not hear."""
    node = await patient.node(slots=4)
    async with raw_client(live_gateway.address) as client:
        await client.open(new_session(patient.src, patient.tgt))
        for mark in range(4):
            await client.send(speech(mark), final=True)
        assigns = [await node.take_job() for _ in range(2)]
        await client.acked(2)
        assert await node.settled() == []
        await hears(client, client.messages + 10)
        for assign in assigns:
            await node.result(assign, "done")
        for mark in range(2):
            await node.result(await node.take_job(), str(mark))
        await client.result(3)


async def test_a_session_at_a_frozen_gateway_goes_on_at_another_one_though_nobody_speaks(
    pool_process: PoolProcess, redis_url: str, patient_process: DispatcherProcess
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        gateways = [
            stack.enter_context(
                GatewayProcess(
                    pool=pool_process, redis_url=redis_url, dispatchers=patient_process.address
                )
            )
            for _ in range(2)
        ]
        both = [each.address for each in gateways]
        session = await stack.enter_async_context(Session(both, src="en", tgt="es"))
        busy = [await each.metric("lingua_gateway_sessions") for each in gateways]
        events = session.events()
        with gateways[busy.index(1)].frozen():
            async with asyncio.timeout(FOUND_WITHIN_S):
                assert isinstance(await anext(events), Reconnecting)
                assert isinstance(await anext(events), Resumed)
            assert await gateways[busy.index(0)].metric("lingua_gateway_sessions") == 1
            await session.close()


async def reconnects(service: ServiceProcess) -> None:
    """Returns when a service has found its peer silent, and has a connection to another one.

    Between the two it has none, and refuses what needs one.
    """
    deadline = time.monotonic() + FOUND_WITHIN_S
    while '"peer connected"' not in service.log().partition("has said nothing")[2]:
        assert time.monotonic() < deadline, service.log()
        await asyncio.sleep(0.02)
