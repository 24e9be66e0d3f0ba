"""A dispatcher as a process of its own, and raw peers that can misbehave towards it.

A RawNode and a RawGateway speak Connect and Submit by hand: they say only what a test has them say.
A Scene is one test's corner of a shared dispatcher: languages that no other test uses, so that its
jobs meet no other nodes than its own.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
)
from lingua_scheduler.v1.dispatcher_pb2 import DispatcherEvent, JobAssign, JobEvent, NodeEvent
from tests.support.local_codes import local_code
from tests.support.pool_process import PoolProcess
from tests.support.service_process import SOON_S, ServiceProcess

FORMAT = common_pb2.AudioFormat(
    encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16000, channels=1
)

Event = TypeVar("Event")
_codes = itertools.count()


class DispatcherProcess(ServiceProcess):
    """Starts a dispatcher of a pool service, and ends it."""

    name = "dispatcher"
    package = "dispatcher"

    def __init__(self, *, pool: PoolProcess, redis_url: str, **settings: Any) -> None:
        # A busy machine is no reason for these tests to fail.
        settings = {"pool_address": pool.address, "redis_timeout_ms": 4000, **settings}
        super().__init__(redis_url=redis_url, prefix=pool.prefix, **settings)


class Inbox(Generic[Event]):
    """What a stream has given and no test has taken yet, in order."""

    def __init__(self, whose: str) -> None:
        self.waiting: list[Event] = []
        self.ended = asyncio.Event()
        self._whose = whose
        self._came = asyncio.Event()

    def put(self, events: Iterable[Event]) -> None:
        """Adds what came."""
        self.waiting.extend(events)
        self._came.set()

    async def take(self, wanted: Callable[[Event], bool], within: float = SOON_S) -> Event:
        """Waits for the first event that is wanted; all others stay."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    for event in self.waiting:
                        if wanted(event):
                            self.waiting.remove(event)
                            return event
                    self._came.clear()
                    await self._came.wait()
        raise AssertionError(f"{self._whose}: not within {within} s; it has {self.waiting}")


class RawNode:
    """One connection of a node that does what a test says, and nothing else.

    Args:
        beats: whether it sends heartbeats by itself.
        reads: whether it reads what it is sent, after Welcome.
        metadata: says who calls, where that is asked.
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
        """As it says in Hello."""
        return self.hello.node_id

    async def open(self) -> dispatcher_pb2.Welcome:
        """Says Hello and waits to be welcome."""
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
        """Says something, Hello by default, and waits for an error and the end of the stream."""
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
        """Waits for the end of a job; returns why."""
        cancel = (await self.expect("job_cancel")).job_cancel
        assert cancel.attempt == assign.attempt
        return cancel.why

    async def expect_received(self, assign: JobAssign) -> None:
        """Waits until a result is confirmed."""
        received = (await self.expect("result_received")).result_received
        assert received.attempt == assign.attempt

    async def ack(self, assign: JobAssign) -> None:
        """Takes a job on."""
        await self.say(NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=assign.attempt)))

    async def take_job(self) -> JobAssign:
        """Waits for a job and takes it on."""
        assign = await self.expect_assign()
        await self.ack(assign)
        return assign

    async def reject(
        self,
        assign: JobAssign,
        cause: dispatcher_pb2.JobReject.Cause.ValueType = dispatcher_pb2.JobReject.CAUSE_FULL,
        detail: str = "",
    ) -> None:
        """Does not take a job on."""
        rejected = dispatcher_pb2.JobReject(attempt=assign.attempt, cause=cause, detail=detail)
        await self.say(NodeEvent(job_reject=rejected))

    async def partial(self, assign: JobAssign, text: str, seq: int = 1) -> None:
        """Says what it has so far."""
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
        """Has a job done, together with what it held for it; unless it has forgotten that."""
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
        """Could not do a job."""
        told = dispatcher_pb2.JobFailed(
            attempt=assign.attempt, cause=cause, detail=detail, worth_retry=worth_retry
        )
        await self.say(NodeEvent(job_failed=told))

    async def held(self, assign: JobAssign) -> None:
        """Keeps the audio of a job for the next one, and says so; then the result HELD."""
        job = assign.job
        told = dispatcher_pb2.AudioHeld(
            attempt=assign.attempt,
            session_id=job.session_id,
            pair=job.pair,
            utterance_index=job.utterance_index,
        )
        await self.say(NodeEvent(audio_held=told))
        await self.result(assign, kind=dispatcher_pb2.JobResult.KIND_HELD)

    async def heartbeat(
        self,
        running: Iterable[common_pb2.AttemptRef] = (),
        health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_READY,
        load: float = 0.0,
    ) -> int:
        """Sends one; returns its number."""
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
        """What else the dispatcher has said when it has taken in all that this node said."""
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
        """How the stream ended, when it has."""
        await self.ended()
        code: grpc.StatusCode = await self._call.code()
        return code

    def answers_jobs(self) -> None:
        """Takes every job on from now on, and ends none."""

        async def answer() -> None:
            while True:
                await self.ack(await self.expect_assign(within=60))

        self._tasks.append(asyncio.create_task(answer()))

    async def ended_for(self) -> common_pb2.Error | None:
        """What the status says of why the stream ended; None: nothing."""
        code = await self.status()
        call, nothing = self._call, grpc.aio.Metadata()
        trailing, details = await call.trailing_metadata(), await call.details()
        return from_rpc_error(grpc.aio.AioRpcError(code, nothing, trailing, details))

    def read_on(self) -> None:
        """Reads what it is sent, from now on."""
        self._may_read.set()

    async def cut(self) -> None:
        """Breaks the stream, and whatever this side does for it."""
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


class RawGateway:
    """One Submit stream."""

    def __init__(self, address: str) -> None:
        self.inbox: Inbox[JobEvent] = Inbox("gateway")
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._asked = itertools.count(1)
        self.answers = 0
        self._answered = asyncio.Event()
        self._channel = grpc.aio.insecure_channel(
            address, options=(("grpc.use_local_subchannel_pool", 1),)
        )
        self._call: Any = dispatcher_pb2_grpc.DispatcherStub(self._channel).Submit()
        self._reader = asyncio.create_task(self._read())

    async def submit(self, *specs: dispatcher_pb2.JobSpec) -> str:
        """Submits jobs in one message; returns the id of the last."""
        await self._say(*(dispatcher_pb2.Submission(job=spec) for spec in specs))
        return id_of(specs[-1])

    async def attach(self, job: str, epoch: int = 0) -> None:
        """Takes up a job of another gateway."""
        attach = dispatcher_pb2.AttachJob(job_id=job, session_epoch=epoch)
        await self._say(dispatcher_pb2.Submission(attach=attach))

    async def leave(self, job: str) -> None:
        """The job's session has left."""
        leave = dispatcher_pb2.LeaveJob(job_id=job)
        await self._say(dispatcher_pb2.Submission(leave=leave))

    async def say_nothing(self) -> None:
        """Sends an empty request."""
        await self._say()

    async def is_answered(self, within: float = SOON_S) -> None:
        """Sends an empty request, and waits for one more empty response."""
        self._answered.clear()
        await self.say_nothing()
        async with asyncio.timeout(within):
            await self._answered.wait()

    async def cancel(self, job: str, why: str = "") -> None:
        """Does not want a job any more."""
        cancel = dispatcher_pb2.CancelJobRequest(job_id=job, why=why)
        await self._say(dispatcher_pb2.Submission(cancel=cancel))

    async def taken(self, job: str) -> None:
        """Has taken a result in."""
        taken = dispatcher_pb2.ResultTaken(job_id=job)
        await self._say(dispatcher_pb2.Submission(taken=taken))

    async def expect(self, job: str, kind: str, within: float = SOON_S) -> JobEvent:
        """Waits for an event of a job."""
        return await self.inbox.take(
            lambda each: each.job_id == job and each.WhichOneof("event") == kind, within
        )

    async def accepted(self, job: str) -> dispatcher_pb2.JobAccepted:
        """Waits until a node has acknowledged the job."""
        return (await self.expect(job, "accepted")).accepted

    async def retrying(self, job: str) -> dispatcher_pb2.JobRetrying:
        """Waits until an attempt has failed and another follows."""
        return (await self.expect(job, "retrying")).retrying

    async def delivered(self, job: str, *, take: bool = True) -> dispatcher_pb2.JobDelivered:
        """Waits for the result, and says that it is taken."""
        delivered = (await self.expect(job, "delivered")).delivered
        if take:
            await self.taken(job)
        return delivered

    async def failed(self, job: str) -> common_pb2.Error:
        """Waits for the job's end without a result."""
        return (await self.expect(job, "failed")).failed

    async def settled(self) -> list[tuple[str, str]]:
        """Jobs and kinds of what else has come, when all that it said is taken in."""
        nobody = f"nobody-{next(self._asked)}"
        await self.attach(nobody)
        await self.failed(nobody)
        return [(each.job_id, str(each.WhichOneof("event"))) for each in self.inbox.waiting]

    def stop_reading(self) -> None:
        """Takes one more message, and then none until `read_on`."""
        self._may_read.clear()

    def read_on(self) -> None:
        """Reads again."""
        self._may_read.set()

    async def ended(self, within: float = SOON_S) -> None:
        """Returns when the dispatcher has ended the stream."""
        async with asyncio.timeout(within):
            await self.inbox.ended.wait()

    async def cut(self) -> None:
        """Breaks the stream."""
        self._reader.cancel()
        self._call.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._channel.close()

    async def _say(self, *submissions: dispatcher_pb2.Submission) -> None:
        await self._call.write(dispatcher_pb2.SubmitRequest(submissions=submissions))

    async def _read(self) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError):
            while True:
                await self._may_read.wait()
                message = await self._call.read()
                if not isinstance(message, dispatcher_pb2.SubmitResponse):
                    break
                if not message.events:
                    self.answers += 1
                    self._answered.set()
                self.inbox.put(message.events)
        self.inbox.ended.set()


@dataclass
class Scene:
    """One test's nodes and gateways at a dispatcher, with languages of their own."""

    dispatcher: DispatcherProcess
    pool_address: str
    src: str
    tgt: str
    stub: "dispatcher_pb2_grpc.DispatcherAsyncStub"
    _open: list[RawNode | RawGateway] = field(default_factory=list)

    def hello(self, name: str = "a", *, slots: int = 1, **fields: Any) -> dispatcher_pb2.Hello:
        """A node of this scene, as it introduces itself."""
        values: dict[str, Any] = {
            "incarnation": f"{name}-1",
            "capabilities": common_pb2.NodeCapabilities(
                asr_langs=[self.src], semantic_langs=[self.src], tts_langs=[self.tgt]
            ),
            **fields,
        }
        return dispatcher_pb2.Hello(
            node_id=f"{self.src}-{name}", max_concurrent_jobs=slots, **values
        )

    def peer(self, hello: dispatcher_pb2.Hello, **options: bool) -> RawNode:
        """A stream that has said nothing yet."""
        node = RawNode(self.dispatcher.address, hello, **options)
        self._open.append(node)
        return node

    async def node(
        self,
        name: str = "a",
        *,
        slots: int = 1,
        beats: bool = True,
        reads: bool = True,
        **fields: Any,
    ) -> RawNode:
        """A node that has been welcomed."""
        node = self.peer(self.hello(name, slots=slots, **fields), beats=beats, reads=reads)
        await node.open()
        return node

    def gateway(self) -> RawGateway:
        """A gateway."""
        gateway = RawGateway(self.dispatcher.address)
        self._open.append(gateway)
        return gateway

    def spec(self, index: int = 0, **fields: Any) -> dispatcher_pb2.JobSpec:
        """A job for the nodes of this scene."""
        values: dict[str, Any] = {
            "session_id": f"s-{self.src}",
            "audio": b"\0\1" * 160,
            "reason": common_pb2.FINALIZE_REASON_IS_FINAL,
            "require_tts": True,
            **fields,
        }
        return dispatcher_pb2.JobSpec(
            tenant="t",
            utterance_index=index,
            pair=common_pb2.LanguagePair(src=self.src, tgt=self.tgt),
            audio_format=FORMAT,
            **values,
        )

    async def job(self, job: str, **fields: bool) -> dispatcher_pb2.GetJobResponse:
        """A job as operators see it."""
        return await self.stub.GetJob(dispatcher_pb2.GetJobRequest(job_id=job, **fields))

    async def ended(self, job: str) -> dispatcher_pb2.Job:
        """The record of a job, when it tells how the last attempt ended: shortly after the job."""
        deadline = time.monotonic() + SOON_S
        while not (record := (await self.job(job)).job).attempts[-1].outcome:
            assert time.monotonic() < deadline, f"not yet ended: {record}"
            await asyncio.sleep(0.01)
        return record

    async def known_node(self, node: RawNode | dispatcher_pb2.Hello) -> pool_pb2.Node | None:
        """A node as the pool service sees it; None: not known there."""
        async with grpc.aio.insecure_channel(self.pool_address) as channel:
            stub = pool_pb2_grpc.PoolServiceStub(channel)
            try:
                answer = await stub.GetNode(pool_pb2.GetNodeRequest(node_id=node.node_id))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                return None
        assert isinstance(answer, pool_pb2.GetNodeResponse)
        return answer.node

    async def until(
        self,
        node: RawNode | dispatcher_pb2.Hello,
        condition: Callable[[pool_pb2.Node | None], bool],
    ) -> pool_pb2.Node | None:
        """Waits until the pool service sees the node in this way."""
        deadline = time.monotonic() + SOON_S
        while not condition(known := await self.known_node(node)):
            assert time.monotonic() < deadline, f"the pool service still sees {known}"
            await asyncio.sleep(0.02)
        return known

    async def drains(self, within: float = SOON_S) -> None:
        """Returns when the dispatcher says that it takes nothing new."""
        deadline = time.monotonic() + within
        async with grpc.aio.insecure_channel(self.dispatcher.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            while (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING:
                assert time.monotonic() < deadline, "the dispatcher still serves"
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Cuts all streams."""
        for peer in self._open:
            await peer.cut()


@contextlib.asynccontextmanager
async def scene(dispatcher: DispatcherProcess, pool: PoolProcess) -> AsyncIterator[Scene]:
    """A corner of this dispatcher; at the end, its log must tell of no bug."""
    async with grpc.aio.insecure_channel(dispatcher.address) as channel:
        made = Scene(
            dispatcher=dispatcher,
            pool_address=pool.address,
            src=local_code(next(_codes)),
            tgt="es",
            stub=dispatcher_pb2_grpc.DispatcherStub(channel),
        )
        try:
            yield made
        finally:
            await made.close()
    assert not dispatcher.faults(), dispatcher.log()


@contextlib.asynccontextmanager
async def together(
    dispatchers: list[DispatcherProcess], pool: PoolProcess
) -> AsyncIterator[list[Scene]]:
    """One test's corner of each dispatcher, all with the same languages."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(scene(dispatchers[0], pool))
        scenes = [first]
        for dispatcher in dispatchers[1:]:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(dispatcher.address))
            stub = dispatcher_pb2_grpc.DispatcherStub(channel)
            made = replace(first, dispatcher=dispatcher, stub=stub, _open=[])
            stack.push_async_callback(made.close)
            scenes.append(made)
        yield scenes
    for dispatcher in dispatchers:
        assert not dispatcher.faults(), dispatcher.log()


@contextlib.asynccontextmanager
async def running_dispatcher(
    pool: PoolProcess,
    redis_url: str,
    limits: dict[str, int] | None = None,
    **settings: str | int,
) -> AsyncIterator[DispatcherProcess]:
    """A dispatcher of the test's own."""
    process = DispatcherProcess(pool=pool, redis_url=redis_url, limits=limits, **settings)
    process.start()
    try:
        await asyncio.to_thread(process.wait_ready)
        yield process
    finally:
        await asyncio.to_thread(process.stop)


async def whoever_gets_it(nodes: Sequence[RawNode]) -> tuple[RawNode, JobAssign]:
    """The node that gets the next job, and the job."""
    deadline = time.monotonic() + SOON_S
    while True:
        for node in nodes:
            if any(each.HasField("job_assign") for each in node.inbox.waiting):
                return node, await node.expect_assign()
        assert time.monotonic() < deadline, "nobody has got a job"
        await asyncio.sleep(0.005)


def id_of(spec: dispatcher_pb2.JobSpec) -> str:
    """The id that the job of this spec has."""
    return job_id(job_key(spec))


def as_told(spec: dispatcher_pb2.JobSpec) -> dispatcher_pb2.JobSpec:
    """The job as a node is told of it, if it begins a turn: without its session."""
    told = dispatcher_pb2.JobSpec()
    told.CopyFrom(spec)
    told.session_id = id_of(spec)
    told.ClearField("tenant")
    return told
