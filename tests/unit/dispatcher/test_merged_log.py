"""Logs of several cells that are read as one: nothing is missed, nothing comes twice."""

import random

import pytest

from lingua_scheduler.services.dispatcher.job_log import Position, position_of
from lingua_scheduler.services.dispatcher.merged_log import (
    Found,
    LogPart,
    backwards,
    forwards,
    part_of,
)

T0 = 1_800_000_000_000
Log = list[tuple[int, int]]


def read_backwards(log: Log, before: Position | None, most: int) -> LogPart:
    found = [each for each in reversed(log) if before is None or each < before][:most]
    return part_of([_raw(each) for each in found], most)


def read_forwards(log: Log, after: Position | None, most: int) -> LogPart:
    found = [each for each in log if after is None or each > after][:most]
    return part_of([_raw(each) for each in found], most)


def _raw(position: tuple[int, int]) -> list[object]:
    return ["{}-{}".format(*position).encode(), [b"c", b"none of ours"]]


def logs_of(seed: int, cells: int) -> list[Log]:
    """Logs of very different lengths, often with entries at the same position."""
    chance = random.Random(seed)
    logs = []
    for _ in range(cells):
        count = chance.choice((0, 3, 40))
        at = {(T0 + chance.randrange(20), chance.randrange(3)) for _ in range(count)}
        logs.append(sorted(at))
    return logs


def positions(found: list[Found]) -> Log:
    return [tuple(each.position) for each in found]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_backwards_every_entry_is_read_once_the_newest_first(seed: int, most: int) -> None:
    logs, read, before = logs_of(seed, 4), Log(), None
    while True:
        found, before = backwards([read_backwards(log, before, most) for log in logs])
        read += positions(found)
        if before is None:
            break
        assert found, "no progress"
        # A reader brings the position back as a token.
        before = position_of(before.token)
    assert read == sorted((each for log in logs for each in log), reverse=True)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("most", [1, 2, 7, 100])
def test_forwards_every_entry_is_read_once_the_oldest_first(seed: int, most: int) -> None:
    logs, read, more = logs_of(seed, 4), Log(), True
    after: Position | None = None
    while more:
        parts = [read_forwards(log, after, most + 1) for log in logs]
        found, more = forwards(parts, most)
        at_one_position = {each.position for each in found}
        assert len(found) <= most or len(at_one_position) == 1
        assert found or not more, "no progress"
        read += positions(found)
        after = position_of(found[-1].position.token) if found else after
    assert read == sorted(each for log in logs for each in log)


def test_entries_that_are_too_new_are_left_for_the_next_time() -> None:
    logs: list[Log] = [[(T0, 0), (T0 + 5, 0)], [(T0 + 4, 7), (T0 + 9, 0)]]
    parts = [read_forwards(log, None, 10) for log in logs]
    found, more = forwards(parts, 10, before_ms=T0 + 5)
    assert (positions(found), more) == ([(T0, 0), (T0 + 4, 7)], False)
    assert forwards(parts, 10, before_ms=T0) == ([], False)
    found, more = forwards(parts, 1, before_ms=T0 + 5)
    assert (positions(found), more) == ([(T0, 0)], True)


def test_a_log_that_was_not_read_to_its_end_holds_up_the_others() -> None:
    slow: Log = [(T0, 0), (T0 + 1, 0), (T0 + 2, 0)]
    other: Log = [(T0 + 3, 0)]
    found, more = forwards([read_forwards(slow, None, 2), read_forwards(other, None, 2)], 10)
    assert (positions(found), more) == ([(T0, 0), (T0 + 1, 0)], True)
    found, end = backwards([read_backwards(slow, None, 1), read_backwards([(T0, 5)], None, 2)])
    assert (positions(found), end) == ([(T0 + 2, 0)], Position(T0 + 2, 0))
