"""One Operate stream to one instance of the pool service, and the operations that wait on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream
from lingua_scheduler.v1 import common_pb2, pool_pb2

# A pool service does 5 to 8 operations a ms. More of them at once would only wait there, and in
# front of Redis for longer than redis_timeout_ms; here they wait without harm.
MAX_UNANSWERED = 1000

# A service that says for longer than this that it has no store is left, if there is a better one.
# Operations that fail together may do so because of one slow reply, and the next may go well.
STORELESS_S = 0.1

# The service takes 1000. Answers of one message come together, so a message should not be long.
MAX_BATCH = 500
# These take longest, and the answers of a message wait for its slowest operation.
ALONE = frozenset({"heartbeat"})

_NO_STORE = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN


@dataclass(slots=True)
class PoolCounts:
    """What has happened since the start."""

    streams: int = 0
    operations: int = 0
    # Messages that carried them.
    messages: int = 0
    timeouts: int = 0
    # Of operations that are retried: further attempts; operations given up when their time was
    # over, dropped because there were too many, and answered with an error that is not retried.
    retries: int = 0
    given_up: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(slots=True, eq=False)
class PendingOperation:
    """An operation, from when it is asked for until its future is done."""

    id: int
    name: str
    # An OperateRequest with this one operation, serialized. Concatenated requests are one request,
    # because repeated fields append.
    request: bytes
    future: asyncio.Future[Any]
    made: float
    # The stream on which it was sent and waits for its answer; None: it was not sent.
    stream: PoolStream | None = None


class PoolStream:
    """The dispatcher's side of an Operate stream.

    Args:
        stream: the stream.
        queue: operations that are to be sent; only the newest stream takes from it.
        max_bytes: the most that a message may have.
        has_many_cells: an operation that fails because Redis is away says nothing of the others;
            the service is asked.
        counts: what was sent is counted there.
        on_answers: called when some operations were answered.
        on_storeless: called for each message that says that the service still has no store.
    """

    def __init__(
        self,
        stream: ClientStream,
        *,
        queue: deque[PendingOperation],
        max_bytes: int,
        has_many_cells: bool,
        counts: PoolCounts,
        on_answers: Callable[[], None],
        on_storeless: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._max_bytes = max_bytes
        self._has_many_cells = has_many_cells
        self._counts = counts
        self._on_answers = on_answers
        self._on_storeless = on_storeless
        # When it first said so, if it has said nothing else since.
        self._storeless_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.Future[None] | None = None
        self._asks = False
        self._finishing = False
        self.stream = stream
        """The stream."""
        self.sent: dict[int, PendingOperation] = {}
        """Operations that were sent here and have no answer, oldest first."""
        self.heard = self._loop.time()
        """When the service last said something."""

    @property
    def has_store(self) -> bool:
        """Whether the service could reach Redis when it was last heard, as far as it said."""
        return self._storeless_since is None

    def take_greeting(self, greeting: pool_pb2.OperateResponse) -> None:
        """Takes in the answer to the first message."""
        self.heard = self._loop.time()
        self._look_at_store(greeting)

    async def read(self) -> None:
        """Takes in answers until the service ends the stream."""
        read, silence = self.stream.read, self.stream.watch(self._ask)
        while isinstance(response := await read(), pool_pb2.OperateResponse):
            silence.heard = True
            self.heard = self._loop.time()
            was_full = len(self.sent) >= MAX_UNANSWERED
            for result in response.results:
                # None: it has timed out.
                if (operation := self.sent.pop(result.id, None)) is not None:
                    answer(operation, result)
            self._look_at_store(response)
            self._on_answers()
            # Otherwise whatever is queued may wait.
            if was_full or self._finishing:
                self.wake()

    async def write(self) -> None:
        """Sends what is queued. Returns if the stream is finishing and all has its answer."""
        while not self._finishing:
            if self._asks:
                self._asks = False
                await self.stream.write(b"")
            elif batch := take_batch(self._queue, MAX_UNANSWERED - len(self.sent), self._max_bytes):
                await self._send(batch)
            else:
                await self._woken()
        while self.sent:
            await self._woken()

    def wake(self) -> None:
        """Tells the writer that there is something to send, or room for it."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def finish(self, within_s: float) -> None:
        """Takes no more operations; ends when those it has are answered, or after that time."""
        self._finishing = True
        self.stream.cut_after(within_s, "the replaced stream did not end")
        self.wake()

    def _ask(self) -> None:
        self._asks = True
        self.wake()

    def _look_at_store(self, response: pool_pb2.OperateResponse) -> None:
        # Operations of one message share a round trip to Redis, so any of them tells. The answer to
        # an empty message has no id.
        if not response.results or response.results[-1].error.reason != _NO_STORE:
            self._storeless_since = None
        elif self._has_many_cells and response.results[-1].id:
            self._ask()
        elif self._storeless_since is None:
            self._storeless_since = self.heard
        elif self.heard - self._storeless_since >= STORELESS_S and not self._finishing:
            self._on_storeless()

    async def _send(self, batch: list[PendingOperation]) -> None:
        for operation in batch:
            operation.stream = self
            self.sent[operation.id] = operation
        self._counts.messages += 1
        self._counts.operations += len(batch)
        await self.stream.write(b"".join([operation.request for operation in batch]))

    async def _woken(self) -> None:
        self._wake = self._loop.create_future()
        await self._wake


def take_batch(queue: deque[PendingOperation], most: int, max_bytes: int) -> list[PendingOperation]:
    """Takes the next operations that share a message: at most `most`, and at most `max_bytes`."""
    batch: list[PendingOperation] = []
    room, size = min(most, MAX_BATCH), 0
    while queue and room > 0:
        operation = queue[0]
        # Its caller has gone, or it has timed out.
        if operation.future.done():
            queue.popleft()
            continue
        size += len(operation.request)
        alone = operation.name in ALONE
        if batch and (alone or size > max_bytes):
            break
        batch.append(queue.popleft())
        room -= 1
        if alone:
            break
    return batch


def answer(operation: PendingOperation, result: pool_pb2.OperationResult) -> None:
    """Ends an operation with the service's answer, unless it has ended already."""
    operation.stream = None
    if operation.future.done():
        return
    name = result.WhichOneof("result")
    if name == operation.name:
        operation.future.set_result(getattr(result, name))
    elif name == "error":
        operation.future.set_exception(errors.from_proto(result.error))
    else:
        operation.future.set_exception(
            errors.InternalError(
                f"the pool service answered {operation.name} with {name or 'nothing'}"
            )
        )
