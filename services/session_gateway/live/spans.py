"""The spans of one connection of a session, and of its utterances (decision 18).

Each utterance is a trace of its own, whose id is derived from its job's. So a gateway that resumes
a session continues the same traces, with a root span for its own part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanContext, SpanKind

from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.services.runtime.telemetry.traces import traceparent_of
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2, session_pb2

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

_CONVERSE = f"{session_pb2.DESCRIPTOR.services_by_name['SessionGateway'].full_name}/Converse"
# How the client called, in the words of OpenTelemetry's semantic conventions.
_CALLS = {
    "grpc": {"rpc.system.name": "grpc", "rpc.method": _CONVERSE},
    "web": {"network.protocol.name": "websocket", "url.path": "/v1/converse"},
}
_WRITTEN = {
    common_pb2.JobStep.KIND_GATHER: "gather",
    common_pb2.JobStep.KIND_HANGOVER: "hangover",
}
# How many utterances, the most recent ones, the span of a session links to.
_MAX_LINKS = 128


@dataclass(slots=True)
class _Open:
    context: SpanContext
    start_us: int
    attributes: dict[str, str | int | bool]
    # When its result arrived; 0 if it has not.
    result_us: int = 0


class SessionSpans:
    """Created when the client is connected, ended when it has left.

    Args:
        writer: writes the spans.
        client: the client's own span, if the client sent one.
        transport: of the client: grpc or web.
        session_id: of the session.
        epoch: of the session; over 1 if it was resumed.
    """

    def __init__(
        self,
        writer: SpanWriter,
        *,
        client: SpanContext | None,
        transport: str,
        session_id: str,
        epoch: int,
    ) -> None:
        self._writer = writer
        self._call = _CALLS[transport]
        self._session_id = session_id
        self._resumed = epoch > 1
        self._span = writer.child(client) if client else writer.root("session")
        self._client = client
        self._start_us = _now_us()
        self._links: list[SpanContext] = []
        # Sampled utterances that have no outcome, by job. In a room one has several.
        self._open: dict[str, _Open] = {}

    @property
    def traceparent(self) -> str:
        """The trace context for the client's own spans."""
        return traceparent_of(self._span)

    def submitted(self, utterance: Utterance, steps: Sequence[common_pb2.JobStep] = ()) -> str:
        """An utterance is submitted, or submitted again; returns its trace context."""
        known = self._open.get(utterance.job_id)
        if known is not None:
            return traceparent_of(known.context)
        context = self._writer.root("utterance", int(utterance.job_id, 16))
        if context.trace_flags.sampled:
            self._begin(context, utterance, steps)
        return traceparent_of(context)

    def has_result(self, job_id: str) -> None:
        """The result has arrived; it may have to wait for earlier ones."""
        if job_id in self._open:
            self._open[job_id].result_us = _now_us()

    def delivered(self, result: session_pb2.Result) -> None:
        """The result is sent to the client."""
        if result.job_id in self._open:
            self._open[result.job_id].attributes["lingua.attempts"] = result.attempts
            self._deliver(result.job_id, result.kind)

    def missing(self, missing: session_pb2.Missing) -> None:
        """The utterance is reported as missing."""
        for job_id, utterance in list(self._open.items()):
            if utterance.attributes["lingua.utterance_index"] == missing.utterance_index:
                self._miss(job_id, missing.why)

    def published(self, job_id: str, event: rooms_pb2.RoomEvent) -> None:
        """The room has the outcome of an utterance in one language."""
        if job_id not in self._open:
            return
        if event.HasField("result"):
            self._deliver(job_id, event.result.kind)
        else:
            self._miss(job_id, event.missing.why)

    def _deliver(self, job_id: str, kind: dispatcher_pb2.JobResult.Kind.ValueType) -> None:
        utterance, now_us = self._open.pop(job_id), _now_us()
        self._child("deliver", utterance.context, utterance.result_us or now_us, now_us)
        how = dispatcher_pb2.JobResult.Kind.Name(kind).removeprefix("KIND_")
        self._write(utterance, now_us, how)

    def _miss(self, job_id: str, why: common_pb2.Error) -> None:
        self._write(self._open.pop(job_id), _now_us(), "MISSING", reason_name(why.reason))

    def end(self, how: str) -> None:
        """The client has left. Its next gateway continues the open utterances."""
        now_us = _now_us()
        for utterance in self._open.values():
            self._write(utterance, now_us, "LEFT")
        self._open.clear()
        self._writer.write(
            "session",
            self._span,
            parent=self._client,
            start_us=self._start_us,
            end_us=now_us,
            kind=SpanKind.SERVER,
            attributes={
                **self._call,
                "lingua.session_id": self._session_id,
                "lingua.resumed": self._resumed,
                "lingua.outcome": how.upper(),
            },
            links=self._links,
        )

    def _begin(
        self, context: SpanContext, utterance: Utterance, steps: Sequence[common_pb2.JobStep]
    ) -> None:
        reason = common_pb2.FinalizeReason.Name(utterance.reason).removeprefix("FINALIZE_REASON_")
        self._open[utterance.job_id] = _Open(
            context,
            steps[0].started_us if steps else _now_us(),
            {
                "lingua.session_id": self._session_id,
                "lingua.utterance_index": utterance.index,
                "lingua.direction": f"{utterance.direction.src}:{utterance.direction.tgt}",
                "lingua.reason": reason,
                "lingua.audio_ms": utterance.audio_ms,
                "lingua.taken_up": utterance.is_resumed,
            },
        )
        self._links = [*self._links[1 - _MAX_LINKS :], context]
        for step in steps:
            if step.kind in _WRITTEN:
                end_us = step.started_us + step.took_us
                self._child(_WRITTEN[step.kind], context, step.started_us, end_us)

    def _write(self, utterance: _Open, end_us: int, how: str, failure: str | None = None) -> None:
        utterance.attributes["lingua.outcome"] = how
        if failure is not None:
            utterance.attributes["error.type"] = failure
        self._writer.write(
            "utterance",
            utterance.context,
            parent=None,
            start_us=utterance.start_us,
            end_us=end_us,
            attributes=utterance.attributes,
            links=[self._span],
            failure=failure,
        )

    def _child(self, name: str, parent: SpanContext, start_us: int, end_us: int) -> None:
        self._writer.write(
            name, self._writer.child(parent), parent=parent, start_us=start_us, end_us=end_us
        )


def _now_us() -> int:
    return time.time_ns() // 1000
