"""The interceptor of all calls, over both transports: what callers see of what handlers do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.runtime.errors import (
    AllCandidatesFullOrFailedError,
    from_rpc_error,
)
from lingua_scheduler.services.runtime.telemetry.traces import current_traceparent
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.common_pb2 import FieldViolation
from tests.support.transports import TRANSPORTS, channel_to

SERVICE = "test.Frame"
Context = grpc.aio.ServicerContext[Any, Any]
Serve = Callable[..., Awaitable["Served"]]

MAKERS = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


class Served:
    """A running server with one method, and a client for it."""

    def __init__(self, kind: str, channel: grpc.aio.Channel, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.channel = channel
        make = getattr(channel, kind)
        self.call = make(
            f"/{SERVICE}/Do",
            request_serializer=FieldViolation.SerializeToString,
            response_deserializer=FieldViolation.FromString,
        )
        self.call_raw = make(f"/{SERVICE}/Do")

    def handled(self, code: str) -> float | None:
        labels = {"method": f"{SERVICE}/Do", "code": code}
        return self.registry.get_sample_value("lingua_grpc_server_handled_total", labels)


@pytest.fixture(params=TRANSPORTS)
async def serve(request: pytest.FixtureRequest) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(kind: str, behaviour: Any, **overrides: Any) -> Served:
            handler = MAKERS[kind](
                behaviour, FieldViolation.FromString, FieldViolation.SerializeToString
            )
            generic = grpc.method_handlers_generic_handler(SERVICE, {"Do": handler})
            registry = CollectorRegistry()
            options: dict[str, Any] = {
                "listen": "127.0.0.1:0",
                "variable": "LINGUA_POOL_LISTEN",
                "services": [(SERVICE, lambda s: s.add_generic_rpc_handlers([generic]))],
                "instance_id": "pool-0",
                "max_message_bytes": 100_000,
                "keepalive_time_ms": 20_000,
                "keepalive_timeout_ms": 5000,
                "drain_grace_ms": 0,
                "registry": registry,
            }
            channel = await stack.enter_async_context(
                channel_to(request.param, {**options, **overrides})
            )
            return Served(kind, channel, registry)

        yield start


async def raises_full(request: Any, context: Context) -> Any:
    raise AllCandidatesFullOrFailedError("all 20 are full", retry_after_ms=40)


async def raises_value_error(request: Any, context: Context) -> Any:
    raise ValueError("the secret of line 7")


async def then_breaks(request: Any, context: Context) -> AsyncIterator[FieldViolation]:
    yield FieldViolation(field="en")
    raise ValueError("the secret of line 7")


async def echo_all(requests: AsyncIterator[FieldViolation], context: Context) -> AsyncIterator[Any]:
    async for request in requests:
        yield request


async def one_pair() -> AsyncIterator[FieldViolation]:
    yield FieldViolation(field="en")


async def no_pair() -> AsyncIterator[FieldViolation]:
    """Says nothing: where a stream ends while its client writes, gRPC forgets why."""
    await asyncio.Event().wait()
    yield FieldViolation()


async def failure_of(call: Any) -> grpc.aio.AioRpcError:
    async def exhaust() -> None:
        if not hasattr(call, "__aiter__"):
            await call
            return
        async for _ in call:
            pass

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await exhaust()
    return caught.value


async def until(condition: Callable[[], bool]) -> None:
    # A server counts a call after it has answered it, and counters have no event to wait for.
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_an_error_with_a_reason_arrives_with_all_its_details(serve: Serve) -> None:
    served = await serve("unary_unary", raises_full)

    error = await failure_of(served.call(FieldViolation()))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "all 20 are full"
    assert from_rpc_error(error) == common_pb2.Error(
        reason=common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
        message="all 20 are full",
        retry_after_ms=40,
    )
    await until(lambda: served.handled("RESOURCE_EXHAUSTED") == 1)


@pytest.mark.parametrize("kind", ["unary_unary", "stream_unary"])
async def test_an_unexpected_exception_is_internal_and_only_the_log_has_details(
    serve: Serve, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(kind, raises_value_error)
    request = FieldViolation() if kind == "unary_unary" else no_pair()

    error = await failure_of(served.call(request))

    told = from_rpc_error(error)
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.code() is grpc.StatusCode.INTERNAL
    assert told is not None
    assert told.reason == common_pb2.ERROR_REASON_INTERNAL
    assert "secret" not in str(error.details())
    assert record.exc_info is not None
    assert "secret" in str(record.exc_info[1])
    error_id = vars(record)["error_id"]
    assert error.details() == (
        f"internal error; see the log of instance pool-0, error id {error_id}"
    )
    assert len(error_id) == 8


@pytest.mark.parametrize("kind", ["unary_stream", "stream_stream"])
async def test_a_stream_that_breaks_keeps_what_it_sent_and_then_is_internal(
    serve: Serve, kind: str
) -> None:
    served = await serve(kind, then_breaks)
    call = served.call(FieldViolation() if kind == "unary_stream" else no_pair())

    assert await call.read() == FieldViolation(field="en")
    error = await failure_of(call.read())

    assert error.code() is grpc.StatusCode.INTERNAL
    assert from_rpc_error(error) is not None
    await until(lambda: served.handled("INTERNAL") == 1)


async def test_a_stream_handler_may_write_to_the_context(serve: Serve) -> None:
    async def writes(request: FieldViolation, context: Context) -> None:
        await context.write(request)
        await context.write(request)

    served = await serve("unary_stream", writes)

    assert len([pair async for pair in served.call(FieldViolation(field="en"))]) == 2
    assert served.handled("OK") == 1


async def test_a_stream_handler_may_send_serialized_messages(serve: Serve) -> None:
    async def writes(request: FieldViolation, context: Context) -> None:
        await context.write(request.SerializeToString())

    served = await serve("unary_stream", writes)

    assert [pair.field async for pair in served.call(FieldViolation(field="en"))] == ["en"]


async def test_a_handler_may_abort_with_the_context(serve: Serve) -> None:
    async def aborts(request: Any, context: Context) -> None:
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    served = await serve("unary_unary", aborts)

    error = await failure_of(served.call(FieldViolation()))

    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")
    await until(lambda: served.handled("NOT_FOUND") == 1)


async def test_a_handler_may_set_a_code_and_return_nothing(serve: Serve) -> None:
    async def sets(request: Any, context: Context) -> None:
        context.set_code(grpc.StatusCode.OUT_OF_RANGE)

    served = await serve("unary_unary", sets)

    assert (await failure_of(served.call(FieldViolation()))).code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_method_that_is_not_implemented_is_unimplemented(serve: Serve) -> None:
    def generated(request: Any, context: Context) -> None:
        context.set_code(grpc.StatusCode.UNIMPLEMENTED)
        context.set_details("Method not implemented!")
        raise NotImplementedError("Method not implemented!")

    for kind in ("unary_unary", "unary_stream"):
        served = await serve(kind, generated)
        error = await failure_of(served.call(FieldViolation()))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("kind", list(MAKERS))
async def test_a_malformed_message_is_an_error_of_the_caller(serve: Serve, kind: str) -> None:
    async def reads_all(requests: Any, context: Context) -> FieldViolation:
        return FieldViolation(field="".join([request.field async for request in requests]))

    async def returns(request: FieldViolation, context: Context) -> FieldViolation:
        return request

    async def yields(request: FieldViolation, context: Context) -> AsyncIterator[FieldViolation]:
        yield request

    async def broken() -> AsyncIterator[bytes]:
        yield b"\xff\xff\xff"

    behaviours = {
        "unary_unary": returns,
        "unary_stream": yields,
        "stream_unary": reads_all,
        "stream_stream": echo_all,
    }
    served = await serve(kind, behaviours[kind])

    streams_in = kind.startswith("stream")
    error = await failure_of(served.call_raw(broken() if streams_in else b"\xff\xff\xff"))

    told = from_rpc_error(error)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert told is not None
    assert told.reason == common_pb2.ERROR_REASON_INVALID_MESSAGE


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream"])
async def test_a_response_of_the_wrong_type_is_internal(serve: Serve, kind: str) -> None:
    async def returns_none(request: Any, context: Context) -> None:
        return None

    async def yields_none(request: Any, context: Context) -> AsyncIterator[None]:
        yield None

    served = await serve(kind, returns_none if kind == "unary_unary" else yields_none)

    assert (await failure_of(served.call(FieldViolation()))).code() is grpc.StatusCode.INTERNAL


async def test_a_stream_whose_response_cannot_be_sent_is_cleaned_up_at_once(serve: Serve) -> None:
    cleaned = asyncio.Event()

    async def yields_none(request: Any, context: Context) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            cleaned.set()

    served = await serve("unary_stream", yields_none)
    await failure_of(served.call(FieldViolation()))

    assert cleaned.is_set()


async def test_a_cancellation_from_within_does_not_leave_the_caller_waiting(serve: Serve) -> None:
    async def awaits_what_was_cancelled(request: Any, context: Context) -> Any:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    served = await serve("unary_unary", awaits_what_was_cancelled)

    error = await failure_of(served.call(FieldViolation(), timeout=10))

    assert error.code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_stream"])
async def test_a_caller_that_goes_away_ends_its_handler_with_its_cleanup(
    serve: Serve, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    entered, cleaned = asyncio.Event(), asyncio.Event()

    async def waits(request: Any, context: Context) -> Any:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async def yields_and_waits(request: Any, context: Context) -> AsyncIterator[FieldViolation]:
        yield await waits(request, context)

    served = await serve(kind, waits if kind == "unary_unary" else yields_and_waits)
    call = served.call(FieldViolation() if kind.startswith("unary") else one_pair())
    await entered.wait()
    call.cancel()
    await cleaned.wait()
    await until(lambda: served.handled("CANCELLED") == 1)

    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_an_error_in_a_cleanup_after_the_caller_left_is_only_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    entered = asyncio.Event()

    async def breaks_at_the_end(request: Any, context: Context) -> None:
        try:
            entered.set()
            await asyncio.Event().wait()
        finally:
            raise ValueError("in the cleanup")

    served = await serve("unary_unary", breaks_at_the_end)
    call = served.call(FieldViolation())
    await entered.wait()
    call.cancel()
    await until(lambda: served.handled("CANCELLED") == 1)

    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.message == "call failed after its caller left"
    assert vars(record)["error"] == "ValueError"


async def test_an_exceeded_deadline_is_counted_as_such(serve: Serve) -> None:
    async def waits(request: Any, context: Context) -> None:
        await asyncio.Event().wait()

    served = await serve("unary_unary", waits)

    error = await failure_of(served.call(FieldViolation(), timeout=0.1))

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: served.handled("DEADLINE_EXCEEDED") == 1)


async def test_a_message_over_the_limit_is_refused_and_one_below_is_not(serve: Serve) -> None:
    async def echo(request: FieldViolation, context: Context) -> FieldViolation:
        return request

    served = await serve("unary_unary", echo)

    error = await failure_of(served.call(FieldViolation(field="x" * 100_001)))

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len((await served.call(FieldViolation(field="x" * 99_000))).field) == 99_000


async def test_only_methods_that_the_server_has_are_counted(serve: Serve) -> None:
    served = await serve("unary_unary", raises_full)

    error = await failure_of(served.channel.unary_unary(f"/{SERVICE}/Nothing")(b""))

    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert not [
        sample
        for metric in served.registry.collect()
        for sample in metric.samples
        if "Nothing" in sample.labels.get("method", "")
    ]


async def test_the_time_of_a_call_is_measured_but_not_that_of_a_lasting_stream(
    serve: Serve,
) -> None:
    unary = await serve("unary_unary", raises_full)
    stream = await serve("stream_stream", echo_all)
    await failure_of(unary.call(FieldViolation()))
    await until(lambda: unary.handled("RESOURCE_EXHAUSTED") == 1)
    assert [pair async for pair in stream.call(one_pair())] == [FieldViolation(field="en")]

    count, labels = "lingua_grpc_server_handling_seconds_count", {"method": f"{SERVICE}/Do"}
    assert unary.registry.get_sample_value(count, labels) == 1
    assert stream.registry.get_sample_value(count, labels) is None
    assert stream.handled("OK") == 1


async def test_each_unary_call_is_a_debug_line(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="lingua_scheduler")
    served = await serve("unary_unary", raises_full)

    await failure_of(served.call(FieldViolation()))
    await until(lambda: any(record.message == "call ended" for record in caplog.records))

    (record,) = [record for record in caplog.records if record.message == "call ended"]
    facts = vars(record)
    assert (facts["method"], facts["code"]) == (f"{SERVICE}/Do", "RESOURCE_EXHAUSTED")
    assert facts["ms"] >= 0


async def test_the_handler_continues_the_trace_of_the_caller(serve: Serve) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    seen: list[str] = []

    async def notes(request: Any, context: Context) -> Any:
        seen.append(current_traceparent())
        raise ValueError

    served = await serve("unary_unary", notes, tracer_provider=provider)
    trace_id, parent_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    metadata = (("traceparent", f"00-{trace_id}-{parent_id}-01"),)

    await failure_of(served.call(FieldViolation(), metadata=metadata))

    await until(lambda: len(exporter.get_finished_spans()) == 1)
    (span,) = exporter.get_finished_spans()
    assert seen == [f"00-{trace_id}-{span.get_span_context().span_id:016x}-01"]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == parent_id
    assert span.name == f"{SERVICE}/Do"
    assert dict(span.attributes or {}) == {
        "rpc.system.name": "grpc",
        "rpc.method": f"{SERVICE}/Do",
        "rpc.response.status_code": "INTERNAL",
        "error.type": "INTERNAL",
    }
    assert not span.status.is_ok


async def test_without_tracing_there_is_no_span(serve: Serve) -> None:
    seen: list[str] = []

    async def notes(request: FieldViolation, context: Context) -> FieldViolation:
        seen.append(current_traceparent())
        return request

    served = await serve("unary_unary", notes)
    metadata = (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
    await served.call(FieldViolation(), metadata=metadata)

    assert seen == [""]
