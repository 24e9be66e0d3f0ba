"""One gateway process with 2,000 sessions: what they cost, and that nothing of them is left."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from lingua_scheduler.sdk import Job, Node, Translated
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc
from tests.support.audio import CHUNK_BYTES
from tests.support.raw_client import new_session
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

SESSIONS = 2000
# Of 100 ms each; then the sessions' utterances end.
CHUNKS = 4
STREAMS_EACH = 100


@pytest.fixture(scope="module")
def gateway(pool_process: PoolProcess, redis_url: str) -> Iterator[GatewayProcess]:
    """A gateway with a dispatcher of its own."""
    with (
        DispatcherProcess(
            pool=pool_process,
            redis_url=redis_url,
            ack_timeout_ms=20_000,
            reservation_ttl_ms=30_000,
            queue_wait_ms=60_000,
        ) as dispatcher,
        GatewayProcess(
            pool=pool_process,
            redis_url=redis_url,
            dispatchers=dispatcher.address,
            # Two thousand clients share two cores with everything else: silence is no pause here.
            pause_ms=60_000,
            result_deadline_ms=90_000,
        ) as process,
    ):
        process.dispatcher_address = dispatcher.address  # type: ignore[attr-defined]
        yield process
        assert not process.faults(), process.log()
        assert not dispatcher.faults(), dispatcher.log()


@dataclass
class Crowd:
    """Clients that all speak at once."""

    address: str
    channels: list[grpc.aio.Channel] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)

    async def grow(self, count: int) -> None:
        """So many more sessions are opened."""
        for at in range(0, count, STREAMS_EACH):
            channel = grpc.aio.insecure_channel(
                self.address, options=(("grpc.use_local_subchannel_pool", 1),)
            )
            self.channels.append(channel)
            stub = session_pb2_grpc.SessionGatewayStub(channel)
            new = [stub.Converse() for _ in range(min(STREAMS_EACH, count - at))]
            await asyncio.gather(*(self._open(call) for call in new))
            self.calls += new

    async def speak(self, first: int, count: int) -> None:
        """Each sends these chunks, one after the other, as fast as the gateway takes them."""
        for seq in range(first, first + count):
            await asyncio.gather(*(self._send(call, seq) for call in self.calls))

    async def finish(self, seq: int) -> list[session_pb2.Result]:
        """Each ends its utterance, takes its result and closes."""
        return await asyncio.gather(*(self._finish(call, seq) for call in self.calls))

    async def close(self) -> None:
        for call in self.calls:
            call.cancel()
        for channel in self.channels:
            await channel.close()

    @staticmethod
    async def _open(call: Any) -> None:
        opening = session_pb2.Open(new=new_session("en", "es"))
        await call.write(session_pb2.ClientMessage(open=opening))
        assert (await call.read()).events[0].HasField("opened")

    @staticmethod
    async def _send(call: Any, seq: int) -> None:
        chunk = session_pb2.AudioChunk(seq=seq, data=bytes(CHUNK_BYTES))
        await call.write(session_pb2.ClientMessage(audio=chunk))

    @staticmethod
    async def _finish(call: Any, seq: int) -> session_pb2.Result:
        final = session_pb2.AudioChunk(seq=seq, is_final=True)
        await call.write(session_pb2.ClientMessage(audio=final))
        found: list[session_pb2.Result] = []
        while not found:
            found = [each.result for each in (await call.read()).events if each.HasField("result")]
        closing = session_pb2.ClientMessage(results_seen=1, close=session_pb2.Close())
        await call.write(closing)
        while await call.read() is not grpc.aio.EOF:
            pass
        assert await call.code() is grpc.StatusCode.OK
        return found[0]


@contextlib.asynccontextmanager
async def crowd(gateway: GatewayProcess) -> AsyncIterator[Crowd]:
    made = Crowd(gateway.address)
    try:
        yield made
    finally:
        await made.close()


@contextlib.asynccontextmanager
async def quick_node(address: str) -> AsyncIterator[None]:
    """A node with room for all, that answers at once with how much it heard."""
    node = Node(node_id="quick", asr=["en"], semantic=["en"], tts=["es"], slots=1000)

    @node.handler
    async def translate(job: Job) -> AsyncIterator[Translated]:
        yield Translated(source=str(len(job.audio)), translated="x")

    serving = asyncio.create_task(node.serve(address))
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def settled(gateway: GatewayProcess, name: str, value: float, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while (now := await gateway.metric(name)) > value:
        assert time.monotonic() < deadline, f"{name} is {now}, not {value}"
        await asyncio.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_two_thousand_sessions_cost_twice_as_much_as_one_thousand_and_leave_nothing(
    gateway: GatewayProcess,
) -> None:
    half = SESSIONS // 2
    async with quick_node(gateway.dispatcher_address):  # type: ignore[attr-defined]
        await whole_life(gateway, 200)
        idle_tasks = await gateway.metric("lingua_gateway_tasks")
        idle = gateway.memory_bytes()
        async with crowd(gateway) as first, crowd(gateway) as second:
            await first.grow(half)
            began = time.monotonic()
            await first.speak(0, CHUNKS)
            took = time.monotonic() - began
            with_half = gateway.memory_bytes() - idle
            await second.grow(half)
            await second.speak(0, CHUNKS)
            with_all = gateway.memory_bytes() - idle
            assert await gateway.metric("lingua_gateway_sessions") == SESSIONS
            print(
                f"{with_all / SESSIONS / 1024:.0f} KiB a session, of which "
                f"{CHUNKS * CHUNK_BYTES / 1024:.0f} KiB audio; "
                f"{half * CHUNKS / took:.0f} chunks/s, client and gateway together"
            )
            assert 1.5 < with_all / with_half < 2.5
            for group in (first, second):
                results = await group.finish(CHUNKS)
                heard = {result.texts.source for result in results}
                assert heard == {str(CHUNKS * CHUNK_BYTES)}
        await settled(gateway, "lingua_gateway_sessions", 0)
        await settled(gateway, "lingua_gateway_timers", 0)
        await settled(gateway, "lingua_gateway_jobs", 0)
        await settled(gateway, "lingua_gateway_tasks", idle_tasks + 2)
        assert await gateway.metric("lingua_gateway_results_total") == SESSIONS + 200
        # What has been freed serves the next: the process does not grow with the sessions it had.
        peak = gateway.memory_bytes()
        await whole_life(gateway, half // 2)
        assert gateway.memory_bytes() - idle < 1.1 * max(peak - idle, with_all)


async def whole_life(gateway: GatewayProcess, sessions: int) -> None:
    """So many sessions from their opening to their end."""
    async with crowd(gateway) as people:
        await people.grow(sessions)
        await people.speak(0, CHUNKS)
        await people.finish(CHUNKS)
