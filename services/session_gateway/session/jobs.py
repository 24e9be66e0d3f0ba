"""The jobs of a session's open utterances: when each is submitted, retried, given up and ended."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Protocol

from lingua_scheduler.services.session_gateway.session.delivery import Outcome, Stoppable
from lingua_scheduler.services.session_gateway.session.effects import (
    CancelJob,
    Effects,
    Submit,
    TimerKey,
    retry_timer,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import (
    LEAVES_REST,
    MAY_CONTINUE,
    Cut,
    Direction,
    Reason,
    Speech,
)
from lingua_scheduler.services.session_gateway.session.turns import HeldTurns
from lingua_scheduler.services.session_gateway.session.utterance import Utterance, UtteranceState
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_record_pb2

# After a failed submission: the first delay, which doubles each time, and the longest.
RETRY_FIRST_MS = 100.0
RETRY_LONGEST_MS = 1000.0

_DEPENDENCY_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
_QUOTA_EXCEEDED = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_HELD_AUDIO_NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
# No job was created, and a later submission may succeed. All other failures are final.
_RETRYABLE = frozenset(
    {
        common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
        common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
        common_pb2.ERROR_REASON_BOUND_NODE_FULL,
        common_pb2.ERROR_REASON_DRAINING,
        common_pb2.ERROR_REASON_BACKPRESSURE,
        _DEPENDENCY_DOWN,
        _QUOTA_EXCEEDED,
    }
)


class Clock(Stoppable, Protocol):
    """The clock of the deadlines of jobs."""

    @property
    def is_stopped(self) -> bool:
        """Whether the deadlines wait for Redis."""

    @property
    def deadline_of(self) -> Callable[[int, float], float]:
        """Returns the deadline of an utterance, given the current time."""

    @property
    def overdue(self) -> Callable[[float], list[int]]:
        """Returns the utterances whose deadline has passed, in order."""

    @property
    def set_timer(self) -> Callable[[], None]:
        """Sets the timer for the next deadline."""


class Outcomes(Protocol):
    """Takes the outcomes of utterances."""

    @property
    def clock(self) -> Clock:
        """The clock of their deadlines."""

    def put(self, index: int, outcome: Outcome) -> None:
        """Sets the outcome of an utterance."""


class SessionJobs:
    """The utterances that are not over, and their jobs.

    Args:
        past: of the session; its cuts become utterances again.
        rules: of the session.
        directions: of the session.
        specs: of the session's jobs.
        turns: whose held audio jobs join or bring along.
        delivery: takes the outcomes.
        on_end: called with each utterance that is over, before its outcome is set.
        counts: counters of the gateway.
        out: where effects go.
        now: the current time.
    """

    def __init__(
        self,
        *,
        past: Past,
        rules: SessionRules,
        directions: Sequence[Direction],
        specs: JobSpecs,
        turns: HeldTurns,
        delivery: Outcomes,
        on_end: Callable[[Utterance], None],
        counts: MutableMapping[str, int],
        out: Effects,
        now: float,
    ) -> None:
        self._rules = rules
        self._directions = directions
        self._specs = specs
        self.turns = turns
        """The audio that nodes hold."""
        self._delivery = delivery
        self._on_end = on_end
        self._counts = counts
        self._out = out
        self.open: dict[int, Utterance] = {}
        """The utterances that are not over, by index."""
        # Why the last utterance of each direction was cut.
        self._last_reason: dict[Direction, Reason] = {}
        # Directions in which the speaker has finished, although a node may hold audio.
        self._finished: set[Direction] = set()
        self._resume(past, now)

    def _resume(self, past: Past, now: float) -> None:
        deadline_ms = now + self._rules.result_deadline_ms
        for cut in past.cuts:
            if past.seen <= cut.utterance_index < past.next_index:
                is_safe = cut.chunks[0].first < past.next_seq
                self.reopen(cut, now=now, deadline_ms=deadline_ms, is_safe=is_safe)
            else:
                self.recall(cut, past)
        if past.next_index > 0:
            # The record may have dropped the last cut of a direction: it may have been a pause.
            for direction in self._directions:
                self._last_reason.setdefault(direction, common_pb2.FINALIZE_REASON_TIMEOUT)

    @property
    def unfinished(self) -> list[Direction]:
        """The directions whose last cut left a rest of the same speech."""
        return [each for each, reason in self._last_reason.items() if reason in LEAVES_REST]

    @property
    def submitted_ids(self) -> list[str]:
        """The jobs that have been submitted and are not over."""
        return [each.job_id for each in self.open.values() if each.tries]

    def recall(self, cut: session_record_pb2.Cut, past: Past) -> None:
        """Remembers an utterance that is over since before the session was resumed."""
        self._last_reason[Direction(cut.direction.src, cut.direction.tgt)] = cut.reason
        self.turns.recall(cut, is_replayed=past.is_replayed(cut))

    def reopen(
        self, cut: session_record_pb2.Cut, *, now: float, deadline_ms: float, is_safe: bool
    ) -> Utterance:
        """Makes an utterance of a recorded cut that has no outcome.

        Args:
            cut: from the record.
            now: the current time.
            deadline_ms: of its outcome.
            is_safe: whether the client may have dropped its chunks: a dispatcher has its job.
        """
        self._last_reason[Direction(cut.direction.src, cut.direction.tgt)] = cut.reason
        utterance = self.open[cut.utterance_index] = Utterance.from_record(
            cut, now=now, deadline_ms=deadline_ms, accepted=is_safe
        )
        return utterance

    # ---- cuts ----

    def enter(self, cut: Cut, index: int, deadline_ms: float) -> Utterance:
        """Makes an utterance of a cut. Its job may be submitted once the cut is recorded."""
        direction = cut.speech.direction
        utterance = Utterance.from_cut(
            cut,
            index=index,
            job_id=self._specs.job_id(index, direction),
            deadline_ms=deadline_ms,
            continues=self._last_reason.get(direction) in MAY_CONTINUE,
        )
        self._last_reason[direction] = cut.reason
        self._finished.discard(direction)
        self.open[index] = utterance
        return utterance

    def break_off(self, index: int) -> None:
        """The utterance of this index is not wanted here: what is said later begins a turn."""
        for direction in self._directions:
            self._last_reason.pop(direction, None)
            self.turns.break_off(direction, index)

    def may_flush(self, *, is_closing: bool) -> bool:
        """Whether there may be flushes."""
        return bool(self._finished or (is_closing and self.turns))

    def on_empty_end(self, direction: Direction) -> None:
        """The speaker has finished in a direction in which no audio is gathered."""
        self._finished.add(direction)

    def flushes(self, now: float, next_seq: int, *, is_closing: bool) -> list[Cut]:
        """Empty cuts that end turns which a node holds, so that their text is translated.

        Args:
            now: the current time.
            next_seq: the next chunk.
            is_closing: whether the session is closing, which ends all turns.
        """
        if is_closing:
            self._finished.update(self._directions)
        # A node may yet hold the audio of an open utterance.
        busy = {each.direction for each in self.open.values()}
        held = self.turns.directions
        self._finished &= held | busy
        reason = (
            common_pb2.FINALIZE_REASON_SESSION_CLOSE
            if is_closing
            else common_pb2.FINALIZE_REASON_IS_FINAL
        )
        return [
            Cut(Speech.nothing(direction, now, next_seq), reason, now, now)
            for direction in sorted((self._finished & held) - busy)
        ]

    # ---- submission ----

    def submit_ready(self, now: float) -> None:
        """Submits all jobs that may be submitted now."""
        for utterance in self.open.values():
            ready = utterance.state is UtteranceState.READY and utterance.retry_ms <= now
            if ready and self._may_go(utterance):
                utterance.state = UtteranceState.SUBMITTED
                utterance.tries += 1
                utterance.deadline_ms = self._delivery.clock.deadline_of(utterance.index, now)
                if (self.turns or utterance.brings_held) and not utterance.is_attached:
                    self.turns.prepare(utterance, self.open.values())
                self._out.add(Submit(utterance))

    def _may_go(self, utterance: Utterance) -> bool:
        """Whether no earlier utterance has to be submitted first (decision 12)."""
        if utterance.is_attached:
            return True
        if utterance.brings_held and not self.turns.is_complete(utterance):
            return False
        # All earlier ones, not only the last: the next turn must not overtake the end of a turn
        # that waits itself.
        for each in self.open.values():
            if each is utterance:
                break
            # Later utterances must not use up the quota that an earlier one waits for.
            if each.is_over_quota:
                return False
            if each.direction == utterance.direction and _holds_back(each):
                return False
        return True

    # ---- events of the dispatcher ----

    def of(self, _: str) -> SessionJobs:
        """The jobs of a lane: here all jobs are in one."""
        return self

    def on_timer(self, now: float, key: TimerKey) -> None:
        """Nothing: the timer for a retry needs only `submit_ready`."""

    def submitted(self, index: int) -> Utterance | None:
        """An utterance whose job has been submitted; None if it is over or has no job."""
        utterance = self.open.get(index)
        return None if utterance is None or utterance.tries == 0 else utterance

    def on_accepted(
        self, now: float, utterance: Utterance, accepted: dispatcher_pb2.JobAccepted
    ) -> None:
        """A node has accepted the job."""
        # If the job waits to be retried, this is about a submission that has failed since.
        if utterance.state is UtteranceState.READY:
            return
        utterance.state = UtteranceState.ACCEPTED
        self._delivery.clock.run(now, utterance.index)
        utterance.accepted_ms = utterance.accepted_ms or now
        event = self._out.utterance_event(utterance).accepted
        event.job_id = utterance.job_id
        event.node_id = accepted.node_id
        event.attempt = accepted.attempt

    def on_failed(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        """The job has failed, or was not created."""
        if why.reason == _HELD_AUDIO_NEEDED and not utterance.is_attached:
            self._bring_held(now, utterance, why)
        elif why.reason in _RETRYABLE:
            self._retry(now, utterance, why)
        else:
            self.end(now, utterance, why)

    def _retry(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        delay = min(RETRY_LONGEST_MS, RETRY_FIRST_MS * 2 ** min(utterance.tries - 1, 10))
        utterance.state = UtteranceState.READY
        utterance.failed_ms = now
        utterance.retry_ms = now + max(delay, float(why.retry_after_ms))
        self._out.timers.set(retry_timer(utterance.index), utterance.retry_ms)
        self._counts["retried"] += 1
        utterance.last_problem = why.message
        if why.reason == _DEPENDENCY_DOWN:
            self._delivery.clock.stop(now, utterance.index)
        else:
            self._delivery.clock.run(now, utterance.index)
        if why.reason == _QUOTA_EXCEEDED and not any(
            each.is_over_quota for each in self.open.values()
        ):
            self._out.error(why)
        # A job may be retried every second for the same reason: the client is told once.
        if utterance.told_why != (why.reason, why.message):
            utterance.told_why = (why.reason, why.message)
            self.tell_retrying(utterance, utterance.tries, why)

    def _bring_held(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        """Submits the job again with the held audio, as the node that holds it cannot be used."""
        utterance.brings_held = True
        utterance.state = UtteranceState.READY
        utterance.failed_ms = now
        utterance.last_problem = why.message
        self._counts["turn_moved"] += 1
        self._delivery.clock.run(now, utterance.index)
        self.tell_retrying(utterance, utterance.tries, why)

    def tell_retrying(self, utterance: Utterance, attempt: int, why: common_pb2.Error) -> None:
        """Tells the client that another attempt follows."""
        retrying = self._out.utterance_event(utterance).retrying
        retrying.attempt = attempt
        retrying.why.CopyFrom(why)

    # ---- ends ----

    def give_up_overdue(self, now: float) -> None:
        """Ends the utterances whose deadline has passed, as missing."""
        for index in self._delivery.clock.overdue(now):
            utterance = self.open[index]
            if utterance.tries or utterance.is_resumed:
                utterance.may_have_result = utterance.state is not UtteranceState.READY
                self._out.add(CancelJob(utterance.job_id, "deadline exceeded"))
            self.end(now, utterance, self._overdue_error(utterance))
        self._delivery.clock.set_timer()

    def _overdue_error(self, utterance: Utterance) -> common_pb2.Error:
        message = f"no result within {self._rules.result_deadline_ms / 1000:g} s"
        if utterance.is_over_quota:
            reason = _QUOTA_EXCEEDED
        elif self._delivery.clock.is_stopped:
            reason = _DEPENDENCY_DOWN
            message += f", and {self._rules.redis_outage_max_ms / 1000:g} s more without Redis"
        else:
            reason = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
        if reason != _QUOTA_EXCEEDED:
            self._counts["deadline_missed"] += 1
        if utterance.last_problem:
            message += f"; last: {utterance.last_problem}"
        return common_pb2.Error(reason=reason, message=message)

    def end(
        self,
        now: float,
        utterance: Utterance,
        end: dispatcher_pb2.JobDelivered | common_pb2.Error,
    ) -> None:
        """Ends an utterance with its result, or as missing."""
        self._delivery.clock.run(now, utterance.index)
        del self.open[utterance.index]
        utterance.state = UtteranceState.OVER
        if isinstance(end, common_pb2.Error):
            lost = self.turns.on_missing(utterance, is_last=self._is_last(utterance))
        else:
            lost = self.turns.on_result(utterance, end.result)
        self._on_end(utterance)
        utterance.chunks, utterance.included_audio = [], b""
        if utterance.retry_ms:
            self._out.timers.clear(retry_timer(utterance.index))
        outcome = Outcome(utterance.direction, utterance, end, lost)
        self._delivery.put(utterance.index, outcome)

    def _is_last(self, utterance: Utterance) -> bool:
        """Whether no later job of its direction that may need the same held audio is submitted."""
        # This gateway does not know whether an attached job has that audio.
        later = (each for each in self.open.values() if each.tries and not each.is_attached)
        return not any(
            each.index > utterance.index and each.direction == utterance.direction for each in later
        )


def _holds_back(utterance: Utterance) -> bool:
    """Whether later utterances of its direction have to wait for it."""
    if utterance.reason in MAY_CONTINUE:
        return True
    # It ends a turn, and so clears the binding that it needs itself.
    if utterance.brings_held and utterance.state is not UtteranceState.ACCEPTED:
        return True
    return utterance.continues and not utterance.is_safe
