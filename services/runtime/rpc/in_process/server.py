"""The other side of calls: a server whose callers are in the same process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc

from lingua_scheduler.services.runtime.rpc.in_process.call import (
    Identity,
    InProcessCall,
    Metadata,
    Status,
)
from lingua_scheduler.services.runtime.rpc.in_process.channel import InProcessChannel, too_large

# What a handler's `context.peer()` says of such callers.
PEER = "in-process:"
# How long handlers may take to clean up after their calls were broken off.
_CANCELLED_WITHIN_S = 1.0

_log = logging.getLogger(__name__)

Handler = grpc.RpcMethodHandler


@dataclass(frozen=True, slots=True)
class _Details(grpc.HandlerCallDetails):
    method: str
    invocation_metadata: Metadata = ()


class InProcessServer:
    """Serves calls of this process with the handlers of a gRPC server.

    Services are registered as at a `grpc.aio.Server`, before `start`. Until then and after `stop`
    calls fail with UNAVAILABLE, as they do where nobody listens.
    """

    def __init__(self) -> None:
        self.max_request_bytes = 0
        """The largest request that is accepted; set by `start`."""
        self._services: list[grpc.GenericRpcHandler] = []
        self._interceptor: grpc.aio.ServerInterceptor | None = None
        self._calls: dict[InProcessCall, asyncio.Task[None]] = {}
        self._context = contextvars.copy_context()

    def channel(
        self,
        *,
        identity: Callable[[], Identity] = dict,
        max_response_bytes: int | None = None,
    ) -> InProcessChannel:
        """A channel to this server; see `InProcessChannel`."""
        return InProcessChannel(self, identity=identity, max_response_bytes=max_response_bytes)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Adds a service. Generated code calls this."""
        self._services += handlers

    def add_registered_method_handlers(self, *_: object) -> None:
        """Generated code calls this as well; the generic handlers have the same methods."""

    def start(self, *, interceptor: grpc.aio.ServerInterceptor, max_request_bytes: int) -> None:
        """Accepts calls from now on.

        Args:
            interceptor: wraps every handler.
            max_request_bytes: the largest request that is accepted.
        """
        self.max_request_bytes = max_request_bytes
        self._interceptor = interceptor
        # Calls run in a copy of this context, so that nothing of a caller's reaches a handler.
        self._context = contextvars.copy_context()

    async def stop(self, grace_s: float) -> None:
        """Accepts no more calls, and breaks off those that are still under way after that time."""
        self._interceptor = None
        if self._calls and grace_s > 0:
            await asyncio.wait(list(self._calls.values()), timeout=grace_s)
        left = dict(self._calls)
        for call in left:
            call.break_off(grpc.StatusCode.UNAVAILABLE, "the server has stopped")
        if left:
            _, late = await asyncio.wait(list(left.values()), timeout=_CANCELLED_WITHIN_S)
            if late:
                _log.error("in-process calls did not end", extra={"calls": len(late)})

    @property
    def accepts(self) -> bool:
        """Whether it serves calls."""
        return self._interceptor is not None

    def accept(self, call: InProcessCall) -> None:
        """Begins to serve a call."""
        if self._interceptor is None:
            call.end(Status(grpc.StatusCode.UNAVAILABLE, "the server does not accept calls"))
            return
        loop = asyncio.get_running_loop()
        serving = self._serve(call, self._interceptor)
        task = loop.create_task(serving, context=self._context.copy())
        call.handler = self._calls[call] = task
        task.add_done_callback(lambda _: self._calls.pop(call, None))

    async def _serve(self, call: InProcessCall, interceptor: grpc.aio.ServerInterceptor) -> None:
        try:
            details = _Details(call.options.path, call.options.metadata)
            handler = await interceptor.intercept_service(self._find, details)
            if handler is None:
                call.end(Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
            else:
                await _handle(call, handler)
        except grpc.aio.AbortError:
            pass  # it has ended the call
        except asyncio.CancelledError:
            # If the call is still open, the handler leaked a cancellation of its own.
            call.end(Status(grpc.StatusCode.CANCELLED, "the handler was cancelled"))
            raise
        except Exception as error:
            # The interceptor turns what handlers raise into statuses, so this is a bug.
            _log.exception("in-process call failed", extra={"method": call.options.path})
            call.end(Status(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}"))

    async def _find(self, details: grpc.HandlerCallDetails) -> Handler[Any, Any] | None:
        found = (service.service(details) for service in self._services)
        return next((handler for handler in found if handler is not None), None)


async def _handle(call: InProcessCall, handler: Handler[Any, Any]) -> None:
    context = _Context(call, handler)
    # The interceptor has made a handler that streams requests out of any other.
    work: Any = handler.stream_stream if handler.response_streaming else handler.stream_unary
    response = await work(_Requests(context), context)
    status = context.final_status()
    if not handler.response_streaming and status.code is grpc.StatusCode.OK:
        await context.write(response)
    call.end(status)


class _Requests:
    """The requests of a call, as an iterator."""

    def __init__(self, context: _Context) -> None:
        self._read = context.read

    def __aiter__(self) -> _Requests:
        return self

    async def __anext__(self) -> Any:
        request = await self._read()
        if request is grpc.aio.EOF:
            raise StopAsyncIteration
        return request

    async def aclose(self) -> None:
        """Nothing to close; the interceptor closes gRPC's iterators."""


class _Context(grpc.aio.ServicerContext[Any, Any]):
    """What a handler knows of its call."""

    def __init__(self, call: InProcessCall, handler: Handler[Any, Any]) -> None:
        self._call = call
        self._deserialize = handler.request_deserializer
        self._serialize = handler.response_serializer
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Metadata = ()

    async def read(self) -> Any:
        data = await self._call.requests.read()
        if data is None:
            return grpc.aio.EOF
        return self._deserialize(data) if self._deserialize else data

    async def write(self, message: Any) -> None:
        call = self._call
        data = self._serialize(message) if self._serialize else message
        most = call.options.max_response_bytes
        if most is not None and len(data) > most:
            call.break_off(*too_large(len(data), most))
        call.begun.set()
        try:
            await call.responses.write(data)
        except BrokenPipeError as ended:
            raise grpc.aio.InternalError(str(ended)) from None

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        self._call.initial_metadata = tuple(initial_metadata)
        self._call.begun.set()

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        self._code, self._details = code, details
        trailing = tuple(trailing_metadata) or self._trailing
        self._call.end(Status(code, details, trailing))
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def final_status(self) -> Status:
        """The status of a handler that has returned."""
        return Status(self._code or grpc.StatusCode.OK, self._details, self._trailing)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self._trailing = tuple(trailing_metadata)

    def trailing_metadata(self) -> Any:
        return self._trailing

    def invocation_metadata(self) -> Any:
        return self._call.options.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> Any:
        return self._code

    def set_details(self, details: str) -> None:
        self._details = details

    def details(self) -> str:
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Nothing is compressed within a process."""

    def disable_next_message_compression(self) -> None:
        """Nothing is compressed within a process."""

    def peer(self) -> str:
        return PEER

    def peer_identities(self) -> None:
        return None

    def peer_identity_key(self) -> None:
        return None

    def auth_context(self) -> Identity:
        return self._call.options.identity

    def time_remaining(self) -> Any:
        return self._call.time_remaining()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._call.on_end.append(lambda: callback(self))

    def cancelled(self) -> bool:
        return self._call.status is not None and self._call.is_cancelled

    def done(self) -> bool:
        return self._call.status is not None
