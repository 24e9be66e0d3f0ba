"""Many operations under way on the pool service, over a stream that reconnects by itself."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any

from google.protobuf.message import Message

from lingua_scheduler.services.dispatcher.pool.stream import (
    PendingOperation,
    PoolCounts,
    PoolStream,
)
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.deadlines import DeadlineTimer
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream, StreamEnd
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.services.runtime.rpc.reconnecting import PAUSE_MAX_S, ReconnectingStream
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel
from lingua_scheduler.v1 import pool_pb2

# How long operations wait for the next stream after an instance has drained.
HANDOVER_S = 0.3
# What a replaced stream or channel has beyond the timeout of its last operation.
LEFT_S = 1.0

_OPERATE = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].methods_by_name["Operate"]


class PoolConnection:
    """Sends operations to the pool service.

    Promises:
    - An operation returns or raises within `timeout_ms`. One that fails with DependencyDownError
      may have happened; every one may be repeated with the same ids.
    - Operations that are asked for at the same time, or while a message is being written, share
      a message. Patient ones share the next message, or leave after 20 ms. The service begins
      the operations of one message in the order in which they were asked for.
    - If the stream breaks, or stays silent for `timeout_ms` while an operation waits or for
      `silence_ms` otherwise, what is under way on it fails at once, and so does every operation
      until there is a new stream, on any instance. The connection itself repeats only what
      certainly did not run: what a draining instance left unanswered.
    - No operation fails because the connection is renewed: those under way end on the old one.
    - A service that keeps saying that it cannot reach Redis is left for one that can, if there is
      one; not because of one of many cells.
    - An error of the service is raised as the exception that it was there.

    Args:
        address: host:port or dns:///name:port. If a name has several addresses, each new stream
            may reach another one.
        timeout_ms: how long an operation may take.
        max_message_bytes: the most that a message may have.
        silence_ms: after which a service that says nothing, and does not answer, is left.
        renew_ms: after which the connection is renewed; see RenewedChannel.
        cells: how many cells the service has.
        dialer: makes the channels.
    """

    def __init__(
        self,
        *,
        address: str,
        timeout_ms: int,
        max_message_bytes: int,
        silence_ms: int,
        renew_ms: int,
        cells: int = 1,
        dialer: Dialer,
    ) -> None:
        self._max_bytes = max_message_bytes
        self._has_many_cells = cells > 1
        # Set by `open`: asking for the running loop is a system call each time.
        self._loop: asyncio.AbstractEventLoop
        self._next_id = 0
        self._queue: deque[PendingOperation] = deque()
        # Oldest first. All have the same timeout, so the first expires first.
        self._under_way: deque[PendingOperation] = deque()
        self._deadlines = DeadlineTimer(self._expire)
        # Wakes the writer for patient operations.
        self._waker: asyncio.TimerHandle | None = None
        self.timeout_s = timeout_ms / 1000
        """How long an operation may take."""
        self.counts = PoolCounts()
        """What has happened since the start."""
        self.link: ReconnectingStream[PoolStream] = ReconnectingStream(
            service="pool",
            channel=RenewedChannel(
                address=address, dialer=dialer, renew_ms=renew_ms, grace_s=self.timeout_s + LEFT_S
            ),
            method=_OPERATE,
            silence_ms=silence_ms,
            greet_within_s=self.timeout_s,
            handover_s=HANDOVER_S,
            owner=self,
        )
        """The stream that all operations share."""

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        self._loop = asyncio.get_running_loop()
        await self.link.open()

    async def close(self) -> None:
        """Fails what is under way. The connection may be opened again."""
        self._deadlines.disarm()
        self.flush()
        for operation in self._under_way:
            self._fail(operation, "the client is closed")
        self._under_way.clear()
        self._queue.clear()
        await self.link.close()

    def send(
        self, name: str, request: Message, traceparent: str = "", *, patient: bool = False
    ) -> asyncio.Future[Any]:
        """Queues an operation; the future has its response or error.

        Args:
            name: its field in pool.proto's Operation, such as "commit".
            request: what that field holds.
            traceparent: the span that it is part of, if that is sampled.
            patient: nobody waits for it, so it may wait to share a message.

        Raises:
            DependencyDownError: there is no stream to any instance.
            InvalidMessageError: the request is too large.
        """
        if not self.link.accepts:
            raise self.down(self.link.down_reason)
        self._next_id += 1
        batch = pool_pb2.OperateRequest()
        message = batch.operations.add()
        message.id = self._next_id
        # The contract's own types refuse what does not fit together.
        getattr(message, name).CopyFrom(request)
        if traceparent:
            message.traceparent = traceparent
        data = batch.SerializeToString()
        if len(data) > self._max_bytes:
            raise errors.InvalidMessageError(
                f"the request has {len(data)} bytes, and a message at most {self._max_bytes}: "
                "send less, or set LINGUA_MAX_MESSAGE_BYTES"
            )
        loop = self._loop
        made = loop.time()
        operation = PendingOperation(self._next_id, name, data, loop.create_future(), made)
        self._queue.append(operation)
        self._under_way.append(operation)
        # If others are under way, the timer is armed.
        if len(self._under_way) == 1:
            self._deadlines.arm(loop, made + self.timeout_s)
        # The writer wakes in the next turn of the loop, when the rest of this turn is queued too.
        if not patient:
            self.flush()
        elif self._waker is None:
            self._waker = loop.call_later(SHARE_WITHIN_S, self.flush)
        return operation.future

    def flush(self) -> None:
        """Sends what is queued, patient or not."""
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        if (current := self.link.current) is not None:
            current.wake()

    def down(self, reason: str, happened: str = "") -> errors.DependencyDownError:
        """The error of a call that could not be made, or has no answer."""
        return errors.DependencyDownError(
            f"the pool service cannot be used{happened}",
            why=f"{self.link.channel.address}: {reason}",
            retry_after_ms=int(PAUSE_MAX_S * 1000),
        )

    # ---- what the link asks for and reports ----

    def new_peer(self, stream: ClientStream) -> PoolStream:
        """A stream is being opened."""
        return PoolStream(
            stream,
            queue=self._queue,
            max_bytes=self._max_bytes,
            has_many_cells=self._has_many_cells,
            counts=self.counts,
            on_answers=self._forget_done,
            on_storeless=self.link.look_elsewhere,
        )

    def is_fit(self, peer: PoolStream, greeting: pool_pb2.OperateResponse) -> bool:
        """An instance without a store replaces no other."""
        peer.take_greeting(greeting)
        return self.link.current is None or peer.has_store

    def on_current(self, peer: PoolStream, replaced: PoolStream | None) -> None:
        """Operations are sent on this stream from now on."""
        self.counts.streams += 1
        if replaced is not None:
            replaced.finish(self.timeout_s + LEFT_S)

    def on_end(self, peer: PoolStream, end: StreamEnd) -> None:
        """What has no answer fails, or is sent again if it certainly did not run."""
        unanswered = list(peer.sent.values())
        peer.sent.clear()
        if end.clean and self.link.accepts:
            # The service answers all that it has read, so these did not run.
            self._queue.extendleft(reversed(unanswered))
            for operation in unanswered:
                operation.stream = None
        else:
            for operation in unanswered:
                self._fail(operation, end.reason)
        if self.link.current is not None:
            self.link.current.wake()

    def on_down(self, reason: str) -> None:
        """What is queued fails."""
        while self._queue:
            self._fail(self._queue.popleft(), reason)
        self._forget_done()

    # ---- deadlines ----

    def _expire(self, over: float) -> float:
        """Fails operations that have timed out, and cuts a silent stream."""
        made_by = over - self.timeout_s
        self._forget_done()
        while self._under_way and self._under_way[0].made <= made_by:
            operation = self._under_way.popleft()
            self.counts.timeouts += 1
            peer = operation.stream or self.link.current
            reason = f"no answer within {self.timeout_s * 1000:.0f} ms"
            self._fail(operation, reason)
            if peer is not None:
                peer.sent.pop(operation.id, None)
                if peer.heard < operation.made:
                    peer.stream.cut_frozen(reason)
            self._forget_done()
        for peer in self.link.peers:
            peer.wake()
        return self._under_way[0].made + self.timeout_s if self._under_way else math.inf

    def _forget_done(self) -> None:
        while self._under_way and self._under_way[0].future.done():
            operation = self._under_way.popleft()
            if operation.stream is not None:
                operation.stream.sent.pop(operation.id, None)

    def _fail(self, operation: PendingOperation, reason: str) -> None:
        if not operation.future.done():
            happened = "was not sent" if operation.stream is None else "may have happened"
            operation.future.set_exception(self.down(reason, f"; the call {happened}"))
