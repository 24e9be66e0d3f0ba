"""The steps of a job for display: those on record, or else derived from its attempts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lingua_scheduler.cli.views.output import enum_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

UNDER_WAY = "under way"

_STEP = common_pb2.JobStep
_KIND = _STEP.DESCRIPTOR.enum_types_by_name["Kind"]
_STAGE = common_pb2.DESCRIPTOR.enum_types_by_name["StageKind"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step; attempt 0 stands for the whole job."""

    kind: int
    name: str
    attempt: int
    start_us: int
    end_us: int
    node_id: str = ""
    how: str = ""

    @property
    def is_under_way(self) -> bool:
        """Whether it is still in progress."""
        return self.how.endswith(UNDER_WAY)

    @property
    def is_bad(self) -> bool:
        """Whether it failed: only names of error reasons are in capitals."""
        return self.how.split(", ")[-1].isupper()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, and how it ended."""

    number: int
    node_id: str
    how: str
    is_bad: bool


def attempts_of(response: dispatcher_pb2.GetJobResponse, *, over: bool) -> list[Attempt]:
    """The attempts in order, including those of which only steps are known."""
    job = response.job
    found = {each.attempt: _attempt(each, over) for each in job.attempts}
    for step in job.steps:
        if step.attempt and step.attempt not in found:
            found[step.attempt] = Attempt(step.attempt, step.node_id, "", False)
    return [found[number] for number in sorted(found)]


def steps_of(response: dispatcher_pb2.GetJobResponse, *, over: bool, now_us: int) -> list[Step]:
    """The steps by start time, with stages after the node's step."""
    job = response.job
    steps = [_step(each) for each in job.steps] or [
        step for each in job.attempts for step in _guessed(each, over, now_us)
    ]
    if not any(step.kind == _STEP.KIND_STAGE for step in steps):
        steps += _stages(response, steps)
    return sorted(steps, key=lambda step: (step.start_us, step.kind))


def _step(step: common_pb2.JobStep) -> Step:
    is_stage = step.kind == _STEP.KIND_STAGE
    return Step(
        step.kind,
        step.detail if is_stage else enum_name(_KIND, step.kind).lower(),
        step.attempt,
        step.started_us,
        step.started_us + step.took_us,
        step.node_id,
        "" if is_stage else step.detail,
    )


def _attempt(attempt: dispatcher_pb2.AttemptRecord, over: bool) -> Attempt:
    outcome = attempt.outcome
    if not outcome and over:
        # Its node was lost or has not reported; the job ended without it.
        outcome = "unknown"
    elif not outcome:
        outcome = "running" if attempt.acked_ms else "waiting"
    how = f"{outcome}: {attempt.detail}" if attempt.detail else outcome
    return Attempt(
        attempt.attempt, attempt.node_id, how, outcome in ("failed", "timed_out", "released")
    )


def _guessed(attempt: dispatcher_pb2.AttemptRecord, over: bool, now_us: int) -> Iterator[Step]:
    """Steps derived from the times of an attempt."""
    number, node_id = attempt.attempt, attempt.node_id
    reserved, acked, ended = (
        time_ms * 1000 for time_ms in (attempt.reserved_ms, attempt.acked_ms, attempt.ended_ms)
    )
    how = "" if ended or over else UNDER_WAY
    last = ended or (max(reserved, acked) if over else now_us)
    if reserved:
        waits = "" if acked else how
        yield Step(_STEP.KIND_ACK, "ack", number, reserved, acked or last, node_id, waits)
    if acked:
        yield Step(_STEP.KIND_NODE, "node", number, acked, max(acked, last), node_id, how)


def _stages(response: dispatcher_pb2.GetJobResponse, steps: Sequence[Step]) -> Iterator[Step]:
    """Stages reported by nodes, if the record does not have them."""
    result = response.result
    timings = {result.attempt.attempt: result.timings} if result.timings else {}
    timings |= {each.attempt: each.timings for each in response.job.attempts if each.timings}
    for step in steps:
        if step.kind != _STEP.KIND_NODE:
            continue
        for timing in timings.get(step.attempt, ()):
            # Their times count from when the node received the job, which only the node knows.
            start_us = step.start_us + timing.started_ms * 1000
            end_us = start_us + timing.took_ms * 1000
            name = enum_name(_STAGE, timing.stage).lower()
            yield Step(_STEP.KIND_STAGE, name, step.attempt, start_us, end_us, step.node_id)
