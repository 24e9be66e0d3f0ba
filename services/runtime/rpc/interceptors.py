"""What every gRPC call of every service has in common: who calls, errors, metrics, a span.

Handlers raise; this is the one place that turns what they raise into a status. gRPC itself
answers some faults with UNKNOWN (an exception, bytes that are no message, a response of the wrong
type) and one with silence (a cancellation that leaks from an inner task: the caller would wait
for ever). None of them leaves this frame as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.runtime.auth.guard import Guard
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
# In quotes, since it is generic to type checkers only.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Work: TypeAlias = Callable[[Any, Context], Awaitable[Any]]

_log = logging.getLogger(__name__)


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Frames all four kinds of calls.

    - `LinguaError`: its status, with its details.
    - What gRPC raises to end a call (abort, cancellation) passes.
    - Bytes that are no valid request, and a field over its declared limit: INVALID_MESSAGE.
    - Anything else: INTERNAL with an error id; the log has the traceback under the same id.

    Before all that, the guard decides whether the caller may call this: before any message is
    read. gRPC would read the one request of a unary call first, and leave a call that ends without
    one unanswered. So it takes all methods for ones that stream requests in, and the frame reads.

    Args:
        guard: None where everyone may call everything.
    """

    def __init__(
        self,
        *,
        instance_id: str,
        guard: Guard | None = None,
        registry: CollectorRegistry | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._instance_id = instance_id
        self._guard = guard
        self._observer = CallObserver(registry=registry, tracer=tracer)
        self._framed: dict[str, tuple[Handler, Handler]] = {}
        self._open_calls = OpenCalls()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """The method's handler in its frame, or None for a method that nobody serves."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # gRPC then answers UNIMPLEMENTED
        path = handler_call_details.method
        original, framed = self._framed.get(path, (None, None))
        # A method has one handler as long as the server lives, so each is framed once.
        if framed is None or original is not handler:
            framed = self._frame(path, handler)
            self._framed[path] = (handler, framed)
        return framed

    def _frame(self, path: str, handler: Handler) -> Handler:
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
                # gRPC keeps the error in the call's state. The frames of its traceback hold the
                # call, so without this every call that fails or is abandoned would be a reference
                # cycle, which the collector rarely looks for (see service_process).
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
            if principal is not None and principal.expires_s is not None and not method.unary:
                return await _until(principal.expires_s, work(requests, context))
            return await work(requests, context)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, grpc.aio.AbortError) and context.done():
                raise
            if _nobody_listens(error, context):
                if isinstance(error, asyncio.CancelledError):
                    raise
                self._log_if_unexpected(method, error)
                raise asyncio.CancelledError from None
            if isinstance(error, NotImplementedError) and context.code() is not None:
                # A generated servicer whose method was not written has set the code already.
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, context.details())
            await self._abort(method, error, context)

    async def _abort(self, method: Method, error: BaseException, context: Context) -> None:
        """Ends the call with the status of an error."""
        failure = error if isinstance(error, LinguaError) else self._internal(method, error)
        if isinstance(failure, UnauthenticatedError | PermissionDeniedError):
            self._observer.refused(method, failure)
        try:
            await context.abort(failure.code, failure.message, to_trailing_metadata(failure))
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError as gone:
            # A caller that does not read has gone while the answer waited for it.
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
        """Logs what ended a call whose caller is gone: an answer could only reach a freed call."""
        if not isinstance(error, LinguaError | grpc.aio.BaseError):
            facts = {"method": method.name, "error": type(error).__name__}
            _log.error("call failed after its caller left", exc_info=error, extra=facts)


async def _until(expires_s: float, work: Awaitable[Any]) -> Any:
    """Does the work of a stream as long as its caller's token holds."""
    try:
        async with asyncio.timeout(max(0.0, expires_s - time.time())) as holds:
            return await work
    except TimeoutError:
        if not holds.expired():
            raise
        raise UnauthenticatedError("the token has expired; connect again with a new one") from None


def _nobody_listens(error: BaseException, context: Context) -> bool:
    task = asyncio.current_task()
    if context.done() or (task is not None and task.cancelling() > 0):
        return True
    # Wrong use of the API is a bug with a caller that waits; all else that gRPC raises by itself
    # tells that the call or the server has ended.
    misuse = grpc.aio.UsageError | grpc.aio.AbortError
    return isinstance(error, grpc.aio.BaseError) and not isinstance(error, misuse)


def _unary_work(handler: Handler) -> Work:
    behaviour: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
    serialize = handler.response_serializer or bytes

    async def work(request: Any, context: Context) -> bytes:
        response = await behaviour(request, context)
        # gRPC drops the response of a call that has set an error code, and so it may be None.
        if context.code() in (None, grpc.StatusCode.OK):
            return serialize(response)
        return b""

    return work


def _stream_work(handler: Handler) -> Work:
    behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream

    async def work(request: Any, context: Context) -> None:
        responses = behaviour(request, context)
        if not hasattr(responses, "__aiter__"):
            # Not with the first message: were that cancelled on its way, gRPC would send them again
            # with the status, fail, and the caller would never get one.
            try:
                await context.send_initial_metadata(())
            except BaseException:
                responses.close()
                raise
            await responses  # it writes by itself, with context.write
            return
        # Closed at once, so that a handler's own cleanup runs when its caller goes.
        async with contextlib.aclosing(responses):
            async for response in responses:
                await context.write(response)

    return work


async def _close(requests: Any) -> None:
    """Ends the iterator over a stream's requests, which is a reference cycle until it ends."""
    # It waits for nothing: nobody reads any more.
    await aiter(requests).aclose()


def _with_request(work: Work, within_s: float) -> Work:
    """The work on a call's one request, which is read here."""

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
        # One that its handler has serialized goes as it is.
        return response if type(response) is bytes else serialize(response)

    return write
