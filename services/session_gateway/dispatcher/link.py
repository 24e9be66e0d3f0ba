"""Jobs to dispatchers, and their events back: whatever dispatcher there is."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import grpc

from lingua_scheduler.services.runtime.rpc.channels import Lines, in_words, open_stream
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.dispatcher.stream import DispatcherStream
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_SUBMIT = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].methods_by_name["Submit"]

# Between tries to reach a dispatcher: doubled each time.
_PAUSE_MIN_S = 0.05
_PAUSE_MAX_S = 1.0
# A stream that lived so long was a good one.
_STEADY_S = 5.0
# Between two looks for streams that have no job any more.
_LOOK_EVERY_S = 0.5
_FIRST_CONNECT_S = 1.0

_BROKEN = (grpc.aio.AioRpcError, OSError, asyncio.InvalidStateError, TimeoutError)

_log = logging.getLogger(__name__)


class JobOwner(Protocol):
    """Who waits for a job."""

    def on_job_event(self, event: dispatcher_pb2.JobEvent) -> None:
        """Something has happened to it."""


@dataclass(slots=True, eq=False)
class _Job:
    # Which utterance of its owner it is. A dispatcher that does not know the job cannot tell.
    index: int
    # As it goes to a dispatcher, serialized.
    request: bytes
    owner: JobOwner
    # Where it is; None: nowhere yet.
    stream: DispatcherStream | None = None
    over: bool = False


class DispatcherLink:
    """All jobs of this gateway, over one stream to some dispatcher.

    From time to time that is a new stream on a new connection. Jobs stay on the stream that they
    are on, and it ends when it has none any more; after `result_deadline_ms` it ends in any case.

    Promises:
    - A job that was submitted or attached stays so until it has a result or has failed: when its
      dispatcher is gone, goes away or falls silent, it is submitted to another one, with the same
      key, in the same order. So an owner may hear of an acceptance more than once.
    - Events of a job come to the owner that asked for it last.

    Args:
        settings: where dispatchers are; of several, each new stream may reach another one.
        lines: how they are called.
    """

    def __init__(self, *, settings: Settings, lines: Lines) -> None:
        self._address = settings.dispatcher_address
        self._leave_s = settings.result_deadline_ms / 1000
        self._silence_ms = settings.peer_silence_ms
        self._max_message_bytes = settings.max_message_bytes
        self._lines = lines
        self._channel = RenewedChannel(
            address=self._address, lines=lines, renew_ms=settings.channel_renew_ms
        )
        # In the order in which they were submitted.
        self._jobs: dict[str, _Job] = {}
        self._current: DispatcherStream | None = None
        self._streams: dict[DispatcherStream, asyncio.Task[None]] = {}
        # Those that get no new job, and until when they may keep what they have.
        self._left: dict[DispatcherStream, float] = {}
        self._runner: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._down_reason = ""
        self.on_change: list[Callable[[bool], None]] = []
        """Called with whether there is a dispatcher, after each change; must not block."""

    @property
    def jobs(self) -> int:
        """Jobs that have no result yet."""
        return sum(not job.over for job in tuple(self._jobs.values()))

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        self._channel.open()
        connected = asyncio.Event()
        self._runner = asyncio.create_task(self._stay_connected(connected))
        self._watch = asyncio.create_task(self._look_after_streams())
        try:
            async with asyncio.timeout(_FIRST_CONNECT_S):
                await connected.wait()
        except TimeoutError:
            _log.warning("the dispatcher at %s is away: %s", self._address, self._down_reason)

    async def close(self) -> None:
        """Lets go of everything."""
        tasks = (self._runner, self._watch, *self._streams.values())
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._jobs.clear()
        await self._channel.close()

    def submit(
        self, request: dispatcher_pb2.SubmitRequest, *, job_id: str, index: int, owner: JobOwner
    ) -> None:
        """Submits a job, or takes up one that a dispatcher has.

        Args:
            request: a job or an attachment, and nothing else.
            job_id: of the job.
            index: which utterance of its owner it is.
            owner: is told what happens to it.
        """
        # Taken out first: what is submitted again stands at the end of the order.
        before = self._jobs.pop(job_id, None)
        job = self._jobs[job_id] = _Job(index, request.SerializeToString(), owner)
        # A job that is asked for again is where it was.
        stream = before.stream if before is not None and before.stream else self._current
        if stream is not None:
            self._place(job_id, job, stream)

    def cancel(self, job_id: str, why: str) -> None:
        """Nobody waits for it any more."""
        request = dispatcher_pb2.SubmitRequest()
        cancel = request.submissions.add().cancel
        cancel.job_id, cancel.why = job_id, why
        self._drop(job_id, request.SerializeToString())

    def taken(self, job_id: str, delivered_after_us: int = 0) -> None:
        """The client has its result, so long after it came here (0: not known)."""
        request = dispatcher_pb2.SubmitRequest()
        taken = request.submissions.add().taken
        taken.job_id, taken.delivered_after_us = job_id, delivered_after_us
        # Nobody waits for that.
        self._drop(job_id, request.SerializeToString(), within_s=SHARE_WITHIN_S)

    def leave(self, job_id: str, owner: JobOwner) -> None:
        """Its session has left this gateway, unless another owner has it by now."""
        job = self._jobs.get(job_id)
        if job is not None and job.owner is owner:
            self._drop(job_id, _leave(job_id))

    def _place(self, job_id: str, job: _Job, stream: DispatcherStream) -> None:
        job.stream = stream
        if not stream.outbox.put(job.request, len(job.request)):
            del self._jobs[job_id]
            full = common_pb2.Error(
                reason=common_pb2.ERROR_REASON_BACKPRESSURE,
                message="the dispatcher does not read what is submitted",
            )
            # Not from within: whoever submits does not expect an answer before it has returned.
            event = dispatcher_pb2.JobEvent(job_id=job_id, utterance_index=job.index, failed=full)
            asyncio.get_running_loop().call_soon(job.owner.on_job_event, event)

    def _drop(self, job_id: str, last_word: bytes, *, within_s: float = 0.0) -> None:
        job = self._jobs.pop(job_id, None)
        stream = job.stream if job is not None else self._current
        if stream is not None:
            stream.outbox.put(last_word, len(last_word), within_s=within_s)

    # ---- streams ----

    async def _stay_connected(self, connected: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began = loop.time()
            if await self._channel.reconnect(self._connect):
                connected.set()
                await self._channel.renew_until(self._wanted, self._connect)
                if loop.time() - began > _STEADY_S:
                    pause = 0.0
            # Many gateways lose the same dispatcher at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(max(2 * pause, _PAUSE_MIN_S), _PAUSE_MAX_S)

    async def _connect(self, channel: grpc.aio.Channel) -> bool:
        """Opens a stream that takes the place of the current one, if there is one."""
        metadata = self._lines.metadata()
        call = open_stream(channel, _SUBMIT, dispatcher_pb2.SubmitResponse, metadata)
        stream = DispatcherStream(
            call,
            silence_ms=self._silence_ms,
            max_message_bytes=self._max_message_bytes,
            take=self._on_event,
        )
        try:
            await stream.greet()
        except _BROKEN as error:
            self._down_reason = in_words(error)
            call.cancel()
            if isinstance(error, TimeoutError):
                self._channel.forsake()
            return False
        except BaseException:
            call.cancel()
            raise
        self._channel.hold(channel)
        self._streams[stream] = asyncio.create_task(self._serve(stream, channel))
        old, self._current = self._current, stream
        self._wanted.clear()
        if old is None:
            self._tell(True)
        else:
            self._leave(old)
        for job_id, job in list(self._jobs.items()):
            if job.stream is None:
                self._place(job_id, job, stream)
        return True

    async def _serve(self, stream: DispatcherStream, channel: grpc.aio.Channel) -> None:
        reason = "the stream failed inside"
        try:
            try:
                reason = await stream.run()
            except _BROKEN as error:
                reason = in_words(error)
            except Exception:
                _log.exception("the stream to a dispatcher failed inside")
            if stream.is_frozen:
                _log.warning("disconnecting from a dispatcher at %s: %s", self._address, reason)
                self._channel.forsake()
            self._lose(stream, reason)
            await self._channel.let_go(channel)
        finally:
            del self._streams[stream]
            self._left.pop(stream, None)

    def _lose(self, stream: DispatcherStream, reason: str) -> None:
        """A stream is over: its jobs go elsewhere."""
        for job_id, job in list(self._jobs.items()):
            if job.stream is stream and job.over:
                del self._jobs[job_id]
            elif job.stream is stream:
                job.stream = None
                if self._current is not None and self._current is not stream:
                    self._place(job_id, job, self._current)
        self._retire(stream, reason)

    def _retire(self, stream: DispatcherStream, reason: str) -> None:
        """No new job goes there; another stream is opened."""
        if self._current is stream:
            self._current = None
            self._down_reason = reason
            _log.info("the dispatcher at %s is left: %s", self._address, reason)
            self._leave(stream)
            self._tell(False)
            self._wanted.set()

    def _leave(self, stream: DispatcherStream) -> None:
        self._left[stream] = asyncio.get_running_loop().time() + self._leave_s

    def _tell(self, up: bool) -> None:
        for callback in self.on_change:
            callback(up)

    async def _look_after_streams(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self._end_left(loop.time())

    def _end_left(self, now: float) -> None:
        """Ends streams that have no job any more, or have had them for too long."""
        if self._left:
            used = {job.stream for job in self._jobs.values()}
            for stream, until in self._left.items():
                if stream not in used:
                    stream.finish()
                elif now > until:
                    stream.cut()

    # ---- events ----

    def _on_event(self, stream: DispatcherStream, event: dispatcher_pb2.JobEvent) -> None:
        job_id, kind = event.job_id, event.WhichOneof("event")
        job = self._jobs.get(job_id)
        if job is None or job.stream is not stream:
            if kind == "delivered":
                # Nobody here waits for it: it is for the session's next gateway.
                leave = _leave(job_id)
                stream.outbox.put(leave, len(leave))
            return
        if kind == "failed":
            if event.failed.reason == common_pb2.ERROR_REASON_DRAINING:
                job.stream = None
                self._retire(stream, event.failed.message)
                if self._current is not None:
                    self._place(job_id, job, self._current)
                return
            del self._jobs[job_id]
        elif kind == "delivered":
            # It is not submitted again, and its audio may be large.
            job.over, job.request = True, b""
        event.utterance_index = job.index
        job.owner.on_job_event(event)


def _leave(job_id: str) -> bytes:
    request = dispatcher_pb2.SubmitRequest()
    request.submissions.add().leave.job_id = job_id
    return request.SerializeToString()
