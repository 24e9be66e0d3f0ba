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
    # How much of its end is without voice, at most all of it; None: nobody listens for voice.
    quiet_ms: float | None = None


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
    # Where voice is listened for: whether there was none so far, how long it is until the first
    # voice (or the end, if there is none), and how long the silence at its end is.
    is_silent: bool = False
    lead_ms: float = 0.0
    quiet_ms: float = 0.0

    def add(self, chunk: Chunk) -> None:
        """One more chunk."""
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
