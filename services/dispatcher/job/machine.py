"""The machine of one job: every event that may happen to it. No I/O, no clock, no logging.

A method is an event; it returns the effects that the shell has to carry out, in order. Every event
carries the time. The table in `model` says what each event does in each phase; `transitions` does
it; `endings` lists the ways in which an attempt may end.
"""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lingua_scheduler.services.dispatcher.job import endings, transitions
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Attempt,
    AttemptState,
    CancelOnNode,
    Commit,
    Complete,
    Confirm,
    Effect,
    FailureCause,
    PassPartial,
    Send,
    TimerKey,
    Wake,
)
from lingua_scheduler.services.dispatcher.job.endings import Ending
from lingua_scheduler.services.dispatcher.job.model import (
    ASK_AGAIN_MS,
    MAX_DETAIL,
    JobModel,
    JobRules,
    Phase,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_BOUND_FULL = common_pb2.ERROR_REASON_BOUND_NODE_FULL
_ALL_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
_OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_WORTH_A_WAIT = (_BOUND_FULL, _ALL_FULL, _OVER_QUOTA)
_NO_ROOM = "its reservation expired, and the node has no free slot"
# The cause that a node reports if it no longer has what it held for the job.
HELD_AUDIO_MISSING = "HELD_AUDIO_MISSING"


class JobMachine:
    """One job. See the table of `model` for what each event does in each phase.

    Args:
        rules: the operator's settings.
        deadline_ms: when the job fails in any case; None: never.
        earlier: attempts of the same job from before it began anew.
        held: earlier utterances whose audio a node holds for the job.
        is_strict: the caller allows only one node.
    """

    def __init__(
        self,
        *,
        rules: JobRules,
        deadline_ms: float | None = None,
        earlier: Mapping[int, Attempt] = MappingProxyType({}),
        held: Iterable[int] = (),
        is_strict: bool = False,
    ) -> None:
        self._job = JobModel(
            rules=rules, deadline_ms=deadline_ms, earlier=earlier, held=held, is_strict=is_strict
        )
        self.attempts: Mapping[int, Attempt] = self._job.attempts
        self.timers: Mapping[TimerKey, float] = self._job.timers

    @property
    def phase(self) -> Phase:
        """Where the job stands."""
        return self._job.phase

    @property
    def state(self) -> common_pb2.JobState.ValueType:
        """The phase in the contract's terms."""
        return self._job.state

    # ---- events from the gateway ----

    def start(self, now: float) -> list[Effect]:
        """The job was submitted."""
        job = self._job
        if job.phase is Phase.NEW:
            job.started_ms = now
            if job.deadline_ms is not None:
                job.set_timer(transitions.DEADLINE, job.deadline_ms)
            transitions.select(job)
        return job.take_effects()

    def on_cancel(self, now: float, why: str) -> list[Effect]:
        """Nobody wants the job any more."""
        job = self._job
        if job.phase is not Phase.OVER:
            cause = FailureCause(common_pb2.ERROR_REASON_JOB_CANCELLED, why)
            transitions.fail(job, transitions.with_last(job, cause))
        return job.take_effects()

    def drop_held_audio(self) -> None:
        """The gateway cannot provide the audio that a node held for the job: do without it."""
        self._job.held = frozenset()

    # ---- events from the pool ----

    def on_allocated(self, now: float, answer: pool_pb2.AllocateResponse) -> list[Effect]:
        """The pool has reserved a slot, or returns the attempt that the job already has."""
        job = self._job
        asked, job.asked = job.asked, None
        attempt = Attempt(answer.attempt.attempt, answer.placement, is_taken_up=answer.existing)
        if answer.existing and answer.state == common_pb2.JOB_STATE_ACKED:
            attempt.state = AttemptState.ACKED
        is_wanted = job.phase is Phase.SELECTING or (
            job.phase is Phase.PLACED and not answer.existing
        )
        if asked is None or not is_wanted:
            transitions.decline(job, attempt, answer)
        elif answer.existing and answer.lease_ends_ms == 0:
            transitions.take_up_ended(job, attempt, answer)
        elif attempt.number in job.attempts:
            job.set_timer(transitions.ASK, now + ASK_AGAIN_MS)
        elif job.held and attempt.placement.path not in BY_BINDING:
            transitions.decline(job, attempt, answer)
            transitions.need_audio(job, "their node is not available")
        else:
            transitions.place(job, now, attempt)
        return job.take_effects()

    def on_refused(self, now: float, why: FailureCause) -> list[Effect]:
        """The pool has no node."""
        job = self._job
        asked, job.asked = job.asked, None
        if asked is None or job.phase is not Phase.SELECTING:
            return job.take_effects()
        job.refused_for = why
        if why.reason == _BOUND_FULL and asked.wait_for_bound_node:
            transitions.wait_for_turn(job, now, why)
            return job.take_effects()
        facts, tries = why.metadata, job.tries
        if tries.nodes and facts.get("excluded", "") == facts.get("drawn"):
            # There are no nodes besides those that were tried.
            if now < transitions.others_until(job):
                transitions.wait_for_others(job)
                return job.take_effects()
            if transitions.give_up_on_others(job):
                return job.take_effects()
        if job.waits.room_since is None:
            job.waits.room_since = now
        wait_until = job.waits.room_since + job.rules.queue_wait_ms
        # Only for a quota is it known how long nothing can change.
        hopeless_ms = why.retry_after_ms if why.reason == _OVER_QUOTA else 0
        if why.reason in _WORTH_A_WAIT and now + hopeless_ms < wait_until:
            transitions.wait_for_room(job, wait_until)
        else:
            transitions.fail(job, transitions.with_last(job, why))
        return job.take_effects()

    def on_room(self, now: float) -> list[Effect]:
        """A slot may have become free."""
        if self._job.phase is Phase.WAITING:
            transitions.select(self._job)
        return self._job.take_effects()

    def on_no_place(self, now: float) -> list[Effect]:
        """The job may not wait, because too many jobs already do."""
        if self._job.phase is Phase.WAITING:
            transitions.stop_waiting(self._job)
        return self._job.take_effects()

    def on_committed(
        self,
        now: float,
        number: int,
        outcome: pool_pb2.CommitResponse.Outcome.ValueType,
        *,
        is_over: bool = False,
    ) -> list[Effect]:
        """The pool has answered a commit. is_over: there is no slot, because the job is done."""
        job = self._job
        attempt = job.live(number)
        if attempt is None or attempt.state is not AttemptState.ACKED:
            return job.take_effects()
        is_returning = job.returning == number and job.phase is Phase.LOST
        if outcome == pool_pb2.CommitResponse.OUTCOME_NO_ROOM:
            if is_returning:
                # The node came back without running it, and another job has its slot. But the node
                # may have finished it while it was away.
                job.returning = None
                attempt.is_result_only = True
                job.effects.append(Send(attempt))
            else:
                transitions.lose(job, now, attempt, endings.NO_ROOM, _NO_ROOM)
        elif outcome == pool_pb2.CommitResponse.OUTCOME_SUPERSEDED:
            why = "another attempt of the job has replaced it"
            transitions.lose(job, now, attempt, endings.SUPERSEDED, why)
        elif is_returning:
            job.returning = None
            if is_over:
                # Another instance was the job's home and has finished it: this one stood still, or
                # took the job up at that moment. If the other one found no gateway to take the
                # result, it is kept. The node is left alone: it may have the result, which belongs
                # to the other home.
                attempt.state = AttemptState.KEPT
                job.clear_timers(("grace", number), ("job", number))
                job.looks = transitions.MAX_LOOKS - 1
                transitions.fetch(job, attempt)
            else:
                job.effects.append(Send(attempt))
        return job.take_effects()

    def on_kept(self, now: float, result: dispatcher_pb2.JobResult | None) -> list[Effect]:
        """The kept result of a job that was done earlier. If there is none, ask the node, once."""
        job = self._job
        for attempt in job.alive():
            if attempt.state is AttemptState.KEPT and result is not None:
                transitions.deliver(job, attempt, result)
            elif job.phase is Phase.FETCHING and job.looks >= transitions.MAX_LOOKS:
                attempt.state = AttemptState.ENDED  # there is nothing to stop at its node
                why = "its node no longer has the result, and the result was not kept"
                transitions.fail(job, FailureCause(common_pb2.ERROR_REASON_JOB_FAILED, why))
            elif job.phase is Phase.FETCHING:
                job.effects.append(Send(attempt))
                job.set_timer(("ack", attempt.number), now + job.rules.ack_timeout_ms)
        return job.take_effects()

    # ---- events from nodes ----

    def on_send_failed(self, now: float, number: int, why: str) -> list[Effect]:
        """The assignment did not reach the node."""
        attempt = self._job.live(number)
        if attempt is not None and self._job.phase is not Phase.LOST:
            transitions.disconnect(self._job, now, attempt, endings.NOT_SENT, why)
        return self._job.take_effects()

    def on_node_lost(self, now: float, number: int) -> list[Effect]:
        """The node's connection was lost after the assignment was sent."""
        attempt = self._job.live(number)
        if attempt is not None and self._job.phase is not Phase.LOST:
            why = "the node's connection was lost"
            transitions.disconnect(self._job, now, attempt, endings.CUT_OFF, why)
        return self._job.take_effects()

    def on_node_back(self, now: float, number: int, placement: pool_pb2.Placement) -> list[Effect]:
        """The node of a lost attempt is connected again, and gets the assignment again.

        If it still runs the attempt or has its result, it says so; otherwise it starts over. A
        restarted node process has given its slot back, so the pool is asked for the slot first.
        """
        job = self._job
        attempt = job.live(number)
        if attempt is not None and job.phase is Phase.LOST:
            placement.path = attempt.placement.path
            placement.turn_id = attempt.placement.turn_id
            attempt.placement = placement
            if attempt.state is AttemptState.ACKED:
                job.returning = number
                job.effects.append(Commit(attempt))
            else:
                job.effects.append(Send(attempt))
        return job.take_effects()

    def on_acked(self, now: float, number: int) -> list[Effect]:
        """The node has accepted the attempt."""
        job = self._job
        attempt = job.attempts.get(number)
        if attempt is not None and attempt.is_alive:
            transitions.hear(job, now, attempt)
        elif attempt is not None and attempt.state is AttemptState.ENDED:
            job.effects.append(CancelOnNode(attempt, "this attempt is over"))
        return job.take_effects()

    def on_rejected(
        self,
        now: float,
        number: int,
        why: str,
        ending: Ending = endings.REJECTED,
        said: str = "",
    ) -> list[Effect]:
        """The node does not accept the attempt.

        why: the cause that it gave. ending: the consequences. said: its own description.
        """
        job = self._job
        attempt = job.live(number)
        if attempt is None:
            return job.take_effects()
        if attempt.state is AttemptState.KEPT and job.looks < transitions.MAX_LOOKS:
            # The result may have been kept, and the node told so, just before it was asked.
            job.clear_timers(("ack", number), ("job", number), ("grace", number))
            transitions.fetch(job, attempt)
        elif attempt.is_result_only:
            transitions.lose(job, now, attempt, endings.NO_ROOM, _NO_ROOM)
        else:
            transitions.lose(job, now, attempt, ending, f"rejected: {why}", said)
        return job.take_effects()

    def on_partial(self, now: float, partial: dispatcher_pb2.JobPartial) -> list[Effect]:
        """The node has part of a result, so it runs the attempt."""
        attempt = self._job.live(partial.attempt.attempt)
        if attempt is not None:
            transitions.hear(self._job, now, attempt)
            self._job.effects.append(PassPartial(partial))
        return self._job.take_effects()

    def on_result(self, now: float, result: dispatcher_pb2.JobResult, node_id: str) -> list[Effect]:
        """The node has the result."""
        job = self._job
        attempt = job.live(result.attempt.attempt)
        if attempt is None or attempt.node_id != node_id:
            transitions.confirm_late(job, result.attempt.attempt, node_id)
        elif attempt.state is AttemptState.KEPT:
            transitions.deliver(job, attempt, result)
        elif (
            not job.held
            or result.kind == dispatcher_pb2.JobResult.KIND_HELD
            or job.held.issubset(result.joined_utterances)
        ):
            job.effects.append(Complete(attempt, pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, result=result))
            transitions.deliver(job, attempt, result)
        else:
            job.effects.append(Confirm(node_id, attempt.number))
            attempt.state = AttemptState.ACKED  # it ran, even if its acknowledgement is missing
            why = "the node no longer has the audio that it held"
            transitions.lose(job, now, attempt, endings.NOT_JOINED, why)
        return job.take_effects()

    def on_failed(self, now: float, failed: dispatcher_pb2.JobFailed, node_id: str) -> list[Effect]:
        """The node could not do the job."""
        job = self._job
        number = failed.attempt.attempt
        attempt = job.live(number)
        if attempt is None or attempt.node_id != node_id:
            transitions.confirm_late(job, number, node_id)
            return job.take_effects()
        job.effects.append(Confirm(node_id, number))
        if attempt.state is AttemptState.RESERVED:
            attempt.state = AttemptState.ACKED  # it ran, even if its acknowledgement is missing
        ending = endings.FAILED if failed.worth_retry else endings.HOPELESS
        if job.held and failed.cause == HELD_AUDIO_MISSING:
            ending = endings.NOT_JOINED
        transitions.lose(job, now, attempt, ending, failed.cause, failed.detail[:MAX_DETAIL])
        return job.take_effects()

    # ---- time ----

    def on_wake(self, now: float) -> list[Effect]:
        """The time of the last Wake has come. The first timer is due, unless it was cleared."""
        job = self._job
        job.wakes_ms = math.inf
        due = [key for key, at_ms in job.timers.items() if at_ms <= now]
        first = min(due, key=job.timers.__getitem__, default=None)
        later = [at_ms for key, at_ms in job.timers.items() if key != first]
        if later:
            job.wakes_ms = min(later)
            job.effects.append(Wake(job.wakes_ms))
        return job.take_effects() if first is None else self.on_timer(now, first)

    def on_timer(self, now: float, key: TimerKey) -> list[Effect]:
        """A timer is due. If it is no longer set, nothing happens."""
        job = self._job
        if key not in job.timers:
            return []
        del job.timers[key]
        kind, number = key
        match kind:
            case "ask" | "hedge":
                transitions.ask(job)
            case "bound" | "others" if job.phase is Phase.WAITING:
                transitions.select(job)
            case "wait" if job.phase is Phase.WAITING:
                transitions.fail(job, transitions.waited_in_vain(job))
            case "deadline":
                transitions.fail(job, transitions.past_deadline(job))
            case "ack":
                why = "it was not acknowledged in time"
                transitions.lose(job, now, job.attempts[number], endings.NOT_ACKNOWLEDGED, why)
            case "job":
                why = "it took longer than the job timeout"
                transitions.lose(job, now, job.attempts[number], endings.TOOK_TOO_LONG, why)
            case "grace":
                why = "its node did not reconnect in time"
                transitions.lose(job, now, job.attempts[number], endings.NOT_BACK, why)
        return job.take_effects()
