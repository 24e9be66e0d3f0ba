"""Speech before it is an utterance: directions, chunks, stretches of chunks, and cuts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lingua_scheduler.v1 import common_pb2, session_pb2

# Why an utterance was cut.
Reason: TypeAlias = "common_pb2.FinalizeReason.ValueType"

# After a cut for one of these reasons, more of the same speech follows in the next utterance.
LEAVES_REST = frozenset(
    {common_pb2.FINALIZE_REASON_MAX_DURATION, common_pb2.FINALIZE_REASON_MAX_LENGTH}
)
# After a cut for one of these reasons, more of the same turn may follow (decision 12).
MAY_CONTINUE = LEAVES_REST | {
    common_pb2.FINALIZE_REASON_TIMEOUT,
    common_pb2.FINALIZE_REASON_INTERRUPTED,
}


class Direction(NamedTuple):
    """Source and target language, in lower case."""

    src: str
    tgt: str


def directions_of(opened: session_pb2.NewSession) -> tuple[Direction, ...]:
    """The directions of a session: one that is fixed, or both of a conversation.

    In a room the direction has no target: listeners choose theirs.
    """
    if opened.HasField("room"):
        return (Direction(opened.room.language.lower(), ""),)
    if opened.HasField("direction"):
        return (Direction(opened.direction.src.lower(), opened.direction.tgt.lower()),)
    a, b = opened.conversation.a.lower(), opened.conversation.b.lower()
    return Direction(a, b), Direction(b, a)


class Chunk(NamedTuple):
    """A chunk that has passed all checks."""

    seq: int
    data: bytes
    # Its duration, and its size in bytes within a job.
    ms: float
    size: int
    is_final: bool
    direction: Direction
    # When the client recorded it; 0 if the client did not say.
    client_ms: int
    # How much of its end has no voice, at most all of it; None without voice detection.
    quiet_ms: float | None = None


@dataclass(slots=True)
class Speech:
    """Chunks of one direction, in order."""

    direction: Direction
    # When its first chunk arrived, by the gateway's clock and by the client's.
    first_ms: float
    first_client_ms: int
    chunks: list[bytes] = field(default_factory=list)
    # Sequence numbers of its chunks, each range as [first, end). There are several ranges if the
    # other side spoke in between.
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ms: float = 0.0
    size: int = 0
    # With voice detection: whether there was no voice so far, the duration up to the first voice
    # (or the end, if there is none), and the duration of the silence at the end.
    is_silent: bool = False
    lead_ms: float = 0.0
    quiet_ms: float = 0.0

    def add(self, chunk: Chunk) -> None:
        """Appends a chunk."""
        if chunk.quiet_ms is not None:
            self._listen(chunk.quiet_ms, chunk.ms)
        self.chunks.append(chunk.data)
        self.ms += chunk.ms
        self.size += chunk.size
        if self.ranges and self.ranges[-1][1] == chunk.seq:
            self.ranges[-1] = (self.ranges[-1][0], chunk.seq + 1)
        else:
            self.ranges.append((chunk.seq, chunk.seq + 1))

    def _listen(self, quiet_ms: float, ms: float) -> None:
        if not self.chunks:
            self.is_silent = True
        if quiet_ms < ms:
            self.is_silent = False
            self.quiet_ms = quiet_ms
        else:
            self.quiet_ms += ms
            if self.is_silent:
                self.lead_ms += ms

    @classmethod
    def nothing(cls, direction: Direction, now: float, seq: int) -> Speech:
        """Speech without any chunk, positioned before the chunk `seq`."""
        return cls(direction, now, 0, ranges=[(seq, seq)])

    @property
    def first_seq(self) -> int:
        """The sequence number of its first chunk."""
        return self.ranges[0][0]


class Cut(NamedTuple):
    """Speech that has become an utterance."""

    speech: Speech
    reason: Reason
    # When its end was decided, and when it was cut. The hangover lies in between.
    ended_ms: float
    cut_ms: float
