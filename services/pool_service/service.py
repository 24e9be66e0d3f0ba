"""The gRPC face of the pool service. What it does is in operations, registry and views."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from time import perf_counter
from typing import Any

import grpc

from lingua_scheduler.services.pool_service.operation_spans import with_span
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.views import Views
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.checks import Check
from lingua_scheduler.services.runtime.telemetry import span_writer_if_on
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc

_log = logging.getLogger(__name__)

# Messages of one Operate stream that are worked on at once. Beyond that the stream is not read, so
# a client that sends faster than Redis answers is held back instead of filling memory.
_MESSAGES_AT_ONCE = 64
_MAX_OPERATIONS = 1000

Context = grpc.aio.ServicerContext[Any, Any]


class PoolServicer(pool_pb2_grpc.PoolServiceServicer):
    """Every RPC of PoolService."""

    def __init__(
        self,
        *,
        operations: Operations,
        registry: Registry,
        views: Views,
        instance_id: str,
        max_message_bytes: int,
    ) -> None:
        self._operations = operations
        self._registry = registry
        self._views = views
        self._instance_id = instance_id
        self._max_message_bytes = max_message_bytes
        self._spans = span_writer_if_on()
        self._draining = asyncio.Event()

    async def end_streams(self) -> None:
        """Ends the Operate streams, each after what it has under way. Part of the drain."""
        self._draining.set()

    async def RegisterNode(  # noqa: N802 - the contract's name, as are all below
        self, request: pool_pb2.RegisterNodeRequest, context: Context
    ) -> pool_pb2.RegisterNodeResponse:
        return await self._registry.register(request)

    async def Heartbeat(  # noqa: N802
        self, request: pool_pb2.HeartbeatRequest, context: Context
    ) -> pool_pb2.HeartbeatResponse:
        return await self._operations.heartbeat(request)

    async def SetNodeHealth(  # noqa: N802
        self, request: pool_pb2.SetNodeHealthRequest, context: Context
    ) -> pool_pb2.SetNodeHealthResponse:
        return await self._operations.set_node_health(request)

    async def RemoveNode(  # noqa: N802
        self, request: pool_pb2.RemoveNodeRequest, context: Context
    ) -> pool_pb2.RemoveNodeResponse:
        return await self._registry.remove(request)

    async def SelectNode(  # noqa: N802
        self, request: pool_pb2.SelectNodeRequest, context: Context
    ) -> pool_pb2.SelectNodeResponse:
        return await self._operations.select_node(request)

    async def Allocate(  # noqa: N802
        self, request: pool_pb2.AllocateRequest, context: Context
    ) -> pool_pb2.AllocateResponse:
        return await self._operations.allocate(request)

    async def Reserve(  # noqa: N802
        self, request: pool_pb2.ReserveRequest, context: Context
    ) -> pool_pb2.ReserveResponse:
        return await self._operations.reserve(request)

    async def Commit(  # noqa: N802
        self, request: pool_pb2.CommitRequest, context: Context
    ) -> pool_pb2.CommitResponse:
        return await self._operations.commit(request)

    async def Release(  # noqa: N802
        self, request: pool_pb2.ReleaseRequest, context: Context
    ) -> pool_pb2.ReleaseResponse:
        return await self._operations.release(request)

    async def Complete(  # noqa: N802
        self, request: pool_pb2.CompleteRequest, context: Context
    ) -> pool_pb2.CompleteResponse:
        return await self._operations.complete(request)

    async def BindSession(  # noqa: N802
        self, request: pool_pb2.BindSessionRequest, context: Context
    ) -> pool_pb2.BindSessionResponse:
        return await self._operations.bind_session(request)

    async def ClearSession(  # noqa: N802
        self, request: pool_pb2.ClearSessionRequest, context: Context
    ) -> pool_pb2.ClearSessionResponse:
        return await self._operations.clear_session(request)

    async def GetNode(  # noqa: N802
        self, request: pool_pb2.GetNodeRequest, context: Context
    ) -> pool_pb2.GetNodeResponse:
        return await self._views.get_node(request)

    async def ListNodes(  # noqa: N802
        self, request: pool_pb2.ListNodesRequest, context: Context
    ) -> pool_pb2.ListNodesResponse:
        return await self._views.list_nodes(request)

    async def ListPools(  # noqa: N802
        self, request: pool_pb2.ListPoolsRequest, context: Context
    ) -> pool_pb2.ListPoolsResponse:
        return await self._views.list_pools(request)

    # grpc.aio takes a coroutine that writes as well as an iterator; the generated stub knows only
    # the latter.
    async def Operate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pool_pb2.OperateRequest], context: Context
    ) -> None:
        """Answers each message with one message, when all its operations are done.

        With more than one where one would be too large: errors may be longer than what was asked.
        A message without operations is a greeting; see `_greeting`.
        """
        room = asyncio.Semaphore(_MESSAGES_AT_ONCE)
        writing = asyncio.Lock()
        under_way: set[asyncio.Task[None]] = set()

        async def answer(request: pool_pb2.OperateRequest) -> None:
            try:
                response = await self._answer(request.operations)
                async with writing:
                    for part in _parts(response, self._max_message_bytes):
                        if not context.done():
                            await context.write(part)
            finally:
                room.release()

        async def read() -> None:
            async for request in request_iterator:
                check = Check()
                check.at_most("operations", request.operations, _MAX_OPERATIONS)
                check.done()
                await room.acquire()
                task = asyncio.create_task(answer(request))
                under_way.add(task)
                task.add_done_callback(under_way.discard)

        reading = asyncio.create_task(read())
        draining = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait((reading, draining), return_when=asyncio.FIRST_COMPLETED)
            # Nothing more is read from here on: what is read is done, and then must be answered.
            if not reading.done():
                reading.cancel()
                await asyncio.wait((reading,))
            if under_way:
                await asyncio.wait(under_way)
            if not reading.cancelled():
                await reading
        finally:
            for task in (reading, draining, *under_way):
                task.cancel()

    async def _answer(self, operations: Sequence[pool_pb2.Operation]) -> pool_pb2.OperateResponse:
        """Carries out a message. Whatever goes wrong is a result, never the stream's end."""
        response = pool_pb2.OperateResponse()
        if not operations:
            await self._greet(response)
            return response
        started = perf_counter()
        under_way = [self._begin(each) for each in operations]
        end = self._operations.attempts.end
        try:
            for operation, (name, request, begun) in zip(operations, under_way, strict=True):
                result = response.results.add(id=operation.id)
                try:
                    if isinstance(begun, Exception):
                        raise begun
                    said = await begun
                    if isinstance(begun, asyncio.Task):
                        getattr(result, name).CopyFrom(said)
                    else:
                        end(name, request, said, getattr(result, name), started)
                except Exception as error:
                    if name == "allocate" and not isinstance(begun, asyncio.Task):
                        self._operations.attempts.refused(request, error)
                    result.error.CopyFrom(self._error(name, error))
        finally:
            # Where the stream has ended: what is left has nobody who waits for it.
            for _, _, begun in under_way[len(response.results) :]:
                if isinstance(begun, asyncio.Future):
                    begun.cancel()
        return response

    async def _greet(self, response: pool_pb2.OperateResponse) -> None:
        """Says nothing while Redis answers; else why it does not, in a result without an id."""
        try:
            await self._operations.reach_store()
        except errors.LinguaError as error:
            response.results.add(error=errors.to_proto(error))

    def _begin(
        self, operation: pool_pb2.Operation
    ) -> tuple[str, Any, asyncio.Future[Any] | Exception]:
        """Its name, what it asks, and what its end waits for, or why it could not begin."""
        name = operation.WhichOneof("operation") or ""
        if not name:
            problem = "must be set"
            fields = [("operation", problem)]
            return name, None, errors.InvalidMessageError(f"operation: {problem}", fields=fields)
        request, work = getattr(operation, name), self._operations
        try:
            if self._spans is not None and operation.traceparent:
                run = with_span(
                    self._spans, name, operation.traceparent, work.by_name[name](request)
                )
                return name, request, asyncio.ensure_future(run)
            if name in work.attempts:
                return name, request, work.attempts.begin(name, request)
            return name, request, asyncio.ensure_future(work.by_name[name](request))
        except Exception as error:
            return name, request, error

    def _error(self, name: str, error: Exception) -> common_pb2.Error:
        if isinstance(error, errors.LinguaError):
            return errors.to_proto(error)
        failure = errors.internal_error(self._instance_id)
        facts = {"operation": name, "error_id": failure.metadata["error_id"]}
        _log.error("operation failed", extra=facts, exc_info=error)
        return errors.to_proto(failure)


def _parts(
    response: pool_pb2.OperateResponse, max_bytes: int
) -> Iterator[pool_pb2.OperateResponse]:
    """The response in as few messages as fit."""
    count = len(response.results)
    if count < 2 or response.ByteSize() <= max_bytes:
        yield response
        return
    half = count // 2
    for some in (response.results[:half], response.results[half:]):
        yield from _parts(pool_pb2.OperateResponse(results=some), max_bytes)
