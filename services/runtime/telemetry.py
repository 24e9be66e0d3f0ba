"""Traces: export over OTLP when the usual `OTEL_` variables ask for it, else nothing at all.

Unary calls carry W3C context in their metadata; messages on shared streams carry `traceparent`
in a field, for which the last two functions are made.
"""

import logging
import os
from collections.abc import Callable
from importlib import metadata

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER_NAME = "lingua_scheduler"

_log = logging.getLogger(__name__)
_propagator = TraceContextTextMapPropagator()


def configure_tracing(service: str, instance_id: str) -> Callable[[], None]:
    """Starts the export of spans if the environment asks for it.

    It does with `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, unless
    `OTEL_SDK_DISABLED` is true or `OTEL_TRACES_EXPORTER` is none. Sampling follows
    `OTEL_TRACES_SAMPLER`. Call it before anything takes a tracer, once a process.

    Returns:
        What to call at the end: it sends the spans that are left, which blocks while the
        collector is slow, and does nothing where there is no export.
    """
    if not _wanted():
        return _nothing
    # Half a second of imports that only those who export should pay for.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"
    )
    if protocol != "grpc":
        _log.warning("spans are exported over OTLP/gRPC only", extra={"protocol": protocol})
    attributes = {
        SERVICE_INSTANCE_ID: instance_id,
        "service.version": metadata.version("lingua-scheduler"),
    }
    # Attributes in code win over the environment, and a name given there is meant.
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = f"lingua-{service}"
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def tracer_if_on(provider: trace.TracerProvider | None = None) -> trace.Tracer | None:
    """A tracer of the given provider, else of the process's own, else None: tracing is off."""
    provider = provider or trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return provider.get_tracer(TRACER_NAME)


def context_from_traceparent(traceparent: str, tracestate: str = "") -> Context | None:
    """The context that a `traceparent` names, or None if it is empty or malformed."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    context = _propagator.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def current_traceparent() -> str:
    """The current span as a `traceparent`, or "" outside of any."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def _wanted() -> bool:
    env = os.environ
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = env.get("OTEL_TRACES_EXPORTER", "otlp").lower().split(",")
    if "otlp" not in [exporter.strip() or "otlp" for exporter in exporters]:
        return False
    return bool(
        env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    )


def _nothing() -> None:
    pass
