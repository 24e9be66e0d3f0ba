"""The simulation of bench/cells_model.py, where the result is known."""

import math
import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import cells_model
from cells_model import (
    Assumptions,
    Direction,
    Tally,
    direction_rates,
    jobs_per_s,
    nodes_for,
    simulate,
    slots_by_cell,
)
from cells_plan import masters_for

ASSUMED = Assumptions()


def run(slots: list[int], rate: float, *, services: int = 1) -> Tally:
    return Direction(
        slots=slots,
        weights=[1] * len(slots),
        services=services,
        assumed=ASSUMED,
        dice=random.Random(1),
    ).run(rate)


def erlang_c(slots: int, busy: float) -> float:
    """The probability that a job has to wait for one of so many slots."""
    all_busy = busy**slots / math.factorial(slots) * slots / (slots - busy)
    return all_busy / (sum(busy**n / math.factorial(n) for n in range(slots)) + all_busy)


@pytest.mark.parametrize(("slots", "busy"), [(4, 2.8), (12, 8.4), (40, 34.0)])
def test_with_one_cell_as_many_jobs_wait_as_the_formula_of_erlang_says(
    slots: int, busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Jobs that wait come in bursts.
    monkeypatch.setattr(cells_model, "COUNT_JOBS", 60_000)
    found = run([slots], busy)
    assert found.spilled == found.full == found.without == 0
    assert found.share("waited") == pytest.approx(erlang_c(slots, busy), rel=0.1)


def test_jobs_of_a_cell_without_nodes_all_leave_it() -> None:
    found = run([0, 400], 100.0)
    assert found.share("spilled") == pytest.approx(0.5, abs=0.03)
    assert (found.full, found.without, found.waited) == (0, 0, 0)


def test_a_cell_without_nodes_is_asked_about_once_a_second_by_each_service() -> None:
    seconds = 4000 / 100
    # The jobs of the first and of the third cell leave them, and may ask each other's.
    found = {services: run([0, 400, 0], 100.0, services=services) for services in (1, 4)}
    for services, tally in found.items():
        # Each of the two empty cells, and only if it comes before the one with nodes.
        assert 0 < tally.without <= 2 * services * (seconds + 1)


def test_a_job_asks_no_more_full_cells_than_it_may() -> None:
    found = run([1, 1, 1, 1, 1, 1, 1, 1], 7.5)
    assert found.refused > 0
    assert found.full <= ASSUMED.tries * (found.refused + found.spilled)


def test_nodes_and_rates_by_hand() -> None:
    assert jobs_per_s(12_000, ASSUMED) == 1000.0
    rates = direction_rates(12_000, ASSUMED)
    assert sum(rates) == pytest.approx(1000.0)
    assert rates[0] == pytest.approx(30 * rates[-1])
    # 28 jobs at a time, 2.8 on each node.
    assert nodes_for(28.0, ASSUMED) == 10
    assert sum(slots_by_cell("n", 10, 3, 4)) == 40


def test_the_same_seed_gives_the_same_fleet_and_more_cells_lose_more_jobs() -> None:
    few, again, many = (simulate(2000, cells, ASSUMED, 1) for cells in (2, 2, 8))
    assert few == again
    assert many.spilled > few.spilled


def test_the_master_with_the_most_cells_decides_how_many_masters_are_needed() -> None:
    # Each of 12 cells needs a tenth of a thread: six on a master are just enough.
    assert masters_for(1.2, 12) == 2
    # 0.13 of a thread: six on a master are too many, four are not.
    assert masters_for(1.56, 12) == 3
    # 12 cells on 7 masters: one has two.
    assert masters_for(4.2, 12) == 12
    assert masters_for(7.3, 12) == 0
