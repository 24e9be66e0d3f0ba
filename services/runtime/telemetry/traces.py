"""Traces: export over OTLP when the usual `OTEL_` variables ask for it, else nothing at all.

Unary calls carry W3C context in their metadata; messages on shared streams carry `traceparent` in a
field. The trace of an utterance has the id of its job (decision 18), so whoever has the job can
begin or continue it. Who writes which span:

    session                          gateway     one a connection; linked with its utterances
    utterance                        gateway     the root: from the first chunk to the delivery
      gather, hangover, deliver      gateway
      submit                         dispatcher  it alone knows when it had the job
      dispatch                       dispatcher
        queue, allocate              dispatcher
          pool allocate              pool
            EVALSHA allocate         pool
        attempt N                    dispatcher  retries and hedges are siblings
          send, ack, node            dispatcher
            asr, semantic, nmt, ...  dispatcher  as the node told them
          node translate             the node's process, where it traces
          pool commit, complete, ..  pool        with the script of each
    package.Service/Method           each server, of unary calls

No span has a text, audio or a token in it, nor what a node says of its failures in words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

_writer: SpanWriter | None = None


def configure_tracing(service: str, instance_id: str) -> Callable[[], None]:
    """Starts the export of spans if the environment asks for it.

    It does with `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, unless
    `OTEL_SDK_DISABLED` is true or `OTEL_TRACES_EXPORTER` is none. Sampling follows
    `OTEL_TRACES_SAMPLER`. Call it before anything takes a tracer, once a process.

    Returns:
        What to call at the end: it sends the spans that are left, which blocks for some seconds
        while the collector is slow, and does nothing where there is no export.
    """
    if not _wanted():
        return _nothing
    # Half a second of imports that only those who export should pay for.
    from lingua_scheduler.services.runtime.telemetry.trace_export import start_export

    global _writer
    _writer, stop = start_export(service, instance_id, TRACER_NAME)
    return stop


def tracer_if_on(provider: trace.TracerProvider | None = None) -> Tracer | None:
    """A tracer of the given provider, else of the process's own, else None: tracing is off."""
    provider = provider or trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return provider.get_tracer(TRACER_NAME)


def span_writer_if_on() -> SpanWriter | None:
    """What writes the spans of this process; None: tracing is off."""
    return _writer


def context_from_traceparent(traceparent: str, tracestate: str = "") -> Context | None:
    """The context that a `traceparent` names, or None if it is empty or malformed."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent, "tracestate": tracestate}
    context = _propagator.extract(carrier, Context())
    return context if trace.get_current_span(context).get_span_context().is_valid else None


def span_of(traceparent: str) -> SpanContext | None:
    """The remote span that a `traceparent` of ours names; None where it is none.

    For messages, of which there are many: other ways of writing one that the standard allows, such
    as later versions of it, are for `context_from_traceparent`.
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
    """A span as a `traceparent`; "" where it is none."""
    if not span.is_valid:
        return ""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def current_traceparent() -> str:
    """The current span as a `traceparent`, or "" outside of any."""
    return traceparent_of(trace.get_current_span().get_span_context())


def trace_metadata() -> tuple[tuple[str, str], ...]:
    """What a call to another service carries of the current span."""
    traceparent = current_traceparent()
    return (("traceparent", traceparent),) if traceparent else ()


@contextmanager
def outside_spans() -> Iterator[SpanContext]:
    """Within this block no span is the current one, for what begins there outlives the call.

    Gives the span that was.
    """
    call = trace.get_current_span().get_span_context()
    token = context_api.attach(Context())
    try:
        yield call
    finally:
        context_api.detach(token)


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
