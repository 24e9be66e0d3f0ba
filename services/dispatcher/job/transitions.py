"""What a job's machine does, step by step. What makes it do so is in job_machine."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lingua_scheduler.services.dispatcher.job import endings as endings
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Accepted,
    Allocate,
    Attempt,
    CancelOnNode,
    Commit,
    Complete,
    Confirm,
    Deliver,
    Effect,
    Fail,
    FetchKept,
    Locate,
    Problem,
    Release,
    Retrying,
    Send,
    Stage,
    TimerKey,
    Wait,
    Wake,
)
from lingua_scheduler.services.dispatcher.job.endings import Ending
from lingua_scheduler.services.dispatcher.job.model import STATES, Phase
from lingua_scheduler.services.dispatcher.job.rules import (
    HOPELESS_SAYINGS,
    KEPT_FOR_ANOTHER_NODE,
    MAX_MISSES,
    JobRules,
    pause_ms,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_UNSPECIFIED = common_pb2.JOB_STATE_UNSPECIFIED
_DONE = common_pb2.JOB_STATE_DONE
_FAILED = common_pb2.JOB_STATE_FAILED
_CANCELLED = common_pb2.JOB_STATE_CANCELLED

# Timers of the job; those of an attempt are ("ack" | "job" | "grace", its number).
ASK, BOUND, DEADLINE, HEDGE, WAIT = (
    (kind, 0) for kind in ("ask", "bound", "deadline", "hedge", "wait")
)


class JobSteps:
    """The state of one job, and the steps that change it. Effects gather until `_out`.

    Args:
        rules: what it is judged by.
        deadline_ms: when it fails in any case; None: never.
        earlier: attempts of the same job, all of them over, from before it began anew. Their
            numbers are not used again, and what is still said of them is late.
        held: earlier utterances whose audio a node holds for the job. Only that node can do it; if
            it cannot, the job fails with HELD_AUDIO_NEEDED, to begin anew with that audio.
    """

    def __init__(
        self,
        *,
        rules: JobRules,
        deadline_ms: float | None = None,
        earlier: Mapping[int, Attempt] = MappingProxyType({}),
        held: Iterable[int] = (),
    ) -> None:
        self.phase = Phase.NEW
        self.attempts = dict(earlier)
        self.timers: dict[TimerKey, float] = {}
        """When each timer that is set is due."""
        self._rules = rules
        self._deadline_ms = deadline_ms
        self._held = frozenset(held)
        self._end_state = _UNSPECIFIED
        self._effects: list[Effect] = []
        # When the shell calls; later timers need no call of their own.
        self._wakes_ms = math.inf
        self._excluded: list[str] = []
        # Nodes that have had a try of the job: excluded, but only as long as there are others.
        self._tried: list[str] = []
        # How the last attempt ended that was lost.
        self._lost_for: Problem | None = None
        self._tries = 0
        self._misses = 0
        # How many attempts ended with a node's word that no other node would do better.
        self._hopeless = 0
        self._asked: Allocate | None = None
        self._waits_since: float | None = None
        self._started_ms = 0.0
        # Since when it waits for the node of its turn, and since when that node is disconnected.
        self._turn_since: float | None = None
        self._away_since: float | None = None
        # It has waited long enough: another node may have the rest of the turn.
        self._leaves_turn = False
        self._refused_for: Problem | None = None
        # The lost attempt whose node is back, until the pool has its slot again.
        self._returning: int | None = None
        # How often a kept result was looked for.
        self._looks = 0

    @property
    def state(self) -> common_pb2.JobState.ValueType:
        """The phase in the contract's terms."""
        if self.phase is Phase.OVER:
            return self._end_state
        if self.attempts and self.phase in (Phase.SELECTING, Phase.WAITING):
            return common_pb2.JOB_STATE_RETRYING
        return STATES[self.phase]

    # ---- looking for a node ----

    def _select(self, now: float) -> None:
        self.phase = Phase.SELECTING
        self._ask(now)

    def _ask(self, now: float) -> None:
        """Asks the pool, for a first node or beside the one that is slow to acknowledge."""
        may_wait = (
            self.phase is Phase.SELECTING
            and self._rules.affinity_wait_ms > 0
            and not self._leaves_turn
        )
        exclude: tuple[str, ...] = ()
        if self.attempts:
            busy = [attempt.node_id for attempt in self._alive()]
            exclude = tuple(dict.fromkeys(self._excluded + busy))
        self._asked = Allocate(max(self.attempts, default=0) + 1, exclude, may_wait)
        self._effects.append(self._asked)

    def _ask_soon(self, now: float, pause: float) -> None:
        if pause:
            self._set(ASK, now + pause)
        else:
            self._ask(now)

    def _readmit_tried(self) -> None:
        """Nodes that were tried may be tried again."""
        self._excluded = [each for each in self._excluded if each not in self._tried]
        self._tried.clear()

    def _wait(self, key: TimerKey, until: float) -> None:
        self.phase = Phase.WAITING
        self._effects.append(Wait())
        self._set(key, until)

    def _wait_for_turn(self, now: float, why: Problem) -> None:
        """Waits for the node that has the beginning of the turn, as long as the deadline allows."""
        if self._turn_since is None:
            self._turn_since = now
        until = self._turn_since + self._rules.affinity_wait_ms
        if why.metadata.get("waits_for") != "disconnected":
            self._away_since = None
        else:
            if self._away_since is None:
                self._away_since = now
            until = min(until, self._away_since + self._rules.affinity_away_ms)
        if self._deadline_ms is not None:
            kept = (self._deadline_ms - self._started_ms) * KEPT_FOR_ANOTHER_NODE
            until = min(until, self._deadline_ms - kept)
        # The wait for room at any node begins after this one.
        self._waits_since = None
        self._clear(WAIT)
        if now < until:
            self._wait(BOUND, until)
        else:
            self._leaves_turn = True
            self._ask(now)

    def _decline(self, attempt: Attempt, answer: pool_pb2.AllocateResponse) -> None:
        """Gives back what the pool gave too late."""
        if attempt.number in self.attempts:
            return
        if not answer.existing:
            # Its node has never heard of it, but its number is used up.
            self.attempts[attempt.number] = attempt
            self._effects.append(Release(attempt, pool_pb2.RELEASE_CAUSE_HEDGE_LOST, self._final()))
            attempt.stage = Stage.ENDED
        elif self.phase is Phase.OVER and answer.lease_ends_ms > 0:
            self.attempts[attempt.number] = attempt
            self._end_attempt(attempt, endings.NOT_WANTED, "the job is over", self._final())

    def _take_up_ended(self, attempt: Attempt, answer: pool_pb2.AllocateResponse) -> None:
        """The job was over before it came here."""
        if answer.state == _DONE:
            attempt.stage = Stage.KEPT
            self.attempts[attempt.number] = attempt
            self.phase = Phase.FETCHING
            self._clear(WAIT, BOUND)
            self._look(attempt)
        elif answer.error.reason:
            self._fail(Problem(answer.error.reason, answer.error.message))
        elif answer.state == _CANCELLED:
            why = "the job had been cancelled before"
            self._fail(Problem(common_pb2.ERROR_REASON_JOB_CANCELLED, why))
        else:
            why = "the job had failed before"
            self._fail(Problem(common_pb2.ERROR_REASON_JOB_FAILED, why))

    def _look(self, attempt: Attempt) -> None:
        self._looks += 1
        self._effects.append(FetchKept(attempt))

    # ---- an attempt's life ----

    def _place(self, now: float, attempt: Attempt) -> None:
        may_hedge = self._rules.hedge_after_ms > 0 and not self._alive() and not self._held
        self.attempts[attempt.number] = attempt
        self._waits_since = None
        self._clear(WAIT, BOUND)
        self._effects.append(Send(attempt))
        if attempt.stage is Stage.ACKED:  # by its last home
            self._run(now, attempt)
            return
        self.phase = Phase.PLACED
        self._set(("ack", attempt.number), now + self._rules.ack_timeout_ms)
        if may_hedge and self._tries < self._rules.max_retry:
            self._set(HEDGE, now + self._rules.hedge_after_ms)

    def _heard(self, now: float, attempt: Attempt) -> None:
        """The node has the attempt."""
        attempt.is_cut_off = False
        self._clear(("ack", attempt.number), ("grace", attempt.number))
        if attempt.stage is Stage.RESERVED:
            attempt.stage = Stage.ACKED
            self._effects.append(Commit(attempt))
            self._run(now, attempt)
        elif attempt.stage is Stage.ACKED:
            self.phase = Phase.RUNNING
        else:
            self.phase = Phase.FETCHING
            if ("job", attempt.number) not in self.timers:
                self._set(("job", attempt.number), now + self._rules.job_timeout_ms)

    def _run(self, now: float, attempt: Attempt) -> None:
        self.phase = Phase.RUNNING
        self._clear(HEDGE)
        self._set(("job", attempt.number), now + self._rules.job_timeout_ms)
        self._effects.append(Accepted(attempt))
        for other in self._alive():
            if other is not attempt:
                self._count(other, endings.HEDGE_LOST)
                self._end_attempt(other, endings.HEDGE_LOST, "another node was faster")

    def _connection_lost(self, now: float, number: int, ending: Ending, why: str) -> list[Effect]:
        attempt = self._live(number)
        if attempt is None or self.phase is Phase.LOST:
            return self._out()
        attempt.is_cut_off = attempt.is_taken_up or ending is not endings.NOT_SENT
        grace_ms = self._grace_ms(attempt)
        if grace_ms is None:
            self._lose(now, attempt, ending, why)
        else:
            self.phase = Phase.LOST
            self._clear(("ack", number), HEDGE)
            self._set(("grace", number), now + grace_ms)
            self._effects.append(Locate(attempt))
        return self._out()

    def _grace_ms(self, attempt: Attempt) -> float | None:
        """How long its node may take to come back; None: another node is tried at once."""
        if attempt.stage is not Stage.RESERVED:
            return self._rules.grace_ms
        if any(other is not attempt for other in self._alive()):
            return None
        # Its node has the beginning of the turn. Not the binding itself is asked: what ends a turn
        # has cleared that, and a later home is not told.
        if attempt.placement.path in BY_BINDING:
            return self._rules.affinity_away_ms
        # Its last home may have sent it, so most likely the node runs it and is on its way.
        return self._rules.ack_timeout_ms if attempt.is_taken_up else None

    def _lose(
        self, now: float, attempt: Attempt, ending: Ending, what: str, said: str = ""
    ) -> None:
        """The attempt is over without a result: on to the next, or to the job's end.

        what: told to the client. said: the node's own words, which may hold anything; they go to
        the attempt's record, for operators.
        """
        self._count(attempt, ending)
        why = Problem(ending.reason, f"attempt {attempt.number} on {attempt.node_id}: {what}")
        self._lost_for = why
        is_alone = all(other is attempt for other in self._alive())
        if self._held and is_alone and ending.lets_another_try and attempt.stage is not Stage.KEPT:
            self._end_attempt(attempt, ending, what, said=said)
            self._need_audio(why.message)
            return
        has_missed_enough = self._deadline_ms is None and self._misses > MAX_MISSES
        is_spent = self._tries > self._rules.max_retry or has_missed_enough
        self._hopeless += ending.is_hopeless
        is_hopeless = ending.is_hopeless and self._hopeless >= HOPELESS_SAYINGS
        if is_hopeless or attempt.stage is Stage.KEPT or (is_alone and is_spent):
            self._end_attempt(attempt, ending, what, _FAILED, said)
            self._fail(why)
            return
        self._end_attempt(attempt, ending, what, said=said)
        if is_alone:
            self._clear(HEDGE)
            self._effects.append(Retrying(attempt.number, why))
            self.phase = Phase.SELECTING
            if self._asked is None:  # else a hedge was asked for, and is the next attempt
                self._ask_soon(now, 0.0 if ending.counts else pause_ms(self._misses))

    def _need_audio(self, why: str) -> None:
        """The node that holds the beginning of the turn cannot do the job."""
        held = ", ".join(str(index) for index in sorted(self._held))
        message = f"the audio of utterances {held} is needed again: {why}"
        self._fail(Problem(common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED, message))

    def _count(self, attempt: Attempt, ending: Ending) -> None:
        self._tries += ending.counts
        self._misses += not ending.counts
        self._excluded.append(attempt.node_id)
        if ending.counts:
            self._tried.append(attempt.node_id)

    def _end_attempt(
        self,
        attempt: Attempt,
        ending: Ending,
        why: str,
        final: common_pb2.JobState.ValueType = _UNSPECIFIED,
        said: str = "",
    ) -> None:
        """Ends a living attempt, and gives back the slot that it holds, if any."""
        if ending.cancels:
            self._effects.append(CancelOnNode(attempt, why))
        if attempt.stage is Stage.RESERVED:
            cut_off = pool_pb2.RELEASE_CAUSE_CONNECTION_LOST
            cause = cut_off if attempt.is_cut_off else ending.cause
            self._effects.append(Release(attempt, cause, final, said))
        elif attempt.stage is Stage.ACKED:
            detail = f"{why}: {said}" if said else why
            at_fault = ending.job_at_fault
            self._effects.append(Complete(attempt, ending.outcome, detail, final, at_fault))
        attempt.stage = Stage.ENDED
        self._clear(*((kind, attempt.number) for kind in ("ack", "job", "grace")))

    # ---- the end ----

    def _deliver(self, attempt: Attempt, result: dispatcher_pb2.JobResult) -> None:
        attempt.stage = Stage.DONE
        self._end(_DONE, Deliver(attempt, result), "another node was faster")

    def _fail(self, why: Problem) -> None:
        cancelled = why.reason == common_pb2.ERROR_REASON_JOB_CANCELLED
        self._end(_CANCELLED if cancelled else _FAILED, Fail(why), why.message)

    def _end(self, state: common_pb2.JobState.ValueType, last: Deliver | Fail, why: str) -> None:
        self.phase = Phase.OVER
        self._end_state = state
        for attempt in self._alive():
            self._end_attempt(attempt, endings.NOT_WANTED, why, self._final())
        self.timers.clear()
        self._effects.append(last)

    def _with_last(self, why: Problem) -> Problem:
        """The problem, and how the last attempt was lost, if there was one."""
        if self._lost_for is None:
            return why
        return why._replace(message=f"{why.message}; last: {self._lost_for.message}")

    def _final(self) -> common_pb2.JobState.ValueType:
        """What a lease operation says of the job: how it failed, if it did."""
        over = self.phase is Phase.OVER and self._end_state != _DONE
        return self._end_state if over else _UNSPECIFIED

    # ---- small things ----

    def _confirm_late(self, number: int, node_id: str) -> None:
        """A report that nobody needs; unless the pool's answer is still to tell of its attempt."""
        may_be_told_of = self.phase in (Phase.NEW, Phase.SELECTING, Phase.WAITING)
        if number in self.attempts or not may_be_told_of:
            self._effects.append(Confirm(node_id, number))

    def _alive(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.is_alive]

    def _live(self, number: int) -> Attempt | None:
        attempt = self.attempts.get(number)
        return attempt if attempt is not None and attempt.is_alive else None

    def _set(self, key: TimerKey, at_ms: float) -> None:
        self.timers[key] = at_ms
        if at_ms < self._wakes_ms:
            self._wake(at_ms)

    def _clear(self, *keys: TimerKey) -> None:
        for key in keys:
            if key in self.timers:
                del self.timers[key]

    def _wake(self, at_ms: float) -> None:
        self._wakes_ms = at_ms
        self._effects.append(Wake(at_ms))

    def _out(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
