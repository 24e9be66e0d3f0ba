"""Stretches of speech: chunks that belong together, until they are an utterance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from lingua_scheduler.v1 import common_pb2

# Why an utterance was cut.
Reason: TypeAlias = "common_pb2.FinalizeReason.ValueType"


class Direction(NamedTuple):
    """Who speaks to whom, in lower case."""

    src: str
    tgt: str


class Chunk(NamedTuple):
    """A chunk that has been found good."""

    seq: int
    data: bytes
    # How long it lasts, and how many bytes it takes in a job.
    ms: float
    size: int
    is_final: bool
    direction: Direction
    # When the client had recorded it; 0: not told.
    client_ms: int


@dataclass(slots=True)
class Speech:
    """Chunks of one direction, in order."""

    direction: Direction
    # When its first chunk came, by the gateway's clock and by the client's.
    first_ms: float
    first_client_ms: int
    chunks: list[bytes] = field(default_factory=list)
    # Which chunks, as [first, end) each; more than one where the other side spoke between.
    ranges: list[tuple[int, int]] = field(default_factory=list)
    ms: float = 0.0
    size: int = 0

    def add(self, chunk: Chunk) -> None:
        """One more chunk."""
        self.chunks.append(chunk.data)
        self.ms += chunk.ms
        self.size += chunk.size
        if self.ranges and self.ranges[-1][1] == chunk.seq:
            self.ranges[-1] = (self.ranges[-1][0], chunk.seq + 1)
        else:
            self.ranges.append((chunk.seq, chunk.seq + 1))

    @classmethod
    def nothing(cls, direction: Direction, now: float, seq: int) -> Speech:
        """No chunk at all, before this one."""
        return cls(direction, now, 0, ranges=[(seq, seq)])

    @property
    def first_seq(self) -> int:
        """Its first chunk."""
        return self.ranges[0][0]


class Cut(NamedTuple):
    """Speech that is an utterance now."""

    speech: Speech
    reason: Reason
    # When its end was decided, and when it was cut: the hangover is between.
    ended_ms: float
    cut_ms: float
