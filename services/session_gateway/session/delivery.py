"""Delivery of results to the client: in order, before their deadlines, until they are confirmed."""

import math
from collections.abc import Hashable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from lingua_scheduler.services.session_gateway.session.effects import (
    DEADLINE,
    EffectBuffer,
    Leave,
    Taken,
    Timers,
)
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

T = TypeVar("T")


@dataclass(slots=True)
class _Deadline:
    at_ms: float
    # When its index was added, and for how much longer the clock may be stopped for it.
    since_ms: float
    spare_ms: float


class Deadlines:
    """When each index is overdue.

    The clock stops while at least one cause stops it. For each index it is stopped for at most
    `stop_max_ms` in total, and then runs again.

    Args:
        stop_max_ms: for how long the clock may be stopped for an index.
    """

    def __init__(self, stop_max_ms: float = 0.0) -> None:
        self._stop_max_ms = stop_max_ms
        self._deadlines: dict[int, _Deadline] = {}
        self._causes: set[Hashable] = set()
        self._stopped_ms = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether a cause stops the clock now."""
        return bool(self._causes)

    def add(self, index: int, at_ms: float, now: float = 0.0) -> None:
        """Adds an index that is overdue at this time, or later if the clock is stopped."""
        self._deadlines[index] = _Deadline(at_ms, now, self._stop_max_ms)

    def remove(self, index: int) -> bool:
        """Removes an index. Returns False if it has no deadline."""
        return self._deadlines.pop(index, None) is not None

    def stop(self, now: float, cause: Hashable) -> bool:
        """Adds a cause that stops the clock. Returns False if the cause is known already."""
        if cause in self._causes:
            return False
        if not self._causes:
            self._stopped_ms = now
        self._causes.add(cause)
        return True

    def go_on(self, now: float, cause: Hashable) -> bool:
        """Removes a cause. Returns True if this starts the clock again."""
        if cause not in self._causes:
            return False
        self._causes.remove(cause)
        if self._causes:
            return False
        for each in self._deadlines.values():
            stopped_ms = self._stopped_for_ms(each, now)
            each.at_ms += stopped_ms
            each.spare_ms -= stopped_ms
        return True

    def at(self, index: int, now: float) -> float:
        """When an index is overdue if the clock runs from now on."""
        each = self._deadlines[index]
        return each.at_ms + (self._stopped_for_ms(each, now) if self._causes else 0.0)

    def overdue(self, now: float) -> list[int]:
        """The overdue indexes, in the order in which they were added."""
        return [index for index in self._deadlines if self.at(index, now) <= now]

    @property
    def next_ms(self) -> float | None:
        """The earliest time at which an index can be overdue."""
        stopped = bool(self._causes)
        first = min(
            (each.at_ms + (each.spare_ms if stopped else 0.0) for each in self._deadlines.values()),
            default=math.inf,
        )
        return None if first == math.inf else first

    def _stopped_for_ms(self, each: _Deadline, now: float) -> float:
        return min(each.spare_ms, now - max(self._stopped_ms, each.since_ms))


class ResultQueue(Generic[T]):
    """Takes outcomes in any order, and returns them in the order of their indexes.

    Promises: each index comes out once, none is left out, and an outcome comes out as soon as all
    earlier ones are out. A second outcome for an index changes nothing.

    Args:
        first: the index that comes out first.
        stop_max_ms: for how long the clock of the deadlines may be stopped for an index.
    """

    def __init__(self, first: int = 0, *, stop_max_ms: float = 0.0) -> None:
        self.next_out = first
        """The index that comes out next."""
        self.next_in = first
        """The index that the next utterance gets."""
        self.deadlines = Deadlines(stop_max_ms)
        """Deadlines of the indexes that have no outcome."""
        self.outcomes: dict[int, T] = {}
        """Outcomes that are not out."""

    def __len__(self) -> int:
        """The number of indexes that are expected and not out."""
        return self.next_in - self.next_out

    def expect(self, deadline_ms: float, now: float = 0.0) -> int:
        """Expects one more outcome by the deadline; returns its index."""
        index = self.next_in
        self.next_in += 1
        self.deadlines.add(index, deadline_ms, now)
        return index

    def put(self, index: int, outcome: T) -> bool:
        """Sets an outcome. Returns False if the index has one already, or was never expected."""
        if not self.deadlines.remove(index):
            return False
        self.outcomes[index] = outcome
        return True

    def take(self) -> list[tuple[int, T]]:
        """Returns the outcomes that may come out now, in order."""
        taken: list[tuple[int, T]] = []
        while self.next_out in self.outcomes:
            taken.append((self.next_out, self.outcomes.pop(self.next_out)))
            self.next_out += 1
        return taken


class Stoppable(Protocol):
    """A clock that stops while Redis is unavailable."""

    def stop(self, now: float, cause: Hashable) -> None:
        """Stops the deadlines: a request shows that Redis is unavailable."""

    def run(self, now: float, cause: Hashable) -> None:
        """Ends a cause for which the deadlines were stopped, if it is one."""


class ResultClock:
    """The clock of deadlines, which stops while Redis is unavailable, and its timer.

    Args:
        deadlines: of the utterances that have no outcome.
        timers: has the timer for the next deadline.
    """

    def __init__(self, deadlines: Deadlines, timers: Timers) -> None:
        self._deadlines = deadlines
        self._timers = timers

    @property
    def is_stopped(self) -> bool:
        """Whether the deadlines wait for Redis."""
        return self._deadlines.is_stopped

    def deadline_of(self, index: int, now: float) -> float:
        """The deadline of an utterance, if Redis stays available."""
        return self._deadlines.at(index, now)

    def stop(self, now: float, cause: Hashable) -> None:
        """Stops the deadlines: a request shows that Redis is unavailable.

        Args:
            now: the current time.
            cause: names the request, such as the index of the utterance whose job failed.
        """
        if self._deadlines.stop(now, cause):
            self.set_timer()

    def run(self, now: float, cause: Hashable) -> None:
        """Ends a cause for which the deadlines were stopped, if it is one."""
        if self._deadlines.go_on(now, cause):
            self.set_timer()

    def overdue(self, now: float) -> list[int]:
        """The utterances whose deadline has passed, in order."""
        return self._deadlines.overdue(now)

    def set_timer(self) -> None:
        """Sets the timer for the next deadline."""
        deadline = self._deadlines.next_ms
        if deadline is not None:
            self._timers.set(DEADLINE, deadline)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an utterance ended: with a result, or with the reason why there is none."""

    direction: Direction
    utterance: Utterance | None
    # In a room, a receipt of what became of it in each language.
    end: dispatcher_pb2.JobDelivered | session_pb2.RoomReceipt | common_pb2.Error
    # Earlier utterances whose held audio is lost with it.
    lost: list[int] = field(default_factory=list)


class Delivery:
    """The outcomes of a session's utterances, from their deadlines to the client's confirmation.

    Args:
        rules: of the session.
        past: before this gateway served the session. Utterances whose cut is forgotten are missing.
        direction: that is named for those.
        counts: counters of the gateway.
        out: where effects go.
        now: the current time.
    """

    def __init__(
        self,
        *,
        rules: SessionRules,
        past: Past,
        direction: Direction,
        counts: MutableMapping[str, int],
        out: EffectBuffer,
        now: float,
    ) -> None:
        self._rules = rules
        self._counts = counts
        self._out = out
        self._queue: ResultQueue[Outcome] = ResultQueue(
            past.seen, stop_max_ms=rules.redis_outage_max_ms
        )
        self.clock = ResultClock(self._queue.deadlines, out.timers)
        """The clock of the deadlines of outcomes."""
        self.unsent = self._queue.outcomes
        """Outcomes that have not been sent, by index; earlier ones may be missing."""
        self.seen = past.seen
        """How many outcomes the client has confirmed."""
        self.missing = min(past.missing, past.seen)
        """How many of those were missing."""
        # Job ids of results that are not confirmed, and how long each waited for earlier ones.
        self._unseen: dict[int, str] = {}
        self._held_back_ms: dict[int, float] = {}
        # Indexes that are missing and not confirmed.
        self._unseen_missing: set[int] = set()
        known = {cut.utterance_index for cut in past.cuts}
        for index in range(past.seen, past.next_index):
            self._queue.expect(now + rules.result_deadline_ms, now)
            if index not in known:
                why = common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_JOB_NOT_FOUND,
                    message="its result is no longer available",
                )
                self.put(index, Outcome(direction, None, why))
        self.clock.set_timer()

    # ---- counts ----

    @property
    def results(self) -> int:
        """How many of the outcomes that the client has confirmed were results."""
        return self.seen - self.missing

    @property
    def next_index(self) -> int:
        """The index that the next utterance gets."""
        return self._queue.next_in

    @property
    def sent(self) -> int:
        """How many outcomes have been sent to the client."""
        return self._queue.next_out

    @property
    def pending(self) -> int:
        """How many utterances have no outcome that was sent to the client."""
        return self._queue.next_in - self._queue.next_out

    @property
    def unconfirmed(self) -> int:
        """How many utterances have no outcome that the client has confirmed."""
        return self._queue.next_in - self.seen

    @property
    def unseen_job_ids(self) -> Sequence[str]:
        """The jobs whose results the client has not confirmed."""
        return list(self._unseen.values())

    def is_unseen_result(self, index: int) -> bool:
        """Whether an utterance may have a result that the client has not confirmed."""
        return self.seen <= index < self._queue.next_in and index not in self._unseen_missing

    def fill_closed(self, closed: session_pb2.Closed) -> None:
        """Fills in the totals of a session whose outcomes have all been sent."""
        missing = self.missing + len(self._unseen_missing)
        closed.results = self._queue.next_out - missing
        closed.missing = missing

    # ---- deadlines ----

    def expect(self, now: float) -> tuple[int, float]:
        """Expects the outcome of one more utterance; returns its index and its deadline."""
        deadline_ms = now + self._rules.result_deadline_ms
        self._out.timers.set_by(DEADLINE, deadline_ms)
        return self._queue.expect(deadline_ms, now), deadline_ms

    # ---- outcomes ----

    def put(self, index: int, outcome: Outcome) -> None:
        """Sets the outcome of an utterance."""
        if isinstance(outcome.end, common_pb2.Error):
            self._unseen_missing.add(index)
        elif outcome.utterance is not None:
            self._unseen[index] = outcome.utterance.job_id
        self._queue.put(index, outcome)

    def release(self, now: float) -> None:
        """Sends the outcomes that are next in order."""
        for index, outcome in self._queue.take():
            end = outcome.end
            if isinstance(end, common_pb2.Error):
                missing = self._out.event().missing
                missing.utterance_index = index
                missing.direction.src, missing.direction.tgt = outcome.direction
                missing.why.CopyFrom(end)
                missing.lost_utterances.extend(outcome.lost)
            elif isinstance(end, session_pb2.RoomReceipt):
                told = self._out.event().result
                told.utterance_index = index
                told.direction.src = outcome.direction.src
                told.room.CopyFrom(end)
            elif outcome.utterance is not None:
                self._counts["result"] += 1
                self._held_back_ms[index] = now - outcome.utterance.result_ms
                result = self._out.event(is_large=True).result
                _fill_result(result, now, outcome.utterance, end, outcome.lost)
            self._counts["held_lost"] += len(outcome.lost)
        while len(self._unseen) > self._rules.result_queue_max:
            # Redis keeps it in case the client resumes and needs it.
            self._out.add(Leave((self._unseen.pop(min(self._unseen)),)))

    def confirm(self, seen: int) -> None:
        """The client has seen this many outcomes, of those that were sent."""
        for index in range(self.seen, seen):
            if index in self._unseen_missing:
                self._unseen_missing.remove(index)
                self.missing += 1
            job_id = self._unseen.pop(index, None)
            held_back_ms = self._held_back_ms.pop(index, 0.0)
            if job_id is not None:
                self._out.add(Taken(job_id, held_back_ms))
        self.seen = seen


def _fill_result(
    told: session_pb2.Result,
    now: float,
    utterance: Utterance,
    delivered: dispatcher_pb2.JobDelivered,
    lost: Sequence[int],
) -> None:
    """Fills in a result for the client, with its timings."""
    result = delivered.result
    told.utterance_index = utterance.index
    told.direction.src, told.direction.tgt = utterance.direction
    told.kind = result.kind
    told.texts.CopyFrom(result.texts)
    told.speech = result.speech
    told.speech_format.CopyFrom(result.speech_format)
    if result.joined_utterances:
        told.joined_utterances.extend(result.joined_utterances)
    if utterance.included and result.kind != dispatcher_pb2.JobResult.KIND_HELD:
        # They were in its audio, whatever the node says.
        told.joined_utterances[:] = sorted({*told.joined_utterances, *utterance.included})
    if lost:
        told.lost_utterances.extend(lost)
    told.job_id = utterance.job_id
    told.node_id = delivered.node_id
    told.attempts = delivered.attempts
    told.turn_broken = delivered.turn_broken
    timings, began_ms = told.timings, utterance.accepted_ms or utterance.cut_ms
    timings.audio_ms = utterance.audio_ms
    timings.hangover_ms = round(utterance.cut_ms - utterance.ended_ms)
    timings.dispatch_ms = round(max(0.0, utterance.accepted_ms - utterance.cut_ms))
    timings.node_ms = round(utterance.result_ms - began_ms)
    timings.deliver_ms = round(now - utterance.result_ms)
    if result.timings:
        timings.stages.extend(result.timings)
