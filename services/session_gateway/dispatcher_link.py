"""All jobs of this gateway, over a stream to whichever dispatcher answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream, StreamEnd
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S, Outbox
from lingua_scheduler.services.runtime.rpc.reconnecting import ReconnectingStream
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_SUBMIT = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].methods_by_name["Submit"]

# A dispatcher that does not answer the first message within this time is frozen.
_GREET_S = 2.0
# How often replaced streams are checked for jobs, and a shared dispatcher for other gateways.
_CHECK_EVERY_S = 0.5
# How long a new stream's dispatcher may be left for one with fewer gateways. Jobs are relayed less
# if each dispatcher has about as many of them as nodes. If there are more gateways than
# dispatchers, a longer search would find nothing.
_SETTLE_S = 15.0

# What may wait to be written: a minute of speech of 200 sessions. Submissions beyond that are
# refused.
_MAX_SUBMISSIONS = 100_000
_MAX_BYTES = 512 * 1024 * 1024
# How long a stream that is finishing may take to write what is queued and to be ended by the
# dispatcher.
_FINISH_S = 2.0


class JobOwner(Protocol):
    """Waits for a job."""

    def on_job_event(self, event: dispatcher_pb2.JobEvent) -> None:
        """Something has happened to the job."""


@dataclass(slots=True, eq=False)
class _Job:
    # Which utterance of its owner it is. A dispatcher that does not know the job cannot tell.
    index: int
    # As it goes to a dispatcher, serialized.
    request: bytes
    owner: JobOwner
    # The stream that it was submitted on; None: it waits for one.
    stream: DispatcherStream | None = None
    over: bool = False


class DispatcherStream:
    """The gateway's side of a Submit stream.

    Args:
        stream: the stream.
        max_message_bytes: the most that a message may have.
        take: called with each event of a job.
    """

    def __init__(
        self,
        stream: ClientStream,
        *,
        max_message_bytes: int,
        take: Callable[[DispatcherStream, dispatcher_pb2.JobEvent], None],
    ) -> None:
        self._take = take
        self.stream = stream
        """The stream."""
        self.gateways = 1
        """How many gateways share the dispatcher, as it said last."""
        self.settled_at = asyncio.get_running_loop().time() + _SETTLE_S
        """Until when it is left if a dispatcher with fewer gateways is found."""
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_SUBMISSIONS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        """Requests, serialized. Concatenated they are one request, because repeated fields append.
        The dispatcher answers an empty request at once."""

    async def write(self) -> None:
        """Writes what is queued, until the outbox is closed."""
        write, take = self.stream.write, self.outbox.take
        while waiting := await take():
            await write(b"".join(waiting))

    async def read(self) -> None:
        """Takes in events until the dispatcher ends the stream."""
        read, silence = self.stream.read, self.stream.watch(self.ask)
        while isinstance(response := await read(), dispatcher_pb2.SubmitResponse):
            silence.heard = True
            self.gateways = response.gateways or self.gateways
            for at, event in enumerate(response.events):
                if should_yield(at):
                    await asyncio.sleep(0)
                self._take(self, event)

    def finish(self) -> None:
        """Ends the stream when all that is queued is written, and soon in any case."""
        if not self.outbox.closed:
            self.outbox.close()
            self.stream.cut_after(_FINISH_S, "the dispatcher did not end the stream")

    def ask(self) -> None:
        """Sends a request that the dispatcher answers at once."""
        self.outbox.put(b"", 0, droppable=True, replaces="ask")


class DispatcherLink:
    """All jobs of this gateway, over one stream to some dispatcher.

    From time to time that is a new stream on a new connection. Jobs stay on the stream on which
    they were submitted, and it ends when it has no job left, or after `result_deadline_ms`.

    Promises:
    - A job that was submitted or attached stays so until it has a result or has failed. If its
      dispatcher dies, drains or falls silent, the job is submitted to another dispatcher, with the
      same key and in the same order. So an owner may hear of an acceptance more than once.
    - Events of a job go to the owner that asked for it last.

    Args:
        settings: where dispatchers are; if there are several, each new stream may reach another.
        dialer: makes the channels to them.
    """

    def __init__(self, *, settings: Settings, dialer: Dialer) -> None:
        self._leave_s = settings.result_deadline_ms / 1000
        self._max_message_bytes = settings.max_message_bytes
        self._connection: ReconnectingStream[DispatcherStream] = ReconnectingStream(
            service="dispatcher",
            channel=RenewedChannel(
                address=settings.dispatcher_address,
                dialer=dialer,
                renew_ms=settings.channel_renew_ms,
            ),
            method=_SUBMIT,
            silence_ms=settings.peer_silence_ms,
            greet_within_s=_GREET_S,
            owner=self,
        )
        # In the order in which they were submitted.
        self._jobs: dict[str, _Job] = {}
        # Streams that get no new job, and until when they may keep the jobs that they have.
        self._left: dict[DispatcherStream, float] = {}
        self._checks: asyncio.Task[None] | None = None

    @property
    def on_change(self) -> list[Callable[[bool, str], None]]:
        """Called with whether there is a dispatcher, and if not why; must not block."""
        return self._connection.on_change

    @property
    def jobs(self) -> int:
        """Jobs that have no result yet."""
        return sum(not job.over for job in tuple(self._jobs.values()))

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        self._checks = asyncio.create_task(self._check_left_streams())
        await self._connection.open()

    async def close(self) -> None:
        """Ends all streams and forgets all jobs."""
        if self._checks is not None:
            self._checks.cancel()
            await asyncio.gather(self._checks, return_exceptions=True)
        await self._connection.close()
        self._jobs.clear()

    def submit(
        self, request: dispatcher_pb2.SubmitRequest, *, job_id: str, index: int, owner: JobOwner
    ) -> None:
        """Submits a job, or attaches to one that a dispatcher has.

        Args:
            request: a job or an attachment, and nothing else.
            job_id: of the job.
            index: which utterance of its owner it is.
            owner: is told what happens to it.
        """
        # Removed first: a job that is submitted again moves to the end of the order.
        before = self._jobs.pop(job_id, None)
        job = self._jobs[job_id] = _Job(index, request.SerializeToString(), owner)
        # A job that is attached again stays on its stream.
        stream = before.stream if before is not None and before.stream else self._connection.current
        if stream is not None:
            self._place(job_id, job, stream)

    def cancel(self, job_id: str, why: str) -> None:
        """Cancels a job that nobody waits for any more."""
        request = dispatcher_pb2.SubmitRequest()
        cancel = request.submissions.add().cancel
        cancel.job_id, cancel.why = job_id, why
        self._drop(job_id, request.SerializeToString())

    def taken(self, job_id: str, delivered_after_us: int = 0) -> None:
        """The client has the result, this long after it arrived here (0: not known)."""
        request = dispatcher_pb2.SubmitRequest()
        taken = request.submissions.add().taken
        taken.job_id, taken.delivered_after_us = job_id, delivered_after_us
        # No urgent message: it may share one with others.
        self._drop(job_id, request.SerializeToString(), within_s=SHARE_WITHIN_S)

    def leave(self, job_id: str, owner: JobOwner) -> None:
        """Tells the dispatcher that the job's session has left this gateway.

        Does nothing if another owner has the job by now.
        """
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
            # Later: the caller does not expect an event before `submit` has returned.
            event = dispatcher_pb2.JobEvent(job_id=job_id, utterance_index=job.index, failed=full)
            asyncio.get_running_loop().call_soon(job.owner.on_job_event, event)

    def _drop(self, job_id: str, last_word: bytes, *, within_s: float = 0.0) -> None:
        job = self._jobs.pop(job_id, None)
        stream = job.stream if job is not None else self._connection.current
        if stream is not None:
            stream.outbox.put(last_word, len(last_word), within_s=within_s)

    # ---- what the connection asks for and reports ----

    def new_peer(self, stream: ClientStream) -> DispatcherStream:
        """A stream is being opened."""
        return DispatcherStream(
            stream, max_message_bytes=self._max_message_bytes, take=self._on_event
        )

    def is_fit(self, peer: DispatcherStream, greeting: Any) -> bool:
        """Any dispatcher that answers will do, or in a search one with fewer gateways."""
        peer.gateways = greeting.gateways
        current = self._connection.current
        if current is None or not self._connection.channel.is_searching:
            return True
        return peer.gateways < current.gateways

    def on_current(self, peer: DispatcherStream, replaced: DispatcherStream | None) -> None:
        """New jobs go to this stream, and so do those that wait for one."""
        if replaced is not None:
            self._leave(replaced)
        for job_id, job in list(self._jobs.items()):
            if job.stream is None:
                self._place(job_id, job, peer)

    def on_end(self, peer: DispatcherStream, end: StreamEnd) -> None:
        """The jobs of a stream that has ended go to the current one, or wait."""
        peer.outbox.close()
        self._left.pop(peer, None)
        current = self._connection.current
        for job_id, job in list(self._jobs.items()):
            if job.stream is peer and job.over:
                del self._jobs[job_id]
            elif job.stream is peer:
                job.stream = None
                if current is not None:
                    self._place(job_id, job, current)

    def on_down(self, reason: str) -> None:
        """Jobs wait for the next stream."""

    def _retire(self, stream: DispatcherStream, reason: str) -> None:
        """The dispatcher takes no new job, but goes on with those that it has."""
        if self._connection.current is stream:
            self._leave(stream)
            self._connection.retire(stream, reason)

    def _leave(self, stream: DispatcherStream) -> None:
        self._left[stream] = asyncio.get_running_loop().time() + self._leave_s

    async def _check_left_streams(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            self._end_left_streams(loop.time())
            current = self._connection.current
            if current and current.gateways > 1 and loop.time() < current.settled_at:
                current.ask()
                self._connection.look_elsewhere()

    def _end_left_streams(self, now: float) -> None:
        """Ends streams that have no job any more, or have had their jobs for too long."""
        if self._left:
            used = {job.stream for job in self._jobs.values()}
            for stream, until in self._left.items():
                if stream not in used:
                    stream.finish()
                elif now > until:
                    stream.stream.cut("its jobs took too long")

    # ---- events ----

    def _on_event(self, stream: DispatcherStream, event: dispatcher_pb2.JobEvent) -> None:
        job_id, kind = event.job_id, event.WhichOneof("event")
        job = self._jobs.get(job_id)
        if job is None or job.stream is not stream:
            if kind == "delivered":
                # No owner here: the session's next gateway will ask for the result.
                leave = _leave(job_id)
                stream.outbox.put(leave, len(leave))
            return
        if kind == "failed":
            if event.failed.reason == common_pb2.ERROR_REASON_DRAINING:
                job.stream = None
                self._retire(stream, event.failed.message)
                if (current := self._connection.current) is not None:
                    self._place(job_id, job, current)
                return
            del self._jobs[job_id]
        elif kind == "delivered":
            # It will not be submitted again, and its audio may be large.
            job.over, job.request = True, b""
        event.utterance_index = job.index
        job.owner.on_job_event(event)


def _leave(job_id: str) -> bytes:
    request = dispatcher_pb2.SubmitRequest()
    request.submissions.add().leave.job_id = job_id
    return request.SerializeToString()
