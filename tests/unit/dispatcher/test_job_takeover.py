"""The job machine by example: nodes that disconnect, and jobs that had another home before."""

from collections.abc import Callable

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.model import ASK_AGAIN_MS, Phase
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.unit.dispatcher.job_driver import (
    CANCELLED,
    COMMIT,
    FAILED,
    NO_NODE,
    Job,
    placed,
    running,
)

# ---- attempts that an earlier home may have sent ----


def taken_up() -> Job:
    """A job that an earlier home has placed, without an acknowledgement."""
    return Job().start().told(1, common_pb2.JOB_STATE_RESERVED, lease=5000)


@pytest.mark.parametrize("end", [Job.send_failed, Job.node_lost])
def test_an_attempt_of_an_earlier_home_is_looked_for_before_another_node_is_tried(
    end: Callable[[Job, int], Job],
) -> None:
    job = end(taken_up(), 1)

    assert job.kinds() == [fx.Locate]
    assert job.node_back(1).kinds() == [fx.Send]
    assert job.acked(1).phase is Phase.RUNNING


def test_an_attempt_of_an_earlier_home_that_is_not_found_keeps_its_slot_for_now() -> None:
    job = taken_up().send_failed(1).at(100).timer("grace", 1)

    assert job.kinds() == [fx.CancelOnNode, fx.Release, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Release", 1, pool_pb2.RELEASE_CAUSE_CONNECTION_LOST, 0)


@pytest.mark.parametrize("end", [Job.cancel, lambda job: job.at(900).timer("deadline")])
def test_a_slot_is_not_freed_while_the_node_cannot_be_told_to_stop(
    end: Callable[[Job], Job],
) -> None:
    job = Job(deadline_ms=900).start().told(1, common_pb2.JOB_STATE_RESERVED, lease=5000)

    assert end(job.send_failed(1)).ending()[2] == pool_pb2.RELEASE_CAUSE_CONNECTION_LOST


def test_a_node_that_has_answered_can_be_told_to_stop() -> None:
    job = taken_up().send_failed(1).node_back(1).acked(1).cancel()

    assert job.ending()[:3] == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_CANCELLED)


def test_a_stream_that_is_lost_after_the_job_was_sent_is_a_try() -> None:
    assert placed(max_retry=0).node_lost(1).kinds() == [fx.Release, fx.Fail]


# ---- a turn ----


def bound(**rules: float) -> Job:
    """A job whose attempt was placed by a turn's binding."""
    job = placed(**rules)
    job.machine.attempts[1].placement.path = pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING
    return job


@pytest.mark.parametrize("event", [Job.send_failed, Job.node_lost])
def test_an_attempt_on_the_node_that_has_the_turns_beginning_waits_for_that_node(
    event: Callable[[Job, int], Job],
) -> None:
    job = event(bound(), 1)
    assert job.phase is Phase.LOST
    assert fx.Locate in job.kinds()
    assert fx.Release not in job.kinds()

    job.node_back(1)
    assert job.kinds() == [fx.Send]
    # It still belongs to the turn, so the job waits for it again.
    assert job.acked(1).phase is Phase.RUNNING
    assert job.machine.attempts[1].placement.path == pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING


def test_a_turns_node_that_does_not_come_back_is_given_up_after_the_grace() -> None:
    job = bound().node_lost(1)
    job.now = 300
    job.timer("grace", 1)

    assert job.phase is Phase.SELECTING
    assert fx.Allocate in job.kinds()


def test_a_reject_by_the_turns_node_leads_to_the_next_at_once() -> None:
    assert fx.Allocate in bound().rejected(1).kinds()


# ---- a node's connection ----


def test_a_node_that_comes_back_within_the_grace_keeps_its_job() -> None:
    job = running().at(100).node_lost(1)
    assert job.machine.timers["grace", 1] == 400
    assert job.kinds() == [fx.Locate]

    assert job.at(200).node_back(1).kinds() == [fx.Commit]
    assert job.machine.attempts[1].placement.node_epoch == 2
    assert job.committed(1, COMMIT.OUTCOME_ALREADY).kinds() == [fx.Send]
    assert job.acked(1).effects == []
    assert ("grace", 1) not in job.machine.timers
    assert job.phase is Phase.RUNNING


def test_a_node_that_comes_back_without_room_is_asked_for_the_result_only() -> None:
    """Another job has its slot; it may have done this one while it was away."""
    job = running().node_lost(1).node_back(1).committed(1, COMMIT.OUTCOME_NO_ROOM)

    assert job.kinds() == [fx.Send]
    assert job.machine.attempts[1].is_result_only
    assert job.result(1).kinds() == [fx.Complete, fx.Deliver]


def test_a_node_that_comes_back_without_room_and_without_the_result_is_left() -> None:
    job = running().node_lost(1).node_back(1).committed(1, COMMIT.OUTCOME_NO_ROOM).rejected(1)

    assert fx.Retrying in job.kinds()
    assert job.ending()[:3] == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_CANCELLED)
    assert job.asked().exclude == ("node-1",)


def test_a_home_that_stood_still_while_another_finished_the_job_lets_go_of_it() -> None:
    """Its node has forgotten the attempt by now, and would do it again without a slot."""
    job = running().node_lost(1).node_back(1)
    job.then(job.machine.on_committed(job.now, 1, COMMIT.OUTCOME_ALREADY, is_over=True))
    assert job.kinds() == [fx.FetchKept]

    assert job.kept(None).kinds() == [fx.Fail]
    assert job.phase is Phase.OVER


def test_a_home_that_took_up_a_job_while_its_old_home_finished_it_delivers_what_was_kept() -> None:
    """The old home drained, and its gateway had left."""
    job = running().node_lost(1).node_back(1)
    job.then(job.machine.on_committed(job.now, 1, COMMIT.OUTCOME_ALREADY, is_over=True))

    assert job.kept(1).kinds() == [fx.Deliver]


def test_when_the_grace_is_over_the_job_goes_elsewhere() -> None:
    job = running().node_lost(1).at(300).timer("grace", 1)

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Retrying, fx.Allocate]
    assert job.ending() == ("Complete", 1, pool_pb2.ATTEMPT_OUTCOME_FAILED, 0)


def test_the_result_of_a_lost_node_may_come_by_another_way() -> None:
    assert running().node_lost(1).result(1).kinds() == [fx.Complete, fx.Deliver]


# ---- another home before this one ----


def test_a_new_home_sends_a_reserved_attempt_again() -> None:
    job = Job().start().told(3, common_pb2.JOB_STATE_RESERVED, lease=5000)

    assert job.kinds() == [fx.Send]
    assert job.acked(3).kinds() == [fx.Commit, fx.Accepted]


def test_a_new_home_takes_a_running_attempt_over_as_it_is() -> None:
    job = Job().start().told(3, common_pb2.JOB_STATE_ACKED, lease=5000)

    assert job.kinds() == [fx.Send, fx.Accepted]
    assert job.phase is Phase.RUNNING
    assert job.acked(3).effects == []


def test_a_running_attempt_whose_node_was_with_the_dead_home_is_looked_for() -> None:
    job = Job().start().told(3, common_pb2.JOB_STATE_ACKED, lease=5000).send_failed(3)

    assert job.kinds() == [fx.Locate]
    assert job.timer("grace", 3).ending()[0] == "Complete"


def test_a_new_home_delivers_what_was_kept_of_a_done_job() -> None:
    job = Job().start().told(1, common_pb2.JOB_STATE_DONE, lease=0)
    assert job.kinds() == [fx.FetchKept]

    assert job.kept(1).kinds() == [fx.Deliver]


def test_of_a_done_job_whose_result_was_not_kept_the_node_is_asked_again() -> None:
    job = Job().start().told(1, common_pb2.JOB_STATE_DONE, lease=0).kept(None)

    assert job.kinds() == [fx.Send]
    assert job.acked(1).phase is Phase.FETCHING
    assert job.result(1).kinds() == [fx.Deliver]


@pytest.mark.parametrize("kept", [1, None])
def test_what_was_kept_just_before_the_node_was_asked_is_found(kept: int | None) -> None:
    job = Job().start().told(1, common_pb2.JOB_STATE_DONE, lease=0).kept(None)

    assert job.rejected(1).kinds() == [fx.FetchKept]
    # Nobody else can be asked, so this look must not fail.
    assert [each.is_last for each in job.effects if isinstance(each, fx.FetchKept)] == [True]
    assert job.kept(kept).kinds() == ([fx.Deliver] if kept else [fx.Fail])


def test_of_a_done_job_the_node_may_be_on_its_way_back() -> None:
    job = Job().start().told(1, common_pb2.JOB_STATE_DONE, lease=0).kept(None).send_failed(1)
    assert job.kinds() == [fx.Locate]

    assert job.node_back(1).kinds() == [fx.Send]
    assert job.acked(1).phase is Phase.FETCHING
    assert job.result(1).kinds() == [fx.Deliver]


def test_a_done_job_whose_node_does_not_answer_fails() -> None:
    job = Job().start().told(1, common_pb2.JOB_STATE_DONE, lease=0).kept(None)

    assert job.at(100).timer("ack", 1).kinds() == [fx.CancelOnNode, fx.Fail]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (FAILED, common_pb2.ERROR_REASON_JOB_FAILED),
        (CANCELLED, common_pb2.ERROR_REASON_JOB_CANCELLED),
    ],
)
def test_a_new_home_tells_of_a_job_that_had_ended(
    state: common_pb2.JobState.ValueType, reason: int
) -> None:
    job = Job().start().told(1, state, lease=0)

    assert job.kinds() == [fx.Fail]
    assert (job.failure(), job.machine.state) == (reason, state)


def test_while_the_pool_has_not_heard_of_an_attempts_end_it_is_asked_again_a_little_later() -> None:
    job = running().at(10).failed(1).told(1, common_pb2.JOB_STATE_ACKED, lease=5000)

    assert job.effects == [fx.Wake(10 + ASK_AGAIN_MS)]
    assert job.timer("ask").asked().exclude == ("node-1",)


def test_a_refusal_that_answers_no_question_changes_nothing() -> None:
    job = running().failed(1).told(1, common_pb2.JOB_STATE_ACKED, lease=5000).refused(NO_NODE)

    assert job.effects == []
    assert job.timer("ask").kinds() == [fx.Allocate]


def test_a_cancelled_job_stops_the_attempt_that_the_pool_tells_of_too_late() -> None:
    job = Job().start().cancel().told(1, common_pb2.JOB_STATE_ACKED, lease=5000)

    assert job.kinds() == [fx.CancelOnNode, fx.Complete]
    assert job.ending()[3] == CANCELLED


def test_a_slot_that_is_given_after_the_end_is_given_back_and_the_record_ends() -> None:
    job = Job().start().cancel().given(1)

    assert job.kinds() == [fx.Release]
    assert job.ending()[3] == CANCELLED
