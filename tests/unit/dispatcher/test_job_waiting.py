"""The job machine by example: waiting for room, for a quota, and for the node of a turn."""

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.v1 import common_pb2
from tests.unit.dispatcher.job_driver import (
    ALL_FULL,
    ALL_TRIED,
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


def test_if_there_is_no_other_node_the_one_that_failed_is_tried_again() -> None:
    job = Job().start().given(1).acked(1).failed(1)
    assert job.asked().exclude == ("node-1",)
    job.at(10).refused(ALL_FULL, facts=ALL_TRIED).room()
    assert job.asked().exclude == ()


def failed_twice(**rules: float) -> Job:
    """A job with one try left, which the only known node has failed at 0 and 20 ms."""
    job = Job(max_retry=2, **rules).start().given(1).acked(1).failed(1)  # type: ignore[arg-type]
    job.at(10).refused(ALL_FULL, facts=ALL_TRIED).room()
    assert job.asked().exclude == ()
    job.given(2).acked(2).at(20).failed(2)
    return job.refused(ALL_FULL, facts=ALL_TRIED)


def test_the_last_try_waits_for_a_node_that_has_not_tried_the_job() -> None:
    job = failed_twice()
    assert job.phase is Phase.WAITING
    assert job.machine.timers == {("others", 0): 300}
    for now in (100, 200, 299):
        assert job.at(now).room().asked().exclude
        assert job.refused(ALL_FULL, facts=ALL_TRIED).kinds() == [fx.Wait]

    job.room().given(3).acked(3).result(3)

    assert isinstance(job.effects[-1], fx.Deliver)


def test_after_that_wait_the_last_try_may_go_to_a_node_that_has_failed_the_job() -> None:
    job = failed_twice().at(300).timer("others")
    assert job.asked().exclude
    job.refused(ALL_FULL, facts=ALL_TRIED)
    assert job.machine.timers == {("wait", 0): 500}

    assert job.room().asked().exclude == ()
    assert job.given(3).acked(3).failed(3).failure() == common_pb2.ERROR_REASON_JOB_FAILED


def test_a_wait_for_another_node_that_ends_while_the_pool_is_asked_is_over() -> None:
    job = failed_twice().at(290).room().at(300).timer("others")
    assert job.effects == []

    job.at(310).refused(ALL_FULL, facts=ALL_TRIED)
    assert job.room().asked().exclude == ()


def test_time_that_slow_failures_take_counts_as_time_for_other_nodes() -> None:
    job = Job().start().given(1).at(100).timer("ack", 1).refused(ALL_FULL, facts=ALL_TRIED)
    job.room().given(2).acked(2).at(1100).timer("job", 2)

    job.refused(ALL_FULL, facts=ALL_TRIED).room()

    assert job.asked().exclude == ()


def test_the_wait_for_another_node_leaves_a_third_of_the_time_for_the_last_try() -> None:
    job = failed_twice(deadline_ms=150)
    assert job.machine.timers["others", 0] == 100

    assert job.at(100).timer("others").refused(ALL_FULL, facts=ALL_TRIED).room().asked()


def test_if_others_are_only_full_a_job_waits_for_room_as_usual() -> None:
    job = failed_twice().at(100).room().refused(ALL_FULL, facts={"drawn": "2", "excluded": "1"})

    assert job.machine.timers == {("wait", 0): 300}


def test_a_turn_that_waits_for_its_node_no_longer_waits_for_others() -> None:
    job = failed_twice(affinity_wait_ms=500).at(100).room().refused(BOUND_FULL)

    assert job.machine.timers == {("bound", 0): 600}


def test_a_job_that_waits_for_others_names_the_nodes_that_it_does_not_wait_for() -> None:
    assert failed_twice().only(fx.Wait) == fx.Wait(("node-2", "node-1"))
    assert Job().start().refused(ALL_FULL).only(fx.Wait) == fx.Wait()


def test_a_job_that_may_go_to_one_node_only_does_not_wait_for_others() -> None:
    job = failed_twice(is_strict=True)

    assert job.machine.timers == {("wait", 0): 220}
    assert job.room().asked().exclude == ()


def test_a_job_that_its_only_node_fails_has_failed_there_and_not_for_want_of_room() -> None:
    job = Job(max_retry=1).start().given(1).acked(1).failed(1)
    job.at(10).refused(ALL_FULL, facts=ALL_TRIED)
    job.room().given(2).acked(2).failed(2)
    (failed,) = [effect for effect in job.effects if isinstance(effect, fx.Fail)]
    assert failed.why.reason == common_pb2.ERROR_REASON_JOB_FAILED
    assert failed.why.message == "attempt 2 on node-2: BROKEN"


def test_a_node_that_was_not_reached_is_left_to_those_who_know_whether_it_is_back() -> None:
    job = Job().start().given(1).send_failed(1)
    job.at(10).refused(ALL_FULL, facts=ALL_TRIED).room()
    assert job.asked().exclude == ("node-1",)


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


# ---- no place to wait ----


def test_without_a_place_a_job_that_would_wait_for_room_fails() -> None:
    assert Job().start().refused(ALL_FULL).no_place().failure() == ALL_FULL


def test_without_a_place_a_job_that_would_wait_for_its_node_leaves_the_turn() -> None:
    job = Job(affinity_wait_ms=50).start().refused(BOUND_FULL).no_place()

    assert not job.asked().wait_for_bound_node
    assert job.machine.timers == {}
    assert job.refused(ALL_FULL).no_place().failure() == ALL_FULL


def test_without_a_place_the_last_try_may_go_to_a_node_that_has_failed_the_job() -> None:
    job = failed_twice().no_place()

    assert job.asked().exclude == ()
    assert job.machine.timers == {}
    assert job.refused(ALL_FULL).no_place().failure() == ALL_FULL


def test_without_a_place_a_hopeless_job_ends_with_the_error_of_its_node() -> None:
    job = Job().start().given(1).acked(1).failed(1, worth_retry=False)

    job.refused(ALL_FULL, facts=ALL_TRIED).no_place()

    assert job.failure() == common_pb2.ERROR_REASON_JOB_FAILED
