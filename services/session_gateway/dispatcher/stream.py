"""One Submit stream to one dispatcher."""

import asyncio
from collections.abc import Callable

import grpc

from lingua_scheduler.services.runtime.give_way import is_turn_of_others
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.v1 import dispatcher_pb2

# What may wait to be written: a minute of speech of 200 sessions. A dispatcher that takes no more
# than that is refused more.
_MAX_SUBMISSIONS = 100_000
_MAX_BYTES = 512 * 1024 * 1024
# A dispatcher greets at once, or is none.
_GREET_S = 2.0
# Of a stream that is to end: for what is queued, and for the dispatcher to end it.
_FINISH_S = 2.0

_Call = grpc.aio.StreamStreamCall[bytes, dispatcher_pb2.SubmitResponse]


class DispatcherStream:
    """A stream, from its greeting to its end.

    Args:
        call: the stream.
        silence_ms: after which a dispatcher that says nothing, and does not answer, is left.
        max_message_bytes: what a message may have.
        take: called with each event of a job.
    """

    def __init__(
        self,
        call: _Call,
        *,
        silence_ms: int,
        max_message_bytes: int,
        take: Callable[["DispatcherStream", dispatcher_pb2.JobEvent], None],
    ) -> None:
        self._call = call
        self._silence_ms = silence_ms
        self._take = take
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_SUBMISSIONS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        """Requests, serialized. One after the other they are one request; an empty one asks whether
        somebody is there."""
        self._cut = asyncio.Event()
        self._why = "it ended the stream"
        self._last_moment: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.is_frozen = False
        """Whether it was cut because the dispatcher says nothing."""

    async def greet(self) -> None:
        """Returns when the dispatcher has answered. Raises what keeps it from that."""
        async with asyncio.timeout(_GREET_S):
            await self._call.write(b"")
            if await self._call.read() is grpc.aio.EOF:
                raise ConnectionError("it is draining")

    async def run(self) -> str:
        """Serves the stream to its end, and returns the reason. Raises what broke it."""
        watch = StreamWatch(silence_ms=self._silence_ms, ask=self._ask, cut=self._be_frozen)
        try:
            await run_duplex(read=self._read(watch), write=self._write(), cut=self._cut)
            return self._why
        finally:
            watch.stop()
            # A timer would keep the stream, and so its connection.
            if self._last_moment is not None:
                self._last_moment.cancel()
            self.outbox.close()
            self._call.cancel()

    def finish(self) -> None:
        """Ends the stream when all that is queued is said, and soon in any case."""
        if not self.outbox.closed:
            self.outbox.close()
            self._last_moment = self._loop.call_later(_FINISH_S, self.cut)

    def cut(self) -> None:
        """Ends the stream at once."""
        self._cut.set()

    def _ask(self) -> None:
        """Asks whether somebody is there."""
        self.outbox.put(b"", 0, droppable=True, replaces="ask")

    def _be_frozen(self, why: str) -> None:
        self.is_frozen, self._why = True, why
        self.cut()

    async def _write(self) -> None:
        while waiting := await self.outbox.take():
            await self._call.write(b"".join(waiting))
        # The dispatcher takes all that was said, and then ends the stream.
        await self._call.done_writing()
        await self._cut.wait()

    async def _read(self, watch: StreamWatch) -> None:
        silence = watch.silence
        while isinstance(response := await self._call.read(), dispatcher_pb2.SubmitResponse):
            silence.heard = True
            for at, event in enumerate(response.events):
                if is_turn_of_others(at):
                    await asyncio.sleep(0)
                self._take(self, event)
