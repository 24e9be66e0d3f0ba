"""The attempts of a job as bars on one scale of time."""

from collections.abc import Iterable
from dataclasses import dataclass

from lingua_scheduler.cli.output import columns, duration, enum_name, one_line, terminal_width
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_STAGE = common_pb2.DESCRIPTOR.enum_types_by_name["StageKind"]

_WAITS, _RUNS, _STAGE_RUNS, _GOES_ON = ".", "=", "-", ">"
_LEGEND = f"{_WAITS} waiting for the ACK   {_RUNS} running"

# Characters of a bar: what most terminals leave beside the other columns, within reason.
_LEAST_BAR, _MOST_BAR = 12, 40
_OTHER_COLUMNS = 60

Step = tuple[str, int, int]
"""A mark, and the times between which it is drawn."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps times to the characters of bars that are all `width` wide."""

    start_ms: int
    end_ms: int
    width: int

    def bar(self, steps: Iterable[Step]) -> str:
        """The steps in their order; each has one character at least, however short it was."""
        cells = [" "] * self.width
        free = 0
        for mark, start_ms, end_ms in steps:
            first = min(max(self._column(start_ms), free), self.width - 1)
            free = max(first + 1, self._column(end_ms))
            cells[first:free] = mark * (free - first)
        return f"|{''.join(cells)}|"

    def head(self) -> str:
        """What stands above the bars: where the scale begins and ends."""
        end = duration(self.end_ms - self.start_ms)
        return f"0{end:>{self.width + 1}}"

    def since_start(self, time_ms: int) -> str:
        """A moment on the scale."""
        return f"+{duration(time_ms - self.start_ms)}"

    def _column(self, time_ms: int) -> int:
        length = max(1, self.end_ms - self.start_ms)
        return max(0, min(self.width, (time_ms - self.start_ms) * self.width // length))


def waterfall(response: dispatcher_pb2.GetJobResponse, *, over: bool, now_ms: int) -> str:
    """A line an attempt, and one for each stage that its node has timed.

    Args:
        response: the job, and its result where that is kept.
        over: whether the job is; the bars of one that is not reach until now.
        now_ms: the time.
    """
    job = response.job
    known = [time for each in job.attempts for time in _times(each)]
    if not known:
        return "no attempts yet"
    start_ms = min([*known, job.created_ms or known[0]])
    end_ms = max([*known, start_ms if over else now_ms])
    scale = Scale(start_ms, end_ms, _bar_width())
    rows: list[tuple[str, ...]] = []
    for attempt in job.attempts:
        rows.append(_attempt_row(attempt, scale, over))
        rows += _stage_rows(attempt, response.result, scale)
    header = ("#", "NODE", scale.head(), "START", "FOR ACK", "RAN", "OUTCOME", "DETAIL")
    legend = _LEGEND if over else f"{_LEGEND}   {_GOES_ON} goes on"
    return f"{columns(header, rows)}\n\n{legend}"


def _attempt_row(
    attempt: dispatcher_pb2.AttemptRecord, scale: Scale, over: bool
) -> tuple[str, ...]:
    times = _times(attempt)
    start_ms = times[0] if times else scale.start_ms
    end_ms = attempt.ended_ms or scale.end_ms
    acked_ms = attempt.acked_ms
    steps = [(_WAITS, start_ms, acked_ms or end_ms)]
    if acked_ms:
        steps.append((_RUNS, acked_ms, end_ms))
    bar = scale.bar(steps)
    if not over and not attempt.ended_ms:
        bar = f"{bar[:-2]}{_GOES_ON}|"
    return (
        str(attempt.attempt),
        attempt.node_id,
        bar,
        scale.since_start(start_ms),
        duration((acked_ms or end_ms) - start_ms),
        duration(end_ms - acked_ms) if acked_ms else "-",
        attempt.outcome or _outcome_so_far(attempt, over),
        one_line(attempt.detail),
    )


def _outcome_so_far(attempt: dispatcher_pb2.AttemptRecord, over: bool) -> str:
    if over:
        # Its node was lost, or has not told yet; the job ended without it.
        return "unknown"
    return "running" if attempt.acked_ms else "waiting"


def _stage_rows(
    attempt: dispatcher_pb2.AttemptRecord, result: dispatcher_pb2.JobResult, scale: Scale
) -> list[tuple[str, ...]]:
    timings = attempt.timings
    if not timings and result.attempt.attempt == attempt.attempt:
        timings = result.timings
    times = _times(attempt)
    # They count from the node's receipt of the job, which nobody else knows better than this.
    received_ms = attempt.acked_ms or (times[0] if times else scale.start_ms)
    rows: list[tuple[str, ...]] = []
    for timing in timings:
        start_ms = received_ms + timing.started_ms
        rows.append(
            (
                "",
                f"  {enum_name(_STAGE, timing.stage).lower()}",
                scale.bar([(_STAGE_RUNS, start_ms, start_ms + timing.took_ms)]),
                scale.since_start(start_ms),
                "",
                duration(timing.took_ms),
                "",
                "",
            )
        )
    return rows


def _times(attempt: dispatcher_pb2.AttemptRecord) -> list[int]:
    """The moments that are known, in their order."""
    moments = (attempt.reserved_ms, attempt.acked_ms, attempt.ended_ms)
    return [time_ms for time_ms in moments if time_ms]


def _bar_width() -> int:
    return max(_LEAST_BAR, min(_MOST_BAR, terminal_width() - _OTHER_COLUMNS))
