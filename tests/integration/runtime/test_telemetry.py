"""Spans are exported to a collector if the environment asks for it."""

import asyncio
import os
import sys
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import TracerProvider

from lingua_scheduler.services.runtime.telemetry.traces import (
    context_from_traceparent,
    current_traceparent,
    tracer_if_on,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

# In a process of its own, because a process has one provider for ever.
PROCESS = """
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing, tracer_if_on
shutdown = configure_tracing("pool", "pool-0")
tracer = tracer_if_on()
print("on" if tracer else "off")
if tracer:
    tracer.start_span("one span").end()
shutdown()
"""

# More spans than the queue holds, for a collector that is not there.
NOBODY_LISTENS = """
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing, span_writer_if_on
shutdown = configure_tracing("pool", "pool-0")
writer = span_writer_if_on()
for _ in range(20_000):
    span = writer.root("one span")
    writer.write("one span", span, parent=None, start_us=1, end_us=2)
print("written", flush=True)
shutdown()
"""

# All that a written span can have.
WRITTEN = """
import logging, sys
from opentelemetry.trace import SpanKind
from lingua_scheduler.services.runtime.telemetry.span_writer import key_values
from lingua_scheduler.services.runtime.telemetry.traces import (
    configure_tracing, span_of, span_writer_if_on
)
logging.basicConfig(stream=sys.stdout, format="%(message)s")
shutdown = configure_tracing("pool", "pool-0")
writer = span_writer_if_on()
parent = span_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
writer.write(
    "one span",
    writer.child(parent),
    parent=parent,
    start_us=1,
    end_us=2,
    kind=SpanKind.CLIENT,
    constant=key_values({"db": "redis"}),
    attributes={"number": 3, "yes": True},
    links=[writer.root("another")],
    failure="as a test wants it",
)
shutdown()
"""

# As a version of OpenTelemetry might be that encodes spans elsewhere.
ENCODES_ELSEWHERE = """
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc import trace_exporter
from opentelemetry.sdk.trace.export import SpanExportResult
class Exporter(trace_exporter.OTLPSpanExporter):
    def export(self, spans):
        self._client.Export(encode_spans(spans))
        return SpanExportResult.SUCCESS
trace_exporter.OTLPSpanExporter = Exporter
"""

# As a version might be whose processor looks at more than the context.
PROCESSOR_LOOKS = """
from opentelemetry.sdk.trace.export import BatchSpanProcessor
on_end = BatchSpanProcessor.on_end
BatchSpanProcessor.on_end = lambda self, span: on_end(self, span) if span.end_time else None
"""


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    async def Export(self, request: Any, context: object) -> Any:  # noqa: N802
        self.received.extend(request.resource_spans)
        return trace_service_pb2.ExportTraceServiceResponse()


async def run_process(program: str = PROCESS, **variables: str) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        env={**environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    stdout, _ = await process.communicate()
    assert process.returncode == 0
    return stdout.decode().strip()


async def test_spans_are_exported_to_the_endpoint_and_name_their_process() -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    said = await run_process(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}")
    await server.stop(None)

    (resource_spans,) = collector.received
    attributes = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
    assert said == "on"
    assert resource_spans.scope_spans[0].spans[0].name == "one span"
    assert attributes["service.name"] == "lingua-pool"
    assert attributes["service.instance.id"] == "pool-0"


@pytest.mark.parametrize("library", ["", ENCODES_ELSEWHERE, PROCESSOR_LOOKS])
async def test_written_spans_arrive_even_if_private_parts_of_the_library_change(
    library: str,
) -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    endpoint = f"http://127.0.0.1:{port}"
    said = await run_process(library + WRITTEN, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    await server.stop(None)

    assert said == ("" if not library else "direct span export unavailable")
    (resource_spans,) = collector.received
    resource = {pair.key: pair.value.string_value for pair in resource_spans.resource.attributes}
    assert resource["service.name"] == "lingua-pool"
    (scope_spans,) = resource_spans.scope_spans
    assert scope_spans.scope.name == "lingua_scheduler"
    (span,) = scope_spans.spans
    assert span.name == "one span"
    assert span.kind == trace_pb2.Span.SPAN_KIND_CLIENT
    assert span.trace_id.hex() == TRACEPARENT.split("-")[1]
    assert span.parent_span_id.hex() == TRACEPARENT.split("-")[2]
    assert span.flags & trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (1000, 2000)
    attributes = {pair.key: pair.value for pair in span.attributes}
    assert attributes.keys() == {"db", "number", "yes"}
    assert attributes["db"].string_value == "redis"
    assert attributes["number"].int_value == 3
    assert attributes["yes"].bool_value is True
    assert len(span.links) == 1
    assert span.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert span.status.message == "as a test wants it"


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_TRACES_EXPORTER": "none",
        },
    ],
)
async def test_spans_are_exported_only_if_the_environment_asks_for_it(
    variables: dict[str, str],
) -> None:
    assert await run_process(**variables) == "off"


async def test_an_unreachable_collector_delays_neither_work_nor_the_end() -> None:
    # What the SDK would take to give up is half a minute.
    async with asyncio.timeout(20):
        said = await run_process(NOBODY_LISTENS, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert said == "written"


@pytest.mark.parametrize("sampler", ["parentbased_traceidratio", "traceidratio"])
async def test_every_process_samples_the_same_jobs(sampler: str) -> None:
    program = """
from lingua_scheduler.services.runtime.telemetry.traces import configure_tracing, span_writer_if_on
shutdown = configure_tracing("pool", "pool-0")
writer = span_writer_if_on()
jobs = [(number * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128 for number in range(1, 2000)]
roots = [writer.root("utterance", job) for job in jobs]
assert [root.trace_id for root in roots] == jobs
print("".join(str(int(root.trace_flags.sampled)) for root in roots))
shutdown()
"""
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_TRACES_SAMPLER": sampler,
        "OTEL_TRACES_SAMPLER_ARG": "0.1",
    }
    first, second = await asyncio.gather(
        run_process(program, **variables), run_process(program, **variables)
    )
    assert first == second
    assert 0.05 < first.count("1") / len(first) < 0.2


def test_a_traceparent_is_read_and_written_unchanged() -> None:
    context = context_from_traceparent(TRACEPARENT)
    assert context is not None
    tracer = tracer_if_on(TracerProvider(shutdown_on_exit=False))
    assert tracer is not None

    with tracer.start_as_current_span("child", context=context) as span:
        version, trace_id, span_id, flags = current_traceparent().split("-")

    assert (version, trace_id, flags) == ("00", TRACEPARENT.split("-")[1], "01")
    assert span_id == trace.format_span_id(span.get_span_context().span_id)
    assert current_traceparent() == ""


@pytest.mark.parametrize("text", ["", "nonsense", "00-00-00-00", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_a_malformed_traceparent_gives_no_context(text: str) -> None:
    assert context_from_traceparent(text) is None
