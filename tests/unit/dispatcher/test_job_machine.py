"""The job machine by example: every line of the design's section on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import ASK_AGAIN_MS, MAX_MISSES, JobRules, Phase
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
ALL_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
BOUND_FULL = common_pb2.ERROR_REASON_BOUND_NODE_FULL
NO_NODE = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
COMMIT = pool_pb2.CommitResponse


def ref(number: int) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id="job", attempt=number)


def placement(number: int, epoch: int = 1) -> pool_pb2.Placement:
    """Attempt n is on node n."""
    return pool_pb2.Placement(node_id=f"node-{number}", node_epoch=epoch)


def result(number: int) -> dispatcher_pb2.JobResult:
    return dispatcher_pb2.JobResult(attempt=ref(number))


@dataclass
class Job:
    """A machine, and what it asked for last."""

    hedge_after_ms: float = 0.0
    affinity_wait_ms: float = 0.0
    affinity_away_ms: float = 0.0
    max_retry: int = 2
    deadline_ms: float | None = None
    now: float = 0.0
    effects: list[fx.Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        rules = JobRules(
            ack_timeout_ms=100,
            job_timeout_ms=1000,
            queue_wait_ms=200,
            affinity_wait_ms=self.affinity_wait_ms,
            affinity_away_ms=self.affinity_away_ms,
            grace_ms=300,
            hedge_after_ms=self.hedge_after_ms,
            max_retry=self.max_retry,
        )
        self.machine = JobMachine(rules=rules, deadline_ms=self.deadline_ms)

    @property
    def phase(self) -> Phase:
        return self.machine.phase

    def start(self) -> "Job":
        return self.then(self.machine.start(self.now))

    def given(self, number: int) -> "Job":
        return self.told(number, common_pb2.JOB_STATE_RESERVED, lease=5000, existing=False)

    def told(
        self,
        number: int,
        state: common_pb2.JobState.ValueType,
        *,
        lease: int,
        existing: bool = True,
    ) -> "Job":
        answer = pool_pb2.AllocateResponse(
            attempt=ref(number),
            placement=placement(number),
            state=state,
            existing=existing,
            lease_ends_ms=lease,
        )
        return self.then(self.machine.on_allocated(self.now, answer))

    def refused(
        self,
        reason: common_pb2.ErrorReason.ValueType,
        retry_ms: int = 0,
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> "Job":
        problem = fx.FailureCause(reason, "refused", retry_ms, facts)
        return self.then(self.machine.on_refused(self.now, problem))

    def room(self) -> "Job":
        return self.then(self.machine.on_room(self.now))

    def send_failed(self, number: int) -> "Job":
        return self.then(self.machine.on_send_failed(self.now, number, "no stream"))

    def node_lost(self, number: int) -> "Job":
        return self.then(self.machine.on_node_lost(self.now, number))

    def node_back(self, number: int) -> "Job":
        return self.then(self.machine.on_node_back(self.now, number, placement(number, epoch=2)))

    def acked(self, number: int) -> "Job":
        return self.then(self.machine.on_acked(self.now, number))

    def committed(self, number: int, outcome: COMMIT.Outcome.ValueType) -> "Job":
        return self.then(self.machine.on_committed(self.now, number, outcome))

    def rejected(self, number: int) -> "Job":
        return self.then(self.machine.on_rejected(self.now, number, "FULL"))

    def partial(self, number: int) -> "Job":
        partial = dispatcher_pb2.JobPartial(attempt=ref(number))
        return self.then(self.machine.on_partial(self.now, partial))

    def result(self, number: int, node: int | None = None) -> "Job":
        node_id = f"node-{node or number}"
        return self.then(self.machine.on_result(self.now, result(number), node_id))

    def failed(self, number: int, *, worth_retry: bool = True) -> "Job":
        failed = dispatcher_pb2.JobFailed(
            attempt=ref(number), cause="BROKEN", worth_retry=worth_retry
        )
        return self.then(self.machine.on_failed(self.now, failed, f"node-{number}"))

    def kept(self, number: int | None) -> "Job":
        kept = None if number is None else result(number)
        return self.then(self.machine.on_kept(self.now, kept))

    def timer(self, kind: str, number: int = 0) -> "Job":
        return self.then(self.machine.on_timer(self.now, (kind, number)))

    def woken(self) -> "Job":
        return self.then(self.machine.on_wake(self.now))

    def cancel(self) -> "Job":
        return self.then(self.machine.on_cancel(self.now, "no longer wanted"))

    def at(self, now: float) -> "Job":
        self.now = now
        return self

    def then(self, effects: list[fx.Effect]) -> "Job":
        self.effects = effects
        return self

    def kinds(self) -> list[type[fx.Effect]]:
        """What was asked for, without the time to be woken at."""
        return [type(effect) for effect in self.effects if not isinstance(effect, fx.Wake)]

    def only(self, kind: type[fx.Effect]) -> fx.Effect:
        (effect,) = (effect for effect in self.effects if type(effect) is kind)
        return effect

    def ending(self) -> tuple[str, int, int, int]:
        """The one lease operation: its kind, its attempt, its cause or outcome, the final state."""
        (found,) = (each for each in self.effects if isinstance(each, fx.Release | fx.Complete))
        detail = found.cause if isinstance(found, fx.Release) else found.outcome
        return type(found).__name__, found.attempt.number, detail, found.final

    def asked(self) -> fx.Allocate:
        effect = self.only(fx.Allocate)
        assert isinstance(effect, fx.Allocate)
        return effect

    def failure(self) -> common_pb2.ErrorReason.ValueType:
        effect = self.only(fx.Fail)
        assert isinstance(effect, fx.Fail)
        return effect.why.reason


def placed(**rules: float) -> Job:
    return Job(**rules).start().given(1)  # type: ignore[arg-type]


def running(**rules: float) -> Job:
    return placed(**rules).acked(1)


def hedged() -> Job:
    return placed(hedge_after_ms=50).at(50).timer("hedge").given(2)


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
        fx.Complete(attempt, pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED),
        fx.Deliver(attempt, result(1)),
    ]
    assert job.machine.timers == {}


def test_it_is_woken_for_the_first_timer_and_then_for_the_next() -> None:
    job = Job(deadline_ms=5000).start()
    assert job.effects[0] == fx.Wake(5000)
    assert job.given(1).effects[-1] == fx.Wake(100)
    # Cleared timers cost nothing, so the call for this one comes, and moves on.
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


def test_a_job_that_the_only_node_calls_hopeless_ends_at_once() -> None:
    job = running().failed(1, worth_retry=False)

    job.refused(ALL_FULL, facts={"drawn": "1", "excluded": "1"})

    assert job.kinds() == [fx.Fail]
    assert job.failure() == common_pb2.ERROR_REASON_JOB_FAILED


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
    """Nodes that cannot be reached, one after the other; returns the pauses between them."""
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


# ---- attempts that an earlier home may have sent ----


def taken_up() -> Job:
    """A job that is placed, unacknowledged, when this home hears of it."""
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
    """A job whose attempt a turn's binding has placed."""
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
    # It is still the turn's: once more it is waited for.
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
    """Its slot has gone to another job; it may have done this one while it was away."""
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
    """Its node has forgotten the attempt by now, and would do it once more without a slot."""
    job = running().node_lost(1).node_back(1)
    job.then(job.machine.on_committed(job.now, 1, COMMIT.OUTCOME_ALREADY, is_over=True))

    assert job.kinds() == [fx.Fail]
    assert job.phase is Phase.OVER


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
    assert job.kept(kept).kinds() == ([fx.Deliver] if kept else [fx.CancelOnNode, fx.Fail])


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


# ---- deadline ----


def test_the_deadline_ends_a_job_wherever_it_is() -> None:
    job = running(deadline_ms=500).at(500).timer("deadline")

    assert job.kinds() == [fx.CancelOnNode, fx.Complete, fx.Fail]
    assert job.ending()[3] == FAILED
    assert job.failure() == common_pb2.ERROR_REASON_JOB_TIMEOUT


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


def test_a_result_that_comes_before_the_pool_was_asked_stays_at_its_node() -> None:
    """Others waited first, so the pool was not asked; an earlier home had placed the job."""
    job = Job().start().refused(ALL_FULL).result(1)

    assert job.effects == []
    job.room().told(1, common_pb2.JOB_STATE_ACKED, lease=5000)
    assert job.result(1).kinds() == [fx.Complete, fx.Deliver]
