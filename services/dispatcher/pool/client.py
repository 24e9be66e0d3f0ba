"""The dispatcher's way to the pool service: every operation it uses, typed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from lingua_scheduler.services.dispatcher.pool.connection import OperateStream
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.channels import Lines, in_words
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import trace_metadata
from lingua_scheduler.v1 import common_pb2, pool_pb2

# To be added to redis_timeout_ms: the pool service must be able to say that Redis is slow before
# it is called slow itself. Two event loops under load take a few hundred ms at worst.
MARGIN_MS = 600

# For how long the pool is told of a node that has gone, if Redis is away. Later the node is silent
# for so long that the sweep takes it out first.
_TELL_FOR_MS = 300_000.0

Response = TypeVar("Response", bound=Message)


class PoolClient(OperateStream):
    """The operations of the pool service; what holds for all of them is said at OperateStream."""

    @classmethod
    def from_settings(cls, settings: Settings, lines: Lines) -> PoolClient:
        """A client of LINGUA_POOL_ADDRESS, with the limits of the settings."""
        return cls(
            address=settings.pool_address,
            timeout_ms=settings.redis_timeout_ms + MARGIN_MS,
            max_message_bytes=settings.max_message_bytes,
            silence_ms=settings.peer_silence_ms,
            renew_ms=settings.channel_renew_ms,
            lines=lines,
        )

    def allocate(
        self, request: pool_pb2.AllocateRequest, traceparent: str = ""
    ) -> asyncio.Future[pool_pb2.AllocateResponse]:
        """Chooses a node and reserves a slot. These raise LinguaError as pool.proto says."""
        return self._queue_up("allocate", request, traceparent)

    async def commit(self, request: pool_pb2.CommitRequest) -> pool_pb2.CommitResponse:
        """Makes a reservation a running lease."""
        return await self._operate("commit", request, pool_pb2.CommitResponse)

    async def release(self, request: pool_pb2.ReleaseRequest) -> pool_pb2.ReleaseResponse:
        """Gives a reservation back."""
        return await self._operate("release", request, pool_pb2.ReleaseResponse)

    async def complete(self, request: pool_pb2.CompleteRequest) -> pool_pb2.CompleteResponse:
        """Ends a running lease."""
        return await self._operate("complete", request, pool_pb2.CompleteResponse)

    async def end_job(self, request: pool_pb2.EndJobRequest) -> pool_pb2.EndJobResponse:
        """Records how a job ended that has no result."""
        return await self._operate("end_job", request, pool_pb2.EndJobResponse)

    async def heartbeat(self, request: pool_pb2.HeartbeatRequest) -> pool_pb2.HeartbeatResponse:
        """Renews nodes and what they run; has a message to itself."""
        return await self._operate("heartbeat", request, pool_pb2.HeartbeatResponse)

    async def set_node_health(
        self, request: pool_pb2.SetNodeHealthRequest
    ) -> pool_pb2.SetNodeHealthResponse:
        """Says how a node is."""
        return await self._operate("set_node_health", request, pool_pb2.SetNodeHealthResponse)

    async def bind_session(
        self, request: pool_pb2.BindSessionRequest
    ) -> pool_pb2.BindSessionResponse:
        """Binds a turn to the node that keeps its audio."""
        return await self._operate("bind_session", request, pool_pb2.BindSessionResponse)

    async def clear_session(
        self, request: pool_pb2.ClearSessionRequest
    ) -> pool_pb2.ClearSessionResponse:
        """Forgets the bindings of a session."""
        return await self._operate("clear_session", request, pool_pb2.ClearSessionResponse)

    async def register_node(
        self, request: pool_pb2.RegisterNodeRequest
    ) -> pool_pb2.RegisterNodeResponse:
        """Makes a node known. With thousands of pools it may time out; a repeat goes on."""
        return await self._unary("RegisterNode", request, pool_pb2.RegisterNodeResponse)

    async def remove_node(self, request: pool_pb2.RemoveNodeRequest) -> pool_pb2.RemoveNodeResponse:
        """Forgets a node."""
        return await self._unary("RemoveNode", request, pool_pb2.RemoveNodeResponse)

    async def get_node(self, request: pool_pb2.GetNodeRequest) -> pool_pb2.GetNodeResponse:
        """A node and its leases."""
        return await self._unary("GetNode", request, pool_pb2.GetNodeResponse)

    def persistently(
        self,
        operation: str,
        request: Message,
        give_up_after_ms: float,
        then: Callable[[Any], None] = lambda _: None,
        traceparent: str = "",
        *,
        patient: bool = False,
    ) -> None:
        """Gets an operation of the stream done, whatever is down meanwhile. Never raises.

        It is repeated in the background until it is answered, and not begun again after
        `give_up_after_ms`. Of more than `MAX_REPEATS` the oldest is dropped.

        Args:
            operation: its field in pool.proto's Operation, such as "commit".
            request: what that field holds.
            give_up_after_ms: such as the time after which the lease is surely over.
            then: called later with the response, or with None where there is none: refused for a
                reason that a repeat would not change, given up, dropped, closed.
            traceparent: the span that it is part of, where that is sampled.
            patient: nobody waits for it, so it may share a message with what comes soon.
        """
        if self._runner is not None:
            self._repeats.add(
                operation, request, give_up_after_ms, then, traceparent, patient=patient
            )
        else:
            asyncio.get_running_loop().call_soon(then, None)

    def persist(
        self, operation: str, request: Message, give_up_after_ms: float, traceparent: str = ""
    ) -> asyncio.Future[Any]:
        """As `persistently`, for those who wait for the answer. To cancel it ends nothing."""
        future = asyncio.get_running_loop().create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        self.persistently(operation, request, give_up_after_ms, answered, traceparent)
        return future

    def take_offline(self, node_id: str, epoch: int) -> None:
        """Takes a node whose connection is gone out of selection.

        Repeated for as long as Redis may be away: a turn waits for a node that is only silent, and
        goes elsewhere sooner if it hears that the node is gone.
        """
        request = pool_pb2.SetNodeHealthRequest(
            node_id=node_id, epoch=epoch, health=common_pb2.NODE_HEALTH_OFFLINE
        )
        self.persistently("set_node_health", request, _TELL_FOR_MS)

    async def _unary(self, name: str, request: Message, kind: type[Response]) -> Response:
        """Calls any instance; where that one cannot reach Redis, the next one, once."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._timeout
        try:
            return await self._unary_once(name, request, kind, self._timeout)
        except errors.DependencyDownError:
            left = until - loop.time()
            if not self._up or left <= 0:
                raise
            return await self._unary_once(name, request, kind, left)

    async def _unary_once(
        self, name: str, request: Message, kind: type[Response], timeout: float
    ) -> Response:
        if not self._accepts:
            raise self._down(self._down_reason)
        method: Callable[..., Awaitable[Response]] = getattr(self._stub, name)
        metadata = self._lines.metadata() + trace_metadata()
        wait = not self._up
        try:
            return await method(request, timeout=timeout, wait_for_ready=wait, metadata=metadata)
        except grpc.RpcError as error:
            said = errors.from_rpc_error(error)
            raise (errors.from_proto(said) if said else self._down(in_words(error))) from error
        except asyncio.CancelledError:
            # A channel that is closed cancels its calls, though nobody has cancelled the caller.
            task = asyncio.current_task()
            if self._accepts or (task and task.cancelling()):
                raise
            raise self._down(self._down_reason) from None

    async def _operate(self, operation: str, request: Message, kind: type[Response]) -> Response:
        response: Response = await self._queue_up(operation, request)
        return response
