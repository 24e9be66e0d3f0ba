"""An Operate stream: carries out messages as they arrive, and answers them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.spans import with_span
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.v1 import common_pb2, pool_pb2

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

# Messages in progress at a time. Beyond that the stream is not read, so that a client that sends
# faster than Redis answers is slowed down instead of filling the memory.
_MESSAGES_AT_ONCE = 64
# The same for operations that are answered in any order: those of a slow cell do not use up what
# the others need. A client has at most 1000.
_OPERATIONS_AT_ONCE = 4000
# How long the operations of a message wait for each other, if they are answered in any order. One
# that is answered alone costs much more: its answer is a message of its own, and so is what the
# client does next.
_TOGETHER_S = 0.01

_log = logging.getLogger(__name__)

# An operation in progress: its id, its name, its request, what it waits for, and whether that is
# the reply of Redis instead of the response.
Begun: TypeAlias = "tuple[int, str, Any, asyncio.Future[Any], bool]"


class OperateStream:
    """Reads, carries out and answers the messages of a stream.

    A message is answered by one message, or by several if one would be too large (an error may be
    longer than its request). A message without operations is a greeting: its answer is empty if
    Redis answers, and otherwise has one result with the error and without an id.

    In order: each message is answered after those before it, and after all of its operations are
    done. Otherwise a message is answered when its operations are done, and those that are done
    before the others by more than a moment, because their cell is faster, are answered before.

    `read` and `write` run concurrently. When nothing more will be read, `close` lets `write`
    finish; `give_up` cancels what is left when the stream has ended.

    Args:
        reach_store: raises DependencyDownError if Redis does not answer.
    """

    def __init__(
        self,
        *,
        operations: Operations,
        reach_store: Callable[[], Awaitable[None]],
        in_order: bool,
        spans: SpanWriter | None,
        instance_id: str,
        max_message_bytes: int,
    ) -> None:
        self._operations = operations
        self._reach_store = reach_store
        self._in_order = in_order
        self._spans = spans
        self._instance_id = instance_id
        self._max_message_bytes = max_message_bytes
        self._loop = asyncio.get_running_loop()
        # What is answered next: operations of each message, and when they were started.
        self._under_way: deque[tuple[list[Begun], float]] = deque()
        # Operations that are answered without the rest of their message: not done, and done.
        self._not_done: set[asyncio.Future[Any]] = set()
        self._late: list[Begun] = []
        self._closed = False
        # Set while the writer waits for a message, and while the reader waits for room.
        self._waiting: asyncio.Future[None] | None = None
        self._full: asyncio.Future[None] | None = None
        # Set while the writer waits a moment for an operation, and what ends the moment. One timer
        # serves many: it costs as much as an operation to start and stop one for each.
        self._soon: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, requests: AsyncIterator[pool_pb2.OperateRequest]) -> None:
        """Starts the operations of each message; returns when the client has ended its side."""
        under_way = self._under_way
        async for request in requests:
            operations = request.operations
            while len(under_way) >= _MESSAGES_AT_ONCE or len(self._not_done) >= _OPERATIONS_AT_ONCE:
                self._full = self._loop.create_future()
                await self._full
            started = perf_counter()
            under_way.append(([self._begin(each) for each in operations], started))
            if self._waiting is not None:
                self._wake()

    async def write(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Answers messages; returns when the stream is closed and all are answered."""
        under_way = self._under_way
        while True:
            while not under_way and not self._late:
                if self._closed and not self._not_done:
                    return
                self._waiting = self._loop.create_future()
                await self._waiting
            response = await self._next()
            if self._full is not None:
                self._wake()
            if response is None:
                continue
            data = response.SerializeToString()
            parts = (data,) if len(data) <= self._max_message_bytes else self._parts(response)
            for part in parts:
                if not context.done():
                    await context.write(part)

    async def _next(self) -> pool_pb2.OperateResponse | None:
        """The answer to what is done late, or to the next message; None if none of it is done."""
        if self._late:
            late, self._late = self._late, []
            return self._response(late, perf_counter())
        begun, started = self._under_way[0]
        if not begun:
            response: pool_pb2.OperateResponse | None = await self._greeting()
        elif self._in_order:
            for _, _, _, outcome, _ in begun:
                if not outcome.done():
                    try:  # noqa: SIM105 - suppress() would double the cost
                        await outcome
                    except Exception:
                        pass  # _response reports it
            response = self._response(begun, started)
        else:
            done = await self._done_soon(begun, started)
            response = self._response(done, started) if done else None
        self._under_way.popleft()
        return response

    def close(self) -> None:
        """Nothing more will be read."""
        self._closed = True
        self._wake()

    def give_up(self) -> None:
        """Cancels what is left: the stream has ended, and nobody waits for the answers."""
        left = [outcome for begun, _ in self._under_way for _, _, _, outcome, _ in begun]
        for outcome in (*left, *self._not_done):
            if not outcome.done():
                outcome.cancel()
            elif not outcome.cancelled():
                outcome.exception()  # marks it as retrieved, or asyncio logs a warning

    def _wake(self) -> None:
        for each in (self._waiting, self._full):
            if each is not None and not each.done():
                each.set_result(None)
        self._waiting = self._full = None

    async def _done_soon(self, begun: list[Begun], started: float) -> list[Begun]:
        """Returns the operations of a message that are done within a moment of its beginning.

        The others are answered later. Waits for one after the other: those of a cell are usually
        done together, and to wait for one costs more than to see that it is done.
        """
        done: list[Begun] = []
        for operation in begun:
            going_on: Begun | None = operation
            while going_on is not None:
                operation, outcome = going_on, going_on[3]
                while not outcome.done():
                    left = started + _TOGETHER_S - perf_counter()
                    if left <= 0:
                        break
                    await self._a_moment(outcome, left)
                if not outcome.done():
                    self._answer_later(operation)
                    break
                going_on = self._going_on(operation) if operation[1] == "allocate" else None
            else:
                done.append(operation)
        return done

    async def _a_moment(self, outcome: asyncio.Future[Any], left: float) -> None:
        """Returns when an operation is done, or after at most this long; maybe before."""
        self._soon = self._loop.create_future()
        outcome.add_done_callback(self._end_moment)
        if self._timer is None:
            self._timer = self._loop.call_later(left, self._ring)
        await self._soon
        outcome.remove_done_callback(self._end_moment)

    def _ring(self) -> None:
        self._timer = None
        self._end_moment()

    def _end_moment(self, _: object = None) -> None:
        if self._soon is not None and not self._soon.done():
            self._soon.set_result(None)

    def _going_on(self, operation: Begun) -> Begun | None:
        """The rest of an allocation whose first part is done, if it goes on in other cells."""
        number, name, request, outcome, is_reply = operation
        if not is_reply or outcome.cancelled():
            return None
        more = self._operations.attempts.goes_on(request, outcome)
        return None if more is None else (number, name, request, more, True)

    def _answer_later(self, operation: Begun) -> None:
        self._not_done.add(operation[3])
        operation[3].add_done_callback(partial(self._is_done, operation))

    def _is_done(self, operation: Begun, outcome: asyncio.Future[Any]) -> None:
        self._not_done.discard(outcome)
        going_on = self._going_on(operation) if operation[1] == "allocate" else None
        if going_on is not None:
            self._answer_later(going_on)
            return
        self._late.append(operation)
        self._wake()

    def _begin(self, operation: pool_pb2.Operation) -> Begun:
        name, work = operation.WhichOneof("operation") or "", self._operations
        request: Any = None
        is_reply = False
        outcome: asyncio.Future[Any]
        try:
            if not name:
                problem = "must be set"
                fields = [("operation", problem)]
                raise errors.InvalidMessageError(f"operation: {problem}", fields=fields)
            request = getattr(operation, name)
            limits.check(request)
            if self._spans is not None and operation.traceparent:
                run = work.by_name[name](request)
                run = with_span(self._spans, name, operation.traceparent, run)
                outcome = asyncio.ensure_future(run)
            elif name in work.attempts.fill:
                is_reply = True
                outcome = work.attempts.send(name, request)
            else:
                outcome = asyncio.ensure_future(work.by_name[name](request))
        except Exception as error:
            outcome = self._loop.create_future()
            outcome.set_exception(error)
        return operation.id, name, request, outcome, is_reply

    def _response(self, begun: list[Begun], started: float) -> pool_pb2.OperateResponse:
        """Builds the answer to a message. A failure is a result and never ends the stream."""
        response = pool_pb2.OperateResponse()
        attempts = self._operations.attempts
        for number, name, request, outcome, is_reply in begun:
            result = response.results.add()
            result.id = number
            try:
                said = outcome.result()
                if not is_reply:
                    getattr(result, name).CopyFrom(said)
                else:
                    if name == "allocate":
                        attempts.selected(perf_counter() - started)
                    attempts.fill[name](request, said, getattr(result, name))
            except Exception as error:
                if name == "allocate" and is_reply:
                    attempts.refused(request, error)
                result.error.CopyFrom(self._error(name, error))
        return response

    async def _greeting(self) -> pool_pb2.OperateResponse:
        response = pool_pb2.OperateResponse()
        try:
            await self._reach_store()
        except errors.LinguaError as error:
            response.results.add(error=errors.to_proto(error))
        return response

    def _error(self, name: str, error: Exception) -> common_pb2.Error:
        if isinstance(error, errors.LinguaError):
            return errors.to_proto(error)
        failure = errors.internal_error(self._instance_id)
        facts = {"operation": name, "error_id": failure.metadata["error_id"]}
        _log.error("operation failed", extra=facts, exc_info=error)
        return errors.to_proto(failure)

    def _parts(self, response: pool_pb2.OperateResponse) -> Iterator[bytes]:
        """Splits the response into as few messages as possible."""
        data = response.SerializeToString()
        count = len(response.results)
        if len(data) <= self._max_message_bytes:
            yield data
            return
        if count < 2:
            # An error instead of the end of the stream, which other operations share.
            limit = self._max_message_bytes
            problem = f"the response has {len(data)} bytes, which exceeds the limit of {limit}"
            failed = pool_pb2.OperateResponse()
            error = errors.to_proto(errors.InvalidMessageError(problem))
            failed.results.add(id=response.results[0].id, error=error)
            yield failed.SerializeToString()
            return
        half = count // 2
        for some in (response.results[:half], response.results[half:]):
            yield from self._parts(pool_pb2.OperateResponse(results=some))
