"""Spans of handlers. Uses only the OpenTelemetry API, which costs little if nothing is traced."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER_NAME = "lingua_scheduler.sdk"

_propagator = TraceContextTextMapPropagator()


def parent(traceparent: str) -> Context:
    """Returns the context of a traceparent; an empty one if it has none."""
    return _propagator.extract({"traceparent": traceparent}, Context())


def span_context(traceparent: str) -> SpanContext:
    """Returns the span of a traceparent; the invalid span if it has none."""
    return trace.get_current_span(parent(traceparent)).get_span_context()


@contextmanager
def node_span(job_type: str, traceparent: str, attributes: dict[str, str | int]) -> Iterator[Span]:
    """Makes a span of the job the current span within the block."""
    if not traceparent and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield INVALID_SPAN  # neither the scheduler nor this process traces
        return
    tracer = trace.get_tracer(TRACER_NAME)
    with tracer.start_as_current_span(
        f"node {job_type or 'translate'}",
        context=parent(traceparent),
        kind=SpanKind.SERVER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def mark_failed(span: Span, why: str) -> None:
    """Marks the span as failed. `why` must not quote the handler, which may quote the speaker."""
    span.set_attribute("error.type", why)
    span.set_status(Status(StatusCode.ERROR, why))
