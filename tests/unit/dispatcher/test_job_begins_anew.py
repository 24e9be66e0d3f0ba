"""A job that found no node and is submitted again: late answers to the first run are ignored."""

from collections import Counter

import pytest

from lingua_scheduler.services.dispatcher.home.job import Job
from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import ASK_AGAIN_MS, JobRules, Phase
from lingua_scheduler.services.dispatcher.job.timeline import Timeline
from lingua_scheduler.services.runtime.errors import SessionTakenOverError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.unit.choices import Choices
from tests.unit.dispatcher.job_world import World
from tests.unit.dispatcher.test_job_machine_properties import Promises

RULES = JobRules(
    ack_timeout_ms=100,
    job_timeout_ms=1000,
    queue_wait_ms=0,
    other_nodes_wait_ms=0,
    affinity_wait_ms=0,
    affinity_away_ms=0,
    grace_ms=300,
    hedge_after_ms=0,
    max_retry=2,
)
REASONS = common_pb2.ErrorReason
ALL_FULL = REASONS.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
NO_NODE_NOW = (
    REASONS.ERROR_REASON_NO_CAPABLE_NODE,
    ALL_FULL,
    REASONS.ERROR_REASON_BOUND_NODE_FULL,
    REASONS.ERROR_REASON_HELD_AUDIO_NEEDED,
    REASONS.ERROR_REASON_QUOTA_EXCEEDED,
    REASONS.ERROR_REASON_PREFERRED_NODE_NOT_CAPABLE,
    REASONS.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
    REASONS.ERROR_REASON_DRAINING,
    REASONS.ERROR_REASON_DEADLINE_EXCEEDED,
)


def answer(number: int, *, existing: bool = False, runs: bool = False) -> pool_pb2.AllocateResponse:
    return pool_pb2.AllocateResponse(
        attempt=common_pb2.AttemptRef(job_id="job", attempt=number),
        placement=pool_pb2.Placement(node_id=f"node-{number}", node_epoch=1),
        state=common_pb2.JOB_STATE_ACKED if runs else common_pb2.JOB_STATE_RESERVED,
        existing=existing,
        lease_ends_ms=5000,
    )


def failed_machine() -> JobMachine:
    """One attempt was rejected, and then there was no other node."""
    machine = JobMachine(rules=RULES)
    machine.start(0)
    machine.on_allocated(0, answer(1))
    machine.on_rejected(0, 1, "FULL")
    machine.on_refused(0, fx.FailureCause(ALL_FULL, "full"))
    assert machine.phase is Phase.OVER
    return machine


def begun_anew() -> tuple[JobMachine, list[fx.Effect]]:
    machine = JobMachine(rules=RULES, earlier=failed_machine().attempts)
    return machine, machine.start(0)


def test_it_asks_for_an_attempt_after_those_before_and_for_any_node() -> None:
    _, effects = begun_anew()
    asked = effects[-1]
    assert isinstance(asked, fx.Allocate)
    assert (asked.number, asked.exclude) == (2, ())


def test_an_attempt_before_whose_end_the_pool_has_not_heard_of_is_not_taken_up() -> None:
    machine, _ = begun_anew()
    effects = machine.on_allocated(10, answer(1, existing=True, runs=True))
    assert effects == [fx.Wake(10 + ASK_AGAIN_MS)]
    assert [type(effect) for effect in machine.on_timer(60, ("ask", 0))] == [fx.Allocate]


def test_a_reservation_that_nobody_had_heard_of_is_taken_up() -> None:
    machine, _ = begun_anew()
    effects = machine.on_allocated(10, answer(2, existing=True))
    assert isinstance(effects[0], fx.Send)
    assert machine.phase is Phase.PLACED


def test_what_nodes_still_say_of_attempts_before_is_late() -> None:
    machine, _ = begun_anew()
    assert [type(effect) for effect in machine.on_acked(10, 1)] == [fx.CancelOnNode]
    attempt = common_pb2.AttemptRef(job_id="job", attempt=1)
    result = dispatcher_pb2.JobResult(attempt=attempt)
    assert [type(effect) for effect in machine.on_result(10, result, "node-1")] == [fx.Confirm]
    assert machine.on_committed(10, 1, pool_pb2.CommitResponse.OUTCOME_SUPERSEDED) == []
    assert machine.phase is Phase.SELECTING


def test_it_has_all_its_tries_again() -> None:
    machine, _ = begun_anew()
    for number in (2, 3):
        machine.on_allocated(0, answer(number))
        machine.on_rejected(0, number, "FULL")
        assert machine.phase is Phase.SELECTING
    machine.on_allocated(0, answer(4))
    machine.on_rejected(0, 4, "FULL")
    assert machine.phase is Phase.OVER


# ---- which jobs may ----


def over(reason: common_pb2.ErrorReason.ValueType, epoch: int = 0) -> Job:
    failed = dispatcher_pb2.JobEvent(failed=common_pb2.Error(reason=reason))
    return job(failed_machine(), failed, epoch)


def job(machine: JobMachine, last: dispatcher_pb2.JobEvent | None, epoch: int = 0) -> Job:
    return Job(
        job_id="job",
        key="key",
        spec=dispatcher_pb2.JobSpec(),
        machine=machine,
        queue="zh:en",
        ticket=1,
        submitted_ms=0,
        deadline_ms=None,
        gateway=None,
        timeline=Timeline((), now=0, wall_us=0),
        epoch=epoch,
        last=last,
    )


def test_only_failures_that_say_nothing_of_the_job_are_mended_by_another_try() -> None:
    may = {reason for reason in REASONS.values() if over(reason).may_begin_anew(0)}
    assert may == set(NO_NODE_NOW)


def test_a_job_that_is_not_over_or_has_a_result_does_not_begin_anew() -> None:
    machine, _ = begun_anew()
    assert not job(machine, None).may_begin_anew(0)
    accepted = dispatcher_pb2.JobEvent(accepted=dispatcher_pb2.JobAccepted())
    assert not job(machine, accepted).may_begin_anew(0)
    delivered = dispatcher_pb2.JobEvent(delivered=dispatcher_pb2.JobDelivered())
    assert not job(failed_machine(), delivered).may_begin_anew(0)


def test_a_job_whose_last_question_is_not_answered_does_not_begin_anew() -> None:
    asking = over(ALL_FULL)
    asking.is_asking = True
    assert not asking.may_begin_anew(0)


def test_a_job_that_an_older_epoch_could_not_begin_is_begun_by_a_newer_one() -> None:
    behind = over(REASONS.ERROR_REASON_SESSION_TAKEN_OVER, epoch=3)
    assert behind.may_begin_anew(4)
    assert not behind.may_begin_anew(3)


@pytest.mark.parametrize(("epoch", "is_fine"), [(0, True), (2, False), (3, True), (4, True)])
def test_an_epoch_that_is_told_must_not_be_older_than_the_latest(epoch: int, is_fine: bool) -> None:
    known = over(ALL_FULL, epoch=3)
    if is_fine:
        known.check_epoch(epoch)
    else:
        with pytest.raises(SessionTakenOverError, match="epoch 2 is over"):
            known.check_epoch(epoch)


# ---- whatever happens ----


class InsistentWorld(World):
    """A world whose gateway submits the job again as long as it fails only for want of a node."""

    MOST = 4

    def __init__(self, choices: Choices) -> None:
        self.begun = 0
        self.deaths = 0
        super().__init__(choices, Promises)

    def _carry_out(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Send) and self.begun:
            earlier = self._earlier.get(effect.attempt.number)
            assert earlier is None, "an attempt from before is sent again"
        super()._carry_out(effect)
        insists = isinstance(effect, fx.Fail) and effect.why.reason in NO_NODE_NOW
        if insists and self.begun < self.MOST:
            self._after(self.choices.delay(), self._begin_anew)

    def _begin_anew(self) -> None:
        self.begun += 1
        self.homes += 1
        self._earlier = dict(self.machine.attempts)
        self._timers = {}
        self.log.append(f"{self.now:8.1f} it begins anew")
        left = None if self.deadline is None else self.now + self.deadline
        self.machine = JobMachine(rules=self.rules, deadline_ms=left, earlier=self._earlier)
        self.watch = Promises(self.machine, self.rules, left)
        self._tell("start", 0, lambda: self.machine.start(self.now))

    def _home_dies(self) -> None:
        before = self.homes
        super()._home_dies()
        self.deaths += self.homes - before
        self._earlier = {}


@pytest.mark.parametrize("batch", range(4))
def test_every_promise_holds_however_often_it_begins(batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(batch * 500, (batch + 1) * 500):
        world = InsistentWorld(Choices(seed=seed))
        try:
            world.run()
        except AssertionError as broken:
            pytest.fail(f"seed {seed}: {broken}\n" + "\n".join(world.log))
        if world.begun and not world.deaths:
            left = set(world.store.leases(world.now)) - world.unheard
            assert not left, f"seed {seed}: slots are left behind: {left}\n" + "\n".join(world.log)
            seen[common_pb2.JobState.Name(world.machine.state)] += 1
    # Worlds in which that never happens would prove nothing.
    assert min(seen["JOB_STATE_DONE"], seen["JOB_STATE_FAILED"]) > 10, seen
