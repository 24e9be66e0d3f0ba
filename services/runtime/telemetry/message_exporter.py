"""Exports spans that are OTLP messages already, beside spans of the SDK.

The only module that relies on private parts of OpenTelemetry: `_translate_data` of the exporter,
and that a BatchSpanProcessor reads nothing but the context of a span. `exports_messages` checks
both. If they have changed, `readable` makes a span of the SDK from a message.
"""

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from lingua_scheduler.services.runtime.telemetry.span_writer import (
    KINDS,
    WrittenSpan,
    key_values,
)

_SDK_KINDS: dict[int, SpanKind] = {message: kind for kind, message in KINDS.items()}


class MessageExporter(OTLPSpanExporter):
    """Sends spans of the SDK as usual, and written spans as the messages that they are."""

    def __init__(self, resource: Resource, scope: str) -> None:
        super().__init__()
        self._resource = resource_pb2.Resource(attributes=key_values(resource.attributes))
        self._scope = common_pb2.InstrumentationScope(name=scope)

    def _translate_data(self, data: Sequence[object]) -> ExportTraceServiceRequest:
        written = [span.message for span in data if isinstance(span, WrittenSpan)]
        others = [span for span in data if isinstance(span, ReadableSpan)]
        request = super()._translate_data(others) if others else ExportTraceServiceRequest()
        if written:
            spans = request.resource_spans.add(resource=self._resource)
            spans.scope_spans.add(scope=self._scope, spans=written)
        return request


def exports_messages(resource: Resource, scope: str) -> bool:
    """Whether this version of OpenTelemetry lets a MessageExporter export written spans."""
    context = SpanContext(1, 1, False, TraceFlags(TraceFlags.SAMPLED))
    span = WrittenSpan(context, trace_pb2.Span(name="probe"))
    try:
        return _processor_passes(span) and _exporter_encodes(span, resource, scope)
    except Exception:
        return False


def _processor_passes(span: WrittenSpan) -> bool:
    """Whether a BatchSpanProcessor gives a written span to its exporter as it is."""
    exporter = _Collecting()
    processor = BatchSpanProcessor(exporter)
    try:
        processor.on_end(span)  # type: ignore[arg-type]
        processor.force_flush()
    finally:
        processor.shutdown()  # type: ignore[no-untyped-call]
    return exporter.exported == [span]


def _exporter_encodes(span: WrittenSpan, resource: Resource, scope: str) -> bool:
    """Whether an exporter sends what `_translate_data` returns; nothing is sent."""
    exporter = _Probing(resource, scope)
    try:
        exporter.export([span])  # type: ignore[list-item]
    except _EncodedError as encoded:
        (resource_spans,) = encoded.request.resource_spans
        return list(resource_spans.scope_spans[0].spans) == [span.message]
    finally:
        exporter.shutdown()
    return False


def readable(written: WrittenSpan, resource: Resource, scope: str) -> ReadableSpan:
    """A written span as a span of the SDK."""
    context, message = written
    parent = None
    if message.parent_span_id:
        parent = SpanContext(
            context.trace_id,
            int.from_bytes(message.parent_span_id, "big"),
            bool(message.flags & trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK),
            context.trace_flags,
        )
    failed = message.status.code == trace_pb2.Status.STATUS_CODE_ERROR
    return ReadableSpan(
        name=message.name,
        context=context,
        parent=parent,
        resource=resource,
        attributes={each.key: _plain(each.value) for each in message.attributes},
        links=[
            Link(
                SpanContext(
                    int.from_bytes(link.trace_id, "big"), int.from_bytes(link.span_id, "big"), True
                )
            )
            for link in message.links
        ],
        kind=_SDK_KINDS[message.kind],
        status=Status(StatusCode.ERROR, message.status.message) if failed else Status(),
        start_time=message.start_time_unix_nano,
        end_time=message.end_time_unix_nano,
        instrumentation_scope=InstrumentationScope(scope),
    )


class _Collecting(SpanExporter):
    def __init__(self) -> None:
        self.exported: list[object] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.exported.extend(spans)
        return SpanExportResult.SUCCESS


class _EncodedError(Exception):
    """Ends an export when the spans have been encoded."""

    def __init__(self, request: ExportTraceServiceRequest) -> None:
        super().__init__()
        self.request = request


class _Probing(MessageExporter):
    def _translate_data(self, data: Sequence[object]) -> ExportTraceServiceRequest:
        raise _EncodedError(super()._translate_data(data))


def _plain(value: common_pb2.AnyValue) -> str | int | bool:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return value.bool_value
    return value.int_value if kind == "int_value" else value.string_value
