"""The dispatcher's client of the pool service: every call that it makes, typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from lingua_scheduler.services.dispatcher.pool.connection import PoolConnection
from lingua_scheduler.services.dispatcher.pool.retries import Retries
from lingua_scheduler.services.dispatcher.pool.stream import PoolCounts
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.channels import Dialer, in_words, unary_method
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import trace_metadata
from lingua_scheduler.v1 import common_pb2, pool_pb2

# Added to redis_timeout_ms: the pool service must be able to say that Redis is slow before the pool
# service itself counts as slow. Two event loops under load take a few hundred ms at worst.
MARGIN_MS = 600

# For how long the pool is told of a node that has gone, if Redis is down. After that the node has
# been silent for so long that the sweep has removed it.
_TELL_FOR_MS = 300_000.0

_METHODS = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].methods_by_name

Response = TypeVar("Response", bound=Message)


class PoolClient:
    """The operations of the pool service. They promise what PoolConnection promises.

    Args:
        connection: carries the operations; the client opens and closes it.
    """

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection
        self._link = connection.link
        self._retries = Retries(send=connection.send, counts=connection.counts)

    @classmethod
    def from_settings(cls, settings: Settings, dialer: Dialer) -> PoolClient:
        """A client of LINGUA_POOL_ADDRESS, with the limits of the settings."""
        return cls(
            PoolConnection(
                address=settings.pool_address,
                timeout_ms=settings.redis_timeout_ms + MARGIN_MS,
                max_message_bytes=settings.max_message_bytes,
                silence_ms=settings.peer_silence_ms,
                renew_ms=settings.channel_renew_ms,
                cells=settings.cells,
                dialer=dialer,
            )
        )

    @property
    def up(self) -> bool:
        """Whether the pool service answers, as far as is known."""
        return self._link.up

    @property
    def on_change(self) -> list[Callable[[bool, str], None]]:
        """Called with (up, reason) after each change; must not block."""
        return self._link.on_change

    @property
    def counts(self) -> PoolCounts:
        """What has happened since the start."""
        return self._connection.counts

    @property
    def retries_outstanding(self) -> int:
        """Operations of `persistently` that are not over."""
        return len(self._retries)

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        await self._connection.open()

    async def settle(self, within_s: float) -> None:
        """Gives operations that must get through some time, if the pool service is up."""
        self._connection.flush()
        if self._link.up:
            await self._retries.settle(within_s)

    async def close(self) -> None:
        """Fails what is under way and stops retrying. The client may be opened again."""
        self._retries.end_all()
        await self._connection.close()

    def allocate(
        self, request: pool_pb2.AllocateRequest, traceparent: str = ""
    ) -> asyncio.Future[pool_pb2.AllocateResponse]:
        """Chooses a node and reserves a slot. Fails with LinguaError as pool.proto says."""
        return self._connection.send("allocate", request, traceparent)

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
        """Sets the health of a node."""
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
        """Registers a node. With thousands of pools it may time out; a repeat resumes."""
        return await self._unary("RegisterNode", request, pool_pb2.RegisterNodeResponse)

    async def remove_node(self, request: pool_pb2.RemoveNodeRequest) -> pool_pb2.RemoveNodeResponse:
        """Removes a node."""
        return await self._unary("RemoveNode", request, pool_pb2.RemoveNodeResponse)

    async def get_node(self, request: pool_pb2.GetNodeRequest) -> pool_pb2.GetNodeResponse:
        """Returns a node and its leases."""
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
        """Retries an operation in the background until it is answered. Never raises.

        It is not sent again after `give_up_after_ms`. If there are more than `MAX_RETRIED`, the
        oldest is dropped.

        Args:
            operation: its field in pool.proto's Operation, such as "commit".
            request: what that field holds.
            give_up_after_ms: such as the time after which the lease is surely over.
            then: called later with the response, or with None if there is none: the operation was
                refused, given up or dropped, or the client is closed.
            traceparent: the span that it is part of, if that is sampled.
            patient: nobody waits for it, so it may share a message with what comes soon.
        """
        if self._link.is_open:
            self._retries.add(
                operation, request, give_up_after_ms, then, traceparent, patient=patient
            )
        else:
            asyncio.get_running_loop().call_soon(then, None)

    def persist(
        self, operation: str, request: Message, give_up_after_ms: float, traceparent: str = ""
    ) -> asyncio.Future[Any]:
        """As `persistently`, with a future. Cancelling the future does not stop the operation."""
        future = asyncio.get_running_loop().create_future()

        def answered(response: Any) -> None:
            if not future.done():
                future.set_result(response)

        self.persistently(operation, request, give_up_after_ms, answered, traceparent)
        return future

    def take_offline(self, node_id: str, epoch: int) -> None:
        """Takes a node whose connection is gone out of selection.

        Retried for as long as Redis may be down: a turn waits for a node that is only silent, and
        goes elsewhere sooner if the node is known to be gone.
        """
        request = pool_pb2.SetNodeHealthRequest(
            node_id=node_id, epoch=epoch, health=common_pb2.NODE_HEALTH_OFFLINE
        )
        self.persistently("set_node_health", request, _TELL_FOR_MS)

    async def _unary(self, name: str, request: Message, kind: type[Response]) -> Response:
        """Calls any instance; if that one cannot reach Redis, the next one, once."""
        loop = asyncio.get_running_loop()
        timeout_s = self._connection.timeout_s
        until = loop.time() + timeout_s
        try:
            return await self._unary_once(name, request, kind, timeout_s)
        except errors.DependencyDownError:
            left = until - loop.time()
            if not self._link.up or left <= 0:
                raise
            return await self._unary_once(name, request, kind, left)

    async def _unary_once(
        self, name: str, request: Message, kind: type[Response], timeout: float
    ) -> Response:
        link, down = self._link, self._connection.down
        if not link.accepts:
            raise down(link.down_reason)
        method = unary_method(link.channel.current, _METHODS[name])
        metadata = link.channel.dialer.metadata() + trace_metadata()
        try:
            response: Response = await method(
                request, timeout=timeout, wait_for_ready=not link.up, metadata=metadata
            )
            return response
        except grpc.RpcError as error:
            said = errors.from_rpc_error(error)
            raise (errors.from_proto(said) if said else down(in_words(error))) from error
        except asyncio.CancelledError:
            # Closing a channel cancels its calls, though nobody has cancelled the caller.
            task = asyncio.current_task()
            if link.accepts or (task and task.cancelling()):
                raise
            raise down(link.down_reason) from None

    async def _operate(self, operation: str, request: Message, kind: type[Response]) -> Response:
        response: Response = await self._connection.send(operation, request)
        return response
