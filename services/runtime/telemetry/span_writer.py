"""Spans that are written when they are over. Needs the OpenTelemetry SDK: see telemetry.

A span of the SDK costs ten times as much as this, half of it when it is made (a lock, limits, a
clock of its own) and half when it is made into a message (docs/performance.md). There is no use for
the first where times are known and nobody looks before the end; so a span is made as the message
that it is exported as. What others must know of it while it lasts is only its context, which is
drawn when it begins.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

Attributes = Mapping[str, str | int | bool]

_NOTHING: Attributes = {}
_NO_PARENT = Context()
_KINDS = {
    SpanKind.INTERNAL: trace_pb2.Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: trace_pb2.Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: trace_pb2.Span.SPAN_KIND_CLIENT,
}
_REMOTE_IS_KNOWN = trace_pb2.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE = trace_pb2.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class WrittenSpan(NamedTuple):
    """A span that is over: what a processor wants to know of it, and what is exported."""

    context: SpanContext
    message: trace_pb2.Span


class SpanWriter:
    """Draws contexts of spans by the provider's sampler, and writes what is sampled.

    Args:
        provider: whose sampler counts.
        processor: a BatchSpanProcessor whose exporter takes WrittenSpans.
    """

    def __init__(self, provider: TracerProvider, processor: SpanProcessor) -> None:
        self._sampler = provider.sampler
        self._emit = processor.on_end

    def root(self, name: str, trace_id: int = 0) -> SpanContext:
        """The context of a span without a parent.

        Only these ask the sampler: what is below a span is sampled where that is, in whatever
        process.

        Args:
            name: for samplers that go by it.
            trace_id: 0 for any.
        """
        wanted = trace_id or random.getrandbits(128)
        result = self._sampler.should_sample(_NO_PARENT, wanted, name)
        sampled = result.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return SpanContext(wanted, _span_id(), False, flags)

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
        """A span is over. One that is not sampled goes nowhere.

        Args:
            name: of the span.
            context: its own.
            parent: None for a root.
            start_us: since the epoch.
            end_us: the same.
            kind: of the span.
            constant: attributes that were made by `key_values`, once for all.
            attributes: further ones. Nothing that anybody has said.
            links: to other spans.
            failure: its status is an error, in these words.
        """
        if not context.trace_flags.sampled:
            return
        message = trace_pb2.Span(
            trace_id=context.trace_id.to_bytes(16, "big"),
            span_id=context.span_id.to_bytes(8, "big"),
            name=name,
            kind=_KINDS[kind],
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
        # A processor of batches looks at nothing but the context.
        self._emit(WrittenSpan(context, message))  # type: ignore[arg-type]

    @staticmethod
    @contextmanager
    def current(context: SpanContext) -> Iterator[None]:
        """Within this block, what is called is part of that span."""
        span = NonRecordingSpan(context)
        token = context_api.attach(trace.set_span_in_context(span, _NO_PARENT))
        try:
            yield
        finally:
            context_api.detach(token)


def key_values(attributes: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes as they are exported; whatever is no number is a string."""
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(string_value=str(value))


def _span_id() -> int:
    # 0 is no id.
    return random.getrandbits(64) or 1
