"""Starts the export of spans. Needs the OpenTelemetry SDK: see telemetry.

Spans wait in a queue of `OTEL_BSP_MAX_QUEUE_SIZE` (2048) and are sent by a thread of their own, so
the event loop never waits for a collector; with the queue full the oldest are dropped.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from importlib import metadata

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lingua_scheduler.services.runtime.telemetry.span_writer import (
    SpanWriter,
    WrittenSpan,
    key_values,
)

# At the end of the process: for spans that are left. A collector that is away must not keep it.
_LAST_SPANS_S = 3.0

_log = logging.getLogger(__name__)


class _Exporter(OTLPSpanExporter):
    """Sends spans of the SDK as usual, and those of a SpanWriter as the messages that they are."""

    def __init__(self, resource: Resource, scope: str) -> None:
        super().__init__()
        self._resource = resource_pb2.Resource(attributes=key_values(resource.attributes))
        self._scope = InstrumentationScope(name=scope)

    def _translate_data(self, data: Sequence[object]) -> ExportTraceServiceRequest:
        written = [span.message for span in data if isinstance(span, WrittenSpan)]
        others = [span for span in data if isinstance(span, ReadableSpan)]
        request = super()._translate_data(others) if others else ExportTraceServiceRequest()
        if written:
            spans = request.resource_spans.add(resource=self._resource)
            spans.scope_spans.add(scope=self._scope, spans=written)
        return request


def start_export(
    service: str, instance_id: str, scope: str
) -> tuple[SpanWriter, Callable[[], None]]:
    """Makes a provider that exports over OTLP/gRPC the process's own.

    Returns:
        What writes spans beside it, and what ends it.
    """
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"
    )
    if protocol != "grpc":
        _log.warning("unsupported otlp protocol ignored", extra={"protocol": protocol})
    attributes = {
        SERVICE_INSTANCE_ID: instance_id,
        "service.version": metadata.version("lingua-scheduler"),
    }
    # Attributes in code win over the environment, and a name given there is meant.
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = f"lingua-{service}"
    provider = TracerProvider(resource=Resource.create(attributes))
    exporter = _Exporter(provider.resource, scope)
    processor = BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)

    def stop() -> None:
        # It repeats what a collector does not take, for half a minute in all, unless it is ended.
        limit = threading.Timer(_LAST_SPANS_S, exporter.shutdown)
        limit.daemon = True
        limit.start()
        provider.shutdown()
        limit.cancel()

    return SpanWriter(provider, processor), stop
