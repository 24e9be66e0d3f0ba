"""A collector of spans on a real socket, in threads of its own, and the traces that it was sent."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

# Spans are sent in batches, some of them when a job is long over.
SOON_S = 15.0


@dataclass(frozen=True)
class Span:
    """A span, and the service that sent it."""

    service: str
    told: Any

    @property
    def name(self) -> str:
        """As its sender called it."""
        return str(self.told.name)

    @property
    def trace_id(self) -> str:
        """In hex, as job ids are."""
        return str(self.told.trace_id.hex())

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes as plain values."""
        return {
            each.key: getattr(each.value, each.value.WhichOneof("value"))
            for each in self.told.attributes
        }

    @property
    def links(self) -> set[bytes]:
        """The ids of spans that it is linked with."""
        return {each.span_id for each in self.told.links}

    @property
    def failed(self) -> bool:
        """Whether its status says so."""
        return bool(self.told.status.code == 2)


class Trace:
    """All spans of one trace so far."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.told.start_time_unix_nano)
        self._by_id = {span.told.span_id: span for span in spans}

    def named(self, name: str) -> list[Span]:
        """In the order of their beginnings."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        """The only span of this name."""
        (span,) = self.named(name)
        return span

    def parent(self, span: Span) -> Span | None:
        """None for a root, or where the parent was not sent."""
        return self._by_id.get(span.told.parent_span_id)

    def tree(self, *leave_out: str) -> list[tuple[str, str]]:
        """Every span with its parent's name, in order; "" for a root."""
        named = ((self.parent(span), span) for span in self.spans)
        return [(up.name if up else "", s.name) for up, s in named if s.name not in leave_out]

    def check_nested(self, *may_end_later: str) -> None:
        """Every span lies within its parent, but for those of other processes that end later."""
        for span in self.spans:
            parent = self.parent(span)
            if parent is not None:
                start, end = span.told.start_time_unix_nano, span.told.end_time_unix_nano
                assert parent.told.start_time_unix_nano <= start <= end, (parent.name, span.name)
                if span.name not in may_end_later:
                    assert end <= parent.told.end_time_unix_nano, (parent.name, span.name)


class SpanCollector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Keeps what it is sent. A context manager."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.raw: list[bytes] = []
        self.endpoint = ""

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def Export(self, request: Any, context: object) -> Any:  # noqa: N802
        """A batch has come."""
        self.raw.append(request.SerializeToString())
        for resource in request.resource_spans:
            told = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [Span(told["service.name"], span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    @property
    def environ(self) -> dict[str, str]:
        """What makes a process send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def trace(self, trace_id: str) -> Trace:
        """What has come of a trace."""
        return Trace([span for span in list(self.spans) if span.trace_id == trace_id])

    def until(self, trace_id: str, is_there: Callable[[Trace], bool]) -> Trace:
        """The trace, when something holds of it. Blocks."""
        deadline = time.monotonic() + SOON_S
        while not is_there(trace := self.trace(trace_id)):
            assert time.monotonic() < deadline, f"not within {SOON_S} s: {trace.tree()}"
            time.sleep(0.02)
        return trace
