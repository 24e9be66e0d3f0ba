"""Metrics, spans and log lines of the calls that a gRPC server handles."""

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from prometheus_client import CollectorRegistry, Counter, Histogram

from lingua_scheduler.services.runtime.auth.access import is_open
from lingua_scheduler.services.runtime.telemetry.traces import context_from_traceparent

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

# Calls of probes and tools, which are not counted.
_UNOBSERVED = ("grpc.health.", "grpc.reflection.")

# Seconds, from a fast Redis round trip to the longest wait for a free slot.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# A caller gives up by its own clock, slightly before the deadline that the server computed.
_DEADLINE_SLACK_S = 0.05

# Codes that OpenTelemetry counts as faults of the server; others are faults of the caller.
_SERVER_FAULTS = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)

# Handlers may set a code as a number.
_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the server.

    Bidirectional streams live as long as a peer. They are only counted: their duration means
    nothing, and a span would become the parent of spans that belong to single utterances.
    """

    name: str
    observed: bool
    open: bool
    """Anyone may call it without a token."""
    unary: bool
    bounded: bool


class CallObserver:
    """Observes calls; what is off costs next to nothing."""

    def __init__(self, *, registry: CollectorRegistry | None, tracer: Tracer | None) -> None:
        self._tracer = tracer
        self._handled: Counter | None = None
        if registry is not None:
            self._handled = Counter(
                "lingua_grpc_server_handled_total",
                "Calls that ended, by method and status code.",
                ["method", "code"],
                registry=registry,
            )
            self._seconds = Histogram(
                "lingua_grpc_server_handling_seconds",
                "Time that calls took, without streams in both directions.",
                ["method"],
                buckets=_BUCKETS,
                registry=registry,
            )

    def method(self, path: str, *, streams_in: bool, streams_out: bool) -> Method:
        """Describes the method with the path `/package.Service/Name`."""
        name = path.removeprefix("/")
        return Method(
            name=name,
            observed=not name.startswith(_UNOBSERVED),
            open=is_open(name),
            unary=not streams_in and not streams_out,
            bounded=not streams_in or not streams_out,
        )

    @contextlib.contextmanager
    def observe(self, method: Method, context: Context) -> Iterator[None]:
        """Observes one call from start to end, however it ends."""
        if not method.observed:
            yield
            return
        started = time.perf_counter()
        ended_well = False
        with self._span(method, context) as span:
            try:
                yield
                ended_well = True
            finally:
                code = _code(context, ended_well=ended_well)
                self._record(method, code, time.perf_counter() - started)
                if span is not None:
                    span.set_attribute("rpc.response.status_code", code.name)
                    if code in _SERVER_FAULTS:
                        span.set_attribute("error.type", code.name)
                        span.set_status(Status(StatusCode.ERROR, context.details() or None))

    def _span(
        self, method: Method, context: Context
    ) -> contextlib.AbstractContextManager[Span | None]:
        if self._tracer is None or not method.bounded:
            return contextlib.nullcontext()
        # At run time this is a plain tuple of pairs, unlike its declared type.
        metadata = dict(context.invocation_metadata() or ())
        return self._tracer.start_as_current_span(
            method.name,
            context=context_from_traceparent(
                str(metadata.get("traceparent", "")), str(metadata.get("tracestate", ""))
            ),
            kind=SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": method.name},
            # The status is set from the code, because a mistake of the client is no error here.
            record_exception=False,
            set_status_on_exception=False,
        )

    def _record(self, method: Method, code: grpc.StatusCode, seconds: float) -> None:
        if self._handled is not None:
            self._handled.labels(method.name, code.name).inc()
            if method.bounded:
                self._seconds.labels(method.name).observe(seconds)
        if method.unary and _log.isEnabledFor(logging.DEBUG):
            facts = {"method": method.name, "code": code.name, "ms": round(seconds * 1000, 3)}
            _log.debug("call ended", extra=facts)


def _code(context: Context, *, ended_well: bool) -> grpc.StatusCode:
    """The status code of a call that has ended."""
    given: grpc.StatusCode | int | None = context.code()
    if given is not None:
        return _CODES[given] if isinstance(given, int) else given
    if ended_well:
        return grpc.StatusCode.OK
    remaining: float | None = context.time_remaining()
    if remaining is not None and remaining < _DEADLINE_SLACK_S:
        return grpc.StatusCode.DEADLINE_EXCEEDED
    return grpc.StatusCode.CANCELLED
