"""One Submit stream to one dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import dispatcher_pb2

# What may wait to be written: a minute of speech of 200 sessions. Submissions beyond that are
# refused.
_MAX_SUBMISSIONS = 100_000
_MAX_BYTES = 512 * 1024 * 1024
# How long a stream that is finishing may take to write what is queued and to be ended by the
# dispatcher.
_FINISH_S = 2.0


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
        read, silence = self.stream.read, self.stream.watch(self._ask)
        while isinstance(response := await read(), dispatcher_pb2.SubmitResponse):
            silence.heard = True
            for at, event in enumerate(response.events):
                if should_yield(at):
                    await asyncio.sleep(0)
                self._take(self, event)

    def finish(self) -> None:
        """Ends the stream when all that is queued is written, and soon in any case."""
        if not self.outbox.closed:
            self.outbox.close()
            self.stream.cut_after(_FINISH_S, "the dispatcher did not end the stream")

    def _ask(self) -> None:
        self.outbox.put(b"", 0, droppable=True, replaces="ask")
