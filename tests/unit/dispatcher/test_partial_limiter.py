"""How many of a node's partial results are passed on."""

import random

from lingua_scheduler.services.dispatcher.nodes.stream import PartialLimiter


def passed(interval_ms: float, times: list[float]) -> list[float]:
    limiter = PartialLimiter(interval_ms)
    return [now for now in times if limiter.passes(now)]


def test_those_that_come_in_their_time_all_pass() -> None:
    times = [1000.0 + 100 * n for n in range(20)]
    assert passed(100, times) == times


def test_one_that_comes_early_because_the_last_was_late_passes() -> None:
    times = [0.0, 100, 240, 300, 400]
    assert passed(100, times) == times


def test_the_excess_is_dropped() -> None:
    times = [float(n) for n in range(1000)]
    assert len(passed(100, times)) == 11


def test_where_none_are_wanted_none_passes() -> None:
    assert passed(0, [0.0, 1000.0, 1_000_000.0]) == []


def test_after_a_silence_one_passes_and_not_all_that_were_not_used() -> None:
    assert passed(100, [0.0, 5000, 5001, 5002, 5003]) == [0.0, 5000]


def test_whenever_they_come_at_most_n_and_one_pass_in_n_intervals() -> None:
    chance = random.Random(7)
    for _ in range(50):
        interval = chance.uniform(1, 100)
        times = sorted(chance.uniform(0, 1000) for _ in range(200))
        through = passed(interval, times)
        for first in range(0, len(through), 3):
            for last in range(first, len(through)):
                span = through[last] - through[first]
                assert last - first <= span / interval + 0.5 + 1e-9
