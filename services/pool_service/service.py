"""The gRPC face of the pool service. What it does is in operations, registry and views."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from lingua_scheduler.services.pool_service.operation_spans import with_span
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.views import Views
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.checks import Check
from lingua_scheduler.services.runtime.telemetry import span_writer_if_on
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc

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
                if request.operations:
                    results = await asyncio.gather(*map(self._operate, request.operations))
                else:
                    results = await self._greeting()
                async with writing:
                    for response in _responses(results, self._max_message_bytes):
                        if not context.done():
                            await context.write(response)
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

    async def _greeting(self) -> list[pool_pb2.OperationResult]:
        """Nothing while Redis answers; else why not, as a result without an id."""
        try:
            await self._operations.reach_store()
        except errors.LinguaError as error:
            return [pool_pb2.OperationResult(error=errors.to_proto(error))]
        return []

    async def _operate(self, operation: pool_pb2.Operation) -> pool_pb2.OperationResult:
        """Carries out one operation. Whatever goes wrong is its result, never the stream's end."""
        name = operation.WhichOneof("operation")
        result = pool_pb2.OperationResult(id=operation.id)
        try:
            if name is None:
                raise errors.InvalidMessageError(
                    "operation: must be set", fields=[("operation", "must be set")]
                )
            run = self._operations.by_name[name]
            request = getattr(operation, name)
            if self._spans is not None and operation.traceparent:
                traceparent = operation.traceparent
                response = await with_span(self._spans, name, traceparent, run(request))
            else:
                response = await run(request)
            getattr(result, name).CopyFrom(response)
        except errors.LinguaError as error:
            result.error.CopyFrom(errors.to_proto(error))
        except Exception:
            failure = errors.internal_error(self._instance_id)
            facts = {"operation": name, "error_id": failure.metadata["error_id"]}
            _log.exception("operation failed", extra=facts)
            result.error.CopyFrom(errors.to_proto(failure))
        return result


def _responses(
    results: list[pool_pb2.OperationResult], max_bytes: int
) -> Iterator[pool_pb2.OperateResponse]:
    """The results in as few messages as fit."""
    response = pool_pb2.OperateResponse(results=results)
    if len(results) < 2 or response.ByteSize() <= max_bytes:
        yield response
        return
    half = len(results) // 2
    yield from _responses(results[:half], max_bytes)
    yield from _responses(results[half:], max_bytes)
