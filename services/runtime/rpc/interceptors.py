"""Wraps the handler of every gRPC call: authentication, errors, metrics, a span.

Handlers raise exceptions, and only this module turns them into statuses. gRPC itself answers some
faults with UNKNOWN (an exception, malformed bytes, a response of the wrong type), and a
cancellation that leaks from an inner task not at all, so that the caller would wait forever. This
module turns all of them into a proper status.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.runtime.auth.expiry import until_expiry
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.auth.refusals import Refusals
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.errors import (
    InternalError,
    InvalidMessageError,
    LinguaError,
    PermissionDeniedError,
    UnauthenticatedError,
    internal_error,
    to_trailing_metadata,
)
from lingua_scheduler.services.runtime.rpc.observer import CallObserver, Method
from lingua_scheduler.services.runtime.rpc.peer_limits import (
    OPEN_REQUEST_WITHIN_S,
    REQUEST_WITHIN_S,
    OpenCalls,
)

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
# In quotes because it is generic only for type checkers.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Work: TypeAlias = Callable[[Any, Context], Awaitable[Any]]

_log = logging.getLogger(__name__)


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps all four kinds of calls.

    An exception ends a call as follows:

    - `LinguaError`: with its status and details.
    - An abort or cancellation by gRPC: passed on.
    - A malformed request, or a field over its declared limit: INVALID_MESSAGE.
    - Anything else: INTERNAL with an error id; the log has the traceback under the same id.

    The guard checks the caller before any message is read. gRPC would read the request of a unary
    call first, and would never answer a call that ends without one. So every method is registered
    as one that streams requests, and the wrapper reads the request.

    Args:
        guard: None if everyone may call everything.
        refusals: of all servers of the process; by default of this one alone.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        guard: Guard | None = None,
        refusals: Refusals | None = None,
        registry: CollectorRegistry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._instance_id = instance_id
        self._guard = guard
        self._refusals = refusals or Refusals(registry)
        self._observer = CallObserver(registry=registry, tracer=tracer)
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}
        self._open_calls = OpenCalls()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The wrapped handler of a method; None if the server does not have the method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # gRPC then answers UNIMPLEMENTED
        path = handler_call_details.method
        original, wrapped = self._wrapped.get(path, (None, None))
        # A method keeps its handler as long as the server lives, so each is wrapped once.
        if wrapped is None or original is not handler:
            wrapped = self._wrap(path, handler)
            self._wrapped[path] = (handler, wrapped)
        return wrapped

    def _wrap(self, path: str, handler: Handler) -> Handler:
        streams_in, streams_out = handler.request_streaming, handler.response_streaming
        method = self._observer.method(path, streams_in=streams_in, streams_out=streams_out)
        work = _stream_work(handler) if streams_out else _unary_work(handler)
        if not streams_in:
            work = _with_request(work, OPEN_REQUEST_WITHIN_S if method.open else REQUEST_WITHIN_S)

        async def call(requests: Any, context: Context) -> Any:
            try:
                with self._observer.observe(method, context):
                    return await self._answer(method, work, requests, context)
            except (grpc.aio.AbortError, asyncio.CancelledError) as error:
                # gRPC keeps the error in the call's state, and the frames of its traceback refer to
                # the call. Without this, every call that fails or is abandoned would be a reference
                # cycle, which the garbage collector rarely looks for (see service_process).
                error.__traceback__ = error.__context__ = error.__cause__ = None
                raise
            finally:
                if streams_in:
                    await _close(requests)
                del requests, context

        if streams_out:
            return grpc.stream_stream_rpc_method_handler(call, _reader(handler), _writer(handler))
        return grpc.stream_unary_rpc_method_handler(call, _reader(handler), None)

    async def _answer(self, method: Method, work: Work, requests: Any, context: Context) -> Any:
        try:
            if method.open:
                with self._open_calls.place(context.peer()):
                    return await work(requests, context)
            principal = None
            if self._guard is not None:
                principal = self._guard.admit(method.name, context)
            if method.unary:
                return await work(requests, context)
            return await until_expiry(principal, work(requests, context))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, grpc.aio.AbortError) and context.done():
                raise
            if _nobody_listens(error, context):
                if isinstance(error, asyncio.CancelledError):
                    raise
                self._log_if_unexpected(method, error)
                raise asyncio.CancelledError from None
            if isinstance(error, NotImplementedError) and context.code() is not None:
                # The method of a generated servicer that is not implemented has set the code.
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, context.details())
            await self._abort(method, error, context)

    async def _abort(self, method: Method, error: BaseException, context: Context) -> None:
        """Ends the call with the status of an error."""
        failure = error if isinstance(error, LinguaError) else self._internal(method, error)
        if isinstance(failure, UnauthenticatedError | PermissionDeniedError):
            self._refusals.note(method.name, failure)
        try:
            await context.abort(failure.code, failure.message, to_trailing_metadata(failure))
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError as gone:
            # The caller left while the status was waiting to be sent.
            self._log_if_unexpected(method, gone)
            raise asyncio.CancelledError from None

    def _internal(self, method: Method, error: BaseException) -> InternalError:
        failure = internal_error(self._instance_id)
        facts = {
            "error_id": failure.metadata["error_id"],
            "method": method.name,
            "error": type(error).__name__,
        }
        _log.error("call failed", exc_info=error, extra=facts)
        return failure

    def _log_if_unexpected(self, method: Method, error: BaseException) -> None:
        """Logs the error of a call whose caller has left, since it cannot be sent."""
        if not isinstance(error, LinguaError | grpc.aio.BaseError):
            facts = {"method": method.name, "error": type(error).__name__}
            _log.error("call failed after its caller left", exc_info=error, extra=facts)


def _nobody_listens(error: BaseException, context: Context) -> bool:
    task = asyncio.current_task()
    if context.done() or (task is not None and task.cancelling() > 0):
        return True
    # Wrong use of the API is a bug, and the caller still waits. All other errors of gRPC mean that
    # the call or the server has ended.
    misuse = grpc.aio.UsageError | grpc.aio.AbortError
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, misuse)


def _unary_work(handler: Handler) -> Work:
    behaviour: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
    serialize = handler.response_serializer or bytes

    async def work(request: Any, context: Context) -> bytes:
        response = await behaviour(request, context)
        # gRPC drops the response of a call that has set an error code, so it may be None.
        if context.code() in (None, grpc.StatusCode.OK):
            return serialize(response)
        return b""

    return work


def _stream_work(handler: Handler) -> Work:
    behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream

    async def work(request: Any, context: Context) -> None:
        responses = behaviour(request, context)
        if not hasattr(responses, "__aiter__"):
            # Not together with the first message: if sending that were cancelled, gRPC would send
            # the metadata again with the status, fail, and the caller would never get a status.
            try:
                await context.send_initial_metadata(())
            except BaseException:
                responses.close()
                raise
            await responses  # the handler calls context.write itself
            return
        # Closed at once, so that the handler's cleanup runs when its caller leaves.
        async with contextlib.aclosing(responses):
            async for response in responses:
                await context.write(response)

    return work


async def _close(requests: Any) -> None:
    """Closes the iterator over the requests, which is a reference cycle until it ends."""
    # This does not wait, because nothing reads from it any more.
    await aiter(requests).aclose()


def _with_request(work: Work, within_s: float) -> Work:
    """Reads the single request of a call, then runs its handler."""

    async def read_and_work(_: Any, context: Context) -> Any:
        try:
            async with asyncio.timeout(within_s):
                request = await context.read()
        except TimeoutError:
            raise InvalidMessageError(f"no request arrived within {within_s:g} s") from None
        if request is grpc.aio.EOF:
            raise InvalidMessageError("the call ended without a request")
        return await work(request, context)

    return read_and_work


def _reader(handler: Handler) -> Callable[[bytes], Any] | None:
    deserialize = handler.request_deserializer
    if deserialize is None:
        return None

    def read(data: bytes) -> Any:
        try:
            request = deserialize(data)
        except Exception as error:
            raise InvalidMessageError(f"the request is not a valid message: {error}") from error
        limits.check(request)
        return request

    return read


def _writer(handler: Handler) -> Callable[[Any], bytes] | None:
    serialize = handler.response_serializer
    if serialize is None:
        return None

    def write(response: Any) -> bytes:
        # A handler may return a serialized message.
        return response if type(response) is bytes else serialize(response)

    return write
