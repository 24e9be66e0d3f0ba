"""The caller's side of calls: a channel whose calls go to a server of the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Self

import grpc

from lingua_scheduler.services.runtime.rpc.in_process.call import (
    CallOptions,
    Identity,
    InProcessCall,
    Status,
)

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer

Convert = Callable[[Any], Any]


class InProcessChannel(grpc.aio.Channel):
    """A channel to a server of this process.

    Args:
        server: answers the calls.
        identity: what the certificate of this process says, asked for each call.
        max_response_bytes: the largest response that is accepted; None for any.
    """

    def __init__(
        self,
        server: InProcessServer,
        *,
        identity: Callable[[], Identity] = dict,
        max_response_bytes: int | None = None,
    ) -> None:
        self._server = server
        self._identity = identity
        self._max_response_bytes = max_response_bytes
        self._calls: set[InProcessCall] = set()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Ends all calls on it, after the grace period at the latest; accepts no more."""
        self._is_closed = True
        open_calls = list(self._calls)
        waiting = [asyncio.ensure_future(call.ended.wait()) for call in open_calls]
        try:
            if waiting and grace:
                await asyncio.wait(waiting, timeout=grace)
        finally:
            for task in waiting:
                task.cancel()
            for call in open_calls:
                call.cancel()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """READY if the server accepts calls."""
        if self._is_closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        if self._server.accepts:
            return grpc.ChannelConnectivity.READY
        return grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Not offered: nothing of ours waits for it."""
        raise NotImplementedError

    async def channel_ready(self) -> None:
        """Not offered: nothing of ours waits for it."""
        raise NotImplementedError

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with one request and one response; await its call for the response."""
        return self._method(method, *args, one_request=True, **kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method with one request that streams responses."""
        return self._method(method, *args, one_request=True, **kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method that streams requests and has one response."""
        return self._method(method, *args, one_request=False, **kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """A method that streams both ways."""
        return self._method(method, *args, one_request=False, **kwargs)

    def _method(
        self,
        path: str,
        request_serializer: Convert | None = None,
        response_deserializer: Convert | None = None,
        _registered_method: bool | None = False,
        *,
        one_request: bool,
    ) -> Callable[..., InProcessClientCall]:
        def start(
            requests: Any = None,
            *,
            timeout: float | None = None,
            metadata: Iterable[tuple[str, str | bytes]] | None = None,
            **_: object,
        ) -> InProcessClientCall:
            call = InProcessClientCall(
                self._start(path, timeout, metadata),
                max_request_bytes=self._server.max_request_bytes,
                serialize=request_serializer,
                deserialize=response_deserializer,
            )
            if one_request:
                call.send_one(requests)
            elif requests is not None:
                call.send_all(requests)
            return call

        return start

    def _start(
        self,
        path: str,
        timeout: float | None,
        metadata: Iterable[tuple[str, str | bytes]] | None,
    ) -> InProcessCall:
        if self._is_closed:
            raise grpc.aio.UsageError("Channel is closed.")
        options = CallOptions(
            path=path,
            metadata=tuple(metadata or ()),
            timeout_s=timeout,
            identity=self._identity(),
            max_response_bytes=self._max_response_bytes,
        )
        call = InProcessCall(options)
        self._calls.add(call)
        call.on_end.append(lambda: self._calls.discard(call))
        self._server.accept(call)
        return call


class InProcessClientCall(grpc.aio.Call):
    """A call of any kind, as its caller sees it.

    Args:
        call: the call.
        max_request_bytes: the largest request that its server accepts.
        serialize: makes the bytes of a request; None if requests are bytes.
        deserialize: makes a response out of bytes; None if responses are bytes.
    """

    def __init__(
        self,
        call: InProcessCall,
        *,
        max_request_bytes: int,
        serialize: Convert | None,
        deserialize: Convert | None,
    ) -> None:
        self._call = call
        self._max_request_bytes = max_request_bytes
        self._serialize = serialize
        self._deserialize = deserialize
        self._is_half_closed = False
        # Whether the caller has heard how the call ended.
        self._has_told = False
        self._sending: asyncio.Task[None] | None = None

    # ---- responses ----

    async def read(self) -> Any:
        """The next response; EOF if the call has ended well. Raises if it has failed."""
        try:
            data = await self._call.responses.read()
        except asyncio.CancelledError:
            self._call.cancel()
            raise
        if data is None:
            self._raise_for_status()
            return grpc.aio.EOF
        return self._deserialize(data) if self._deserialize else data

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses()

    async def _responses(self) -> AsyncIterator[Any]:
        while (response := await self.read()) is not grpc.aio.EOF:
            yield response

    def __await__(self) -> Generator[Any, None, Any]:
        return self._only_response().__await__()

    async def _only_response(self) -> Any:
        response = await self.read()
        # The status follows: a call that has failed has no response.
        await self.read()
        return response

    # ---- requests ----

    async def write(self, request: Any) -> None:
        """Sends a request, as soon as the server has room for it."""
        if self._call.status is not None:
            if not self._has_told:
                self._raise_for_status()
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._is_half_closed:
            raise asyncio.InvalidStateError('RPC is half closed after calling "done_writing".')
        data = self._serialized(request)
        if data is None:
            return  # as with gRPC, the status says so
        try:
            await self._call.requests.write(data)
        except BrokenPipeError:
            self._raise_for_status()
        except asyncio.CancelledError:
            self._call.cancel()
            raise

    async def done_writing(self) -> None:
        """There will be no more requests."""
        self._half_close()

    def send_one(self, request: Any) -> None:
        """Sends this request and no more."""
        data = self._serialized(request)
        if data is not None and self._call.status is None:
            self._call.requests.put(data)
            self._half_close()

    def send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Sends these requests in the background, and no more."""
        self._sending = asyncio.ensure_future(self._send_all(requests))

    async def _send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            await self.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the status says why
        except BaseException:
            self._call.cancel()
            raise

    def _serialized(self, request: Any) -> bytes | None:
        """The bytes of a request; None if there are too many, which ends the call."""
        data: bytes = self._serialize(request) if self._serialize else request
        if len(data) <= self._max_request_bytes:
            return data
        self._call.break_off(*too_large(len(data), self._max_request_bytes))
        return None

    def _half_close(self) -> None:
        if self._call.status is None and not self._is_half_closed:
            self._is_half_closed = True
            self._call.requests.close()

    # ---- the call as a whole ----

    def cancel(self) -> bool:
        """Ends the call; returns whether it was open."""
        return self._call.cancel()

    def cancelled(self) -> bool:
        """Whether it was cancelled, by either side."""
        status = self._call.status
        return status is not None and status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Whether it has ended and nothing is left to read."""
        return self._call.status is not None and not self._call.responses

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return self._call.time_remaining()

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Calls this when the call has ended."""
        if self._call.status is not None:
            callback(self)
        else:
            self._call.on_end.append(lambda: callback(self))

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """What the server sent before its responses."""
        await self._call.begun.wait()
        return grpc.aio.Metadata(*self._call.initial_metadata)

    async def wait_for_connection(self) -> None:
        """Waits until the server has begun to answer."""
        await self._call.begun.wait()

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """What the server sent with the status."""
        return grpc.aio.Metadata(*(await self._status()).trailing)

    async def code(self) -> grpc.StatusCode:
        """The status, when the call has ended."""
        return (await self._status()).code

    async def details(self) -> str:
        """The words of the status, when the call has ended."""
        return (await self._status()).details

    async def _status(self) -> Status:
        await self._call.ended.wait()
        assert self._call.status is not None
        return self._call.status

    def _raise_for_status(self) -> None:
        status = self._call.status
        assert status is not None
        self._has_told = True
        if self._call.is_cancelled:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            raise grpc.aio.AioRpcError(
                status.code,
                grpc.aio.Metadata(*self._call.initial_metadata),
                grpc.aio.Metadata(*status.trailing),
                details=status.details,
            )


def too_large(size: int, most: int) -> tuple[grpc.StatusCode, str]:
    """The status of a call with a message that is too large, in gRPC's words."""
    return (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"Received message larger than max ({size} vs. {most})",
    )
