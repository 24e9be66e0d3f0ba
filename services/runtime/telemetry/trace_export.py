"""Starts the export of spans. Imports the OpenTelemetry SDK, so only `traces` imports it, late.

Spans wait in a queue of `OTEL_BSP_MAX_QUEUE_SIZE` (2048), from which a thread sends them, so the
event loop never waits for a collector. If the queue is full, the oldest spans are dropped.
"""

import logging
import os
import threading
from collections.abc import Callable

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lingua_scheduler.services.runtime.telemetry.message_exporter import (
    MessageExporter,
    exports_messages,
    readable,
)
from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter, WrittenSpan
from lingua_scheduler.services.runtime.version import version

# Time to send the remaining spans at the end of the process. An unreachable collector must not keep
# the process alive.
_LAST_SPANS_S = 3.0

_log = logging.getLogger(__name__)


def start_export(
    service: str, instance_id: str, scope: str
) -> tuple[SpanWriter, TracerProvider, Callable[[], None]]:
    """Starts the export of a service's spans over OTLP/gRPC.

    Returns:
        The writer of spans, a provider for spans of the SDK, and a function that sends the
        remaining spans and ends the export.
    """
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"
    )
    if protocol != "grpc":
        _log.warning("unsupported otlp protocol ignored", extra={"protocol": protocol})
    attributes = {
        SERVICE_INSTANCE_ID: instance_id,
        "service.version": version(),
    }
    # Attributes given here override the environment, whose service name should win.
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = f"lingua-{service}"
    provider = TracerProvider(resource=Resource.create(attributes))
    resource = provider.resource
    direct = exports_messages(resource, scope)
    exporter = MessageExporter(resource, scope) if direct else OTLPSpanExporter()
    processor = BatchSpanProcessor(exporter)
    provider.add_span_processor(processor)

    def stop() -> None:
        # The exporter retries for half a minute unless it is shut down.
        limit = threading.Timer(_LAST_SPANS_S, exporter.shutdown)
        limit.daemon = True
        limit.start()
        provider.shutdown()
        limit.cancel()

    def emit(span: WrittenSpan) -> None:
        processor.on_end(readable(span, resource, scope))

    if direct:
        writer = SpanWriter(provider.sampler, processor.on_end)  # type: ignore[arg-type]
    else:
        _log.warning("direct span export unavailable")
        writer = SpanWriter(provider.sampler, emit)
    return writer, provider, stop
