"""When utterances of a room that are overdue may become missing."""

from lingua_scheduler.services.session_gateway.rooms.mercy import Mercy

# How far a clock that counts from 1970 is ahead of one that counts from the start.
AHEAD_S = 1_700_000_000.0


def mercy() -> Mercy:
    return Mercy(after_outage_s=10.0, after_jump_s=60.0)


def test_what_is_overdue_is_missing_while_redis_and_its_clock_run() -> None:
    made = mercy()

    assert all(made.is_over(now_s, AHEAD_S) for now_s in range(100, 200, 5))


def test_outcomes_that_waited_for_redis_come_first() -> None:
    made = mercy()
    made.on_redis_back(100.0)

    assert not made.is_over(109.0, AHEAD_S)
    assert made.is_over(110.0, AHEAD_S)


def test_nothing_is_missing_because_the_clock_of_redis_jumps() -> None:
    made = mercy()
    assert made.is_over(100.0, AHEAD_S)

    assert not made.is_over(105.0, AHEAD_S + 3600.0)
    assert not made.is_over(110.0, AHEAD_S)
    assert not made.is_over(169.0, AHEAD_S)
    assert made.is_over(170.0, AHEAD_S)


def test_clocks_that_drift_apart_slowly_do_not_jump() -> None:
    made = mercy()

    assert all(made.is_over(now_s, AHEAD_S + now_s / 10) for now_s in range(100, 900, 10))
