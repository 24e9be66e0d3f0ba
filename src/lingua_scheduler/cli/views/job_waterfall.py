"""A job's steps as bars on one scale, one line per step, below its attempt.

The scale begins at the cut, because speech would leave no room for what follows. Its duration is
printed beside, and its bar is a mark before the scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import click

from lingua_scheduler.cli.views.job_steps import Attempt, Step, attempts_of, steps_of
from lingua_scheduler.cli.views.output import is_terminal, one_line, terminal_width
from lingua_scheduler.cli.views.states import BAD, state
from lingua_scheduler.cli.views.table import GAP, Column, paragraph, table
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_STEP = common_pb2.JobStep

_TAKES, _STAGE_TAKES, _WAITS, _GOES_ON, _SPEECH = "=", "-", ".", ">", "~~~"
# Steps of waiting, not of work.
_WAITING = (_STEP.KIND_HANGOVER, _STEP.KIND_QUEUE, _STEP.KIND_ACK, _STEP.KIND_DELIVER)

# Characters of a bar: the room that the other columns leave, within limits.
_LEAST_BAR, _MOST_BAR = 16, 60
# The width of the other columns in a pipe, where it must not depend on what they have.
_OTHER_COLUMNS = 56
# On a narrow terminal a bar may be shorter.
_SHORTEST_BAR = 6
# What HOW gets at least before it is folded.
_LEAST_HOW = 20


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps times to the characters of bars that are all `width` wide."""

    start_us: int
    end_us: int
    width: int

    def bar(self, mark: str, start_us: int, end_us: int) -> str:
        """At least one character, however short the step; blank for times before the scale."""
        if end_us <= self.start_us and start_us < self.start_us:
            return " " * self.width
        first = min(self._column(start_us), self.width - 1)
        end = max(first + 1, self._column(end_us))
        return (" " * first + mark * (end - first)).ljust(self.width)

    def _column(self, time_us: int) -> int:
        length = max(1, self.end_us - self.start_us)
        return max(0, min(self.width, (time_us - self.start_us) * self.width // length))


def waterfall(response: dispatcher_pb2.GetJobResponse, *, over: bool, now_us: int) -> str:
    """The steps of a job, its total time, and its longest step.

    Args:
        response: the job, and its result if that is kept.
        over: whether the job has ended; otherwise its bars extend to now.
        now_us: the current time.
    """
    attempts = attempts_of(response, over=over)
    steps = steps_of(response, over=over, now_us=now_us)
    if not steps:
        return "no steps are known yet"
    cut_us = max((each.end_us for each in steps if each.kind == _STEP.KIND_GATHER), default=0)
    start_us = cut_us or min(each.start_us for each in steps)
    end_us = max(each.end_us for each in steps)
    scale = Scale(start_us, end_us, _SHORTEST_BAR)
    width = _bar_width(_rows(steps, attempts, scale))
    scale = Scale(start_us, end_us, width)
    header = (
        *(Column("STEP"), Column(_head(scale)), Column("START ms", 1), Column("TOOK ms")),
        *(Column("NODE", 2), Column("HOW", folds=True)),
    )
    legend = f"{_TAKES} at work   {_WAITS} waiting   {_STAGE_TAKES} the node's own account"
    if cut_us:
        legend += f"   {_SPEECH} speech, not to scale"
    if not over:
        legend += f"   {_GOES_ON} goes on"
    drawn = table(header, _rows(steps, attempts, scale))
    summary = _summary(steps, scale, over=over)
    return f"{drawn}\n\n{paragraph(legend)}\n{paragraph(summary)}"


def _rows(
    steps: Sequence[Step], attempts: Sequence[Attempt], scale: Scale
) -> list[tuple[str, ...]]:
    of_job = [each for each in steps if not each.attempt]
    deliver = _STEP.KIND_DELIVER
    rows = [_row(each, scale, indent=0) for each in of_job if each.kind != deliver]
    for attempt in attempts:
        mine = [each for each in steps if each.attempt == attempt.number]
        rows.append(_attempt_row(attempt, mine, scale))
        rows += [_row(each, scale, indent=2) for each in mine]
    rows += [_row(each, scale, indent=0) for each in of_job if each.kind == deliver]
    return rows


def _row(step: Step, scale: Scale, *, indent: int) -> tuple[str, ...]:
    is_stage = step.kind == _STEP.KIND_STAGE
    mark = _STAGE_TAKES if is_stage else _WAITS if step.kind in _WAITING else _TAKES
    how = one_line(step.how)
    return (
        " " * (indent + 2 * is_stage) + step.name,
        _bar(step, mark, scale),
        _ms(step.start_us - scale.start_us, signed=True),
        _ms(step.end_us - step.start_us),
        "" if step.attempt else step.node_id,
        click.style(how, fg=BAD) if step.is_bad else how,
    )


def _attempt_row(attempt: Attempt, steps: Sequence[Step], scale: Scale) -> tuple[str, ...]:
    how = one_line(attempt.how)
    start = took = ""
    if steps:
        start_us, end_us = steps[0].start_us, max(each.end_us for each in steps)
        start, took = _ms(start_us - scale.start_us, signed=True), _ms(end_us - start_us)
    return (
        f"attempt {attempt.number}",
        "|" + " " * (scale.width + len(_SPEECH)) + "|",
        start,
        took,
        attempt.node_id,
        click.style(how, fg=BAD) if attempt.is_bad else state(how),
    )


def _bar(step: Step, mark: str, scale: Scale) -> str:
    bar = scale.bar(mark, step.start_us, step.end_us)
    if step.is_under_way:
        bar = f"{bar[:-1]}{_GOES_ON}"
    before = _SPEECH if step.kind == _STEP.KIND_GATHER else " " * len(_SPEECH)
    return f"|{before}{bar}|"


def _head(scale: Scale) -> str:
    """The header of the bars: start and end of the scale."""
    end = f"{_ms(scale.end_us - scale.start_us)} ms"
    return " " * (len(_SPEECH) + 1) + f"0{end:>{scale.width - 1}}"


def _summary(steps: Sequence[Step], scale: Scale, *, over: bool) -> str:
    first_us = min(each.start_us for each in steps)
    after_us = scale.end_us - scale.start_us
    total = f"{_ms(scale.end_us - first_us)} ms {'in all' if over else 'so far'}"
    if first_us < scale.start_us:
        total += f", {_ms(after_us)} ms after the cut"
    apart = (_STEP.KIND_GATHER, _STEP.KIND_STAGE)
    counted = [each for each in steps if each.kind not in apart]
    if not counted or after_us <= 0:
        return total
    most = max(counted, key=lambda each: each.end_us - each.start_us)
    took_us = most.end_us - most.start_us
    where = f" of attempt {most.attempt}" if most.attempt else ""
    share = min(100, round(100 * took_us / after_us))
    return f"{total}; most of it: {most.name}{where}, {_ms(took_us)} ms ({share} %)"


def _ms(length_us: int, *, signed: bool = False) -> str:
    return f"{length_us / 1000:{'+' if signed else ''}.1f}"


def _bar_width(rows: Sequence[Sequence[str]]) -> int:
    """What the other columns of these rows leave."""
    if not is_terminal():
        return max(_LEAST_BAR, min(_MOST_BAR, terminal_width() - _OTHER_COLUMNS))
    width = 0
    # START and NODE give way before the bars get too short.
    for names in (
        ("STEP", "", "START ms", "TOOK ms", "NODE", "HOW"),
        ("STEP", "", "", "TOOK ms", "NODE", "HOW"),
        ("STEP", "", "", "TOOK ms", "", "HOW"),
    ):
        width = terminal_width() - len(_SPEECH) - len("||") - _others(names, rows)
        if width >= _LEAST_BAR:
            break
    return max(_SHORTEST_BAR, min(_MOST_BAR, width))


def _others(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The width of the columns that have a name, with the gaps before and after the bar."""
    widths = {
        name: max(len(name), *(len(click.unstyle(row[at])) for row in rows))
        for at, name in enumerate(names)
        if name
    }
    widths["HOW"] = min(widths["HOW"], _LEAST_HOW)
    return sum(widths.values()) + GAP * len(widths)
