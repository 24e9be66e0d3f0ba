"""When each step of a job began and ended, as its home sees it. No I/O; every event has the time.

    gather, hangover, submit   from the gateway; the home ends `submit` when it has the job
    queue      from the first refusal after which the job waits, to the question that is granted
    allocate   each question to the pool service, except for those refused while the job waits
    send       from the placement until the job was written to the node's stream, by relay or not
    ack        from there until the node has acknowledged it
    node       from there to the result, with the stages that the node has timed
    deliver    from the result until the gateway had sent it to the client

The last step of an attempt that fails says how it ended. Times are microseconds since the epoch: by
the home's wall clock at the job's submission, and by its monotonic clock from there. Times from
other machines are clamped, so that no step has a negative duration.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Protocol

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

MAX_STEPS = 64
# If steps are left out, these first ones stay: they are the gateway's.
_KEPT_FIRST = 3
_MAX_STAGES = 8
_MAX_JOINED = 100
_MAX_BEFORE = 8

Kind = common_pb2.JobStep

UNDER_WAY = "under way"
SEND_FAILED = "SEND_FAILED"

# A newer node may have kinds that this dispatcher does not know; they are recorded as unspecified.
_KINDS = frozenset(dispatcher_pb2.JobResult.Kind.values())

_OF_GATEWAY = (Kind.KIND_GATHER, Kind.KIND_HANGOVER)
_start_us = attrgetter("start_us")


@dataclass(slots=True, eq=False)
class Step:
    """One step. `end_us` is 0 while it is under way."""

    kind: common_pb2.JobStep.Kind.ValueType
    attempt: int
    start_us: float
    end_us: float = 0.0
    node_id: str = ""
    detail: str = ""

    def close(self, at_us: float, how: str = "") -> None:
        """Ends the step."""
        self.end_us = max(self.start_us, at_us)
        if how:
            self.detail = f"{self.detail}, {how}" if self.detail else how


class Trace(Protocol):
    """Receives the steps of a job that is traced. Times are microseconds since the epoch."""

    def asks(self, question: Step) -> str:
        """The pool is asked for a slot; returns the trace context of the question."""

    def answered(self, at_us: float, why: str = "") -> None:
        """The pool has answered the last question. why: the reason, if it refused."""

    def placed(self, number: int) -> None:
        """The pool has a node for this attempt."""

    def traceparent(self, number: int) -> str:
        """The trace context of an attempt."""

    def over(self, steps: Sequence[Step], at_us: float, how: str) -> None:
        """The job is over, with these steps. how: the reason, if it failed."""


class Timeline:
    """The steps of one job. Every event carries the time, as `timers.now_ms` returns it.

    Args:
        before: the steps that the gateway recorded.
        now: the time.
        wall_us: the same time in microseconds since the epoch.
        earlier: the timeline of the same job from before it began anew.
        trace: receives the steps, if the job is traced.
    """

    def __init__(
        self,
        before: Iterable[common_pb2.JobStep],
        *,
        now: float,
        wall_us: int,
        earlier: Timeline | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        # What a record says about the result, without anything that was said.
        self._result: tuple[int, Sequence[int], bool] | None = None
        self._offset_us = wall_us - now * 1000
        self._over_us = 0.0
        self._steps: list[Step] = _shortened(earlier._steps) if earlier else []
        # The steps before this index are from `earlier`.
        self._mine = len(self._steps)
        # The open step of each attempt, and those of the job between attempts.
        self._open: dict[int, Step] = {}
        self._sends: dict[int, Step] = {}
        self._queue: Step | None = None
        self._ask: Step | None = None
        for given in islice(before, _MAX_BEFORE):
            is_submit = given.kind == Kind.KIND_SUBMIT
            if is_submit or (self._mine == 0 and given.kind in _OF_GATEWAY):
                # The gateway's clock may be ahead; the job was not submitted in the future.
                start_us = min(given.started_us, wall_us)
                end_us = wall_us if is_submit else min(start_us + given.took_us, wall_us)
                self._steps.append(Step(given.kind, 0, start_us, end_us, detail=given.detail[:64]))

    # ---- looking for a node ----

    def asks(self, now: float, number: int, *, hedge: bool = False) -> str:
        """The pool is asked for a slot; returns the trace context of the question."""
        start_us, detail = self._offset_us + now * 1000, "hedge" if hedge else ""
        self._ask = Step(Kind.KIND_ALLOCATE, number, start_us, detail=detail)
        return "" if self._trace is None else self._trace.asks(self._ask)

    def refused(self, now: float, why: str) -> None:
        """The pool has no slot."""
        ask, self._ask = self._ask, None
        if ask is not None and self._queue is None and not self._over_us:
            ask.close(self._offset_us + now * 1000, why)
            self._steps.append(ask)
        if self._trace is not None:
            self._trace.answered(self._offset_us + now * 1000, why)

    def waits(self, now: float, number: int) -> None:
        """The job waits for room, or continues to wait."""
        if self._queue is None and not self._over_us:
            self._queue = Step(Kind.KIND_QUEUE, number, self._offset_us + now * 1000)
            self._steps.append(self._queue)

    def placed(self, now: float, number: int, node_id: str) -> None:
        """The pool has a node for this attempt."""
        ask, self._ask = self._ask, None
        now_us = self._offset_us + now * 1000
        if self._trace is not None:
            self._trace.answered(now_us)
        if ask is None or self._over_us:
            return
        if self._queue is not None:
            self._queue.close(ask.start_us)
            self._queue = None
        ask.attempt, ask.node_id, ask.end_us = number, node_id, now_us
        self._steps.append(ask)
        if self._trace is not None:
            self._trace.placed(number)

    # ---- an attempt ----

    def sends(self, now: float, number: int, node_id: str, *, by_relay: bool) -> None:
        """The attempt is on its way to its node. If the node has it already, nothing changes."""
        if number in self._open or self._over_us:
            return
        at_us, detail = self._offset_us + now * 1000, "by relay" if by_relay else ""
        send = Step(Kind.KIND_SEND, number, at_us, at_us, node_id, detail)
        ack = Step(Kind.KIND_ACK, number, at_us, node_id=node_id)
        self._sends[number], self._open[number] = send, ack
        self._steps += (send, ack)

    def sent(self, now: float, number: int, sent_us: float) -> None:
        """When it was written to the node's stream; known from the acknowledgement."""
        ack = self._open.get(number)
        if ack is not None and ack.kind == Kind.KIND_ACK:
            send = self._sends[number]
            sent_us = min(sent_us, self._offset_us + now * 1000)
            ack.start_us = send.end_us = max(send.start_us, sent_us)

    def acked(self, now: float, number: int) -> None:
        """The node runs the attempt."""
        step = self._open.get(number)
        if step is not None and step.kind == Kind.KIND_ACK:
            step.end_us = self._offset_us + now * 1000
            node = Step(Kind.KIND_NODE, number, step.end_us, node_id=step.node_id)
            self._open[number] = node
            self._steps.append(node)

    def result(
        self, now: float, number: int, timings: Iterable[dispatcher_pb2.StageTiming]
    ) -> None:
        """The node has the result, and reports the timings of its stages."""
        step = self._open.pop(number, None)
        if step is None:
            return
        step.end_us = self._offset_us + now * 1000
        for timing in islice(timings, _MAX_STAGES):
            start_us = min(step.start_us + timing.started_ms * 1000, step.end_us)
            end_us = min(start_us + timing.took_ms * 1000, step.end_us)
            name = _stage_name(timing.stage)
            self._steps.append(Step(Kind.KIND_STAGE, number, start_us, end_us, step.node_id, name))

    def ends(self, now: float, number: int, how: str) -> None:
        """The attempt ended without a result."""
        step = self._open.pop(number, None)
        if step is not None:
            if how == SEND_FAILED:
                # It never reached the node, so there was nothing to acknowledge.
                self._steps.remove(step)
                step = self._sends[number]
            step.close(self._offset_us + now * 1000, how)
            return
        # Its slot was given back before it was sent.
        for last in reversed(self._steps[self._mine :]):
            if last.attempt == number and last.kind == Kind.KIND_ALLOCATE and not self._over_us:
                last.close(last.end_us, how)
                return

    # ---- the end ----

    def won(self, result: dispatcher_pb2.JobResult, *, turn_broken: bool) -> None:
        """This is the result of the job. turn_broken: as in JobDelivered."""
        self._result = (kind_of(result), result.joined_utterances[:_MAX_JOINED], turn_broken)

    def over(self, now: float, how: str = "") -> None:
        """The job is over. how: the reason, if it failed."""
        if self._over_us:
            return
        self._over_us = self._offset_us + now * 1000
        if self._ask is not None and self._queue is None:
            self._steps.append(self._ask)
        self._ask = self._queue = None
        self._open.clear()
        for step in self._steps:
            if not step.end_us:
                step.close(self._over_us, how)
        if self._trace is not None:
            self._trace.over(self._steps[self._mine :], self._over_us, how)

    def delivered(self, after_us: int) -> None:
        """The gateway has sent the result to the client, this long after it arrived."""
        if self._over_us:
            end_us = self._over_us + after_us
            self._steps.append(Step(Kind.KIND_DELIVER, 0, self._over_us, end_us))

    def traceparent(self, number: int) -> str:
        """The trace context of an attempt; "" if the job is not traced."""
        return "" if self._trace is None else self._trace.traceparent(number)

    def record(self, now: float) -> bytes:
        """The steps as they are recorded: a serialized JobSteps."""
        return self.messages(now).SerializeToString()

    def messages(self, now: float) -> common_pb2.JobSteps:
        """The steps in the order of their start; those under way end now."""
        now_us = self._offset_us + now * 1000
        steps = _shortened(self._steps)
        if self._ask is not None and self._queue is None:
            steps.append(self._ask)
        # The sort is stable: a step without duration stays before the one that follows it.
        steps.sort(key=_start_us)
        record = common_pb2.JobSteps()
        if self._result is not None:
            record.result_kind, joined, record.turn_broken = self._result
            record.joined_utterances.extend(joined)
        # Field by field, skipping empty ones, because this runs for every successful job.
        for step in steps:
            message = record.steps.add()
            message.kind = step.kind
            message.attempt = step.attempt
            message.started_us = int(step.start_us)
            end_us = step.end_us or max(step.start_us, now_us)
            message.took_us = int(end_us) - message.started_us
            if step.node_id:
                message.node_id = step.node_id
            if not step.end_us:
                message.detail = f"{step.detail}, {UNDER_WAY}" if step.detail else UNDER_WAY
            elif step.detail:
                message.detail = step.detail
        return record


def kind_of(result: dispatcher_pb2.JobResult) -> int:
    """The kind of a result, as it is recorded."""
    return result.kind if result.kind in _KINDS else 0


def _shortened(steps: list[Step]) -> list[Step]:
    """A copy with no more steps than a record may have."""
    if len(steps) < MAX_STEPS:
        return list(steps)
    return steps[:_KEPT_FIRST] + steps[_KEPT_FIRST - MAX_STEPS + 1 :]


def _stage_name(stage: common_pb2.StageKind.ValueType) -> str:
    kinds = common_pb2.StageKind
    # A newer node may have stages that this dispatcher does not know.
    known = stage in kinds.values()
    return kinds.Name(stage).removeprefix("STAGE_KIND_").lower() if known else f"stage {stage}"


def cause_name(cause: pool_pb2.ReleaseCause.ValueType) -> str:
    """How an unacknowledged attempt ended."""
    return pool_pb2.ReleaseCause.Name(cause).removeprefix("RELEASE_CAUSE_")


def outcome_name(outcome: pool_pb2.AttemptOutcome.ValueType) -> str:
    """How an acknowledged attempt ended."""
    return pool_pb2.AttemptOutcome.Name(outcome).removeprefix("ATTEMPT_OUTCOME_")
