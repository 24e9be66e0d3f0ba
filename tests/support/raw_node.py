"""A node that speaks Connect by hand: it does only what a test has it do."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from lingua_scheduler.v1.dispatcher_pb2 import DispatcherEvent, JobAssign, NodeEvent
from tests.support.inbox import Inbox
from tests.support.process import SOON_S


class RawNode:
    """One connection of a node that does only what a test has it do.

    Args:
        beats: whether it sends heartbeats by itself.
        reads: whether it reads what it is sent, after Welcome.
        metadata: authenticates the node if the dispatcher requires it.
    """

    def __init__(
        self,
        address: str,
        hello: dispatcher_pb2.Hello,
        *,
        beats: bool = True,
        reads: bool = True,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.hello = hello
        self.epoch = 0
        self.inbox: Inbox[DispatcherEvent] = Inbox(hello.node_id)
        self._beats = beats
        self._reads = reads
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._seq = 0
        self._writes = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._channel = grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self._call: Any = dispatcher_pb2_grpc.DispatcherStub(self._channel).Connect(
            metadata=metadata
        )

    @property
    def node_id(self) -> str:
        """The id that the node gives in Hello."""
        return self.hello.node_id

    async def open(self) -> dispatcher_pb2.Welcome:
        """Sends Hello, and waits for Welcome."""
        self._tasks.append(asyncio.create_task(self._read()))
        await self.say(NodeEvent(hello=self.hello))
        event = await self.inbox.take(lambda each: each.WhichOneof("event") in ("welcome", "error"))
        assert event.HasField("welcome"), f"{self.node_id} is not welcome: {event.error}"
        if not self._reads:
            self._may_read.clear()
        self.epoch = event.welcome.epoch
        if self._beats:
            interval = event.welcome.heartbeat_interval_ms / 3000
            self._tasks.append(asyncio.create_task(self._beat(interval)))
        return event.welcome

    async def refused(self, *events: NodeEvent) -> common_pb2.Error:
        """Sends events, by default Hello, and waits for an error and the end of the stream."""
        if not self._tasks:
            self._tasks.append(asyncio.create_task(self._read()))
        await self.say(*events or (NodeEvent(hello=self.hello),))
        event = await self.expect("error")
        assert await self.ended_for() == event.error, "the status says something else"
        return event.error

    async def say(self, *events: NodeEvent) -> None:
        """Sends one message."""
        async with self._writes:
            await self._call.write(dispatcher_pb2.NodeMessage(events=events))

    async def expect(self, kind: str, within: float = SOON_S) -> DispatcherEvent:
        """Waits for an event of this kind."""
        return await self.inbox.take(lambda each: each.WhichOneof("event") == kind, within)

    async def expect_assign(self, within: float = SOON_S) -> JobAssign:
        """Waits for a job."""
        return (await self.expect("job_assign", within)).job_assign

    async def expect_cancel(self, assign: JobAssign) -> str:
        """Waits for the cancellation of a job; returns the reason."""
        cancel = (await self.expect("job_cancel")).job_cancel
        assert cancel.attempt == assign.attempt
        return cancel.why

    async def expect_received(self, assign: JobAssign) -> None:
        """Waits until the dispatcher has confirmed a result."""
        received = (await self.expect("result_received")).result_received
        assert received.attempt == assign.attempt

    async def ack(self, assign: JobAssign) -> None:
        """Acknowledges a job."""
        await self.say(NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=assign.attempt)))

    async def take_job(self) -> JobAssign:
        """Waits for a job, and acknowledges it."""
        assign = await self.expect_assign()
        await self.ack(assign)
        return assign

    async def reject(
        self,
        assign: JobAssign,
        cause: dispatcher_pb2.JobReject.Cause.ValueType = dispatcher_pb2.JobReject.CAUSE_FULL,
        detail: str = "",
    ) -> None:
        """Rejects a job."""
        rejected = dispatcher_pb2.JobReject(attempt=assign.attempt, cause=cause, detail=detail)
        await self.say(NodeEvent(job_reject=rejected))

    async def partial(self, assign: JobAssign, text: str, seq: int = 1) -> None:
        """Sends a partial text."""
        texts = dispatcher_pb2.Texts(source=text)
        told = dispatcher_pb2.JobPartial(attempt=assign.attempt, texts=texts, seq=seq)
        await self.say(NodeEvent(job_partial=told))

    async def result(
        self,
        assign: JobAssign,
        text: str = "hello",
        kind: dispatcher_pb2.JobResult.Kind.ValueType = dispatcher_pb2.JobResult.KIND_TRANSLATED,
        speech: bytes = b"",
        *,
        joins: bool = True,
    ) -> None:
        """Sends the result of a job; with `joins`, it covers the audio that the node held."""
        texts = dispatcher_pb2.Texts(source=text, translated=text)
        told = dispatcher_pb2.JobResult(
            attempt=assign.attempt,
            kind=kind,
            texts=texts,
            speech=speech,
            joined_utterances=assign.job.held_utterances if joins else (),
        )
        await self.say(NodeEvent(job_result=told))

    async def fail(
        self, assign: JobAssign, cause: str = "BROKEN", detail: str = "", *, worth_retry: bool
    ) -> None:
        """Reports that a job failed."""
        told = dispatcher_pb2.JobFailed(
            attempt=assign.attempt, cause=cause, detail=detail, worth_retry=worth_retry
        )
        await self.say(NodeEvent(job_failed=told))

    async def held(self, assign: JobAssign) -> None:
        """Reports that it holds the audio of a job for the next one, and sends the result HELD."""
        job = assign.job
        told = dispatcher_pb2.AudioHeld(
            attempt=assign.attempt,
            session_id=job.session_id,
            pair=job.pair,
            utterance_index=job.utterance_index,
        )
        await self.say(NodeEvent(audio_held=told))
        await self.result(assign, text="", kind=dispatcher_pb2.JobResult.KIND_HELD)

    async def heartbeat(
        self,
        running: Iterable[common_pb2.AttemptRef] = (),
        health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_READY,
        load: float = 0.0,
    ) -> int:
        """Sends a heartbeat; returns its number."""
        self._seq += 1
        beat = dispatcher_pb2.Heartbeat(
            seq=self._seq,
            health=health,
            load=common_pb2.NodeLoad(cpu=load),
            running=running,
        )
        await self.say(NodeEvent(heartbeat=beat))
        return self._seq

    async def settled(self) -> list[str]:
        """Waits until the dispatcher has read everything; returns the kinds of all other events."""
        seq = await self.heartbeat()
        await self.inbox.take(
            lambda each: each.HasField("heartbeat_reply") and each.heartbeat_reply.seq == seq
        )
        kinds = [str(each.WhichOneof("event")) for each in self.inbox.waiting]
        return [kind for kind in kinds if kind != "heartbeat_reply"]

    async def bye(self) -> None:
        """Leaves on purpose; returns when the stream has ended."""
        await self.say(NodeEvent(bye=dispatcher_pb2.Bye(detail="the test is over")))
        await self.ended()

    async def ended(self, within: float = SOON_S) -> None:
        """Returns when the dispatcher has ended the stream."""
        async with asyncio.timeout(within):
            await self.inbox.ended.wait()

    async def status(self) -> grpc.StatusCode:
        """Waits for the end of the stream; returns its status code."""
        await self.ended()
        code: grpc.StatusCode = await self._call.code()
        return code

    def answers_jobs(self) -> None:
        """Acknowledges every job from now on, and finishes none."""

        async def answer() -> None:
            while True:
                await self.ack(await self.expect_assign(within=60))

        self._tasks.append(asyncio.create_task(answer()))

    async def ended_for(self) -> common_pb2.Error | None:
        """Waits for the end of the stream; returns the error in its status, if any."""
        code = await self.status()
        call, nothing = self._call, grpc.aio.Metadata()
        trailing, details = await call.trailing_metadata(), await call.details()
        return from_rpc_error(grpc.aio.AioRpcError(code, nothing, trailing, details))

    def read_on(self) -> None:
        """Starts to read again."""
        self._may_read.set()

    async def cut(self) -> None:
        """Breaks the stream."""
        for task in self._tasks:
            task.cancel()
        self._call.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                await self._may_read.wait()
                message = await self._call.read()
                if not isinstance(message, dispatcher_pb2.DispatcherMessage):
                    break
                self.inbox.put(message.events)
        self.inbox.ended.set()

    async def _beat(self, interval: float) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await asyncio.sleep(interval)
                await self.heartbeat()


async def whoever_gets_it(nodes: Sequence[RawNode]) -> tuple[RawNode, JobAssign]:
    """Waits until one of the nodes gets a job; returns the node and the job."""
    deadline = time.monotonic() + SOON_S
    while True:
        for node in nodes:
            if any(each.HasField("job_assign") for each in node.inbox.waiting):
                return node, await node.expect_assign()
        assert time.monotonic() < deadline, "nobody has got a job"
        await asyncio.sleep(0.005)
