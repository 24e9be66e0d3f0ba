"""Spans that are written when they end. Imports the OpenTelemetry SDK.

A span of the SDK costs ten times as much: half of it when it is created (a lock, limits, a clock)
and half when it is encoded (docs/performance.md). Here the times are known and nothing reads a span
before it ends, so it is created as the message that is exported. While a span lasts, others need
only its context, which is drawn when the span begins.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

Attributes = Mapping[str, str | int | bool]

_NOTHING: Attributes = {}
_NO_PARENT = Context()
KINDS = {
    SpanKind.INTERNAL: trace_pb2.Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: trace_pb2.Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: trace_pb2.Span.SPAN_KIND_CLIENT,
}
_REMOTE_IS_KNOWN = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class WrittenSpan(NamedTuple):
    """A span that has ended: its context, and the message to export."""

    context: SpanContext
    message: trace_pb2.Span


class SpanWriter:
    """Draws the contexts of spans, and writes the spans that are sampled.

    Args:
        sampler: decides for each root span.
        emit: queues a span for export.
    """

    def __init__(self, sampler: Sampler, emit: Callable[[WrittenSpan], None]) -> None:
        self._sampler = sampler
        self._emit = emit

    def root(self, name: str, trace_id: int = 0) -> SpanContext:
        """The context of a span without a parent.

        Only roots ask the sampler. A child is sampled if its parent is, in whatever process.

        Args:
            name: for samplers that decide by name.
            trace_id: 0 for a random one.
        """
        trace_id = trace_id or random.getrandbits(128)
        result = self._sampler.should_sample(_NO_PARENT, trace_id, name)
        sampled = result.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return SpanContext(trace_id, _span_id(), False, flags)

    @staticmethod
    def child(parent: SpanContext) -> SpanContext:
        """The context of a span below another one."""
        return SpanContext(parent.trace_id, _span_id(), False, parent.trace_flags)

    def write(
        self,
        name: str,
        context: SpanContext,
        *,
        parent: SpanContext | None,
        start_us: int,
        end_us: int,
        kind: SpanKind = SpanKind.INTERNAL,
        constant: Sequence[KeyValue] = (),
        attributes: Attributes = _NOTHING,
        links: Sequence[SpanContext] = (),
        failure: str | None = None,
    ) -> None:
        """Writes a span that has ended, if it is sampled.

        Args:
            name: of the span.
            context: of the span.
            parent: None for a root.
            start_us: microseconds since the epoch.
            end_us: microseconds since the epoch.
            kind: of the span.
            constant: attributes that `key_values` made once, for all spans of a kind.
            attributes: further attributes. No speech, text or tokens.
            links: to other spans.
            failure: the description of the error, if the span failed.
        """
        if not context.trace_flags.sampled:
            return
        message = trace_pb2.Span(
            trace_id=context.trace_id.to_bytes(16, "big"),
            span_id=context.span_id.to_bytes(8, "big"),
            name=name,
            kind=KINDS[kind],
            start_time_unix_nano=start_us * 1000,
            end_time_unix_nano=max(start_us, end_us) * 1000,
            attributes=constant,
            flags=_REMOTE_IS_KNOWN,
        )
        if attributes:
            message.attributes.extend(key_values(attributes))
        if parent is not None:
            message.parent_span_id = parent.span_id.to_bytes(8, "big")
            if parent.is_remote:
                message.flags |= _IS_REMOTE
        for link in links:
            message.links.add(
                trace_id=link.trace_id.to_bytes(16, "big"),
                span_id=link.span_id.to_bytes(8, "big"),
            )
        if failure is not None:
            message.status.code = trace_pb2.Status.STATUS_CODE_ERROR
            message.status.message = failure
        self._emit(WrittenSpan(context, message))

    @staticmethod
    @contextmanager
    def current(context: SpanContext) -> Iterator[None]:
        """Makes a span the current one within this block."""
        span = NonRecordingSpan(context)
        token = context_api.attach(trace.set_span_in_context(span, _NO_PARENT))
        try:
            yield
        finally:
            context_api.detach(token)


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes as they are exported. Values that are not bool or int become strings."""
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=str(value))


def _span_id() -> int:
    # 0 is not a valid id.
    return random.getrandbits(64) or 1
