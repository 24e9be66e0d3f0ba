"""When a service that has ended is restarted."""

from lingua_scheduler.cli.up.supervised import FIRST_S, LONGEST_S, MAX_ENDS, STEADY_S, Restarts


def test_a_service_that_ends_again_and_again_waits_longer_and_is_given_up() -> None:
    restarts = Restarts()
    waits = [restarts.after_end(0.1) for _ in range(MAX_ENDS)]
    assert waits == [FIRST_S * 2**at for at in range(MAX_ENDS - 1)] + [None]
    assert all(wait <= LONGEST_S for wait in waits if wait is not None)


def test_a_service_that_was_well_for_a_while_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(20):
        assert restarts.after_end(0.1) == FIRST_S or restarts.after_end(STEADY_S) == FIRST_S
        assert restarts.after_end(STEADY_S) == FIRST_S
