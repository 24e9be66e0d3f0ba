"""One utterance between its cut and its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from lingua_scheduler.services.session_gateway.session.speech import Cut, Direction, Reason
from lingua_scheduler.v1 import common_pb2, session_record_pb2

# After these, more of the same turn may follow: see decision 12.
MAY_CONTINUE = frozenset(
    {
        common_pb2.FINALIZE_REASON_MAX_DURATION,
        common_pb2.FINALIZE_REASON_MAX_LENGTH,
        common_pb2.FINALIZE_REASON_TIMEOUT,
        common_pb2.FINALIZE_REASON_INTERRUPTED,
    }
)


class Stage(Enum):
    """How far it is."""

    # Cut, and not written down yet.
    CUT = auto()
    # Another gateway cut it; its chunks are to come again.
    REPLAY = auto()
    # To be submitted when its turn comes, or its next try.
    READY = auto()
    # At a dispatcher, which has not accepted it.
    SUBMITTED = auto()
    # A node has it: its audio is safe.
    ACCEPTED = auto()
    # It has a result, or will have none.
    OVER = auto()


@dataclass(slots=True, eq=False)
class Utterance:
    """One utterance. Its chunks are kept until it is over: a dispatcher may die with its job."""

    index: int
    direction: Direction
    reason: Reason
    ranges: list[tuple[int, int]]
    job_id: str
    audio_ms: int
    deadline_ms: float
    stage: Stage
    # Whether it goes on where the one before it in its direction was cut.
    continues: bool
    # Whether another gateway cut it, and may have submitted its job.
    is_taken_up: bool = False
    chunks: list[bytes] = field(default_factory=list)
    first_client_ms: int = 0
    # Times of its way; 0: not known here.
    first_ms: float = 0.0
    ended_ms: float = 0.0
    cut_ms: float = 0.0
    # When its last try to be submitted had failed.
    failed_ms: float = 0.0
    accepted_ms: float = 0.0
    result_ms: float = 0.0
    tries: int = 0
    retry_ms: float = 0.0
    last_problem: str = ""
    # Earlier utterances that its node has to join, or those whose audio it brings along instead.
    held: tuple[int, ...] = ()
    included: tuple[int, ...] = ()
    included_audio: bytes = b""
    # Whether it has to bring them along.
    brings_held: bool = False
    # What its result left with its node: all, or so many bytes at the end. Or it has no result.
    is_held: bool = False
    held_audio_bytes: int = 0
    is_missing: bool = False
    # It was given up while a node may have had its result.
    may_have_result: bool = False
    # Why it is tried again, as the client was told last.
    told_why: tuple[int, str] | None = None

    @classmethod
    def from_cut(
        cls, cut: Cut, *, index: int, job_id: str, deadline_ms: float, continues: bool
    ) -> Utterance:
        """One that was cut here."""
        speech = cut.speech
        return cls(
            index=index,
            direction=speech.direction,
            reason=cut.reason,
            ranges=speech.ranges,
            job_id=job_id,
            audio_ms=round(speech.ms),
            deadline_ms=deadline_ms,
            stage=Stage.CUT,
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
        """One that another gateway cut."""
        utterance = cls(
            index=record.utterance_index,
            direction=Direction(record.direction.src, record.direction.tgt),
            reason=record.reason,
            ranges=[(chunks.first, chunks.end) for chunks in record.chunks],
            job_id=record.job_id,
            audio_ms=record.audio_ms,
            deadline_ms=deadline_ms,
            stage=Stage.READY if accepted else Stage.REPLAY,
            continues=True,
            is_taken_up=True,
            first_ms=now,
            ended_ms=now,
            cut_ms=now,
            accepted_ms=now if accepted else 0.0,
        )
        if utterance.is_flush:
            # No chunk of it has to come again.
            utterance.stage = Stage.READY
        return utterance

    @property
    def is_attached(self) -> bool:
        """Whether a dispatcher has its audio, and the client has not any more."""
        return self.accepted_ms > 0 and not self.chunks and not self.is_flush

    @property
    def is_flush(self) -> bool:
        """Whether nothing was said: its job ends what a node holds, and needs no chunk."""
        return self.ranges[0][0] == self.ranges[0][1]

    @property
    def is_safe(self) -> bool:
        """Whether the client may forget its audio."""
        return self.stage is Stage.OVER or self.accepted_ms > 0

    @property
    def is_over_quota(self) -> bool:
        """Whether it waits because its tenant uses as much as it may."""
        if self.told_why is None or self.is_safe:
            return False
        return self.told_why[0] == common_pb2.ERROR_REASON_QUOTA_EXCEEDED

    def has(self, seq: int) -> bool:
        """Whether a chunk is one of its own."""
        return any(first <= seq < end for first, end in self.ranges)

    def record(self, kept_seq: int = 0) -> session_record_pb2.Cut:
        """How it is written down."""
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
        return cut
