"""Rates and percentiles from what instances count."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.store.instances import InstanceBoard, Rates, percentile
from lingua_scheduler.services.console.store.series import NO_VALUE, SeriesBoard
from lingua_scheduler.v1 import instances_pb2
from tests.unit.console.messages import NOW, instance, listed

DOWN = instances_pb2.INSTANCE_HEALTH_DOWN


def board_of(*lists: instances_pb2.ListInstancesResponse) -> InstanceBoard:
    board = InstanceBoard()
    for each in lists:
        board.apply(each)
    return board


def test_one_list_gives_no_rates() -> None:
    assert board_of(listed(0, instance("d1", jobs_done=5000))).rates() == Rates()


def test_rates_are_differences_per_second() -> None:
    board = board_of(
        listed(0, instance("d1", jobs_done=100, retries=1), instance("d2", jobs_done=7)),
        listed(
            10,
            instance("d1", jobs_done=140, jobs_failed=10, retries=6),
            instance("d2", jobs_done=17),
        ),
    )
    rates = board.rates()
    assert rates.jobs_per_s == 6
    assert rates.failed_per_s == 1
    assert rates.retries_per_s == 0.5


def test_only_the_last_minute_counts() -> None:
    lists = [listed(at, instance("d1", jobs_done=1000 if at else 0)) for at in range(0, 100, 2)]
    assert board_of(*lists[:2]).rates().jobs_per_s == 500
    assert board_of(*lists).rates().jobs_per_s == 0


def test_a_shorter_window_sees_only_its_part() -> None:
    board = board_of(*(listed(at, instance("d1", jobs_done=at * at)) for at in range(0, 62, 2)))
    assert board.rates(10).jobs_per_s == pytest.approx((60**2 - 50**2) / 10)


def test_an_instance_that_restarts_makes_no_negative_rate() -> None:
    board = board_of(
        listed(0, instance("d1", jobs_done=1000)),
        listed(2, instance("d1", jobs_done=3, started_ms=2)),
        listed(4, instance("d1", jobs_done=7, started_ms=2)),
    )
    assert board.rates().jobs_per_s == 1


def test_an_instance_that_vanishes_and_one_that_appears_make_no_huge_rate() -> None:
    board = board_of(
        listed(0, instance("d1", jobs_done=1000)),
        listed(2, instance("d2", jobs_done=90_000)),
        listed(4, instance("d1", jobs_done=2000), instance("d2", jobs_done=90_008)),
    )
    assert board.rates().jobs_per_s == 2


def test_a_list_that_came_late_is_ignored() -> None:
    board = board_of(
        listed(0, instance("d1")), listed(4, instance("d1", jobs_done=4)), listed(2, instance("d1"))
    )
    assert board.rates().jobs_per_s == 1


def test_after_a_long_silence_the_rate_is_over_all_of_it() -> None:
    board = board_of(
        listed(0, instance("d1")),
        listed(2, instance("d1")),
        listed(302, instance("d1", jobs_done=600)),
    )
    assert board.rates().jobs_per_s == 2


def test_percentiles_are_of_the_last_minute_and_of_all_gateways() -> None:
    bounds = [100, 200, 400]

    def gateway(name: str, *counts: int) -> instances_pb2.Instance:
        return instance(name, "gateway", result_bounds_ms=bounds, result_counts=counts)

    board = board_of(
        listed(0, gateway("g1", 5000, 0, 0, 0), gateway("g2", 0, 0, 0, 0)),
        listed(10, gateway("g1", 5000, 10, 0, 0), gateway("g2", 0, 0, 10, 0)),
    )
    rates = board.rates()
    assert rates.p50_ms == 200
    assert rates.p99_ms == pytest.approx(396)


def test_without_results_there_are_no_percentiles() -> None:
    board = board_of(listed(0, instance("d1")), listed(2, instance("d1")))
    assert board.rates().p50_ms is None
    assert board.rates().jobs_per_s == 0


def test_a_histogram_whose_bounds_changed_or_do_not_fit_is_left_out() -> None:
    def gateway(bounds: list[int], counts: list[int]) -> instances_pb2.Instance:
        return instance("g1", "gateway", result_bounds_ms=bounds, result_counts=counts)

    board = board_of(
        listed(0, gateway([100], [1, 0])),
        listed(2, gateway([200], [5, 0])),
        listed(4, gateway([200], [9])),
    )
    assert board.rates().p50_ms is None


def test_values_above_all_bounds_count_as_the_highest_bound() -> None:
    assert percentile({100.0: 1, inf: 9}, 0.5) == 100


@given(
    st.dictionaries(st.sampled_from([50.0, 100.0, 500.0, inf]), st.integers(0, 1000), min_size=1),
    st.floats(0.01, 1.0),
)
def test_a_percentile_is_within_the_bucket_of_its_rank(
    buckets: dict[float, int], share: float
) -> None:
    value = percentile(buckets, share)
    total = sum(buckets.values())
    if not total:
        assert value is None
        return
    assert value is not None
    assert sum(count for bound, count in buckets.items() if bound < value) <= share * total
    highest = max((bound for bound in buckets if bound != inf), default=0.0)
    assert 0 <= value <= highest


def test_numbers_of_instances_that_are_down_do_not_count() -> None:
    board = board_of(
        listed(
            0, instance("g1", "gateway", sessions=3), instance("g2", "gateway", DOWN, sessions=9)
        )
    )
    assert board.total("sessions") == 3


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 2**60)))))
def test_no_rate_is_ever_negative(lists: list[list[tuple[int, int, int]]]) -> None:
    board = InstanceBoard()
    for at, seen in enumerate(lists):
        named = {f"d{name}": (start, done) for name, start, done in seen}
        board.apply(
            listed(
                at,
                *(
                    instance(name, started_ms=start, jobs_done=done)
                    for name, (start, done) in named.items()
                ),
            )
        )
    assert (board.rates().jobs_per_s or 0) >= 0


def test_a_series_keeps_its_last_points_and_marks_what_is_not_known() -> None:
    board = SeriesBoard(("a", "b"), points=3)
    for at in range(4):
        board.add(NOW + at, {"a": at, "b": None})
    assert board.values() == {"a": [1, 2, 3], "b": [NO_VALUE] * 3}
    assert board.end_ms == NOW + 3


def test_after_the_clock_was_set_back_lists_count_again() -> None:
    board = board_of(
        listed(3600, instance("d1", jobs_done=5)),
        listed(0, instance("d1", jobs_done=10)),
        listed(2, instance("d1", jobs_done=14)),
    )
    assert board.as_of_ms == NOW + 2000
    assert board.rates().jobs_per_s == 2
