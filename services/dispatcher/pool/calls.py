"""Operations on the pool service that are under way: how they share messages, how they end."""

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
# They take longest, and the answers of a message wait for its slowest operation.
ALONE = frozenset({"heartbeat"})


@dataclass(slots=True, eq=False)
class Call:
    """An operation, from when it is asked for until its future is done."""

    id: int
    name: str
    # An OperateRequest with this one operation, serialized: one after the other they are one.
    request: bytes
    future: asyncio.Future[Any]
    made: float
    # On which it was sent and waits for its answer; None: it does not.
    stream: PoolStream | None = None


def take_batch(queue: deque[Call], most: int, max_bytes: int) -> list[Call]:
    """The next calls of a queue that share a message: at most so many, and no larger than that."""
    batch: list[Call] = []
    room, size = min(most, MAX_BATCH), 0
    while queue and room > 0:
        call = queue[0]
        # Its caller has gone, or its time has.
        if call.future.done():
            queue.popleft()
            continue
        size += len(call.request)
        alone = call.name in ALONE
        if batch and (alone or size > max_bytes):
            break
        batch.append(queue.popleft())
        room -= 1
        if alone:
            break
    return batch


def answer(call: Call, result: pool_pb2.OperationResult) -> None:
    """Ends a call with what the service says, unless it has ended already."""
    call.stream = None
    if call.future.done():
        return
    name = result.WhichOneof("result")
    if name == call.name:
        call.future.set_result(getattr(result, name))
    elif name == "error":
        call.future.set_exception(errors.from_proto(result.error))
    else:
        call.future.set_exception(
            errors.InternalError(f"the pool service answered {call.name} with {name or 'nothing'}")
        )
