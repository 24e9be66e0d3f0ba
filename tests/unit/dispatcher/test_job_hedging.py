"""The job machine by example: a second attempt beside one that is slow to acknowledge."""

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.v1 import pool_pb2
from tests.unit.dispatcher.job_driver import (
    ALL_FULL,
    FAILED,
    hedged,
    placed,
)

# ---- hedging ----


def test_a_late_acknowledgement_lets_a_second_node_try() -> None:
    job = placed(hedge_after_ms=50).at(50).timer("hedge")

    assert job.effects == [fx.Allocate(2, ("node-1",), False)]
    assert job.given(2).kinds() == [fx.Send]


@pytest.mark.parametrize(("first", "other"), [(1, 2), (2, 1)])
def test_the_first_acknowledgement_of_a_hedge_wins(first: int, other: int) -> None:
    job = hedged().acked(first)

    assert job.kinds() == [fx.Commit, fx.Accepted, fx.CancelOnNode, fx.Release]
    assert job.ending() == ("Release", other, pool_pb2.RELEASE_CAUSE_HEDGE_LOST, 0)


def test_the_half_of_a_hedge_that_lost_was_a_try_and_is_not_asked_again() -> None:
    job = hedged().acked(2).failed(2)

    assert job.asked().exclude == ("node-1", "node-2")
    assert job.given(3).rejected(3).kinds() == [fx.Release, fx.Fail]


def test_when_both_halves_of_a_hedge_acknowledge_the_second_is_cancelled() -> None:
    job = hedged().acked(2).acked(1)

    assert job.effects == [fx.CancelOnNode(job.machine.attempts[1], "this attempt is over")]
    assert job.phase is Phase.RUNNING


def test_a_hedge_that_finds_no_node_changes_nothing() -> None:
    job = placed(hedge_after_ms=50).at(50).timer("hedge").refused(ALL_FULL)

    assert job.effects == []
    assert job.acked(1).phase is Phase.RUNNING


def test_when_one_half_of_a_hedge_ends_the_other_goes_on() -> None:
    job = hedged().rejected(1)

    assert job.kinds() == [fx.Release]
    assert job.acked(2).phase is Phase.RUNNING


def test_when_the_first_fails_while_a_hedge_is_asked_for_the_hedge_is_the_next_attempt() -> None:
    job = placed(hedge_after_ms=50).at(50).timer("hedge").rejected(1)

    assert job.kinds() == [fx.Release, fx.Retrying]
    assert job.phase is Phase.SELECTING
    assert job.given(2).phase is Phase.PLACED


def test_a_hedge_that_comes_after_the_acknowledgement_is_given_back() -> None:
    job = placed(hedge_after_ms=50).at(50).timer("hedge").acked(1).given(2)

    assert job.kinds() == [fx.Release]
    assert job.ending() == ("Release", 2, pool_pb2.RELEASE_CAUSE_HEDGE_LOST, 0)
    assert job.failed(1).asked().number == 3


def test_a_hedge_needs_a_try_that_is_left() -> None:
    job = placed(hedge_after_ms=50, max_retry=0)

    assert ("hedge", 0) not in job.machine.timers


def test_a_failure_not_worth_a_retry_leaves_the_other_half_of_a_hedge() -> None:
    job = hedged().failed(1, worth_retry=False)
    assert job.kinds() == [fx.Confirm, fx.Complete]

    job.failed(2, worth_retry=False)

    assert job.kinds() == [fx.Confirm, fx.Complete, fx.Fail]
    assert job.ending() == ("Complete", 2, pool_pb2.ATTEMPT_OUTCOME_FAILED, FAILED)
