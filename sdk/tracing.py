"""Spans of handlers. With the API alone, so it costs next to nothing until the app traces."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, SpanKind, Status, StatusCode
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
def consumer_span(traceparent: str, attributes: dict[str, str | int]) -> Iterator[Span]:
    """Within this block a span of the job is the current one."""
    tracer = trace.get_tracer(TRACER_NAME)
    with tracer.start_as_current_span(
        "translate",
        context=parent(traceparent),
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def mark_failed(span: Span, why: str, error: BaseException | None = None) -> None:
    """The span ended badly."""
    if error is not None:
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, why))
