"""The utterances of a session in a room, and their jobs in all languages that are wanted."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, replace

from lingua_scheduler.services.runtime.contract.audio import as_job_audio
from lingua_scheduler.services.session_gateway.session.delivery import Delivery, Outcome
from lingua_scheduler.services.session_gateway.session.effects import EffectBuffer, TimerKey
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.jobs import SessionJobs
from lingua_scheduler.services.session_gateway.session.recording import Recording
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane import (
    Lane,
    Speaker,
    lane_of_timer,
)
from lingua_scheduler.services.session_gateway.session.speaking.lane_clocks import LaneClocks
from lingua_scheduler.services.session_gateway.session.speaking.lane_turns import (
    LaneTurns,
    cut_in_lane,
)
from lingua_scheduler.services.session_gateway.session.speech import (
    LEAVES_REST,
    Cut,
    Direction,
    Speech,
)
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget, HeldTurns
from lingua_scheduler.services.session_gateway.session.utterance import (
    Said,
    Utterance,
    UtteranceState,
)
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2

# Utterances whose room index is remembered: more than a node can hold of one sentence.
MAX_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class Place:
    """What the room answered when a cut was recorded."""

    index: int
    room_index: int
    # The languages that were wanted at that moment, and whether with speech.
    languages: dict[str, bool]
    wants_original: bool
    # The languages of which the record now says what nodes hold.
    holds: frozenset[str] = frozenset()


class RoomJobs:
    """The utterances that are not over in all of their languages.

    An utterance is cut and recorded once. The room then says which languages are wanted, and each
    gets an utterance of its own in its lane, which shares the audio. A lane lives as long as its
    language is wanted.

    Args:
        past: of the session.
        rules: of the session.
        speaker: whose session it is.
        audio_format: of the session.
        specs: of the session's jobs.
        turns: of all lanes.
        clocks: of all lanes.
        budget: of held audio.
        delivery: takes a receipt for each utterance that is over.
        recording: records the cuts.
        counts: counters of the gateway.
        out: where effects go.
        now: the current time.
    """

    def __init__(
        self,
        *,
        past: Past,
        rules: SessionRules,
        speaker: Speaker,
        audio_format: common_pb2.AudioFormat,
        specs: JobSpecs,
        turns: LaneTurns,
        clocks: LaneClocks,
        budget: HeldBudget,
        delivery: Delivery,
        recording: Recording,
        counts: MutableMapping[str, int],
        out: EffectBuffer,
        now: float,
    ) -> None:
        self._rules = rules
        self._speaker = speaker
        self._direction = Direction(speaker.language, "")
        self._format = audio_format
        self._specs = specs
        self._clocks = clocks
        self._budget = budget
        self._delivery = delivery
        self._recording = recording
        self._counts = counts
        self._out = out
        self.turns = turns
        """The audio that nodes hold, in all lanes."""
        self.open: dict[int, Utterance] = {}
        """The utterances that are not over, by index. Their jobs are in the lanes."""
        self._lanes: dict[str, Lane] = {}
        # Cuts that are being recorded, by the index of their utterance.
        self._cuts: dict[int, Cut] = {}
        # Languages whose turns the next empty cut ends.
        self._to_flush: tuple[str, ...] = ()
        self._room_indexes: dict[int, int] = {}
        # Utterances whose original audio the room has.
        self._has_original: set[int] = set()
        self._leaves_rest = bool(past.cuts) and past.cuts[-1].reason in LEAVES_REST
        for cut in past.cuts:
            self._resume(cut, past, now)

    # ---- resume ----

    def _resume(self, cut: session_record_pb2.Cut, past: Past, now: float) -> None:
        index = cut.utterance_index
        self._remember(index, cut.room_index)
        is_safe = cut.chunks[0].first < past.next_seq
        deadline_ms = now + self._rules.result_deadline_ms
        utterance = Utterance.from_record(cut, now=now, deadline_ms=deadline_ms, accepted=is_safe)
        utterance.said = Said(cut.room_index)
        for each in cut.languages:
            lane, own = self._lane(each.language, now), cut_in_lane(cut, each)
            if (index, each.language) in past.left:
                part = lane.jobs.reopen(own, now=now, deadline_ms=deadline_ms, is_safe=is_safe)
                part.chunks = utterance.chunks
                part.job_id = self._specs.job_id(index, lane.direction)
                utterance.said.languages[each.language] = part
                lane.resume(now, part, speech=each.speech)
                continue
            # What nodes hold is restored up to the first utterance that has no outcome.
            if not lane.jobs.open:
                lane.jobs.recall(own, past)
            utterance.said.outcomes[each.language] = past.lost.get((index, each.language))
        if cut.audio_ms and cut.HasField("room_index"):
            for language in sorted(self._lanes.keys() - {each.language for each in cut.languages}):
                self._leave(language, index)
        if past.seen <= index < past.next_index:
            self.open[index] = utterance
            self._check_over(utterance)

    def _remember(self, index: int, room_index: int) -> None:
        self._room_indexes[index] = room_index
        if len(self._room_indexes) > MAX_REMEMBERED:
            del self._room_indexes[next(iter(self._room_indexes))]

    # ---- cuts ----

    @property
    def unfinished(self) -> list[Direction]:
        """The direction, if its last cut left a rest of the same speech."""
        return [self._direction] if self._leaves_rest else []

    def enter(self, cut: Cut, index: int, deadline_ms: float) -> Utterance:
        """Makes an utterance of a cut. It has no job before the room says which it needs."""
        utterance = Utterance.from_cut(
            cut, index=index, job_id="", deadline_ms=deadline_ms, continues=False
        )
        if utterance.is_flush:
            utterance.only = self._to_flush
        self._leaves_rest = cut.reason in LEAVES_REST
        self._cuts[index] = cut
        self.open[index] = utterance
        return utterance

    def on_recorded(self, now: float, places: Iterable[Place]) -> None:
        """Cuts are recorded, and have their place in the room."""
        for place in places:
            for language in place.holds:
                if lane := self._lanes.get(language):
                    lane.on_hold_recorded(place.index)
            utterance = self.open.get(place.index)
            cut = self._cuts.pop(place.index, None)
            if utterance is not None and cut is not None:
                self._say(now, utterance, cut, place)

    def _say(self, now: float, utterance: Utterance, cut: Cut, place: Place) -> None:
        self._remember(place.index, place.room_index)
        utterance.said = said = Said(place.room_index, place.wants_original)
        for language, speech in place.languages.items():
            lane = self._lane(language, now)
            own = cut._replace(speech=replace(cut.speech, direction=lane.direction))
            part = lane.jobs.enter(own, place.index, utterance.deadline_ms)
            said.languages[language] = part
            lane.start(now, part, speech=speech)
        concerned = utterance.only if utterance.is_flush else tuple(self._lanes)
        for language in concerned:
            if language not in place.languages and language in self._lanes:
                self._leave(language, place.index)
        self._check_over(utterance)

    def _lane(self, language: str, now: float) -> Lane:
        lane = self._lanes.get(language)
        if lane is None:
            turns = self.turns.lanes[language] = HeldTurns(
                audio_format=self._format,
                max_bytes=self._rules.held_audio_max_bytes,
                budget=self._budget,
            )
            lane = self._lanes[language] = Lane(
                language=language,
                speaker=self._speaker,
                rules=self._rules,
                specs=self._specs,
                turns=turns,
                clocks=self._clocks,
                original_of=self._original_of,
                room_indexes=self._room_indexes,
                on_end=self._on_lane_end,
                on_published=self._on_published,
                counts=self._counts,
                out=self._out,
                now=now,
            )
        return lane

    def _leave(self, language: str, index: int) -> None:
        """Nobody wanted an utterance in this language: what nodes hold for it is dropped."""
        lane = self._lanes[language]
        lane.jobs.break_off(index)
        if lane.is_idle:
            del self._lanes[language], self.turns.lanes[language]
            self._clocks.remove(language)

    # ---- ends of speech that nodes wait for ----

    def on_empty_end(self, _: Direction) -> None:
        """The speaker has finished, and no audio is gathered."""
        for lane in self._lanes.values():
            lane.jobs.on_empty_end(lane.direction)

    def may_flush(self, *, is_closing: bool) -> bool:
        """Whether there may be flushes."""
        return any(each.jobs.may_flush(is_closing=is_closing) for each in self._lanes.values())

    def flushes(self, now: float, next_seq: int, *, is_closing: bool) -> list[Cut]:
        """An empty cut that ends the turns which nodes hold, in all lanes that need one."""
        # What is not recorded may become an utterance of any lane.
        if self._cuts:
            return []
        flushes = {
            language: cuts[0]
            for language, lane in self._lanes.items()
            if (cuts := lane.jobs.flushes(now, next_seq, is_closing=is_closing))
        }
        self._to_flush = tuple(sorted(flushes))
        nothing = Speech.nothing(self._direction, now, next_seq)
        return [cut._replace(speech=nothing) for cut in list(flushes.values())[:1]]

    # ---- jobs ----

    def of(self, language: str) -> SessionJobs | None:
        """The jobs of a lane; None if there is no such lane."""
        lane = self._lanes.get(language)
        return None if lane is None else lane.jobs

    def lane(self, language: str) -> Lane | None:
        """A lane; None if there is no such lane."""
        return self._lanes.get(language)

    @property
    def submitted_ids(self) -> list[str]:
        """The jobs that have been submitted and whose outcome the room does not have."""
        return [job_id for lane in self._lanes.values() for job_id in lane.job_ids]

    def submit_ready(self, now: float) -> None:
        """Submits all jobs that may be submitted now."""
        for utterance in self.open.values():
            if utterance.said is not None:
                _take_over_state(utterance, now)
        for lane in self._lanes.values():
            if lane.jobs.open:
                lane.jobs.submit_ready(now)

    def on_timer(self, now: float, key: TimerKey) -> None:
        """A timer of a lane is due."""
        if lane := self._lanes.get(lane_of_timer(key)):
            lane.on_timer(now, key)

    def give_up_overdue(self, now: float) -> None:
        """Nothing: each lane has its own deadlines."""

    # ---- outcomes ----

    def _on_lane_end(self, part: Utterance) -> None:
        utterance = self.open.get(part.index)
        if utterance is not None and (part.is_held or part.is_missing):
            utterance.is_held = True
            self._recording.on_end(utterance)

    def _original_of(self, index: int) -> tuple[common_pb2.AudioFormat | None, bytes]:
        utterance = self.open.get(index)
        if utterance is None or utterance.said is None or not utterance.said.wants_original:
            return None, b""
        if index in self._has_original:
            return self._format, b""
        audio = as_job_audio(self._format, utterance.chunks)
        return (self._format, audio) if audio else (None, b"")

    def _on_published(
        self, now: float, language: str, index: int, why: common_pb2.Error | None
    ) -> None:
        utterance = self.open.get(index)
        if utterance is None or utterance.said is None:
            return
        self._has_original.add(index)
        utterance.said.outcomes[language] = why
        self._check_over(utterance)

    def _check_over(self, utterance: Utterance) -> None:
        """Ends an utterance that has an outcome in all of its languages."""
        said, index = utterance.said, utterance.index
        if said is None or not said.languages.keys() <= said.outcomes.keys():
            return
        del self.open[index]
        self._has_original.discard(index)
        utterance.state, utterance.chunks = UtteranceState.OVER, []
        receipt = session_pb2.RoomReceipt(room_index=said.room_index)
        for language, why in sorted(said.outcomes.items(), key=lambda each: each[0]):
            if why is None:
                receipt.delivered.append(language)
            else:
                receipt.missing.add(language=language, why=why)
        self._delivery.put(index, Outcome(self._direction, None, receipt))


def _take_over_state(utterance: Utterance, now: float) -> None:
    """Brings an utterance and its parts in the lanes in line.

    Its chunks may have been replayed; and the client may drop them when all lanes have a job.
    """
    assert utterance.said is not None
    parts = utterance.said.languages.values()
    if utterance.state is not UtteranceState.REPLAY:
        for part in parts:
            if part.state is UtteranceState.REPLAY:
                part.state = UtteranceState.READY
                part.first_client_ms = utterance.first_client_ms
    if not utterance.accepted_ms and all(part.is_safe for part in parts):
        utterance.accepted_ms = now
