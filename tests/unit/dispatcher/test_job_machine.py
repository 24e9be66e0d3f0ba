"""The job machine by example: attempts, their ends, and late reports."""

from collections.abc import Callable

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.model import MAX_MISSES, Phase
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.unit.dispatcher.job_driver import (
    ALL_FULL,
    ALL_TRIED,
    COMMIT,
    FAILED,
    Job,
    placed,
    result,
    running,
)

# ---- the way of a job that nothing happens to ----


def test_a_job_that_goes_well_asks_for_no_more_than_it_needs() -> None:
    job = Job()

    assert job.start().effects == [fx.Allocate(1, (), False)]
    job.given(1)
    (attempt,) = job.machine.attempts.values()
    assert job.effects == [fx.Send(attempt), fx.Wake(100)]
    assert job.machine.timers == {("ack", 1): 100}
    assert job.at(10).acked(1).effects == [fx.Commit(attempt), fx.Accepted(attempt)]
    assert job.machine.timers == {("job", 1): 1010}
    assert job.committed(1, COMMIT.OUTCOME_COMMITTED).effects == []
    assert job.result(1).effects == [
        fx.Complete(attempt, pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, result=result(1)),
        fx.Deliver(attempt, result(1)),
    ]
    assert job.machine.timers == {}


def test_it_is_woken_for_the_first_timer_and_then_for_the_next() -> None:
    job = Job(deadline_ms=5000).start()
    assert job.effects[0] == fx.Wake(5000)
    assert job.given(1).effects[-1] == fx.Wake(100)
    # A cleared timer does not cancel its wake-up, which then leads to the next timer.
    job.at(10).acked(1)
    assert job.at(100).woken().effects == [fx.Wake(1010)]
    assert job.at(1010).woken().effects[0] == fx.Wake(5000)
    assert job.phase is Phase.SELECTING
    assert job.at(5000).woken().failure() == common_pb2.ERROR_REASON_JOB_TIMEOUT
    assert job.woken().effects == []


def test_the_state_follows_the_phase() -> None:
    job = Job()
    states = [job.machine.state]
    for step in (job.start, lambda: job.given(1), lambda: job.rejected(1), lambda: job.given(2)):
        states.append(step().machine.state)
    states += [job.acked(2).machine.state, job.result(2).machine.state]

    names = [common_pb2.JobState.Name(state).removeprefix("JOB_STATE_") for state in states]
    assert names == ["NEW", "SELECTING", "DISPATCHED", "RETRYING", "DISPATCHED", "ACKED", "DONE"]


def test_a_result_without_an_acknowledgement_is_as_good() -> None:
    job = placed().result(1)

    assert job.kinds() == [fx.Complete, fx.Deliver]


def test_a_partial_result_stands_for_a_lost_acknowledgement() -> None:
    job = placed().partial(1)

    assert job.kinds() == [fx.Commit, fx.Accepted, fx.PassPartial]
    assert job.partial(1).kinds() == [fx.PassPartial]


# ---- attempts that end without a result ----


def test_no_acknowledgement_in_time_cancels_releases_and_asks_for_another_node() -> None:
    job = placed().at(100).timer("ack", 1)

    assert job.kinds() == [fx.CancelOnNode, fx.Release, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Release", 1, pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT, 0)
    assert job.asked() == fx.Allocate(2, ("node-1",), False)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (Job.rejected, pool_pb2.RELEASE_CAUSE_REJECTED),
        (Job.send_failed, pool_pb2.RELEASE_CAUSE_SEND_FAILED),
        (Job.node_lost, pool_pb2.RELEASE_CAUSE_CONNECTION_LOST),
    ],
)
def test_a_reject_a_failure_to_send_and_a_lost_stream_before_the_ack_lead_to_the_next_node_at_once(
    end: Callable[[Job, int], Job], cause: int
) -> None:
    job = end(placed(), 1)

    assert job.kinds() == [fx.Release, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Release", 1, cause, 0)
    assert job.asked().exclude == ("node-1",)


def test_a_failure_after_the_ack_completes_as_failed_and_is_tried_elsewhere() -> None:
    job = running().failed(1)

    assert job.kinds() == [fx.Confirm, fx.Complete, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_FAILED, 0)


def test_a_failure_whose_ack_was_lost_completes_as_failed_too() -> None:
    assert placed().failed(1).ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_FAILED, 0)


def test_an_attempt_that_takes_too_long_is_cancelled_and_tried_elsewhere() -> None:
    job = running().at(1000).timer("job", 1)

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_TIMED_OUT, 0)


def test_a_failure_that_is_not_worth_a_retry_needs_a_second_node_to_end_the_job() -> None:
    job = running().failed(1, worth_retry=False)
    assert job.kinds() == [fx.Confirm, fx.Complete, fx.Retrying, fx.Allocate]

    job.given(2).acked(2).failed(2, worth_retry=False)

    assert job.kinds() == [fx.Confirm, fx.Complete, fx.Fail]
    assert job.ending() == ("Complete", 2, pool_pb2.ATTEMPT_OUTCOME_FAILED, FAILED)
    assert job.failure() == common_pb2.ERROR_REASON_JOB_FAILED


def test_one_node_that_calls_a_job_hopeless_does_not_keep_another_from_doing_it() -> None:
    job = running().failed(1, worth_retry=False).given(2).acked(2).result(2)

    assert isinstance(job.effects[-1], fx.Deliver)


def test_a_job_that_the_only_node_calls_hopeless_waits_for_another_and_then_ends() -> None:
    job = running().at(10).failed(1, worth_retry=False)

    job.at(20).refused(ALL_FULL, facts=ALL_TRIED)
    assert job.kinds() == [fx.Wait]
    assert job.at(310).timer("others").asked().exclude == ("node-1",)
    job.refused(ALL_FULL, facts=ALL_TRIED)

    assert job.kinds() == [fx.Fail]
    assert job.failure() == common_pb2.ERROR_REASON_JOB_FAILED


def test_a_job_that_the_only_node_it_may_go_to_calls_hopeless_ends_at_once() -> None:
    job = running(is_strict=True).failed(1, worth_retry=False)

    job.refused(ALL_FULL, facts=ALL_TRIED)

    assert job.kinds() == [fx.Fail]
    assert job.failure() == common_pb2.ERROR_REASON_JOB_FAILED


def test_two_nodes_must_call_a_job_hopeless_even_if_the_first_says_it_alone() -> None:
    job = running().failed(1, worth_retry=False).refused(ALL_FULL, facts=ALL_TRIED)

    job.at(100).room().given(2).acked(2).result(2)

    assert isinstance(job.effects[-1], fx.Deliver)


@pytest.mark.parametrize("worth_retry", [True, False])
def test_a_node_is_blamed_for_a_failure_unless_it_blames_the_job(worth_retry: bool) -> None:
    job = running().failed(1, worth_retry=worth_retry)

    complete = job.only(fx.Complete)
    assert isinstance(complete, fx.Complete)
    assert complete.job_at_fault is not worth_retry


def test_a_job_that_a_node_rejects_as_bad_goes_elsewhere_and_blames_nobody() -> None:
    job = placed()
    job.then(job.machine.on_rejected(job.now, 1, "BAD_JOB", endings.BAD_JOB))

    assert job.kinds() == [fx.Release, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Release", 1, pool_pb2.RELEASE_CAUSE_BAD_JOB, 0)


def test_when_the_retries_are_used_up_the_job_fails_and_the_record_ends_with_it() -> None:
    job = Job(max_retry=2).start()
    for number in (1, 2):
        assert fx.Retrying in job.given(number).rejected(number).kinds()
    job.given(3).rejected(3)

    assert job.kinds() == [fx.Release, fx.Fail]
    assert job.ending() == ("Release", 3, pool_pb2.RELEASE_CAUSE_REJECTED, FAILED)


def miss_often(job: Job, misses: int) -> list[float]:
    """Makes nodes unreachable one after the other; returns the pauses between them."""
    pauses = []
    for number in range(1, misses + 1):
        job.given(number).send_failed(number)
        due = job.machine.timers.get(("ask", 0), job.now)
        pauses.append(due - job.now)
        if due > job.now:
            job.at(due).timer("ask")
        assert job.asked().number == number + 1
    return pauses


def test_nodes_that_are_not_reached_are_no_tries_and_each_pause_is_longer() -> None:
    pauses = miss_often(Job(max_retry=0, deadline_ms=60_000).start(), 20)

    assert pauses[:7] == [0, 50, 100, 200, 400, 800, 1000]
    assert set(pauses[7:]) == {1000}


def test_a_job_that_no_node_has_had_waits_until_its_deadline() -> None:
    job = Job(max_retry=0, deadline_ms=60_000).start()
    miss_often(job, 30)

    assert job.at(60_000).timer("deadline").failure() == common_pb2.ERROR_REASON_JOB_TIMEOUT


def test_without_a_deadline_misses_are_not_endless() -> None:
    job = Job(max_retry=0).start()
    miss_often(job, MAX_MISSES)
    job.given(MAX_MISSES + 1).send_failed(MAX_MISSES + 1)

    assert job.kinds() == [fx.Release, fx.Fail]
    assert job.ending()[3] == FAILED


def test_a_node_without_room_is_no_try() -> None:
    job = placed(max_retry=0)
    job.then(job.machine.on_rejected(job.now, 1, "FULL", endings.TURNED_AWAY))

    assert job.kinds() == [fx.Release, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Release", 1, pool_pb2.RELEASE_CAUSE_REJECTED, 0)


# ---- late and repeated ----


def test_a_late_acknowledgement_cancels_what_the_node_began() -> None:
    job = placed().send_failed(1).given(2).acked(1)

    assert job.effects == [fx.CancelOnNode(job.machine.attempts[1], "this attempt is over")]
    assert job.acked(2).phase is Phase.RUNNING


def test_an_acknowledgement_that_the_pool_finds_too_late_is_cancelled_and_tried_elsewhere() -> None:
    job = running().committed(1, COMMIT.OUTCOME_NO_ROOM)

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_CANCELLED, 0)


def test_the_last_try_whose_commit_is_refused_ends_the_record_too() -> None:
    job = running(max_retry=0).committed(1, COMMIT.OUTCOME_NO_ROOM)

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Fail]
    assert job.ending()[3] == FAILED


def test_a_superseded_attempt_leads_to_the_one_that_is_ahead_and_ends_no_record() -> None:
    job = running(max_retry=0).committed(1, COMMIT.OUTCOME_SUPERSEDED)

    assert job.ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_CANCELLED, 0)
    assert job.told(2, common_pb2.JOB_STATE_ACKED, lease=5000).phase is Phase.RUNNING


def test_a_reservation_that_was_taken_again_goes_on() -> None:
    assert running().committed(1, COMMIT.OUTCOME_COMMITTED_LATE).effects == []


def test_the_result_of_an_older_attempt_is_confirmed_and_dropped() -> None:
    job = placed().at(100).timer("ack", 1).given(2).acked(2).result(1)

    assert job.effects == [fx.Confirm("node-1", 1)]
    assert job.result(2).kinds() == [fx.Complete, fx.Deliver]


def test_a_repeated_result_is_confirmed_and_not_delivered_again() -> None:
    assert running().result(1).result(1).effects == [fx.Confirm("node-1", 1)]


def test_a_result_from_a_node_that_does_not_have_the_attempt_is_dropped() -> None:
    job = running().result(1, node=7)

    assert job.effects == [fx.Confirm("node-7", 1)]
    assert job.phase is Phase.RUNNING


def test_an_ack_after_the_result_does_not_make_the_node_forget_it() -> None:
    """A node that comes back sends its result, and then answers the repeated assignment."""
    job = running().node_lost(1).node_back(1).committed(1, COMMIT.OUTCOME_ALREADY).result(1)

    assert job.acked(1).effects == []


def test_a_result_that_comes_before_the_pool_told_of_its_attempt_stays_with_the_node() -> None:
    job = Job().start().result(1)

    assert job.effects == []
    job.told(1, common_pb2.JOB_STATE_ACKED, lease=5000)
    assert job.result(1).kinds() == [fx.Complete, fx.Deliver]


def test_a_result_that_comes_before_the_pool_was_asked_stays_at_its_node() -> None:
    """Others waited first, so the pool was not asked; an earlier home has placed the job."""
    job = Job().start().refused(ALL_FULL).result(1)

    assert job.effects == []
    job.room().told(1, common_pb2.JOB_STATE_ACKED, lease=5000)
    assert job.result(1).kinds() == [fx.Complete, fx.Deliver]


# ---- deadline ----


def test_the_deadline_ends_a_job_wherever_it_is() -> None:
    job = running(deadline_ms=500).at(500).timer("deadline")

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Fail]
    assert job.ending()[3] == FAILED
    assert job.failure() == common_pb2.ERROR_REASON_JOB_TIMEOUT
