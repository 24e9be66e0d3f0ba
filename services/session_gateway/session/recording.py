"""Recording of cuts in the store, so that another gateway can resume the session (decision 11)."""

from lingua_scheduler.services.session_gateway.session.delivery import Delivery, Stoppable
from lingua_scheduler.services.session_gateway.session.effects import RECORD, EffectBuffer, Record
from lingua_scheduler.services.session_gateway.session.intake import Intake
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.turns import HeldAudio
from lingua_scheduler.services.session_gateway.session.utterance import Utterance, UtteranceState
from lingua_scheduler.v1 import common_pb2

# Delay before cuts that could not be recorded are tried again.
RETRY_MS = 200.0
# The cause for which deadlines are stopped while the store is unavailable. Jobs use their index.
_CAUSE = -1


class Recording:
    """The cuts that are recorded, being recorded, or to be recorded.

    One request is in flight at a time, so that cuts are recorded in order.

    Args:
        past: of the session.
        turns: whose held audio keeps recorded cuts alive.
        delivery: of the outcomes.
        clock: stops while the store is unavailable.
        out: where effects go.
    """

    def __init__(
        self,
        *,
        past: Past,
        turns: HeldAudio,
        delivery: Delivery,
        clock: Stoppable,
        out: EffectBuffer,
    ) -> None:
        self._turns = turns
        self._delivery = delivery
        self._clock = clock
        self._out = out
        # Ranges of chunks by index, until they are safe and their outcome is confirmed.
        self._recorded = {
            cut.utterance_index: [(chunks.first, chunks.end) for chunks in cut.chunks]
            for cut in past.cuts
        }
        self._in_flight: list[Utterance] | None = None
        self.waiting: list[Utterance] = []
        """Utterances whose cut has to be recorded, or recorded again."""
        self._outage_told = False

    def add(self, utterance: Utterance) -> None:
        """Adds an utterance that was cut."""
        self.waiting.append(utterance)

    def on_end(self, utterance: Utterance) -> None:
        """Updates the record of an utterance that is over if that concerns held audio."""
        if (utterance.is_held or utterance.is_missing) and utterance.index in self._recorded:
            self.waiting.append(utterance)

    def write(self, now: float, intake: Intake) -> None:
        """Records the cuts that wait, unless a request is in flight or is to be retried.

        An utterance that went missing meanwhile is recorded as well as long as its chunks may be
        sent again: a later gateway must not take them for new speech.
        """
        if self._in_flight is not None or RECORD in self._out.timers:
            return
        cut, kept_seq, delivery = UtteranceState.CUT, intake.kept_seq, self._delivery
        needed = [
            each
            for each in self.waiting
            if each.state is cut or self._is_needed(each.index, each.ranges, kept_seq)
        ]
        if not any(each.state is cut or each.is_held or each.is_missing for each in needed):
            self.waiting = needed
            self._clock.run(now, _CAUSE)
            return
        self._in_flight, self.waiting = needed, []
        self._out.add(
            Record(
                cuts=tuple([each.record(kept_seq) for each in needed]),
                first_index=min(self._first_needed(kept_seq), needed[0].index),
                acked_seq=intake.acked_seq,
                seen=delivery.seen,
                results=delivery.results,
                missing=delivery.missing,
                last_chunk_ms=intake.last_chunk_ms,
            )
        )

    def on_recorded(self, now: float) -> None:
        """The cuts in flight are recorded: their jobs may be submitted."""
        recorded, self._in_flight = self._in_flight or [], None
        self._clock.run(now, _CAUSE)
        self._outage_told = False
        for utterance in recorded:
            self._recorded[utterance.index] = utterance.ranges
            if utterance.state is UtteranceState.CUT:
                utterance.state = UtteranceState.READY
                finalized = self._out.utterance_event(utterance).finalized
                finalized.reason = utterance.reason
                finalized.audio_ms = utterance.audio_ms

    def on_failed(self, now: float, why: common_pb2.Error, *, retry: bool) -> None:
        """The cuts in flight may or may not be recorded: they have to be recorded again.

        Args:
            now: the current time.
            why: the error.
            retry: False if the session is closed, and nothing more is recorded.
        """
        self.waiting = (self._in_flight or []) + self.waiting
        self._in_flight = None
        for utterance in self.waiting:
            utterance.last_problem = why.message
        if not retry:
            return
        if why.reason == common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN:
            self._clock.stop(now, _CAUSE)
        self._out.timers.set(RECORD, now + RETRY_MS)
        if not self._outage_told:
            self._outage_told = True
            self._out.error(why)

    def _first_needed(self, kept_seq: int) -> int:
        """The first cut that a later gateway would need; forgets those before it."""
        for index, ranges in list(self._recorded.items()):
            if self._is_needed(index, ranges, kept_seq):
                return index
            del self._recorded[index]
        return self._delivery.next_index

    def _is_needed(self, index: int, ranges: list[tuple[int, int]], kept_seq: int) -> bool:
        # Chunks of utterances that are not held may be replayed together with those that are.
        if index >= self._delivery.seen or ranges[-1][1] > kept_seq:
            return True
        return bool(self._turns) and self._turns.has(index)
