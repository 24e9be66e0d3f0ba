"""Deadlines on a clock that can be stopped."""

from lingua_scheduler.services.session_gateway.session.delivery import Deadlines


def test_a_stopped_clock_moves_every_deadline_by_the_time_it_stood() -> None:
    deadlines = Deadlines(stop_max_ms=1000.0)
    deadlines.add(0, 100.0)
    deadlines.add(1, 200.0)

    deadlines.stop(50.0, "redis")
    assert deadlines.overdue(150.0) == []
    deadlines.go_on(350.0, "redis")

    assert deadlines.next_ms == 400.0
    assert deadlines.overdue(399.0) == []
    assert deadlines.overdue(400.0) == [0]
    assert deadlines.overdue(500.0) == [0, 1]


def test_the_clock_runs_on_for_an_index_that_it_stood_still_for_long_enough() -> None:
    deadlines = Deadlines(stop_max_ms=1000.0)
    deadlines.add(0, 100.0)
    deadlines.stop(50.0, "redis")

    assert deadlines.next_ms == 1100.0
    assert deadlines.overdue(1099.0) == []
    assert deadlines.overdue(1100.0) == [0]


def test_what_is_left_of_the_bound_holds_for_the_next_stop() -> None:
    deadlines = Deadlines(stop_max_ms=1000.0)
    deadlines.add(0, 100.0)
    deadlines.stop(0.0, "redis")
    deadlines.go_on(600.0, "redis")

    deadlines.stop(650.0, "redis")

    assert deadlines.next_ms == 700.0 + 400.0
    assert deadlines.overdue(1099.0) == []
    assert deadlines.overdue(1100.0) == [0]


def test_an_index_that_is_added_during_a_stop_gets_only_the_rest_of_it() -> None:
    deadlines = Deadlines(stop_max_ms=1000.0)
    deadlines.stop(0.0, "redis")
    deadlines.add(0, 600.0, now=500.0)

    assert deadlines.at(0, 550.0) == 650.0
    deadlines.go_on(700.0, "redis")

    assert deadlines.next_ms == 800.0


def test_the_clock_runs_again_when_all_causes_have_ended() -> None:
    deadlines = Deadlines(stop_max_ms=1000.0)
    deadlines.add(0, 100.0)

    assert deadlines.stop(0.0, "a")
    assert deadlines.stop(10.0, "b")
    assert not deadlines.stop(20.0, "b")
    assert not deadlines.go_on(30.0, "a")
    assert deadlines.is_stopped
    assert not deadlines.go_on(30.0, "a")
    assert deadlines.go_on(40.0, "b")

    assert not deadlines.is_stopped
    assert deadlines.next_ms == 140.0


def test_without_a_bound_to_stop_for_the_clock_always_runs() -> None:
    deadlines = Deadlines()
    deadlines.add(0, 100.0)
    deadlines.stop(0.0, "redis")

    assert deadlines.next_ms == 100.0
    assert deadlines.overdue(100.0) == [0]
