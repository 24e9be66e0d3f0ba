"""One utterance, from its cut to its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from lingua_scheduler.services.session_gateway.session.speech import Cut, Direction, Reason
from lingua_scheduler.v1 import common_pb2, session_record_pb2


class UtteranceState(Enum):
    """How far an utterance has come."""

    # Cut, but not recorded in the store.
    CUT = auto()
    # Cut by another gateway; the client has to send its chunks again.
    REPLAY = auto()
    # Waits to be submitted, for the first time or again.
    READY = auto()
    # Submitted to a dispatcher, but not accepted by a node.
    SUBMITTED = auto()
    # Accepted by a node: its audio is safe.
    ACCEPTED = auto()
    # Has a result, or will never have one.
    OVER = auto()


@dataclass(slots=True, eq=False)
class Said:
    """An utterance in a room: its place there, and the languages that were wanted.

    Attributes:
        room_index: counts all utterances of the room.
        wants_original: whether somebody wants the speaker's audio.
        languages: the utterance in each language, with a job of its own.
        outcomes: of the languages in which it is over; None for a result, else why it is missing.
    """

    room_index: int
    wants_original: bool = False
    languages: dict[str, Utterance] = field(default_factory=dict)
    outcomes: dict[str, common_pb2.Error | None] = field(default_factory=dict)

    def fill(self, cut: session_record_pb2.Cut) -> None:
        """Adds what the room said to the record of a cut."""
        cut.room_index = self.room_index
        cut.ClearField("is_held")
        del cut.languages[:]
        for language, each in self.languages.items():
            cut.languages.add(
                language=language,
                speech=not each.is_text_only,
                is_held=each.is_held,
                held_audio_bytes=each.held_audio_bytes,
                is_missing=each.is_missing,
            )


@dataclass(slots=True, eq=False)
class Utterance:
    """One utterance. It keeps its chunks until it is over: a dispatcher may die with its job."""

    index: int
    direction: Direction
    reason: Reason
    ranges: list[tuple[int, int]]
    job_id: str
    audio_ms: int
    deadline_ms: float
    state: UtteranceState
    # Whether the previous utterance of its direction was cut within a turn.
    continues: bool
    # Whether another gateway cut it, and may have submitted its job.
    is_resumed: bool = False
    chunks: list[bytes] = field(default_factory=list)
    first_client_ms: int = 0
    # When its first chunk arrived, its end was decided, it was cut, its last submission failed, a
    # node accepted it, and its result arrived. 0 if unknown here.
    first_ms: float = 0.0
    ended_ms: float = 0.0
    cut_ms: float = 0.0
    failed_ms: float = 0.0
    accepted_ms: float = 0.0
    result_ms: float = 0.0
    # Submissions so far, and when the next one is allowed.
    tries: int = 0
    retry_ms: float = 0.0
    last_problem: str = ""
    # Earlier utterances whose held audio its node has to join, or whose audio its job includes.
    held: tuple[int, ...] = ()
    included: tuple[int, ...] = ()
    included_audio: bytes = b""
    # Whether its job has to include held audio.
    brings_held: bool = False
    # Whether its node holds all of its audio, or how many bytes of its end; or it has no result.
    is_held: bool = False
    held_audio_bytes: int = 0
    is_missing: bool = False
    # Whether its job makes no speech, whatever the session asks for.
    is_text_only: bool = False
    # In a room: the languages that an end of speech concerns, if not all; and what the room said.
    only: tuple[str, ...] = ()
    said: Said | None = None
    # Whether it was given up although a node may have had its result.
    may_have_result: bool = False
    # The reason and message of the last retry that the client was told of.
    told_why: tuple[int, str] | None = None

    @classmethod
    def from_cut(
        cls, cut: Cut, *, index: int, job_id: str, deadline_ms: float, continues: bool
    ) -> Utterance:
        """An utterance that was cut here."""
        speech = cut.speech
        return cls(
            index=index,
            direction=speech.direction,
            reason=cut.reason,
            ranges=speech.ranges,
            job_id=job_id,
            audio_ms=round(speech.ms),
            deadline_ms=deadline_ms,
            state=UtteranceState.CUT,
            continues=continues,
            chunks=speech.chunks,
            first_client_ms=speech.first_client_ms,
            first_ms=speech.first_ms,
            ended_ms=cut.ended_ms,
            cut_ms=cut.cut_ms,
        )

    @classmethod
    def from_record(
        cls, record: session_record_pb2.Cut, *, now: float, deadline_ms: float, accepted: bool
    ) -> Utterance:
        """An utterance that another gateway cut."""
        utterance = cls(
            index=record.utterance_index,
            direction=Direction(record.direction.src, record.direction.tgt),
            reason=record.reason,
            ranges=[(chunks.first, chunks.end) for chunks in record.chunks],
            job_id=record.job_id,
            audio_ms=record.audio_ms,
            deadline_ms=deadline_ms,
            state=UtteranceState.READY if accepted else UtteranceState.REPLAY,
            continues=True,
            is_resumed=True,
            first_ms=now,
            ended_ms=now,
            cut_ms=now,
            accepted_ms=now if accepted else 0.0,
        )
        if utterance.is_flush:
            # It has no chunks to replay.
            utterance.state = UtteranceState.READY
        return utterance

    @property
    def is_attached(self) -> bool:
        """Whether only a dispatcher has its audio: the client may have dropped it."""
        return self.accepted_ms > 0 and not self.chunks and not self.is_flush

    @property
    def is_flush(self) -> bool:
        """Whether it has no chunks: its job only ends the turn that a node holds."""
        return self.ranges[0][0] == self.ranges[0][1]

    @property
    def is_safe(self) -> bool:
        """Whether the client may drop its audio."""
        return self.state is UtteranceState.OVER or self.accepted_ms > 0

    @property
    def is_over_quota(self) -> bool:
        """Whether it waits because its tenant has reached a quota."""
        if self.told_why is None or self.is_safe:
            return False
        return self.told_why[0] == common_pb2.ERROR_REASON_QUOTA_EXCEEDED

    def has(self, seq: int) -> bool:
        """Whether a chunk belongs to it."""
        return any(first <= seq < end for first, end in self.ranges)

    def record(self, kept_seq: int = 0) -> session_record_pb2.Cut:
        """Its cut as the store records it."""
        cut = session_record_pb2.Cut(
            utterance_index=self.index,
            reason=self.reason,
            job_id=self.job_id,
            audio_ms=self.audio_ms,
            is_held=self.is_held,
            held_audio_bytes=self.held_audio_bytes,
            is_missing=self.is_missing,
            kept_seq=kept_seq,
        )
        cut.direction.src, cut.direction.tgt = self.direction
        for first, end in self.ranges:
            cut.chunks.add(first=first, end=end)
        for language in self.only:
            cut.languages.add(language=language)
        if self.said is not None:
            self.said.fill(cut)
        return cut
