"""Operations on the pool service that have no answer yet: batching, and how they end."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import pool_pb2

if TYPE_CHECKING:
    from lingua_scheduler.services.dispatcher.pool.stream import PoolStream

# The service takes 1000. Answers of one message come together, so a message should not be long.
MAX_BATCH = 500
# These take longest, and the answers of a message wait for its slowest operation.
ALONE = frozenset({"heartbeat"})


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
