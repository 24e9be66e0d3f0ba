"""What the job machine promises in every case, in thousands of random worlds (see job_world)."""

import math
import os
from collections import Counter

import pytest

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.effects import AttemptState
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import MAX_MISSES, JobRules, Phase
from lingua_scheduler.v1 import common_pb2
from tests.unit.choices import Choices, shrink
from tests.unit.dispatcher.job_world import World

RUNS = int(os.environ.get("LINGUA_JOB_RUNS", "4000"))
BATCHES = 8

# The node itself ended the attempt, or cannot be told to stop.
_NODE_KNOWS = {
    "rejected",
    "turned away",
    "failed",
    "hopeless",
    "result",
    "send failed",
    "node lost",
    "kept",
}
_END = (fx.Deliver, fx.Fail)
_AFTER_THE_END = (fx.CancelOnNode, fx.Release, fx.Complete, fx.Confirm)


class Promises:
    """Checks every event of one home."""

    def __init__(self, machine: JobMachine, rules: JobRules, deadline: float | None) -> None:
        self.machine = machine
        self.rules = rules
        self.deadline = deadline
        # From the start to the deadline.
        self._time = 0.0
        self.ended = False
        self.seen: Counter[str] = Counter()
        self._timers: dict[fx.TimerKey, float] = {}
        self._wakes_ms = math.inf
        self._asks = 0
        self._given_back: set[int] = set()
        self._accepted: set[int] = set()
        self._sent: dict[int, str] = {}
        self._misses: set[int] = set()
        # Nodes that were tried, and may be tried again because there are no others.
        self._readmitted: set[str] = set()
        self._failed_since = math.inf
        self._waits_since: float | None = None
        self._turn_since: float | None = None
        self._final_op = False
        self._was: dict[int, AttemptState] = {}
        self._phase = Phase.NEW

    def before(self) -> None:
        self._was = {each.number: each.state for each in self.machine.attempts.values()}
        self._phase = self.machine.phase

    def after(self, now: float, event: str, number: int, effects: list[fx.Effect]) -> None:
        if event == "start" and self.deadline is not None:
            self._time = self.deadline - now
        self.seen[f"{event} {self._phase.name}->{self.machine.phase.name}"] += 1
        if event.startswith("timer "):
            del self._timers[event.removeprefix("timer "), number]
            self._wakes_ms = math.inf
        if event == "woken":
            assert all(at_ms > now for at_ms in self._timers.values()), "a timer is missed"
            self._wakes_ms = math.inf
        if event.startswith(("refused", "had", "given")):
            self._asks -= 1
        if event == "refused ALL_TRIED" and self._phase is Phase.SELECTING:
            self._readmitted.update(self._sent.values())
        self._check_end(now, event, effects)
        self._check_timers(now, effects)
        self._check_attempts(event, number, effects)
        self._check_asking(effects)
        self._check_tries(now, event, number, effects)
        self._check_wait(now, event, effects)
        self._check_late_report(event, number, effects)
        self.ended = self.machine.phase is Phase.OVER

    def _check_end(self, now: float, event: str, effects: list[fx.Effect]) -> None:
        ends = [effect for effect in effects if isinstance(effect, _END)]
        if self.ended:
            wrong = [effect for effect in effects if not isinstance(effect, _AFTER_THE_END)]
            assert not wrong, f"after the end: {wrong}"
        else:
            assert len(ends) == (self.machine.phase is Phase.OVER), "one end, and then it is over"
        if ends:
            assert effects[-1] is ends[0], "the end comes last"
            assert self.deadline is None or now <= self.deadline, "the deadline is kept"
            assert not self._alive()
        if event == "cancel":
            assert self.machine.phase is Phase.OVER, "a cancel stops everything"
        state = self.machine.state
        fails = state in (common_pb2.JOB_STATE_FAILED, common_pb2.JOB_STATE_CANCELLED)
        for effect in effects:
            if isinstance(effect, fx.Release | fx.Complete):
                assert effect.final == (state if fails else 0), f"wrong final state in {effect}"
                self._final_op |= fails

    def _check_timers(self, now: float, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Wake):
                self._wakes_ms = effect.at_ms
        timers = dict(self.machine.timers)
        for key, at_ms in timers.items():
            is_new = self._timers.get(key) != at_ms
            assert not is_new or key[0] == "deadline" or at_ms >= now, f"{key} is in the past"
            assert at_ms >= self._wakes_ms, f"nobody wakes it for {key}"
        self._timers = timers
        if self.machine.phase is Phase.OVER:
            assert not self._timers, f"left set after the end: {self._timers}"

    def _check_attempts(self, event: str, number: int, effects: list[fx.Effect]) -> None:
        alive = self._alive()
        hedged = self.rules.hedge_after_ms > 0 and self.machine.phase is Phase.PLACED
        assert len(alive) <= (2 if hedged else 1), f"too many are alive: {alive}"
        cancelled = {each.attempt.number for each in effects if isinstance(each, fx.CancelOnNode)}
        freed = [
            each.attempt.number for each in effects if isinstance(each, fx.Release | fx.Complete)
        ]
        assert len(set(freed)) == len(freed), f"given back twice: {freed}"
        assert not self._given_back.intersection(freed), f"given back before: {freed}"
        self._given_back.update(freed)
        for each, stage in self._was.items():
            was_alive = stage not in (AttemptState.ENDED, AttemptState.DONE)
            if was_alive and each not in alive:
                own = each == number or event == "kept"
                knows = own and event in _NODE_KNOWS
                assert knows or each in cancelled, f"{each} goes on at its node"
                assert (each in freed) == (stage is not AttemptState.KEPT), f"{each} keeps its slot"
            elif was_alive:
                assert each not in freed, f"{each} lives without a slot"
        for effect in effects:
            if isinstance(effect, fx.Accepted):
                assert effect.attempt.number not in self._accepted, "accepted twice"
                self._accepted.add(effect.attempt.number)

    def _check_asking(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Allocate):
                self._asks += 1
                assert effect is effects[-1], "the question comes last"
                missing = set(self._sent.values()) - set(effect.exclude) - self._readmitted
                assert not missing, f"asks for nodes that were tried: {missing}"
                assert effect.number not in self.machine.attempts, "the number is used"
        assert 0 <= self._asks <= 1, "one question at a time"
        if self.machine.phase is Phase.SELECTING:
            assert self._asks or ("ask", 0) in self._timers, "nobody is asked"

    def _check_tries(self, now: float, event: str, number: int, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Send) and effect.attempt.number not in self._sent:
                node_id = effect.attempt.node_id
                if event == "given" and node_id not in self._readmitted:
                    assert node_id not in self._sent.values(), "the same node again"
                if event == "given" and node_id in self._sent.values():
                    self._check_last_try(now)
                self._readmitted.discard(node_id)
                self._sent[effect.attempt.number] = node_id
        if number in self._was and number not in self._alive():
            unsent = event == "send failed" and self._was[number] is AttemptState.RESERVED
            if unsent or event in ("committed SUPERSEDED", "turned away"):
                self._misses.add(number)
        over = {AttemptState.ENDED, AttemptState.DONE}
        ended = {each for each, was in self._was.items() if was not in over} - self._alive()
        if ended - self._misses:
            self._failed_since = min(self._failed_since, now)
        tries = len(self._sent) - len(self._misses)
        assert tries <= self.rules.max_retry + 1, f"{tries} tries"
        if self.deadline is None:
            assert len(self._misses) <= MAX_MISSES + 1

    def _check_last_try(self, now: float) -> None:
        """Nodes that failed the job get its last try only after others have had time."""
        if len(self._sent) - len(self._misses) < self.rules.max_retry:
            return
        since = self._failed_since + self.rules.other_nodes_wait_ms
        if self.deadline is not None:
            since = min(since, self.deadline - self._time / 3)
        assert now >= since, "one node may use up all tries"

    def _check_wait(self, now: float, event: str, effects: list[fx.Effect]) -> None:
        waits_for = self._timers.keys() & {("wait", 0), ("bound", 0), ("others", 0)}
        if event == "refused BOUND_NODE_FULL" and self._phase is Phase.SELECTING:
            self._waits_since = None
            if self._turn_since is None:
                self._turn_since = now
        elif ("others", 0) in waits_for:
            self._waits_since = None
        elif event.startswith("refused") and self._waits_since is None:
            self._waits_since = now if self._phase is Phase.SELECTING else None
        if any(isinstance(effect, fx.Send) for effect in effects):
            self._waits_since = None
        if self.machine.phase is Phase.WAITING:
            assert len(waits_for) == 1, "waits for ever, or for two things"
            since, longest = self._waits_since, self.rules.queue_wait_ms
            if ("bound", 0) in waits_for:
                since, longest = self._turn_since, self.rules.affinity_wait_ms
            if ("others", 0) in waits_for:
                since, longest = self._failed_since, self.rules.other_nodes_wait_ms
            assert since is not None
            assert now <= since + longest, "waits too long"

    def _check_late_report(self, event: str, number: int, effects: list[fx.Effect]) -> None:
        if event not in ("result", "failed", "hopeless"):
            return
        if self._was.get(number, AttemptState.ENDED) not in (AttemptState.ENDED, AttemptState.DONE):
            return
        asks = self._phase in (Phase.NEW, Phase.SELECTING, Phase.WAITING)
        may_be_told_of = asks and number not in self._was
        wanted = [] if may_be_told_of else [fx.Confirm]
        assert [type(effect) for effect in effects] == wanted, "late: confirmed and dropped"

    def at_the_end(self, world: World) -> None:
        assert self.ended, f"the job hangs in {self.machine.phase}"
        assert not self._asks
        if world.homes > 1:
            return
        leases = set(world.store.leases(world.now)) - world.unheard
        assert not leases, f"slots are left behind: {leases}"
        over = common_pb2.JobState.Name(self.machine.state)[10:].lower()
        may_be = {over} if self._final_op or over != "failed" else {"failed", "unplaced"}
        assert world.store.state in may_be, f"the record says {world.store.state}, not {over}"

    def _alive(self) -> set[int]:
        return {each.number for each in self.machine.attempts.values() if each.is_alive}


def breaks(choices: list[int]) -> bool:
    try:
        World(Choices(choices), Promises).run()
    except AssertionError:
        return True
    return False


def check(seed: int) -> World:
    """Runs one world; a failure is reported with the shortest run that shows it."""
    choices = Choices(seed=seed)
    try:
        world = World(choices, Promises)
        world.run()
    except AssertionError:
        if not breaks(choices.made):
            raise
        short = shrink(choices.made, breaks)
    else:
        return world
    world = World(Choices(short), Promises)
    with pytest.raises(AssertionError) as broken:
        world.run()
    pytest.fail(f"seed {seed}, choices {short}: {broken.value}\n" + "\n".join(world.log))


@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_promise_holds_in_random_worlds(batch: int) -> None:
    for seed in range(batch * RUNS // BATCHES, (batch + 1) * RUNS // BATCHES):
        check(seed)


def test_the_worlds_come_everywhere() -> None:
    """Worlds in which little happens would prove little."""
    seen: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in range(2000):
        world = check(seed)
        assert isinstance(world.watch, Promises)
        seen.update(world.watch.seen)
        ends[common_pb2.JobState.Name(world.machine.state)] += 1

    assert set(ends) == {"JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
    rare = (
        "given PLACED->PLACED",  # hedged
        "given RUNNING->RUNNING",  # a hedge that came too late
        "given OVER->OVER",
        "had SELECTING->PLACED",  # a new home takes over
        "had SELECTING->RUNNING",
        "had SELECTING->FETCHING",
        "timer ask SELECTING->SELECTING",  # the pool had not heard of an attempt's end
        "kept FETCHING->OVER",
        "kept FETCHING->FETCHING",
        "acked FETCHING->FETCHING",
        "acked LOST->RUNNING",
        "node back LOST->LOST",
        "node lost RUNNING->LOST",
        "node lost PLACED->SELECTING",
        "send failed PLACED->LOST",  # an earlier home may have sent it
        "turned away PLACED->SELECTING",
        "result OVER->OVER",
        "result PLACED->OVER",
        "result LOST->OVER",
        "committed NO_ROOM RUNNING->SELECTING",
        "room WAITING->SELECTING",
        "refused ALL_TRIED SELECTING->WAITING",
        "timer wait WAITING->OVER",
        "timer bound WAITING->SELECTING",
        "timer others WAITING->SELECTING",
        "timer grace LOST->SELECTING",
        "timer job RUNNING->SELECTING",
        "timer deadline RUNNING->OVER",
    )
    assert not [step for step in rare if not seen[step]]
