"""One Operate stream to one pool service."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import grpc

from lingua_scheduler.services.dispatcher.pool.calls import Call, answer, take_batch
from lingua_scheduler.services.dispatcher.pool.retries import PoolClientCounts
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.v1 import common_pb2, pool_pb2

# A pool service does 5 to 8 operations a ms. More of them at once would only wait there, and in
# front of Redis for longer than redis_timeout_ms; here they wait without harm.
MAX_UNANSWERED = 1000

# A service that says for longer than this that it has no store is left, if there is a better one.
# Calls that fail together do so because of one that was slow, and the next may go well again.
STORELESS_S = 0.1

BROKEN = (grpc.RpcError, OSError, TimeoutError, asyncio.InvalidStateError)

_NO_STORE = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN

_Stream = grpc.aio.StreamStreamCall[bytes, pool_pb2.OperateResponse]


class PoolStream:
    """A stream, from its greeting to its end.

    Args:
        stream: the call, whose requests are serialized here.
        queue: calls that are to be sent; only the newest stream takes from it.
        max_bytes: what a message may have.
        silence_ms: after which a service that says nothing, and does not answer, is left.
        counts: what was sent is counted there.
        on_answers: called when some calls were answered.
        on_storeless: called for each message which says that the service has no store still.
    """

    def __init__(
        self,
        stream: _Stream,
        *,
        queue: deque[Call],
        max_bytes: int,
        silence_ms: int,
        counts: PoolClientCounts,
        on_answers: Callable[[], None],
        on_storeless: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._queue = queue
        self._max_bytes = max_bytes
        self._silence_ms = silence_ms
        self._counts = counts
        self._on_answers = on_answers
        self._on_storeless = on_storeless
        # When it first said so, where it has said nothing else since.
        self._storeless_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._cut: asyncio.Future[str] = self._loop.create_future()
        self._wake: asyncio.Future[None] | None = None
        self._asks = False
        self._finishing = False
        self._last_moment: asyncio.TimerHandle | None = None
        self.sent: dict[int, Call] = {}
        """Calls that were sent here and have no answer, oldest first."""
        self.heard = self._loop.time()
        """When it was last heard."""

    async def greet(self, within: float) -> None:
        """Returns when the service has answered a message, if only an empty one."""
        async with asyncio.timeout(within):
            await self._stream.write(b"")
            response = await self._stream.read()
        if not isinstance(response, pool_pb2.OperateResponse):
            raise ConnectionError("it is draining")
        self.heard = self._loop.time()
        self._look_at_store(response)

    @property
    def has_store(self) -> bool:
        """Whether the service could reach Redis when it was last heard, as far as it said."""
        return self._storeless_since is None

    async def run(self) -> tuple[bool, str]:
        """Runs the stream to its end; whether the service ended it on purpose, and the reason."""
        watch = StreamWatch(silence_ms=self._silence_ms, ask=self._ask, cut=self.cut)
        reading = asyncio.create_task(self._read(watch))
        writing = asyncio.create_task(self._write())
        try:
            await asyncio.wait((reading, self._cut), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return False, self._cut.result()
            reading.result()
            return True, "it ended the stream"
        finally:
            watch.stop()
            # A timer would keep the stream, and so its connection.
            if self._last_moment is not None:
                self._last_moment.cancel()
            self.cancel()
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    def wake(self) -> None:
        """There is something to send, or room for it."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def finish(self, within: float) -> None:
        """Takes no more calls; ends when those that it has are answered, or within that time."""
        self._finishing = True
        self._last_moment = self._loop.call_later(within, self.cut, "it is left, and does not end")
        self.wake()

    def cut(self, reason: str) -> None:
        """Ends the stream at once."""
        if not self._cut.done():
            self._cut.set_result(reason)

    @property
    def is_cut(self) -> bool:
        """Whether this side ended it, since the other one did not answer."""
        return self._cut.done()

    def cancel(self) -> None:
        """Ends a stream that does not run."""
        self._stream.cancel()

    def _ask(self) -> None:
        self._asks = True
        self.wake()

    async def _read(self, watch: StreamWatch) -> None:
        silence = watch.silence
        while isinstance(response := await self._stream.read(), pool_pb2.OperateResponse):
            silence.heard = True
            self.heard = self._loop.time()
            was_full = len(self.sent) >= MAX_UNANSWERED
            for result in response.results:
                # None: its time was over.
                if (call := self.sent.pop(result.id, None)) is not None:
                    answer(call, result)
            self._look_at_store(response)
            self._on_answers()
            # Else what waits to be sent does so because it is patient.
            if was_full or self._finishing:
                self.wake()

    def _look_at_store(self, response: pool_pb2.OperateResponse) -> None:
        # Operations of one message share a round trip to Redis: any of them tells.
        if not response.results or response.results[-1].error.reason != _NO_STORE:
            self._storeless_since = None
        elif self._storeless_since is None:
            self._storeless_since = self.heard
        elif self.heard - self._storeless_since >= STORELESS_S and not self._finishing:
            self._on_storeless()

    async def _write(self) -> None:
        try:
            while not self._finishing:
                if self._asks:
                    self._asks = False
                    await self._stream.write(b"")
                elif batch := take_batch(
                    self._queue, MAX_UNANSWERED - len(self.sent), self._max_bytes
                ):
                    await self._send(batch)
                else:
                    await self._woken()
            while self.sent:
                await self._woken()
            await self._stream.done_writing()
        except BROKEN:
            # The reader learns why.
            return

    async def _send(self, batch: list[Call]) -> None:
        for call in batch:
            call.stream = self
            self.sent[call.id] = call
        self._counts.messages += 1
        self._counts.operations += len(batch)
        await self._stream.write(b"".join([call.request for call in batch]))

    async def _woken(self) -> None:
        self._wake = self._loop.create_future()
        await self._wake
