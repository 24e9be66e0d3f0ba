"""The job machine: one job from its submission to its end. No I/O, no clock, no logging.

A method is an event; what it returns is what the shell has to do, in order. Every event carries the
time. What each event does in each phase is the table in job_phases; the steps themselves are in
job_steps; in how many ways an attempt may end, and what follows from each, is in job_endings.
"""

import math

from lingua_scheduler.services.dispatcher.job import endings as endings
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Attempt,
    CancelOnNode,
    Commit,
    Complete,
    Confirm,
    Effect,
    PassPartial,
    Problem,
    Send,
    Stage,
    TimerKey,
)
from lingua_scheduler.services.dispatcher.job.endings import Ending
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.job.rules import ASK_AGAIN_MS, MAX_DETAIL, JobRules
from lingua_scheduler.services.dispatcher.job.transitions import ASK, BOUND, DEADLINE, WAIT, JobSteps
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

__all__ = ["JobMachine", "JobRules", "Phase"]

_BOUND_FULL = common_pb2.ERROR_REASON_BOUND_NODE_FULL
_ALL_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
_OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_NO_ROOM = "its reservation was over, and the node has no room"
# A kept result is looked for, and once more when its node does not have it.
_MAX_LOOKS = 2
# A node's word for having forgotten what it held for the job.
HELD_AUDIO_MISSING = "HELD_AUDIO_MISSING"
_WORTH_A_WAIT = (_BOUND_FULL, _ALL_FULL, _OVER_QUOTA)


class JobMachine(JobSteps):
    """One job. See the table of job_phases for what each event does in each phase."""

    # ---- the gateway's events ----

    def start(self, now: float) -> list[Effect]:
        """The job has been submitted."""
        if self.phase is Phase.NEW:
            self._started_ms = now
            if self._deadline_ms is not None:
                self._set(DEADLINE, self._deadline_ms)
            self._select(now)
        return self._out()

    def on_cancel(self, now: float, why: str) -> list[Effect]:
        """Nobody wants the job any more."""
        if self.phase is not Phase.OVER:
            problem = Problem(common_pb2.ERROR_REASON_JOB_CANCELLED, why)
            self._fail(self._with_last(problem))
        return self._out()

    def go_alone(self) -> None:
        """Whoever waits for the job cannot bring what a node held for it."""
        self._held = frozenset()

    # ---- the pool's events ----

    def on_allocated(self, now: float, answer: pool_pb2.AllocateResponse) -> list[Effect]:
        """The pool has given a node, or tells of the attempt that the job already has."""
        asked, self._asked = self._asked, None
        attempt = Attempt(answer.attempt.attempt, answer.placement, is_taken_up=answer.existing)
        if answer.existing and answer.state == common_pb2.JOB_STATE_ACKED:
            attempt.stage = Stage.ACKED
        wanted = self.phase is Phase.SELECTING or (
            self.phase is Phase.PLACED and not answer.existing
        )
        if asked is None or not wanted:
            self._decline(attempt, answer)
        elif answer.existing and answer.lease_ends_ms == 0:
            self._take_up_ended(attempt, answer)
        elif attempt.number in self.attempts:
            self._set(ASK, now + ASK_AGAIN_MS)
        elif self._held and attempt.placement.path not in BY_BINDING:
            self._decline(attempt, answer)
            self._need_audio("their node is not available")
        else:
            self._place(now, attempt)
        return self._out()

    def on_refused(self, now: float, why: Problem) -> list[Effect]:
        """The pool has no node."""
        asked, self._asked = self._asked, None
        if asked is None or self.phase is not Phase.SELECTING:
            return self._out()
        self._refused_for = why
        if why.reason == _BOUND_FULL and asked.wait_for_bound_node:
            self._wait_for_turn(now, why)
            return self._out()
        if self._waits_since is None:
            self._waits_since = now
        wait_until = self._waits_since + self._rules.queue_wait_ms
        facts = why.metadata
        if self._tried and facts.get("excluded", "") == facts.get("drawn"):
            # There are no other nodes than those that were tried.
            if self._hopeless and self._lost_for is not None:
                self._fail(self._lost_for)
                return self._out()
            self._readmit_tried()
        if why.reason in _WORTH_A_WAIT and now + self._hopeless_ms(why) < wait_until:
            self._clear(BOUND)
            self._wait(WAIT, wait_until)
        else:
            self._fail(self._with_last(why))
        return self._out()

    def on_room(self, now: float) -> list[Effect]:
        """A slot may have become free."""
        if self.phase is Phase.WAITING:
            self._select(now)
        return self._out()

    def on_committed(
        self,
        now: float,
        number: int,
        outcome: pool_pb2.CommitResponse.Outcome.ValueType,
        *,
        is_over: bool = False,
    ) -> list[Effect]:
        """The pool has answered a commit; is_over: there is no slot, since the job is done."""
        attempt = self._live(number)
        if attempt is None or attempt.stage is not Stage.ACKED:
            return self._out()
        if outcome == pool_pb2.CommitResponse.OUTCOME_NO_ROOM:
            if self._returning == number and self.phase is Phase.LOST:
                # The node came back without running it, and another job has its slot. But the node
                # may have done it while it was away.
                self._returning = None
                attempt.is_result_only = True
                self._effects.append(Send(attempt))
            else:
                self._lose(now, attempt, endings.NO_ROOM, _NO_ROOM)
        elif outcome == pool_pb2.CommitResponse.OUTCOME_SUPERSEDED:
            self._lose(now, attempt, endings.SUPERSEDED, "another attempt of the job is ahead")
        elif self._returning == number and self.phase is Phase.LOST:
            self._returning = None
            if is_over:
                # This instance stood still, and another one has become the job's home. The node is
                # left alone: it may have the result, and that is the other home's.
                attempt.stage = Stage.ENDED
                why = "another dispatcher has brought the job to its end"
                self._fail(Problem(common_pb2.ERROR_REASON_JOB_FAILED, why))
            else:
                self._effects.append(Send(attempt))
        return self._out()

    def on_kept(self, now: float, result: dispatcher_pb2.JobResult | None) -> list[Effect]:
        """What was kept of a job that was done before. Without it, the node is asked, once."""
        for attempt in self._alive():
            if attempt.stage is Stage.KEPT and result is not None:
                self._deliver(attempt, result)
            elif self.phase is Phase.FETCHING and self._looks >= _MAX_LOOKS:
                why = "its node does not have the result any more, and it was not kept"
                self._fail(Problem(common_pb2.ERROR_REASON_JOB_FAILED, why))
            elif self.phase is Phase.FETCHING:
                self._effects.append(Send(attempt))
                self._set(("ack", attempt.number), now + self._rules.ack_timeout_ms)
        return self._out()

    # ---- the node's events ----

    def on_send_failed(self, now: float, number: int, why: str) -> list[Effect]:
        """The assignment did not reach the node."""
        return self._connection_lost(now, number, endings.NOT_SENT, why)

    def on_node_lost(self, now: float, number: int) -> list[Effect]:
        """The connection of the node is gone, after the assignment was sent."""
        why = "the node's connection was lost"
        return self._connection_lost(now, number, endings.CUT_OFF, why)

    def on_node_back(self, now: float, number: int, placement: pool_pb2.Placement) -> list[Effect]:
        """The node of a lost attempt is connected again, and gets the assignment once more.

        If it still runs the attempt, or has its result, it says so; else it starts over. A node
        whose process has started anew has given the slot back, so the pool is asked for it first.
        """
        attempt = self._live(number)
        if attempt is not None and self.phase is Phase.LOST:
            placement.path = attempt.placement.path
            placement.turn_id = attempt.placement.turn_id
            attempt.placement = placement
            if attempt.stage is Stage.ACKED:
                self._returning = number
                self._effects.append(Commit(attempt))
            else:
                self._effects.append(Send(attempt))
        return self._out()

    def on_acked(self, now: float, number: int) -> list[Effect]:
        """The node has taken the attempt on."""
        attempt = self.attempts.get(number)
        if attempt is not None and attempt.is_alive:
            self._heard(now, attempt)
        elif attempt is not None and attempt.stage is Stage.ENDED:
            self._effects.append(CancelOnNode(attempt, "this attempt is over"))
        return self._out()

    def on_rejected(
        self,
        now: float,
        number: int,
        why: str,
        ending: Ending = endings.REJECTED,
        said: str = "",
    ) -> list[Effect]:
        """The node will not take the attempt.

        why: the cause that it named. ending: what follows from it. said: its own words.
        """
        attempt = self._live(number)
        if attempt is not None and attempt.stage is Stage.KEPT and self._looks < _MAX_LOOKS:
            # It may have been kept, and the node told so, just before that was asked.
            self._clear(("ack", number), ("job", number), ("grace", number))
            self.phase = Phase.FETCHING
            self._look(attempt)
        elif attempt is not None:
            if attempt.is_result_only:
                self._lose(now, attempt, endings.NO_ROOM, _NO_ROOM)
            else:
                self._lose(now, attempt, ending, f"rejected: {why}", said)
        return self._out()

    def on_partial(self, now: float, partial: dispatcher_pb2.JobPartial) -> list[Effect]:
        """The node has part of a result, and so it runs the attempt."""
        attempt = self._live(partial.attempt.attempt)
        if attempt is not None:
            self._heard(now, attempt)
            self._effects.append(PassPartial(partial))
        return self._out()

    def on_result(self, now: float, result: dispatcher_pb2.JobResult, node_id: str) -> list[Effect]:
        """The node has the result."""
        attempt = self._live(result.attempt.attempt)
        if attempt is None or attempt.node_id != node_id:
            self._confirm_late(result.attempt.attempt, node_id)
            return self._out()
        if attempt.stage is Stage.KEPT:
            self._deliver(attempt, result)
        elif self._has_all(result):
            self._effects.append(Complete(attempt, pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED))
            self._deliver(attempt, result)
        else:
            self._effects.append(Confirm(node_id, attempt.number))
            attempt.stage = Stage.ACKED  # it ran, whatever became of its acknowledgement
            self._lose(now, attempt, endings.NOT_JOINED, "it has forgotten what it held")
        return self._out()

    def _has_all(self, result: dispatcher_pb2.JobResult) -> bool:
        """Whether what the node held for the job is in its result, or still held."""
        is_held = result.kind == dispatcher_pb2.JobResult.KIND_HELD
        return not self._held or is_held or self._held.issubset(result.joined_utterances)

    def on_failed(self, now: float, failed: dispatcher_pb2.JobFailed, node_id: str) -> list[Effect]:
        """The node could not do it."""
        number = failed.attempt.attempt
        attempt = self._live(number)
        if attempt is None or attempt.node_id != node_id:
            self._confirm_late(number, node_id)
            return self._out()
        self._effects.append(Confirm(node_id, number))
        if attempt.stage is Stage.RESERVED:
            attempt.stage = Stage.ACKED  # it ran, whatever became of its acknowledgement
        ending = endings.FAILED if failed.worth_retry else endings.HOPELESS
        if self._held and failed.cause == HELD_AUDIO_MISSING:
            ending = endings.NOT_JOINED
        self._lose(now, attempt, ending, failed.cause, failed.detail[:MAX_DETAIL])
        return self._out()

    # ---- time ----

    def on_wake(self, now: float) -> list[Effect]:
        """It is the time of the last Wake. The first timer is due, unless it was cleared."""
        self._wakes_ms = math.inf
        due = [key for key, at_ms in self.timers.items() if at_ms <= now]
        first = min(due, key=self.timers.__getitem__, default=None)
        later = [at_ms for key, at_ms in self.timers.items() if key != first]
        if later:
            self._wake(min(later))
        return self._out() if first is None else self.on_timer(now, first)

    def on_timer(self, now: float, key: TimerKey) -> list[Effect]:
        """A timer that was set is due. One that is not set any more does nothing."""
        if key not in self.timers:
            return []
        del self.timers[key]
        kind, number = key
        match kind:
            case "ask" | "hedge":
                self._ask(now)
            case "bound" if self.phase is Phase.WAITING:
                self._select(now)
            case "wait" if self.phase is Phase.WAITING:
                self._fail(self._waited_in_vain())
            case "deadline":
                self._fail(self._out_of_time())
            case "ack":
                why = "it was not acknowledged in time"
                self._lose(now, self.attempts[number], endings.NOT_ACKNOWLEDGED, why)
            case "job":
                self._lose(now, self.attempts[number], endings.TOOK_TOO_LONG, "it took too long")
            case "grace":
                why = "its node did not come back"
                self._lose(now, self.attempts[number], endings.NOT_BACK, why)
        return self._out()

    @staticmethod
    def _hopeless_ms(why: Problem) -> float:
        """For how long nothing can change: only of a quota is that known."""
        return why.retry_after_ms if why.reason == _OVER_QUOTA else 0

    def _out_of_time(self) -> Problem:
        """What a job fails with whose deadline has passed."""
        reason, refused = common_pb2.ERROR_REASON_JOB_TIMEOUT, self._refused_for
        if refused is None or self._alive():
            problem = Problem(reason, "the job's deadline passed before a result came")
        else:
            message = f"the job's deadline passed while it waited for a node: {refused.message}"
            problem = Problem(reason, message, metadata=refused.metadata)
        return self._with_last(problem)

    def _waited_in_vain(self) -> Problem:
        """What a job fails with that has waited for long enough."""
        refused, wait_ms = self._refused_for, self._rules.queue_wait_ms
        if refused is not None and refused.reason == _OVER_QUOTA:
            return refused
        message = f"no node had room within {wait_ms:.0f} ms"
        facts = refused.metadata if refused is not None else {}
        return self._with_last(Problem(_ALL_FULL, message, int(wait_ms), facts))
