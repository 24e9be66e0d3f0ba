"""Channels to the three services, and calls on them with a token and a time limit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Literal, Protocol

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    LinguaError,
    PermissionDeniedError,
    UnauthenticatedError,
    from_proto,
    from_rpc_error,
)
from lingua_scheduler.services.runtime.rpc.channels import (
    Dialer,
    Metadata,
    in_words,
    open_stream,
    unary_method,
)
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.v1 import dispatcher_pb2, pool_pb2, session_pb2

Service = Literal["pool", "dispatcher", "gateway"]

# How long a call may take. People wait for some of them.
CALL_S = 5.0
# What calls on a channel that is replaced have to end.
_GRACE_S = CALL_S + 1.0
_WORDS = {
    "pool": "the pool service",
    "dispatcher": "the dispatcher",
    "gateway": "the session gateway",
}
_REFUSALS = (UnauthenticatedError, PermissionDeniedError)

_POOL: ServiceDescriptor = pool_pb2.DESCRIPTOR.services_by_name["PoolService"]
_DISPATCHER: ServiceDescriptor = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
_GATEWAY: ServiceDescriptor = session_pb2.DESCRIPTOR.services_by_name["SessionGateway"]
_SERVICES: dict[Service, ServiceDescriptor] = {
    "pool": _POOL,
    "dispatcher": _DISPATCHER,
    "gateway": _GATEWAY,
}


class Token(Protocol):
    """The token of this process."""

    def metadata(self) -> Metadata:
        """The token as metadata of a call; empty if there is none."""


class ServiceCalls:
    """Calls methods of the services by name.

    A channel is replaced when it is old or the certificates have changed: gRPC resolves a name
    again only when a connection breaks, so only a new channel finds added instances.

    Args:
        addresses: where to find each service.
        dialer: makes channels.
        token: of this process; None: calls carry none.
        renew_ms: age at which a channel is replaced; 0: only if the certificates change.
        timeout_s: time limit of each call.
    """

    def __init__(
        self,
        *,
        addresses: dict[Service, str],
        dialer: Dialer,
        token: Token | None,
        renew_ms: int = 0,
        timeout_s: float = CALL_S,
    ) -> None:
        self._addresses = addresses
        self._dialer = dialer
        self._token = token
        self._renew_s = renew_ms / 1000 if renew_ms else math.inf
        self._timeout_s = timeout_s
        self._channels: dict[Service, tuple[grpc.aio.Channel, float]] = {}
        self._closing = BackgroundTasks()

    def address(self, service: Service) -> str:
        """Where a service is looked for."""
        return self._addresses[service]

    async def call(
        self, service: Service, method: str, request: Message, *, metadata: Metadata | None = None
    ) -> Any:
        """Calls a method that has one request and one response.

        Args:
            service: is called.
            method: its name, such as "GetNode".
            request: its message.
            metadata: of the caller on whose behalf this is; None: the token of this process.

        Raises:
            LinguaError: the error of the service; DependencyDownError if it does not answer, or
                refuses the token of this process.
        """
        own = self._metadata() if metadata is None else metadata
        bound = unary_method(self._channel(service), _method(service, method))
        try:
            return await bound(request, timeout=self._timeout_s, metadata=own)
        except (grpc.RpcError, OSError, asyncio.InvalidStateError) as error:
            told = call_error(service, error)
            if metadata is None and isinstance(told, _REFUSALS):
                # Not the fault of the person who asks, who would be told to sign in.
                told = DependencyDownError(
                    f"{_WORDS[service]} refuses the console: {told.message}", why=told.message
                )
            raise told from error

    def open_stream(
        self, service: Service, method: str
    ) -> tuple[grpc.aio.Channel, grpc.aio.StreamStreamCall[bytes, Any]]:
        """Opens a stream on a channel of its own, which the caller closes."""
        channel = self._dialer.channel(self._addresses[service])
        return channel, open_stream(channel, _method(service, method), self._metadata())

    async def close(self) -> None:
        """Closes all channels."""
        channels, self._channels = self._channels, {}
        for channel, _ in channels.values():
            await channel.close()
        await self._closing.cancel()

    def _metadata(self) -> Metadata:
        return self._token.metadata() if self._token is not None else ()

    def _channel(self, service: Service) -> grpc.aio.Channel:
        now = asyncio.get_running_loop().time()
        known = self._channels.get(service)
        if known is not None:
            channel, made = known
            if now - made < self._renew_s and not self._dialer.certificates_changed(channel):
                return channel
            self._closing.spawn(channel.close(_GRACE_S))
        channel = self._dialer.channel(self._addresses[service])
        self._channels[service] = channel, now
        return channel


def bearer(token: str) -> Metadata:
    """A token as metadata of a call."""
    return (("authorization", f"Bearer {token}"),)


def call_error(service: Service, error: BaseException) -> LinguaError:
    """The error of a call, as the service raised it, or that it does not answer."""
    told = from_rpc_error(error) if isinstance(error, grpc.RpcError) else None
    if told is not None:
        return from_proto(told)
    return DependencyDownError(
        f"{_WORDS[service]} does not answer ({_short(error)})", why=in_words(error)
    )


def _short(error: BaseException) -> str:
    """Why a call failed, without addresses."""
    code: Callable[[], grpc.StatusCode] | None = getattr(error, "code", None)
    return code().name if code is not None else type(error).__name__


def _method(service: Service, name: str) -> MethodDescriptor:
    return _SERVICES[service].methods_by_name[name]
