"""The logs of job changes of all cells, read as one. Pure.

The order is that of the positions, whichever cell has them; so one position says how far a reader
of all logs has come. Two logs may have entries at the same position, which are never separated.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lingua_scheduler.services.dispatcher.job_log import (
    Entry,
    Position,
    entry_of,
    position_in_log,
)


class Found(NamedTuple):
    """An entry, or None if it is not one of ours, and its position."""

    position: Position
    entry: Entry | None


class LogPart(NamedTuple):
    """Consecutive entries of one log, and whether more may follow in the direction of reading."""

    found: Sequence[Found]
    has_more: bool


def part_of(raw: Sequence[Sequence[object]], most: int) -> LogPart:
    """What a command has returned that reads at most `most` entries."""
    found = [Found(_position(each), entry_of(each)) for each in raw]
    return LogPart(found, has_more=len(raw) >= most)


def _position(raw: Sequence[object]) -> Position:
    assert isinstance(raw[0], bytes)
    return position_in_log(raw[0])


def backwards(parts: Sequence[LogPart]) -> tuple[list[Found], Position | None]:
    """The entries of parts that were read backwards, the newest first, as far as all were read.

    Returns:
        The entries, and the position at which they end; None if these are all.
    """
    end = max((part.found[-1].position for part in parts if part.has_more), default=None)
    found = [each for part in parts for each in part.found if end is None or each.position >= end]
    found.sort(key=_by_position, reverse=True)
    return found, end


def forwards(
    parts: Sequence[LogPart], most: int, *, before_ms: int | None = None
) -> tuple[list[Found], bool]:
    """The entries of parts that were read forwards, the oldest first, as far as all were read.

    Args:
        parts: of each log.
        most: how many. Only entries at one position may be more.
        before_ms: leaves out those from this millisecond on.

    Returns:
        The entries, and whether there are more.
    """
    end = min((part.found[-1].position for part in parts if part.has_more), default=None)
    if before_ms is not None and (end is None or end.ms >= before_ms):
        end, more = Position(before_ms, -1), False
    else:
        more = end is not None
    found = [each for part in parts for each in part.found if end is None or each.position <= end]
    found.sort(key=_by_position)
    if len(found) <= most:
        return found, more
    return found[: _cut(found, most)], True


def _cut(found: Sequence[Found], most: int) -> int:
    """How many of the entries are returned, so that those at one position stay together."""
    following = found[most].position
    at = next(at for at, each in enumerate(found) if each.position == following)
    if at:
        return at
    return sum(each.position == following for each in found)


def _by_position(found: Found) -> Position:
    return found.position
