"""The job machine by example: waiting for room, for a quota, and for the node of a turn."""

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.v1 import common_pb2
from tests.unit.dispatcher.job_driver import (
    ALL_FULL,
    BOUND_FULL,
    NO_NODE,
    OVER_QUOTA,
    Job,
)

# ---- no room ----


def test_all_full_waits_until_there_is_room() -> None:
    job = Job().start().at(10).refused(ALL_FULL)

    assert job.effects == [fx.Wait(), fx.Wake(210)]
    assert job.machine.timers == {("wait", 0): 210}
    assert job.at(50).room().kinds() == [fx.Allocate]
    job.given(1)
    assert ("wait", 0) not in job.machine.timers
    assert job.phase is Phase.PLACED


def test_when_the_wait_is_over_the_job_fails() -> None:
    job = Job().start().refused(ALL_FULL).at(200).timer("wait")

    assert job.kinds() == [fx.Fail]
    assert job.failure() == ALL_FULL


def test_calls_in_vain_do_not_make_the_wait_longer() -> None:
    job = Job().start().refused(ALL_FULL).at(150).room().at(160).refused(ALL_FULL)
    assert job.effects == [fx.Wait()]

    assert job.at(190).room().timer("wait").effects == []
    assert job.at(210).refused(ALL_FULL).failure() == ALL_FULL


def test_a_retry_has_a_wait_of_its_own() -> None:
    job = Job().start().refused(ALL_FULL).at(150).room().given(1)
    job.at(190).rejected(1).refused(ALL_FULL)

    assert job.machine.timers["wait", 0] == 390


def test_over_its_quota_a_job_waits_and_then_fails_as_such() -> None:
    job = Job().start().refused(OVER_QUOTA, 50)
    assert job.effects == [fx.Wait(), fx.Wake(200)]
    assert job.at(60).room().refused(OVER_QUOTA, 70).effects == [fx.Wait()]

    job.at(200).timer("wait")

    assert job.effects == [fx.Fail(fx.FailureCause(OVER_QUOTA, "refused", 70))]


def test_who_cannot_be_let_through_within_the_wait_is_told_so_at_once() -> None:
    job = Job().start().at(10).refused(OVER_QUOTA, 200)

    assert job.effects == [fx.Fail(fx.FailureCause(OVER_QUOTA, "refused", 200))]


def test_quota_and_room_share_one_wait_and_the_last_refusal_is_told() -> None:
    job = Job().start().refused(OVER_QUOTA, 50).at(60).room().refused(ALL_FULL)

    assert job.at(200).timer("wait").failure() == ALL_FULL


def test_a_refusal_that_no_wait_would_change_fails_at_once() -> None:
    assert Job().start().refused(NO_NODE).failure() == NO_NODE


def test_a_bound_node_that_is_full_is_waited_for_and_then_left() -> None:
    job = Job(affinity_wait_ms=50).start()
    assert job.asked().wait_for_bound_node

    assert job.refused(BOUND_FULL).effects == [fx.Wait(), fx.Wake(50)]
    assert job.at(20).room().asked().wait_for_bound_node
    assert job.at(30).refused(BOUND_FULL).effects == [fx.Wait()]
    assert job.at(50).timer("bound").asked().wait_for_bound_node
    assert not job.refused(BOUND_FULL).asked().wait_for_bound_node
    assert job.given(1).phase is Phase.PLACED


def test_a_turn_waits_for_its_node_no_longer_than_two_thirds_of_its_time() -> None:
    job = Job(affinity_wait_ms=20_000, deadline_ms=900).start()

    assert job.at(10).refused(BOUND_FULL).machine.timers["bound", 0] == 600
    assert not job.at(600).timer("bound").refused(BOUND_FULL).asked().wait_for_bound_node


def test_a_turn_waits_less_for_a_node_that_is_disconnected() -> None:
    job = Job(affinity_wait_ms=20_000, affinity_away_ms=300).start()
    away = fx.FailureCause(BOUND_FULL, "away", metadata={"waits_for": "disconnected"})

    job.at(10).refused(BOUND_FULL).at(1000).room()
    job.then(job.machine.on_refused(job.now, away))
    assert job.machine.timers["bound", 0] == 1300
    job.at(1200).room().refused(BOUND_FULL)
    assert job.machine.timers["bound", 0] == 20_010


def test_after_the_wait_for_its_node_a_job_waits_for_room_at_any_other() -> None:
    job = Job(affinity_wait_ms=500).start().refused(BOUND_FULL).at(500).timer("bound")
    job.refused(BOUND_FULL)

    assert job.refused(ALL_FULL).phase is Phase.WAITING
    assert job.at(700).timer("wait").failure() == ALL_FULL


def test_a_bound_wait_that_ends_while_the_pool_is_asked_goes_elsewhere_without_delay() -> None:
    job = Job(affinity_wait_ms=50).start().refused(BOUND_FULL).at(40).room().at(50).timer("bound")
    job.at(60).refused(BOUND_FULL)

    assert not job.asked().wait_for_bound_node


# ---- nodes that were tried ----


ALL_TRIED = fx.FailureCause(ALL_FULL, "no other node", metadata={"drawn": "1", "excluded": "1"})


def asks(job: Job) -> fx.Allocate:
    (asked,) = [effect for effect in job.effects if isinstance(effect, fx.Allocate)]
    return asked


def test_where_there_is_no_other_node_the_one_that_failed_is_tried_again() -> None:
    job = Job().start().given(1).acked(1).failed(1)
    assert asks(job).exclude == ("node-1",)
    job.then(job.machine.on_refused(10, ALL_TRIED)).room()
    assert asks(job).exclude == ()


def test_a_job_that_its_only_node_fails_has_failed_there_and_not_for_want_of_room() -> None:
    job = Job(max_retry=1).start().given(1).acked(1).failed(1)
    job.then(job.machine.on_refused(10, ALL_TRIED))
    job.room().given(2).acked(2).failed(2)
    (failed,) = [effect for effect in job.effects if isinstance(effect, fx.Fail)]
    assert failed.why.reason == common_pb2.ERROR_REASON_JOB_FAILED
    assert failed.why.message == "attempt 2 on node-2: BROKEN"


def test_a_node_that_was_not_reached_is_left_to_those_who_know_whether_it_is_back() -> None:
    job = Job().start().given(1).send_failed(1)
    job.then(job.machine.on_refused(10, ALL_TRIED)).room()
    assert asks(job).exclude == ("node-1",)


@pytest.mark.parametrize("end", ["wait", "deadline"])
def test_a_job_that_ends_without_an_attempt_says_how_its_last_one_ended(end: str) -> None:
    job = Job(deadline_ms=900).start().given(1).acked(1).failed(1).refused(ALL_FULL)
    job.at(900).timer(end)
    (failed,) = [effect for effect in job.effects if isinstance(effect, fx.Fail)]
    assert failed.why.message.endswith("; last: attempt 1 on node-1: BROKEN")


def test_who_waits_in_vain_is_told_what_the_pool_has_counted() -> None:
    job = Job().start()
    facts = {"drawn": "3", "full": "2", "silent": "1"}
    job.then(job.machine.on_refused(0, fx.FailureCause(ALL_FULL, "full", metadata=facts)))
    job.at(200).timer("wait")
    (failed,) = [effect for effect in job.effects if isinstance(effect, fx.Fail)]
    assert failed.why.metadata == facts
