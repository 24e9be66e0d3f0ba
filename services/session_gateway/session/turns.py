"""Turns whose audio a node holds for the rest of a sentence, with a copy here (decision 24).

A node that holds audio may be lost. So the gateway keeps the audio of every utterance that its node
holds, in whole or in part, until a later result of the same direction includes it. If the next job
cannot go to that node, the job brings the audio along.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lingua_scheduler.services.runtime.contract.audio import as_job_audio, is_job_audio, size_in_job
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_record_pb2

# The audio of a job, and the utterances that it can name: limits of the contract.
MAX_JOB_BYTES = 2 * 1024 * 1024
MAX_NAMED = 100
# Utterances that are remembered of one turn.
MAX_PIECES = 200


class HeldBudget:
    """Limits the bytes of held audio that all sessions of a gateway keep together."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self.used = 0
        """The number of bytes that are kept now."""

    def take(self, size: int) -> bool:
        """Reserves bytes. Returns False if there is not enough room."""
        if self.used + size > self._max_bytes:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Releases bytes that were reserved."""
        self.used -= size


class HeldAudio(Protocol):
    """The audio that nodes hold, of one lane or of several."""

    def __bool__(self) -> bool:
        """Whether a node holds anything."""

    @property
    def first_seqs(self) -> list[int]:
        """The first chunk of each piece that the client should keep for a later gateway."""

    def has(self, index: int) -> bool:
        """Whether a node holds audio of an utterance."""

    def awaits(self, index: int) -> bool:
        """Whether the chunks of an utterance are yet to be replayed."""

    def fill(self, utterance: Utterance) -> None:
        """Keeps the audio of an utterance whose chunks have been replayed."""

    def clear(self) -> None:
        """Drops everything: the session has left this gateway."""


@dataclass(slots=True, eq=False)
class _Piece:
    """The audio of one utterance that its node holds."""

    index: int
    first_seq: int
    # None if it is not kept, or is yet to be replayed.
    audio: bytes | None = None
    # Whether its chunks are yet to be replayed.
    is_awaited: bool = False
    # If over 0, the node holds only this many bytes at the end of all audio up to its own.
    tail: int = 0
    # Whether a later result includes it. It is kept because the tail of that one reaches into it.
    is_joined: bool = False

    @property
    def can_be_brought(self) -> bool:
        """Whether its audio is kept here, or will be."""
        return self.audio is not None or self.is_awaited


@dataclass(slots=True)
class _Settled:
    """The last result of a direction that a node did not hold as a whole."""

    index: int
    joined: frozenset[int]
    lost: list[int]


class HeldTurns:
    """The audio of one session that nodes hold.

    Held audio waits for the next job of its direction, which claims it. Later jobs do not need it.

    Args:
        audio_format: of the session.
        max_bytes: how much is kept of one turn; the oldest audio is dropped first.
        budget: of all sessions.
    """

    def __init__(
        self, *, audio_format: common_pb2.AudioFormat, max_bytes: int, budget: HeldBudget
    ) -> None:
        self._format = audio_format
        self._max_bytes = max_bytes
        self._budget = budget
        # In the order of their indexes: pieces that wait, and those that an utterance has claimed.
        self._waiting: dict[Direction, list[_Piece]] = {}
        self._claimed: dict[int, list[_Piece]] = {}
        self._settled: dict[Direction, _Settled] = {}
        # Where turns were broken off: what was said before does not wait.
        self._begins: dict[Direction, int] = {}

    def __bool__(self) -> bool:
        """Whether a node holds anything."""
        return bool(self._waiting or self._claimed)

    @property
    def directions(self) -> set[Direction]:
        """The directions in which audio waits for the next job."""
        return set(self._waiting)

    @property
    def first_seqs(self) -> list[int]:
        """The first chunk of each piece that the client should keep for a later gateway."""
        return [each.first_seq for each in self._pieces() if each.can_be_brought]

    def has(self, index: int) -> bool:
        """Whether a node holds audio of an utterance."""
        return any(each.index == index for each in self._pieces())

    def awaits(self, index: int) -> bool:
        """Whether the chunks of an utterance are yet to be replayed."""
        return any(each.index == index and each.is_awaited for each in self._pieces())

    # ---- jobs ----

    def prepare(self, utterance: Utterance, under_way: Iterable[Utterance]) -> None:
        """Names the held audio that an utterance's job has to join, or adds that audio to the job.

        Args:
            utterance: is about to be submitted.
            under_way: all open utterances. The utterance claims what was said after the last
                earlier one of its direction.
        """
        before = [
            each.index
            for each in under_way
            if each.index < utterance.index and each.direction == utterance.direction
        ]
        if utterance.index not in self._claimed and (
            earlier := self._take_earlier(utterance, after=max(before, default=-1))
        ):
            self._claimed[utterance.index] = earlier
        if utterance.brings_held:
            utterance.held = ()
            utterance.included, utterance.included_audio = self._bring(utterance)
        else:
            utterance.held = self._named(utterance)

    def _named(self, utterance: Utterance) -> tuple[int, ...]:
        """The utterances that its node has to join, if any of their audio is kept here."""
        pieces = self._claimed.get(utterance.index, ())
        if not any(each.can_be_brought for each in pieces):
            return ()
        return tuple([each.index for each in pieces if not each.is_joined][-MAX_NAMED:])

    def is_complete(self, utterance: Utterance) -> bool:
        """Whether no chunk of the audio that it claims has to be replayed first."""
        return not any(each.is_awaited for each in self._claimed.get(utterance.index, ()))

    def _bring(self, utterance: Utterance) -> tuple[tuple[int, ...], bytes]:
        """The utterances that its job brings along, and their audio."""
        room = MAX_JOB_BYTES - self._size(utterance)
        pieces = [each for each in self._claimed.get(utterance.index, ()) if each.audio is not None]
        while pieces:
            indexes = [each.index for each in pieces if not each.is_joined]
            audio = self._joined(pieces)
            if len(audio) <= room and len(indexes) <= MAX_NAMED:
                return (tuple(indexes), audio) if audio else ((), b"")
            del pieces[0]
        return (), b""

    def _joined(self, pieces: Sequence[_Piece]) -> bytes:
        audio = b""
        for piece in pieces:
            audio += piece.audio or b""
            if piece.tail:
                end = audio[-piece.tail :]
                # If a node cuts within a sample or packet, the rest cannot be used.
                audio = end if is_job_audio(self._format, end) else b""
        return audio

    # ---- results ----

    def on_result(self, utterance: Utterance, result: dispatcher_pb2.JobResult) -> list[int]:
        """Handles a result; returns the utterances that are lost by it. More may be added later."""
        if result.kind == dispatcher_pb2.JobResult.KIND_HELD and not utterance.is_flush:
            self._hold(utterance)
            utterance.is_held = self.has(utterance.index)
            return []
        if not (self._waiting or self._claimed or utterance.included or result.held_audio_bytes):
            # The usual case: nothing is held, so nothing can be lost, unless it arrives late.
            return self._note(utterance, frozenset(result.joined_utterances), [])
        tail = 0 if utterance.is_flush else result.held_audio_bytes
        utterance.is_held, utterance.held_audio_bytes = tail > 0, tail
        return self._settle(utterance, (*result.joined_utterances, *utterance.included), tail)

    def _note(self, utterance: Utterance, joined: frozenset[int], lost: list[int]) -> list[int]:
        """Remembers the last result of a direction; returns `lost`."""
        last = self._settled.get(utterance.direction)
        if last is None or last.index < utterance.index:
            self._settled[utterance.direction] = _Settled(utterance.index, joined, lost)
        return lost

    def on_missing(self, utterance: Utterance, *, is_last: bool) -> list[int]:
        """Handles an utterance without a result; returns the utterances that are lost by it.

        The audio that it had claimed waits for the next one, unless it would then be translated out
        of order (later jobs of its direction are submitted), or twice (the job may have a result).
        """
        pieces = self._claimed.pop(utterance.index, [])
        if pieces and is_last and not utterance.is_flush and not utterance.may_have_result:
            self._wait(utterance.direction, pieces)
            pieces = []
        utterance.is_missing = utterance.direction in self._waiting
        self._drop(pieces)
        return [each.index for each in pieces if not each.is_joined]

    def _hold(self, utterance: Utterance) -> None:
        """The node holds all audio of the utterance, and all that the utterance had claimed."""
        pieces = self._claimed.pop(utterance.index, [])
        settled = self._settled.get(utterance.direction)
        if settled is not None and utterance.index < settled.index:
            # A later result has arrived first, and includes what it joined.
            held = [*(each.index for each in pieces if not each.is_joined), utterance.index]
            settled.lost.extend(index for index in held if index not in settled.joined)
            self._drop(pieces)
            return
        self._wait(utterance.direction, [*pieces, self._piece(utterance)])

    def _settle(self, utterance: Utterance, joined: Iterable[int], tail: int = 0) -> list[int]:
        """Handles a result that the node does not hold as a whole.

        Args:
            utterance: whose result it is.
            joined: earlier utterances that the result includes.
            tail: how many bytes at the end of all joined audio the node still holds.

        Returns:
            Utterances that were held and are not in the result. More may be added later.
        """
        direction, has = utterance.direction, frozenset(joined)
        pieces = self._take_earlier(utterance) + self._claimed.pop(utterance.index, [])
        lost = [each.index for each in pieces if not each.is_joined and each.index not in has]
        self._note(utterance, has, lost)
        # How far the tail reaches back beyond the utterance's own audio.
        reaches = tail - self._size(utterance)
        needed: list[_Piece] = []
        for piece in reversed(pieces):
            if reaches > 0 and piece.index not in lost:
                piece.is_joined = True
                needed.insert(0, piece)
                reaches -= len(piece.audio or b"")
            else:
                self._drop([piece])
        if tail:
            self._wait(direction, [*needed, self._piece(utterance, tail)])
        return lost

    def break_off(self, direction: Direction, index: int) -> None:
        """Drops what waits for the next job, also if it comes to wait later.

        Args:
            direction: of the turn.
            index: of an utterance that does not continue it. What was said before does not wait.
        """
        self._begins[direction] = index
        self._drop(self._waiting.pop(direction, []))

    def clear(self) -> None:
        """Drops everything: the session has left this gateway."""
        self._drop(list(self._pieces()))
        self._waiting.clear()
        self._claimed.clear()

    # ---- resumed sessions ----

    def recall(self, cut: session_record_pb2.Cut, *, is_replayed: bool) -> None:
        """Restores what nodes hold from a cut whose result the client has seen, in order."""
        direction = Direction(cut.direction.src, cut.direction.tgt)
        if cut.is_missing:
            return
        before = self._waiting.pop(direction, [])
        if not cut.is_held:
            return
        if cut.held_audio_bytes:
            for piece in before:
                piece.is_joined = True
        index, first_seq = cut.utterance_index, cut.chunks[0].first
        piece = _Piece(index, first_seq, is_awaited=is_replayed, tail=cut.held_audio_bytes)
        self._waiting[direction] = [*before, piece]

    def fill(self, utterance: Utterance) -> None:
        """Keeps the audio of an utterance whose chunks have been replayed."""
        for pieces in (*self._waiting.values(), *self._claimed.values()):
            for piece in pieces:
                if piece.index == utterance.index and piece.is_awaited:
                    piece.is_awaited = False
                    piece.audio = self._kept(utterance)
                    self._trim(pieces)

    def _take_earlier(self, utterance: Utterance, after: int = -1) -> list[_Piece]:
        """Removes and returns the pieces of its direction that were said before it."""
        waiting = self._waiting.pop(utterance.direction, [])
        taken = [each for each in waiting if after < each.index < utterance.index]
        if rest := [each for each in waiting if each not in taken]:
            self._waiting[utterance.direction] = rest
        return taken

    # ---- bounds ----

    def _pieces(self) -> Iterator[_Piece]:
        for pieces in (*self._waiting.values(), *self._claimed.values()):
            yield from pieces

    def _size(self, utterance: Utterance) -> int:
        return sum(size_in_job(self._format, each) for each in utterance.chunks)

    def _piece(self, utterance: Utterance, tail: int = 0) -> _Piece:
        return _Piece(utterance.index, utterance.ranges[0][0], self._kept(utterance), tail=tail)

    def _kept(self, utterance: Utterance) -> bytes | None:
        audio = as_job_audio(self._format, utterance.chunks)
        return audio if audio and self._budget.take(len(audio)) else None

    def _wait(self, direction: Direction, pieces: list[_Piece]) -> None:
        if pieces and pieces[-1].index < self._begins.get(direction, 0):
            self._drop(pieces)
            return
        waiting = [*self._waiting.get(direction, ()), *pieces]
        waiting.sort(key=lambda each: each.index)
        self._trim(waiting)
        self._waiting[direction] = waiting

    def _trim(self, pieces: list[_Piece]) -> None:
        self._drop(pieces[:-MAX_PIECES])
        del pieces[:-MAX_PIECES]
        size = sum(len(each.audio or b"") for each in pieces)
        for piece in pieces:
            if size <= self._max_bytes:
                break
            size -= len(piece.audio or b"")
            self._drop([piece])

    def _drop(self, pieces: Iterable[_Piece]) -> None:
        for piece in pieces:
            if piece.audio is not None:
                self._budget.give_back(len(piece.audio))
            piece.audio, piece.is_awaited = None, False
