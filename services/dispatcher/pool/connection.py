"""The stream to the pool service: many operations under way, failures at once, back by itself."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import Message

from lingua_scheduler.services.dispatcher.pool.calls import Call
from lingua_scheduler.services.dispatcher.pool.retries import (
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    PoolClientCounts,
    Repeats,
    jittered,
)
from lingua_scheduler.services.dispatcher.pool.stream import BROKEN, PoolStream
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.channels import Lines, in_words, open_stream
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc

# A stream that broke sooner than this is opened again after a pause, not at once.
STEADY_S = 1.0
# Calls wait so long for the first connection: services that start together need not fail once.
FIRST_CONNECT_S = 1.0
# And so long for the next one after an instance has drained: nothing was lost, all goes on.
HANDOVER_S = 0.3
# What a stream or channel that is left has beyond the time of its last call.
LEFT_S = 1.0
# As in RedisLink: timers this close together are served together; when the event loop itself was
# this late, answers may lie unread, so it reads them before it calls the service slow.
SLACK_S, STALL_S, STALL_GRACE_S = 0.005, 0.05, 0.02

_log = logging.getLogger(__name__)

_OPERATE = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].methods_by_name["Operate"]


class OperateStream:
    """Operations on the pool service, over a stream that comes back by itself.

    Promises:
    - A call returns or raises within `timeout_ms`. One that fails with DependencyDownError may
      have happened; every one may be repeated with the same ids.
    - Operations that are asked for at the same time, or while a message is being written, share
      a message, and so do patient ones with the next that is not, or within 20 ms. The service
      begins those of one message in the order in which they were asked for.
    - When the stream breaks, or stays silent for `timeout_ms` with a call waiting or for
      `silence_ms` without one, what is under way on it fails at once, and so does every call until
      there is a new one, on any instance.
      The client itself repeats only what certainly did not run: what a draining instance left.
    - No call fails because the connection is made anew: those that are under way end on the old
      one.
    - A service that goes on saying that it cannot reach Redis is left for one that can, if there is
      one; until then all is asked of the one that there is.
    - An error of the service is raised as the exception that it was there.

    Args:
        address: host:port or dns:///name:port. Of a name with several addresses, each new stream
            may reach another one.
        timeout_ms: what a call may take.
        max_message_bytes: what a message may have.
        silence_ms: after which a service that says nothing, and does not answer, is left.
        renew_ms: after which the connection is made anew; see RenewedChannel.
        lines: how it is called.
    """

    def __init__(
        self,
        *,
        address: str,
        timeout_ms: int,
        max_message_bytes: int,
        silence_ms: int,
        renew_ms: int,
        lines: Lines,
    ) -> None:
        self._address = address
        self._timeout = timeout_ms / 1000
        self._max_bytes = max_message_bytes
        self._silence_ms = silence_ms
        self._lines = lines
        self._channel = RenewedChannel(
            address=address, lines=lines, renew_ms=renew_ms, grace_s=self._timeout + LEFT_S
        )
        self._stub: pool_pb2_grpc.PoolServiceAsyncStub
        # From when it is open; to ask for it is a system call each time.
        self._loop: asyncio.AbstractEventLoop
        self._runner: asyncio.Task[None] | None = None
        self._up = False
        # Whether calls are queued; until `_patience` also while there is no stream.
        self._accepts = False
        self._patience = -math.inf
        self._down_reason = "it has not been opened"
        self._next_id = 0
        self._queue: deque[Call] = deque()
        # Every call under way, oldest first. All have the same time, so the first ends first and
        # one timer is enough.
        self._under_way: deque[Call] = deque()
        self._timer: asyncio.TimerHandle | None = None
        # Of patient calls.
        self._waker: asyncio.TimerHandle | None = None
        # The one that sends; beside it there may be some that wait for their last answers.
        self._current: PoolStream | None = None
        self._streams: dict[PoolStream, asyncio.Task[None]] = {}
        self._lost = asyncio.Event()
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
        if self._channel.is_open:
            raise RuntimeError("this client is already open")
        self._loop = asyncio.get_running_loop()
        self._stub = pool_pb2_grpc.PoolServiceStub(self._channel.open())
        self._accepts, self._patience = True, self._loop.time() + FIRST_CONNECT_S
        self._down_reason = "it is not connected yet"
        connected = asyncio.Event()
        self._runner = asyncio.create_task(self._stay_connected(connected))
        try:
            async with asyncio.timeout(FIRST_CONNECT_S):
                await connected.wait()
        except TimeoutError:
            _log.warning("the pool service at %s is away: %s", self._address, self._down_reason)

    async def settle(self, within_s: float) -> None:
        """Gives calls that must get through a moment for it, while the pool service answers."""
        self._wake()
        if self._up:
            await self._repeats.settle(within_s)

    async def close(self) -> None:
        """Fails what is under way, ends what is being repeated. The client may be opened again."""
        was_up, self._up, self._accepts = self._up, False, False
        runner, self._runner = self._runner, None
        self._down_reason = "the client is closed"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()
        self._repeats.end_all()
        for call in self._under_way:
            self._fail(call, self._down_reason)
        self._under_way.clear()
        self._queue.clear()
        self._current = None
        tasks = [task for task in (runner, *self._streams.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await self._channel.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if was_up:
            self._tell()

    def _queue_up(
        self, operation: str, request: Message, traceparent: str = "", *, patient: bool = False
    ) -> asyncio.Future[Any]:
        if not self._accepts:
            raise self._down(self._down_reason)
        self._next_id += 1
        batch = pool_pb2.OperateRequest()
        message = batch.operations.add()
        message.id = self._next_id
        # The contract's own types refuse what does not fit together.
        getattr(message, operation).CopyFrom(request)
        if traceparent:
            message.traceparent = traceparent
        data = batch.SerializeToString()
        if len(data) > self._max_bytes:
            raise errors.InvalidMessageError(
                f"the request has {len(data)} bytes, and a message at most {self._max_bytes}: "
                "send less, or set LINGUA_MAX_MESSAGE_BYTES"
            )
        loop = self._loop
        call = Call(self._next_id, operation, data, loop.create_future(), loop.time())
        self._queue.append(call)
        self._under_way.append(call)
        if self._timer is None:
            due = call.made + self._timeout
            self._timer = loop.call_at(due, self._on_time, due)
        # The writer wakes in the next turn of the loop, when the rest of this turn is queued too.
        if not patient:
            self._wake()
        elif self._waker is None:
            self._waker = loop.call_later(SHARE_WITHIN_S, self._wake)
        return call.future

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        if self._current is not None:
            self._current.wake()

    # ---- streams ----

    async def _stay_connected(self, connected: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            began = loop.time()
            if await self._channel.reconnect(self._connect):
                connected.set()
                await self._channel.renew_until(self._lost, self._connect)
                if loop.time() - began > STEADY_S:
                    pause = 0.0
            await asyncio.sleep(jittered(pause))
            pause = min(max(2 * pause, PAUSE_MIN_S), PAUSE_MAX_S)

    async def _connect(self, channel: grpc.aio.Channel) -> bool:
        """Opens a stream that takes the place of the current one, if there is one."""
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        stream = PoolStream(
            open_stream(channel, _OPERATE, pool_pb2.OperateResponse, self._lines.metadata()),
            queue=self._queue,
            max_bytes=self._max_bytes,
            silence_ms=self._silence_ms,
            counts=self.counts,
            on_answers=self._forget_done,
            on_storeless=self._channel.look_elsewhere,
        )
        try:
            await stream.greet(self._timeout)
        except Exception as error:
            stream.cancel()
            reason = in_words(error)
            if isinstance(error, TimeoutError):
                reason = self._no_answer()
                self._channel.forsake()
            if not isinstance(error, BROKEN):
                _log.exception("the stream to the pool service failed inside")
            if self._current is None:
                self._is_away(reason)
            return False
        except BaseException:
            stream.cancel()
            raise
        if self._current is not None and not stream.has_store:
            stream.cancel()
            return False
        self._channel.hold(channel)
        self._streams[stream] = asyncio.create_task(self._serve(stream, channel))
        old, self._current, self._stub = self._current, stream, stub
        self._lost.clear()
        self._came_up()
        if old is not None:
            old.finish(self._timeout + LEFT_S)
        return True

    async def _serve(self, stream: PoolStream, channel: grpc.aio.Channel) -> None:
        clean = False
        try:
            try:
                clean, reason = await stream.run()
            except Exception as error:
                reason = in_words(error)
                if not isinstance(error, BROKEN):
                    _log.exception("the stream to the pool service failed inside")
            if stream.is_cut:
                self._channel.forsake()
            self._stream_over(stream, reason, clean=clean)
            await self._channel.let_go(channel)
        finally:
            del self._streams[stream]

    def _came_up(self) -> None:
        self._patience = -math.inf
        self.counts.streams += 1
        self._accepts = True
        if not self._up:
            self._up, self._down_reason = True, ""
            _log.info("the pool service at %s is up", self._address)
            self._tell()

    def _stream_over(self, stream: PoolStream, reason: str, *, clean: bool) -> None:
        unanswered = list(stream.sent.values())
        stream.sent.clear()
        if not clean or not self._accepts:
            for call in unanswered:
                self._fail(call, reason)
        else:
            # The service answers all that it has read, so these did not run.
            self._queue.extendleft(reversed(unanswered))
            for call in unanswered:
                call.stream = None
        if self._current is stream:
            self._current = None
            if clean:
                self._patience = asyncio.get_running_loop().time() + HANDOVER_S
            self._is_away(reason)
            self._lost.set()
        elif self._current is not None:
            self._current.wake()

    def _is_away(self, reason: str) -> None:
        """There is no stream: calls fail, unless there will be one in a moment."""
        if not self._up:
            self._down_reason = reason
        if asyncio.get_running_loop().time() < self._patience:
            return
        while self._queue:
            self._fail(self._queue.popleft(), reason)
        self._forget_done()
        self._accepts, self._down_reason = False, reason
        if self._up:
            self._up = False
            _log.warning("the pool service at %s is down: %s", self._address, reason)
            self._tell()

    # ---- time ----

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
            stream = call.stream or self._current
            self._fail(call, self._no_answer())
            if stream is not None:
                stream.sent.pop(call.id, None)
                if stream.heard < call.made:
                    stream.cut(self._no_answer())
            self._forget_done()
        for stream in self._streams:
            stream.wake()
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
            call = self._under_way.popleft()
            if call.stream is not None:
                call.stream.sent.pop(call.id, None)

    def _tell(self) -> None:
        for callback in self.on_change:
            try:
                callback(self._up, self._down_reason)
            except Exception:
                _log.exception("a callback on the change of the pool client failed")

    def _fail(self, call: Call, reason: str) -> None:
        if not call.future.done():
            happened = "was not sent" if call.stream is None else "may have happened"
            call.future.set_exception(self._down(reason, f"; the call {happened}"))

    def _no_answer(self) -> str:
        return f"no answer within {self._timeout * 1000:.0f} ms"

    def _down(self, reason: str, happened: str = "") -> errors.DependencyDownError:
        return errors.DependencyDownError(
            f"the pool service cannot be used{happened}",
            why=f"{self._address}: {reason}",
            retry_after_ms=int(PAUSE_MAX_S * 1000),
        )
