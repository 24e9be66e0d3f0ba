"""The stream to the pool service: many operations under way, failures at once, back by itself."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from lingua_scheduler.services.dispatcher.pool_repeats import (
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    PoolClientCounts,
    Repeats,
    jittered,
)
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.channels import Lines, in_words
from lingua_scheduler.services.runtime.telemetry import current_traceparent, tracer_if_on
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc

# The service takes 1000. Answers of one message come together, so a message should not be long.
MAX_BATCH = 500
# Of an operation in its message: tag and length.
FRAMING_BYTES = 8
# A pool service does 5 to 8 operations a ms. More of them at once would only wait there, and in
# front of Redis for longer than redis_timeout_ms; here they wait without harm.
MAX_UNANSWERED = 1000
# They take longest, and the answers of a message wait for its slowest operation.
ALONE = frozenset({"heartbeat"})
# A stream that broke sooner than this is opened again after a pause, not at once.
STEADY_S = 1.0
# Calls wait so long for the first connection: services that start together need not fail once.
FIRST_CONNECT_S = 1.0
# And so long for the next one after an instance has drained: nothing was lost, all goes on.
HANDOVER_S = 0.3
# As in RedisLink: timers this close together are served together; when the event loop itself was
# this late, answers may lie unread, so it reads them before it calls the service slow.
SLACK_S, STALL_S, STALL_GRACE_S = 0.005, 0.05, 0.02

_BROKEN = (grpc.RpcError, OSError, TimeoutError, asyncio.InvalidStateError)

_log = logging.getLogger(__name__)

Stream = grpc.aio.StreamStreamCall[pool_pb2.OperateRequest, pool_pb2.OperateResponse]


@dataclass(slots=True, eq=False)
class _Call:
    id: int
    name: str
    operation: pool_pb2.Operation
    size: int
    future: asyncio.Future[Any]
    made: float
    sent: bool = False


class OperateStream:
    """Operations on the pool service, over a stream that comes back by itself.

    Promises:
    - A call returns or raises within `timeout_ms`. One that fails with DependencyDownError may
      have happened; every one may be repeated with the same ids.
    - Operations that are asked for at the same time, or while a message is being written, share
      a message. They have no order among them.
    - When the stream breaks, or stays silent for `timeout_ms` with a call waiting, what is under
      way on it fails at once, and so does every call until there is a new one, on any instance.
      The client itself repeats only what certainly did not run: what a draining instance left.
    - An error of the service is raised as the exception that it was there.

    Args:
        address: host:port or dns:///name:port. Of a name with several addresses, each new stream
            may reach another one.
        timeout_ms: what a call may take.
        max_message_bytes: what a message may have.
        lines: how it is called.
    """

    def __init__(
        self, *, address: str, timeout_ms: int, max_message_bytes: int, lines: Lines
    ) -> None:
        self._address = address
        self._timeout = timeout_ms / 1000
        self._max_bytes = max_message_bytes
        self._lines = lines
        self._channel: grpc.aio.Channel | None = None
        self._stub: pool_pb2_grpc.PoolServiceAsyncStub
        self._runner: asyncio.Task[None] | None = None
        self._traced = False
        self._up = False
        # Whether calls are queued; until `_patience` also while there is no stream.
        self._accepts = False
        self._patience = -math.inf
        self._down_reason = "it has not been opened"
        self._next_id = 0
        self._queue: deque[_Call] = deque()
        self._sent: dict[int, _Call] = {}
        # Every call under way, oldest first. All have the same time, so the first ends first and
        # one timer is enough.
        self._under_way: deque[_Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.Future[None] | None = None
        # Of the stream that is up: ended with a reason to break it; when it was last heard.
        self._cut: asyncio.Future[str] | None = None
        self._heard = -math.inf
        self.counts = PoolClientCounts()
        self._repeats = Repeats(send=self._queue_up, counts=self.counts)
        self.on_change: list[Callable[[bool, str], None]] = []
        """Called with (up, reason) after each change; must not block."""

    @property
    def up(self) -> bool:
        """Whether the pool service answers, as far as is known."""
        return self._up

    @property
    def down_reason(self) -> str:
        """Why the client is down, for people; empty while it is up."""
        return self._down_reason

    @property
    def repeats_outstanding(self) -> int:
        """Calls of `persistently` that are not over."""
        return len(self._repeats)

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        if self._channel is not None:
            raise RuntimeError("this client is already open")
        loop = asyncio.get_running_loop()
        self._channel = self._lines.channel(self._address)
        self._stub = pool_pb2_grpc.PoolServiceStub(self._channel)
        self._traced = tracer_if_on() is not None
        self._accepts, self._patience = True, loop.time() + FIRST_CONNECT_S
        self._down_reason = "it is not connected yet"
        connected = asyncio.Event()
        self._runner = asyncio.create_task(self._stay_connected(connected))
        try:
            async with asyncio.timeout(FIRST_CONNECT_S):
                await connected.wait()
        except TimeoutError:
            _log.warning("the pool service at %s is away: %s", self._address, self._down_reason)

    async def close(self) -> None:
        """Fails what is under way, ends what is being repeated. The client may be opened again."""
        was_up, self._up, self._accepts = self._up, False, False
        self._down_reason = "the client is closed"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._repeats.end_all()
        for call in self._under_way:
            self._fail(call, self._down_reason)
        for calls in (self._under_way, self._queue, self._sent):
            calls.clear()
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
            self._runner = None
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if was_up:
            self._tell()

    def _queue_up(self, operation: str, request: Message) -> asyncio.Future[Any]:
        if not self._accepts:
            raise self._down(self._down_reason)
        self._next_id += 1
        # The contract's own types refuse what does not fit together.
        message = pool_pb2.Operation(id=self._next_id)
        getattr(message, operation).CopyFrom(request)
        if self._traced:
            message.traceparent = current_traceparent()
        size = message.ByteSize() + FRAMING_BYTES
        if size > self._max_bytes:
            raise errors.InvalidMessageError(
                f"the request has {size} bytes, and a message at most {self._max_bytes}: "
                "send less, or set LINGUA_MAX_MESSAGE_BYTES"
            )
        loop = asyncio.get_running_loop()
        call = _Call(
            id=self._next_id,
            name=operation,
            operation=message,
            size=size,
            future=loop.create_future(),
            made=loop.time(),
        )
        self._queue.append(call)
        self._under_way.append(call)
        if self._timer is None:
            due = call.made + self._timeout
            self._timer = loop.call_at(due, self._on_time, due)
        # The writer wakes in the next turn of the loop, when the rest of this turn is queued too.
        self._wake_writer()
        return call.future

    def _wake_writer(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _stay_connected(self, connected: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began, clean = loop.time(), False
            stream = self._stub.Operate(metadata=self._lines.metadata())
            try:
                await self._greet(stream)
                self._came_up()
                connected.set()
                clean, reason = await self._serve(stream)
            except Exception as error:
                reason = in_words(error)
                if not isinstance(error, _BROKEN):
                    _log.exception("the stream to the pool service failed inside")
            finally:
                stream.cancel()
            self._stream_over(reason, clean=clean)
            if loop.time() - began > STEADY_S and self._heard > began:
                pause = 0.0
            await asyncio.sleep(jittered(pause))
            pause = min(max(2 * pause, PAUSE_MIN_S), PAUSE_MAX_S)

    async def _greet(self, stream: Stream) -> None:
        """Returns when the service has answered a message, if only an empty one."""
        try:
            async with asyncio.timeout(self._timeout):
                await stream.write(pool_pb2.OperateRequest())
                if await stream.read() is grpc.aio.EOF:
                    raise ConnectionError("it is draining")
        except TimeoutError:
            raise TimeoutError(self._no_answer()) from None

    async def _serve(self, stream: Stream) -> tuple[bool, str]:
        """Runs the stream to its end; whether the service ended it on purpose, and the reason."""
        self._cut = asyncio.get_running_loop().create_future()
        reading = asyncio.create_task(self._read(stream))
        writing = asyncio.create_task(self._write(stream))
        try:
            await asyncio.wait((reading, self._cut), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return False, self._cut.result()
            reading.result()
            return True, "it ended the stream"
        finally:
            self._cut = self._wake = None
            stream.cancel()
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, stream: Stream) -> None:
        while isinstance(response := await stream.read(), pool_pb2.OperateResponse):
            self._heard = asyncio.get_running_loop().time()
            for result in response.results:
                call = self._sent.pop(result.id, None)
                # None: its time was over.
                if call is not None and not call.future.done():
                    _answer(call, result)
            self._forget_done()
            self._wake_writer()

    async def _write(self, stream: Stream) -> None:
        try:
            while True:
                while not self._queue or len(self._sent) >= MAX_UNANSWERED:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
                if (batch := self._take_batch()).operations:
                    self.counts.messages += 1
                    self.counts.operations += len(batch.operations)
                    await stream.write(batch)
        except _BROKEN:
            # The reader learns why.
            return

    def _take_batch(self) -> pool_pb2.OperateRequest:
        batch, size = pool_pb2.OperateRequest(), 0
        most = min(MAX_BATCH, MAX_UNANSWERED - len(self._sent))
        while self._queue and len(batch.operations) < most:
            call = self._queue[0]
            # Its caller has gone, or its time has.
            if call.future.done():
                self._queue.popleft()
                continue
            size += call.size
            alone = call.name in ALONE
            if batch.operations and (alone or size > self._max_bytes):
                break
            self._queue.popleft()
            batch.operations.append(call.operation)
            self._sent[call.id] = call
            call.sent = True
            if alone:
                break
        return batch

    def _came_up(self) -> None:
        self._patience = -math.inf
        self._heard = asyncio.get_running_loop().time()
        self.counts.streams += 1
        self._accepts = True
        if not self._up:
            self._up, self._down_reason = True, ""
            _log.info("the pool service at %s is up", self._address)
            self._tell()

    def _stream_over(self, reason: str, *, clean: bool) -> None:
        now = asyncio.get_running_loop().time()
        unanswered = list(self._sent.values())
        self._sent.clear()
        if not clean:
            for call in unanswered:
                self._fail(call, reason)
        else:
            # The service answers all that it has read, so these did not run.
            self._patience = now + HANDOVER_S
            self._queue.extendleft(reversed(unanswered))
            for call in unanswered:
                call.sent = False
        if not self._up:
            self._down_reason = reason
        if now < self._patience:
            return
        while self._queue:
            self._fail(self._queue.popleft(), reason)
        self._forget_done()
        self._accepts, self._down_reason = False, reason
        if self._up:
            self._up = False
            _log.warning("the pool service at %s is down: %s", self._address, reason)
            self._tell()

    def _on_time(self, due: float, spared: float = -math.inf) -> None:
        """Fails the calls whose time is over, breaks a silent stream, sets the timer for the next.

        When it comes late itself, it spares them once and looks again a little later. What was
        over by `spared` has had that.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        stalled = now - due > STALL_S
        over = (spared if stalled else now + SLACK_S) - self._timeout
        self._forget_done()
        while self._under_way and self._under_way[0].made <= over:
            call = self._under_way.popleft()
            self.counts.timeouts += 1
            self._sent.pop(call.id, None)
            self._fail(call, self._no_answer())
            if self._heard < call.made and self._cut is not None and not self._cut.done():
                self._cut.set_result(self._no_answer())
            self._forget_done()
        self._wake_writer()
        if stalled:
            due = now + STALL_GRACE_S
            self._timer = loop.call_at(due, self._on_time, due, now)
        elif self._under_way:
            due = self._under_way[0].made + self._timeout
            self._timer = loop.call_at(due, self._on_time, due)
        else:
            self._timer = None

    def _forget_done(self) -> None:
        while self._under_way and self._under_way[0].future.done():
            self._sent.pop(self._under_way.popleft().id, None)

    def _tell(self) -> None:
        for callback in self.on_change:
            try:
                callback(self._up, self._down_reason)
            except Exception:
                _log.exception("a callback on the change of the pool client failed")

    def _fail(self, call: _Call, reason: str) -> None:
        if not call.future.done():
            happened = "may have happened" if call.sent else "was not sent"
            call.future.set_exception(self._down(f"{reason}; the call {happened}"))

    def _no_answer(self) -> str:
        return f"no answer within {self._timeout * 1000:.0f} ms"

    def _down(self, reason: str) -> errors.DependencyDownError:
        return errors.DependencyDownError(
            f"the pool service at {self._address} cannot be used: {reason}",
            retry_after_ms=int(PAUSE_MAX_S * 1000),
        )


def _answer(call: _Call, result: pool_pb2.OperationResult) -> None:
    name = result.WhichOneof("result")
    if name == call.name:
        call.future.set_result(getattr(result, name))
    elif name == "error":
        call.future.set_exception(errors.from_proto(result.error))
    else:
        call.future.set_exception(
            errors.InternalError(f"the pool service answered {call.name} with {name or 'nothing'}")
        )
