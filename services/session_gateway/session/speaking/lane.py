"""A lane: the jobs of one session of a room in one language, and their outcomes for the room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from lingua_scheduler.services.session_gateway.session.delivery import (
    Deadlines,
    Outcome,
    ResultClock,
)
from lingua_scheduler.services.session_gateway.session.effects import (
    Effect,
    EffectBuffer,
    Publish,
    Taken,
    TimerKey,
    Timers,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.jobs import SessionJobs
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane_clocks import (
    LaneClock,
    LaneClocks,
)
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.turns import HeldTurns
from lingua_scheduler.services.session_gateway.session.utterance import Utterance, UtteranceState
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2, session_pb2

# How often a job is submitted before the lane believes that no node can do it, and how long it then
# believes so: nodes that were only disconnected for a moment come back within the tries.
TRIES_TO_BELIEVE = 4
BELIEVE_MS = 30_000.0
# Delay before an outcome that the room did not take is put again.
PUBLISH_RETRY_MS = 200.0

_PUBLISH = "publish"
_DEADLINE = "deadline"
_NO_CAPABLE_NODE = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
_JOB_NOT_FOUND = common_pb2.ERROR_REASON_JOB_NOT_FOUND


def lane_of_timer(key: TimerKey) -> str:
    """The lane that a timer belongs to; empty if it belongs to none."""
    return key[0].partition(":")[2]


class _LaneTimers:
    """The timers of a lane: those of other lanes have the same purposes and indexes."""

    def __init__(self, timers: Timers, language: str) -> None:
        self._timers = timers
        self._language = language

    def set(self, key: TimerKey, at_ms: float) -> None:
        self._timers.set(self._own(key), at_ms)

    def clear(self, key: TimerKey) -> None:
        self._timers.clear(self._own(key))

    def _own(self, key: TimerKey) -> TimerKey:
        return f"{key[0]}:{self._language}", key[1]


class _LaneEffects:
    """Adds the effects of a lane to those of the session."""

    def __init__(self, out: EffectBuffer, language: str) -> None:
        self._out = out
        self.timers = _LaneTimers(out.timers, language)

    def add(self, effect: Effect) -> None:
        self._out.add(effect)

    def error(self, error: common_pb2.Error) -> None:
        self._out.error(error)

    def utterance_event(self, utterance: Utterance) -> session_pb2.UtteranceEvent:
        return self._out.utterance_event(utterance)


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks, as listeners see it."""

    session_id: str
    name: str
    language: str


@dataclass(slots=True)
class _Unpublished:
    outcome: Outcome
    utterance: Utterance
    failures: int = 0


class Lane:
    """One language. An utterance in it is over when the room has its outcome.

    Args:
        language: of the lane.
        speaker: whose session it is.
        rules: of the session.
        specs: of the session's jobs.
        turns: the audio that nodes hold in this language.
        clocks: of all lanes.
        original_of: returns the format of the speaker's audio, None if nobody wants the audio of an
            utterance, and the audio, empty if the room has it.
        room_indexes: the room index of recent utterances, by their index in the session.
        on_end: called with each utterance that is over, before its outcome is published.
        on_published: called with the index of each utterance whose outcome the room has, and the
            reason if it is missing.
        counts: counters of the gateway.
        out: where effects go.
        now: the current time.
    """

    def __init__(
        self,
        *,
        language: str,
        speaker: Speaker,
        rules: SessionRules,
        specs: JobSpecs,
        turns: HeldTurns,
        clocks: LaneClocks,
        original_of: Callable[[int], tuple[common_pb2.AudioFormat | None, bytes]],
        room_indexes: Mapping[int, int],
        on_end: Callable[[Utterance], None],
        on_published: Callable[[float, str, int, common_pb2.Error | None], None],
        counts: MutableMapping[str, int],
        out: EffectBuffer,
        now: float,
    ) -> None:
        self._language = language
        self._direction = Direction(speaker.language, language)
        self._speaker = speaker
        self._rules = rules
        self._specs = specs
        self._original_of = original_of
        self._room_indexes = room_indexes
        self._on_published = on_published
        self._out = _LaneEffects(out, language)
        self._deadlines = Deadlines(rules.redis_outage_max_ms)
        self._unpublished: dict[int, _Unpublished] = {}
        # Until when no node is believed to make speech, or even captions.
        self._no_speech_until_ms = 0.0
        self._no_captions_until_ms = 0.0
        own_clock = ResultClock(self._deadlines, self._out.timers)
        clocks.add(now, language, own_clock)
        self.clock = LaneClock(own_clock, clocks, language)
        """The clock of the deadlines of its jobs."""
        self.jobs = SessionJobs(
            past=Past(),
            rules=rules,
            directions=(self._direction,),
            specs=specs,
            turns=turns,
            delivery=self,
            on_end=on_end,
            counts=counts,
            out=self._out,
            now=now,
        )
        """The jobs that have no outcome."""

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do, and no node holds audio for it."""
        return not (self.jobs.open or self._unpublished or self.jobs.turns)

    @property
    def direction(self) -> Direction:
        """The direction of its jobs."""
        return self._direction

    @property
    def job_ids(self) -> list[str]:
        """The jobs that have been submitted and whose outcome the room does not have."""
        waiting = [each.utterance.job_id for each in self._unpublished.values()]
        return [*self.jobs.submitted_ids, *waiting]

    # ---- utterances ----

    def start(self, now: float, utterance: Utterance, *, speech: bool) -> None:
        """An utterance has been recorded, and this language is wanted."""
        self._expect(now, utterance, now + self._rules.result_deadline_ms)
        utterance.state = UtteranceState.READY
        if not speech or now < self._no_speech_until_ms or self._is_own:
            self._make_text_only(utterance)
        if self._is_own and now < self._no_captions_until_ms:
            self._end_without_captions(now, utterance)

    def resume(self, now: float, utterance: Utterance, *, speech: bool) -> None:
        """An utterance of before the resume has no outcome in this language."""
        self._expect(now, utterance, utterance.deadline_ms)
        if not speech or self._is_own:
            self._make_text_only(utterance)

    def _expect(self, now: float, utterance: Utterance, deadline_ms: float) -> None:
        self._deadlines.add(utterance.index, deadline_ms, now)
        self.clock.set_timer()

    @property
    def _is_own(self) -> bool:
        """Whether it is the language that is spoken: there is nothing to translate."""
        return self._direction.src == self._direction.tgt

    def _make_text_only(self, utterance: Utterance) -> None:
        utterance.is_text_only = True
        utterance.job_id = self._specs.job_id(utterance.index, self._direction, is_text_only=True)

    def submitted(self, index: int) -> Utterance | None:
        """An utterance whose job has been submitted; None if it is over or has no job."""
        return self.jobs.submitted(index)

    def on_failed(self, now: float, utterance: Utterance, why: common_pb2.Error) -> None:
        """A job has failed, or was not created. Without speech it may still succeed."""
        cannot = why.reason == _NO_CAPABLE_NODE and utterance.tries >= TRIES_TO_BELIEVE
        # The gateway that submitted it may have done without speech.
        is_unknown = why.reason == _JOB_NOT_FOUND and utterance.is_attached
        if not utterance.is_text_only and (cannot or is_unknown):
            if cannot:
                self._no_speech_until_ms = now + BELIEVE_MS
            self._make_text_only(utterance)
            utterance.state, utterance.retry_ms, utterance.tries = UtteranceState.READY, now, 0
        elif self._is_own and cannot:
            self._no_captions_until_ms = now + BELIEVE_MS
            self._end_without_captions(now, utterance)
        else:
            self.jobs.on_failed(now, utterance, why)

    def _end_without_captions(self, now: float, utterance: Utterance) -> None:
        """No node recognizes the language: listeners have the original audio."""
        nothing = dispatcher_pb2.JobResult(kind=dispatcher_pb2.JobResult.KIND_TRANSLATED)
        utterance.tries = 0
        self.jobs.end(now, utterance, dispatcher_pb2.JobDelivered(result=nothing))

    # ---- outcomes ----

    def put(self, index: int, outcome: Outcome) -> None:
        """Sets the outcome of an utterance, and publishes it.

        If a node holds audio, this has to be recorded first: once the room has the outcome, a later
        gateway learns it only from the record.
        """
        utterance = outcome.utterance
        assert utterance is not None
        self._deadlines.remove(index)
        self._unpublished[index] = _Unpublished(outcome, utterance)
        if not (utterance.is_held or utterance.is_missing):
            self._publish(index)

    def on_hold_recorded(self, index: int) -> None:
        """The record says what a node holds of an utterance."""
        if index in self._unpublished:
            self._publish(index)

    def on_published(self, now: float, index: int) -> None:
        """The room has an outcome of the utterance, this one or an earlier one."""
        done = self._unpublished.pop(index, None)
        if done is None:
            return
        self._out.timers.clear((_PUBLISH, index))
        why = done.outcome.end
        if isinstance(why, common_pb2.Error):
            self._on_published(now, self._language, index, why)
            return
        if done.utterance.tries:
            self._out.add(Taken(done.utterance.job_id, now - done.utterance.result_ms))
        self._on_published(now, self._language, index, None)

    def on_publish_failed(self, now: float, index: int) -> None:
        """The room may or may not have the outcome: it is put again, as long as Redis may be away.

        After that the room itself says that it is missing.
        """
        waiting = self._unpublished.get(index)
        if waiting is None:
            return
        waiting.failures += 1
        if waiting.failures * PUBLISH_RETRY_MS > self._rules.redis_outage_max_ms:
            self.on_published(now, index)
        else:
            self._out.timers.set((_PUBLISH, index), now + PUBLISH_RETRY_MS)

    def on_timer(self, now: float, key: TimerKey) -> None:
        """One of its timers is due. Retries of jobs need nothing but what follows."""
        purpose, index = key[0].partition(":")[0], key[1]
        if purpose == _DEADLINE:
            self.jobs.give_up_overdue(now)
        elif purpose == _PUBLISH and index in self._unpublished:
            self._publish(index)

    def _publish(self, index: int) -> None:
        waiting = self._unpublished[index]
        event, end = rooms_pb2.RoomEvent(), waiting.outcome.end
        speech, (original_format, original) = b"", self._original_of(index)
        lost = self._in_room(waiting.outcome.lost)
        if isinstance(end, dispatcher_pb2.JobDelivered):
            result, told = end.result, event.result
            told.kind = result.kind
            told.texts.CopyFrom(result.texts)
            told.joined_indexes.extend(
                self._in_room([*result.joined_utterances, *waiting.utterance.included])
            )
            told.turn_broken = end.turn_broken
            told.audio_ms = waiting.utterance.audio_ms
            told.lost_indexes.extend(lost)
            if original_format is not None:
                told.original_format.CopyFrom(original_format)
            if result.speech:
                speech = result.speech
                told.speech_format.CopyFrom(result.speech_format)
        else:
            assert isinstance(end, common_pb2.Error)
            event.missing.why.CopyFrom(end)
            event.missing.lost_indexes.extend(lost)
        self._address(event.result if event.HasField("result") else event.missing, index)
        self._out.add(Publish(self._language, waiting.utterance, event, speech, original))

    def _address(self, told: rooms_pb2.RoomResult | rooms_pb2.RoomMissing, index: int) -> None:
        told.room_index = self._room_indexes[index]
        told.language, told.spoken_language = self._language, self._speaker.language
        told.session_id, told.speaker = self._speaker.session_id, self._speaker.name

    def _in_room(self, indexes: list[int]) -> list[int]:
        return sorted({self._room_indexes[each] for each in indexes if each in self._room_indexes})
