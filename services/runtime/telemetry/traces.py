"""Traces, which are exported over OTLP if the usual `OTEL_` variables are set.

Unary calls carry the W3C context in their metadata; messages on shared streams carry `traceparent`
in a field. The id of an utterance's trace is that of its job (decision 18), so every service that
has the job can begin or continue the trace. Which service writes which span:

    session                          gateway     one per connection; linked with its utterances
    utterance                        gateway     the root: from the first chunk to the delivery
      gather, hangover, deliver      gateway
      submit                         dispatcher  which knows when it received the job
      dispatch                       dispatcher
        queue, allocate              dispatcher
          pool allocate              pool
            EVALSHA allocate         pool
        attempt N                    dispatcher  retries and hedges are siblings
          send, ack, node            dispatcher
            asr, semantic, nmt, ...  dispatcher  as reported by the node
          node translate             the node's process, if it traces
          pool commit, complete, ..  pool        with the script of each
    package.Service/Method           each server, of unary calls

Spans contain no text, audio or tokens, and no error texts of nodes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

TRACER_NAME = "lingua_scheduler"

_TRACEPARENT_CHARS = 55

_propagator = TraceContextTextMapPropagator()

# Of the current service: a process may host several, each in a context of its own.
_writer: ContextVar[SpanWriter | None] = ContextVar("lingua_span_writer", default=None)
_provider: ContextVar[trace.TracerProvider | None] = ContextVar("lingua_tracers", default=None)


def configure_tracing(service: str, instance_id: str) -> Callable[[], None]:
    """Starts the export of spans if the environment asks for it.

    That is if `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, unless
    `OTEL_SDK_DISABLED` is true or `OTEL_TRACES_EXPORTER` is none. Sampling follows
    `OTEL_TRACES_SAMPLER`. Call it once per service, in its context (see `identity`), before
    anything gets a tracer.

    Returns:
        A function to call at the end. It sends the remaining spans, which may block for a few
        seconds if the collector is slow.
    """
    if not _is_requested():
        return _nothing
    # Imported late because it takes half a second to load.
    from lingua_scheduler.services.runtime.telemetry.trace_export import start_export

    writer, provider, stop = start_export(service, instance_id, TRACER_NAME)
    _writer.set(writer)
    _provider.set(provider)
    return stop


def tracer_if_on(provider: trace.TracerProvider | None = None) -> Tracer | None:
    """A tracer of the given provider, or of the current service; None if tracing is off."""
    provider = provider or _provider.get()
    return None if provider is None else provider.get_tracer(TRACER_NAME)


def span_writer_if_on() -> SpanWriter | None:
    """The span writer of the current service; None if tracing is off."""
    return _writer.get()


def context_from_traceparent(traceparent: str, tracestate: str = "") -> Context | None:
    """The context that a `traceparent` names, or None if it is empty or malformed."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    context = _propagator.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def span_of(traceparent: str) -> SpanContext | None:
    """The remote span that a `traceparent` of this scheduler names; None if it is malformed.

    Fast, for messages on streams. Other forms that the standard allows, such as later versions,
    need `context_from_traceparent`.
    """
    if len(traceparent) != _TRACEPARENT_CHARS or traceparent[:3] != "00-":
        return None
    try:
        trace_id, span_id = int(traceparent[3:35], 16), int(traceparent[36:52], 16)
        flags = TraceFlags(int(traceparent[53:], 16))
    except ValueError:
        return None
    span = SpanContext(trace_id, span_id, True, flags)
    return span if span.is_valid else None


def traceparent_of(span: SpanContext) -> str:
    """A span as a `traceparent`; "" if it is not valid."""
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def current_traceparent() -> str:
    """The current span as a `traceparent`, or "" outside of any."""
    return traceparent_of(trace.get_current_span().get_span_context())


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """Metadata that propagates the current span with a call."""
    traceparent = current_traceparent()
    return (("traceparent", traceparent),) if traceparent else ()


@contextmanager
def outside_spans() -> Iterator[SpanContext]:
    """Within this block there is no current span, for work that outlives the call.

    Yields the span that was current.
    """
    call = trace.get_current_span().get_span_context()
    token = context_api.attach(Context())
    try:
        yield call
    finally:
        context_api.detach(token)


def _is_requested() -> bool:
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
