"""Spans of handlers. With the API alone, so it costs next to nothing until the app traces."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, SpanContext, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TRACER_NAME = "lingua_scheduler.sdk"

_propagator = TraceContextTextMapPropagator()


def parent(traceparent: str) -> Context:
    """The context that a traceparent names; an empty one where it names none."""
    return _propagator.extract({"traceparent": traceparent}, Context())


def span_context(traceparent: str) -> SpanContext:
    """The span that a traceparent names; the invalid one where it names none."""
    return trace.get_current_span(parent(traceparent)).get_span_context()


@contextmanager
def node_span(job_type: str, traceparent: str, attributes: dict[str, str | int]) -> Iterator[Span]:
    """Within this block a span of the job is the current one."""
    if not traceparent and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        yield INVALID_SPAN  # nobody traces, neither here nor there
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
    """The span ended badly. Not in the handler's words, which may be the speaker's."""
    span.set_attribute("error.type", why)
    span.set_status(Status(StatusCode.ERROR, why))
