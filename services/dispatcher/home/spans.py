"""The spans of a job, made by its home from the job's timeline. See telemetry for the whole tree.

Spans that have children (a question to the pool, an attempt, the dispatch itself) get their context
when they begin. All spans are written when they are over, with the times of the timeline's steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanContext, SpanKind

from lingua_scheduler.services.dispatcher.job.timeline import Kind, Step, Timeline
from lingua_scheduler.services.runtime.telemetry.traces import span_of, traceparent_of
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.telemetry.span_writer import SpanWriter

_NAMES = {
    number: name.removeprefix("KIND_").lower() for name, number in common_pb2.JobStep.Kind.items()
}
# Outcomes that are not errors.
_NO_FAULT = frozenset(("HEDGE_LOST", "CANCELLED", "JOB_CANCELLED"))
_OF_ATTEMPT = (Kind.KIND_SEND, Kind.KIND_ACK, Kind.KIND_NODE)


def new_timeline(
    writer: SpanWriter | None,
    job_id: str,
    spec: dispatcher_pb2.JobSpec,
    *,
    now: float,
    wall_us: int,
    earlier: Timeline | None = None,
    brought_by: SpanContext | None = None,
) -> Timeline:
    """The timeline of a job, with spans if tracing is on and the trace is sampled.

    If no gateway has begun the trace, it begins here, with a link to the call that submitted it.
    """
    if writer is not None:
        parent = span_of(spec.traceparent)
        dispatch = writer.child(parent) if parent else writer.root("dispatch", int(job_id, 16))
        if dispatch.trace_flags.sampled:
            attributes: dict[str, str | int] = {
                "lingua.job_id": job_id,
                "lingua.session_id": spec.session_id,
                "lingua.utterance_index": spec.utterance_index,
            }
            trace = JobTrace(
                writer=writer,
                dispatch=dispatch,
                parent=parent,
                brought_by=brought_by,
                attributes=attributes,
                began_us=wall_us,
            )
            return Timeline(spec.steps, now=now, wall_us=wall_us, earlier=earlier, trace=trace)
    return Timeline(spec.steps, now=now, wall_us=wall_us, earlier=earlier)


class JobTrace:
    """Writes the steps of a timeline as spans.

    Args:
        writer: writes finished spans.
        dispatch: the context of the span of the whole job.
        parent: the gateway's span, if the gateway has begun the trace.
        brought_by: the call that submitted the job.
        attributes: of the span of the whole job.
        began_us: when the job was submitted.
    """

    def __init__(
        self,
        *,
        writer: SpanWriter,
        dispatch: SpanContext,
        parent: SpanContext | None,
        brought_by: SpanContext | None,
        attributes: dict[str, str | int],
        began_us: int,
    ) -> None:
        self._writer = writer
        self._dispatch = dispatch
        self._parent = parent
        self._links = [brought_by] if brought_by and brought_by.is_valid else []
        self._attributes = attributes
        self._began_us = began_us
        self._question: tuple[SpanContext, Step] | None = None
        self._attempts: dict[int, SpanContext] = {}

    def asks(self, question: Step) -> str:
        """See Trace."""
        context = self._writer.child(self._dispatch)
        self._question = context, question
        return traceparent_of(context)

    def answered(self, at_us: float, why: str = "") -> None:
        """See Trace."""
        if self._question is not None:
            (context, question), self._question = self._question, None
            self._writer.write(
                "allocate",
                context,
                parent=self._dispatch,
                start_us=int(question.start_us),
                end_us=int(at_us),
                kind=SpanKind.CLIENT,
                attributes={"lingua.attempt": question.attempt, **_outcome(why)},
                failure=_fault(why),
            )

    def placed(self, number: int) -> None:
        """See Trace."""
        if number not in self._attempts:
            self._attempts[number] = self._writer.child(self._dispatch)

    def traceparent(self, number: int) -> str:
        """See Trace."""
        return traceparent_of(self._attempts.get(number, self._dispatch))

    def over(self, steps: Sequence[Step], at_us: float, how: str) -> None:
        """See Trace."""
        self.answered(at_us, how)
        for number, attempt in self._attempts.items():
            self._write_attempt(number, attempt, [step for step in steps if step.attempt == number])
        for step in steps:
            if step.kind == Kind.KIND_QUEUE:
                self._write(step, self._dispatch)
            elif step.kind == Kind.KIND_SUBMIT and self._parent is not None:
                # A sibling of the dispatch span, which begins where this one ends.
                self._write(step, self._parent)
        self._writer.write(
            "dispatch",
            self._dispatch,
            parent=self._parent,
            start_us=self._began_us,
            end_us=int(at_us),
            kind=SpanKind.SERVER,
            attributes=self._attributes | _outcome(how),
            links=self._links,
            failure=_fault(how),
        )

    def _write_attempt(self, number: int, attempt: SpanContext, steps: list[Step]) -> None:
        node = None
        for step in steps:
            if step.kind in _OF_ATTEMPT:
                context = self._write(step, attempt)
                node = context if step.kind == Kind.KIND_NODE else node
            elif step.kind == Kind.KIND_STAGE and node is not None:
                self._write(step, node)
        own = [step for step in steps if step.node_id]
        last = [step for step in own if step.kind != Kind.KIND_STAGE][-1]
        # The question to the pool before it is a span of its own.
        start_us = next(step.end_us for step in own if step.kind == Kind.KIND_ALLOCATE)
        how = last.detail.split(", ")[-1]
        # The contract's reasons are in capitals.
        how = how if how.isupper() else ""
        self._writer.write(
            f"attempt {number}",
            attempt,
            parent=self._dispatch,
            start_us=int(start_us),
            end_us=int(max(step.end_us for step in own)),
            kind=SpanKind.CLIENT,
            attributes={"lingua.node_id": last.node_id, **_outcome(how)},
            failure=_fault(how),
        )

    def _write(self, step: Step, parent: SpanContext) -> SpanContext:
        is_stage = step.kind == Kind.KIND_STAGE
        context = self._writer.child(parent)
        self._writer.write(
            step.detail if is_stage else _NAMES[step.kind],
            context,
            parent=parent,
            start_us=int(step.start_us),
            end_us=int(step.end_us),
            attributes={"lingua.detail": step.detail} if step.detail and not is_stage else {},
        )
        return context


def _outcome(how: str) -> dict[str, str | int]:
    if how and how not in _NO_FAULT:
        return {"lingua.outcome": how, "error.type": how}
    return {"lingua.outcome": how or "OK"}


def _fault(how: str) -> str | None:
    return how if how and how not in _NO_FAULT else None
