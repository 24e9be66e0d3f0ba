"""Streams over both transports: order, half-close, cancellation, status, deadlines, buffers.

Each test runs over gRPC as well, so that the transport within a process cannot differ unnoticed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.errors import BackpressureError, from_rpc_error
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.v1 import common_pb2
from tests.support.transports import TRANSPORTS, channel_to

SERVICE = "test.Streams"
PATH = f"/{SERVICE}/Do"
LIMIT = 100_000
WAIT_S = 10.0

Context = grpc.aio.ServicerContext[Any, Any]
Behaviour = Callable[[Any, Context], Any]
Open = Callable[..., Awaitable[Any]]

AT_CALLER: ContextVar[str] = ContextVar("at_caller", default="")


def options(behaviour: Behaviour, **more: Any) -> dict[str, Any]:
    handlers = {"Do": grpc.stream_stream_rpc_method_handler(behaviour)}
    generic = grpc.method_handlers_generic_handler(SERVICE, handlers)
    return {
        "listen": "127.0.0.1:0",
        "variable": "LINGUA_POOL_LISTEN",
        "services": [(SERVICE, lambda server: server.add_generic_rpc_handlers([generic]))],
        "instance_id": "pool-0",
        "max_message_bytes": LIMIT,
        "keepalive_time_ms": 20_000,
        "keepalive_timeout_ms": 5000,
        "drain_grace_ms": 0,
    } | more


@pytest.fixture(params=TRANSPORTS)
async def call(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Starts a server with one stream method, and calls it."""
    async with AsyncExitStack() as stack:

        async def start(behaviour: Behaviour, *args: Any, **how: Any) -> Any:
            channel = await stack.enter_async_context(
                channel_to(request.param, options(behaviour, **how.pop("server", {})))
            )
            return channel.stream_stream(how.pop("path", PATH))(*args, **how)

        yield start


async def echo(requests: AsyncIterator[bytes], context: Context) -> None:
    async for request in requests:
        await context.write(request)


class Waiting:
    """A handler that waits until its call is broken off."""

    def __init__(self) -> None:
        self.entered, self.ended = asyncio.Event(), asyncio.Event()
        self.remaining: float | None = None

    async def __call__(self, requests: Any, context: Context) -> None:
        self.remaining = context.time_remaining()
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def failure(stream: Any) -> grpc.aio.AioRpcError:
    async def exhaust() -> None:
        while await stream.read() is not grpc.aio.EOF:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(exhaust(), WAIT_S)
    return caught.value


async def test_messages_arrive_in_order_and_whole(call: Open) -> None:
    stream = await call(echo)
    sent = [b"", b"a", b"b" * 50_000, *(b"%d" % number for number in range(500))]

    async def send() -> None:
        for message in sent:
            await stream.write(message)
        await stream.done_writing()

    sending = asyncio.create_task(send())
    async with asyncio.timeout(WAIT_S):
        heard = [await stream.read() for _ in sent]
        assert await stream.read() is grpc.aio.EOF
        await sending
    assert heard == sent
    assert await stream.code() is grpc.StatusCode.OK


async def test_after_half_close_the_server_can_still_send(call: Open) -> None:
    async def counts(requests: AsyncIterator[bytes], context: Context) -> None:
        number = len([request async for request in requests])
        for _ in range(number):
            await context.write(b"after")

    stream = await call(counts)
    await stream.write(b"1")
    await stream.write(b"2")
    await stream.done_writing()
    assert [message async for message in stream] == [b"after", b"after"]
    with pytest.raises(asyncio.InvalidStateError):
        await stream.write(b"3")


async def test_requests_can_be_an_iterator(call: Open) -> None:
    async def some() -> AsyncIterator[bytes]:
        for message in (b"1", b"2"):
            yield message

    assert [message async for message in await call(echo, some())] == [b"1", b"2"]
    assert [message async for message in await call(echo, iter((b"3",)))] == [b"3"]


async def test_what_was_sent_before_a_failure_is_read_before_it(call: Open) -> None:
    async def sends_and_fails(requests: Any, context: Context) -> None:
        for number in range(5):
            await context.write(b"%d" % number)
        raise BackpressureError("too much at once", retry_after_ms=40)

    stream = await call(sends_and_fails)
    async with asyncio.timeout(WAIT_S):
        assert [await stream.read() for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    error = from_rpc_error(await failure(stream))
    assert error is not None
    assert (error.message, error.retry_after_ms) == ("too much at once", 40)
    assert error.reason == common_pb2.ERROR_REASON_BACKPRESSURE


async def test_writing_to_a_call_that_has_failed_raises(call: Open) -> None:
    async def fails(requests: Any, context: Context) -> None:
        raise BackpressureError("no")

    stream = await call(fails)
    await failure(stream)
    assert stream.done()
    with pytest.raises(asyncio.InvalidStateError):
        await stream.write(b"late")


async def test_cancelling_a_call_ends_its_handler_and_the_tasks_of_it(call: Open) -> None:
    waits = Waiting()
    stream = await call(waits)
    await stream.write(b"")
    async with asyncio.timeout(WAIT_S):
        await waits.entered.wait()
        assert stream.cancel()
        await waits.ended.wait()
    assert stream.cancelled()
    assert not stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream.read()


@pytest.mark.parametrize("half", ["read", "write"])
async def test_a_caller_that_stops_waiting_cancels_the_call(call: Open, half: str) -> None:
    waits = Waiting()
    stream = await call(waits)

    async def write_until_full() -> None:
        while True:
            await stream.write(b"x" * 90_000)

    task = asyncio.create_task(stream.read() if half == "read" else write_until_full())
    await asyncio.sleep(0.2)
    assert not task.done()
    task.cancel()
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(task, return_exceptions=True)
        await waits.ended.wait()
    assert stream.cancelled()


@pytest.mark.parametrize("side", ["caller", "handler"])
async def test_buffers_are_bounded(call: Open, side: str) -> None:
    written = 0

    async def sends(requests: Any, context: Context) -> None:
        nonlocal written
        while True:
            await context.write(b"x" * 10_000)
            written += 1

    async def reads_nothing(requests: Any, context: Context) -> None:
        await asyncio.Event().wait()

    stream = await call(sends if side == "handler" else reads_nothing)

    async def send() -> None:
        nonlocal written
        while True:
            await stream.write(b"x" * 10_000)
            written += 1

    sending = asyncio.create_task(send()) if side == "caller" else None
    await asyncio.sleep(0.5)
    # The kernel's socket buffers are included in the case of gRPC.
    assert 1 < written < 1500
    seen = written
    await asyncio.sleep(0.2)
    assert written == seen
    if sending is not None:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def test_a_deadline_ends_the_call_on_both_sides(call: Open) -> None:
    waits = Waiting()
    stream = await call(waits, timeout=2.0)
    error = await failure(stream)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    async with asyncio.timeout(WAIT_S):
        await waits.ended.wait()
    # gRPC rounds up.
    assert waits.remaining is not None
    assert 0 < waits.remaining < 2.5


async def test_a_call_without_a_deadline_has_no_time_remaining(call: Open) -> None:
    async def tells(requests: Any, context: Context) -> None:
        await context.write(repr(context.time_remaining()).encode())

    assert await (await call(tells)).read() == b"None"


async def test_a_request_over_the_limit_ends_the_call(call: Open) -> None:
    stream = await call(echo)
    await stream.write(b"x" * LIMIT)
    assert len(await stream.read()) == LIMIT
    await stream.write(b"x" * (LIMIT + 1))
    error = await failure(stream)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert f"({LIMIT + 1} vs. {LIMIT})" in str(error.details())


async def test_a_method_that_is_not_there_is_unimplemented(call: Open) -> None:
    error = await failure(await call(echo, path=f"/{SERVICE}/Other"))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_metadata_reaches_the_handler_and_the_trailing_one_the_caller(call: Open) -> None:
    async def tells(requests: Any, context: Context) -> None:
        context.set_trailing_metadata((("x-after", "end"),))
        await context.write(str(dict(context.invocation_metadata() or ())["x-before"]).encode())

    stream = await call(tells, metadata=(("x-before", "begin"),))
    assert await stream.read() == b"begin"
    assert await stream.read() is grpc.aio.EOF
    assert (await stream.trailing_metadata())["x-after"] == "end"


async def test_a_guard_refuses_a_caller_without_a_token(call: Open) -> None:
    error = await failure(await call(echo, server={"guard": Guard(None)}))
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_nothing_of_the_callers_context_reaches_the_handler(transport: str) -> None:
    async def tells(requests: Any, context: Context) -> None:
        await context.write(f"<{AT_CALLER.get()}>".encode())

    async with channel_to(transport, options(tells)) as channel:
        AT_CALLER.set("secret")
        assert await channel.stream_stream(PATH)().read() == b"<>"


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_draining_refuses_new_calls_and_lets_others_end(transport: str) -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def waits(requests: Any, context: Context) -> None:
        entered.set()
        await may_end.wait()
        await context.write(b"done")

    in_process = InProcessServer() if transport == "in-process" else None
    server = GrpcServer(**options(waits, drain_grace_ms=10_000), in_process=in_process)
    address = await server.start()
    channel = in_process.channel() if in_process else grpc.aio.insecure_channel(address)
    async with channel:
        old = channel.stream_stream(PATH)()
        await old.write(b"")
        await entered.wait()
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0.2)
        error = await failure(channel.stream_stream(PATH)())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        may_end.set()
        async with asyncio.timeout(WAIT_S):
            assert await old.read() == b"done"
            assert await old.read() is grpc.aio.EOF
            await draining


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_call_that_outlives_the_drain_is_broken_off(transport: str) -> None:
    waits = Waiting()
    in_process = InProcessServer() if transport == "in-process" else None
    server = GrpcServer(**options(waits, drain_grace_ms=100), in_process=in_process)
    address = await server.start()
    channel = in_process.channel() if in_process else grpc.aio.insecure_channel(address)
    async with channel, asyncio.timeout(WAIT_S):
        stream = channel.stream_stream(PATH)()
        await stream.write(b"")
        await waits.entered.wait()
        await server.drain()
        await waits.ended.wait()
        assert (await failure(stream)).code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_closing_a_channel_ends_its_calls_after_the_grace_period(transport: str) -> None:
    async with channel_to(transport, options(echo)) as channel:
        stream = channel.stream_stream(PATH)()
        await stream.write(b"1")
        assert await stream.read() == b"1"
        async with asyncio.timeout(WAIT_S):
            await channel.close(0.1)
        assert stream.cancelled()
        with pytest.raises(grpc.aio.UsageError):
            channel.stream_stream(PATH)()


async def test_before_the_server_starts_calls_within_the_process_are_unavailable() -> None:
    channel = InProcessServer().channel()
    error = await failure(channel.stream_stream(PATH)())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError, match="does not accept calls"):
        await channel.stream_stream(PATH)().write(b"")


async def test_a_handler_that_does_not_end_holds_up_no_drain_within_the_process() -> None:
    entered, may_end = asyncio.Event(), asyncio.Event()

    async def stubborn(requests: Any, context: Context) -> None:
        entered.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    in_process = InProcessServer()
    server = GrpcServer(**options(stubborn), in_process=in_process)
    await server.start()
    stream = in_process.channel().stream_stream(PATH)()
    async with asyncio.timeout(WAIT_S):
        await entered.wait()
        await server.drain()
        assert (await failure(stream)).code() is grpc.StatusCode.UNAVAILABLE
    may_end.set()


async def test_a_close_that_is_cancelled_still_ends_the_calls_within_the_process() -> None:
    in_process = InProcessServer()
    server = GrpcServer(**options(echo), in_process=in_process)
    await server.start()
    try:
        channel = in_process.channel()
        stream = channel.stream_stream(PATH)()
        closing = asyncio.create_task(channel.close(60.0))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        assert stream.cancelled()
    finally:
        await server.drain()


async def test_a_response_over_the_limit_of_the_caller_ends_the_call_within_the_process() -> None:
    ended = asyncio.Event()

    async def sends(requests: Any, context: Context) -> None:
        try:
            await context.write(b"x" * 1001)
        finally:
            ended.set()

    in_process = InProcessServer()
    server = GrpcServer(**options(sends), in_process=in_process)
    await server.start()
    try:
        channel = in_process.channel(max_response_bytes=1000)
        error = await failure(channel.stream_stream(PATH)())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        async with asyncio.timeout(WAIT_S):
            await ended.wait()
    finally:
        await server.drain()


async def test_the_own_certificate_names_the_caller_within_the_process() -> None:
    async def tells(requests: Any, context: Context) -> None:
        await context.write(b"may call")

    in_process = InProcessServer()
    server = GrpcServer(**options(tells, guard=Guard(None)), in_process=in_process)
    await server.start()
    try:
        of_service = in_process.channel(identity=lambda: {"peer_uri": (b"lingua:service/all",)})
        of_nobody = in_process.channel(identity=lambda: {"peer_uri": (b"https://example.org",)})
        error = await failure(of_service.stream_stream(PATH)())
        # Known, but the role may not call a method that is in no table.
        assert error.code() is grpc.StatusCode.PERMISSION_DENIED
        error = await failure(of_nobody.stream_stream(PATH)())
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await server.drain()
