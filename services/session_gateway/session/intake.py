"""Intake of audio: chunks are checked, put in sequence, and acknowledged when they are safe."""

from collections.abc import Callable, Collection, MutableMapping, Sequence

from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.audio import (
    UnusableAudioError,
    measure_of,
)
from lingua_scheduler.services.session_gateway.session.effects import EffectBuffer
from lingua_scheduler.services.session_gateway.session.resume import Replay
from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE, Chunk, Direction
from lingua_scheduler.services.session_gateway.session.turns import HeldAudio
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, session_pb2

_FIELDS = session_pb2.AudioChunk.DESCRIPTOR.fields_by_name
_MAX_BYTES = limits.limit_of(_FIELDS["data"]).max_bytes
_MAX_CLIENT_MS = int(limits.limit_of(_FIELDS["client_ms"]).max)


class Intake:
    """The chunks of a session on their way in.

    Args:
        audio_format: of the session.
        directions: of the session.
        next_seq: the first chunk that is expected.
        replay: takes chunks that were cut before the session was resumed.
        turns: whose held audio the client should keep.
        listen: returns how much of the end of a chunk has no voice; None without voice detection.
        counts: counters of the gateway.
        out: where effects go.
    """

    def __init__(
        self,
        *,
        audio_format: common_pb2.AudioFormat,
        directions: Sequence[Direction],
        next_seq: int,
        replay: Replay,
        turns: HeldAudio,
        listen: Callable[[Direction, bytes], float] | None,
        counts: MutableMapping[str, int],
        out: EffectBuffer,
    ) -> None:
        self._measure = measure_of(audio_format)
        self._directions = directions
        self._replay = replay
        self._turns = turns
        self._listen = listen
        self._counts = counts
        self._out = out
        self.expected_seq = next_seq
        """The chunk that has to arrive next."""
        self.acked_seq = next_seq
        """All chunks below are acknowledged."""
        self.kept_seq = next_seq
        """The client may have dropped all chunks below."""
        self.last_chunk_ms = 0.0
        """When the last chunk arrived; 0 if none has."""
        # The gap that the client was told of: chunks behind it are dropped silently.
        self._gap_told: int | None = None

    def take(self, now: float, chunk: session_pb2.AudioChunk) -> Chunk | None:
        """Takes a chunk. Returns None if it is repeated, refused or replayed: not new speech."""
        seq = chunk.seq
        if seq != self.expected_seq:
            if seq < self.expected_seq:
                self._counts["repeated_chunk"] += 1
            else:
                self._refuse_gap(chunk)
            return None
        try:
            checked = self._checked(chunk)
        except _RefusedChunkError as refused:
            self.refuse(chunk, refused.error)
            return None
        self.expected_seq += 1
        self._gap_told = None
        self.last_chunk_ms = now
        self._counts["chunk"] += 1
        if seq < self._replay.end_seq and self._replay.take(checked):
            return None
        if self._listen is not None and checked.data:
            return checked._replace(quiet_ms=self._listen(checked.direction, checked.data))
        return checked

    def measured(self, seq: int, data: bytes, client_ms: int) -> tuple[float, int] | None:
        """Duration and size of a chunk that `take` would return as it is; None if it would not."""
        if (
            seq != self.expected_seq
            or not 0 < len(data) <= _MAX_BYTES
            or client_ms > _MAX_CLIENT_MS
            or self._listen is not None
            or seq < self._replay.end_seq
        ):
            return None
        try:
            return self._measure(data)
        except UnusableAudioError:
            return None

    def extended(self, now: float) -> None:
        """The chunk that was measured last is taken."""
        self.expected_seq += 1
        self.last_chunk_ms = now
        self._counts["chunk"] += 1

    def _checked(self, chunk: session_pb2.AudioChunk) -> Chunk:
        """Checks a chunk against the format and the directions of its session.

        Raises:
            _RefusedChunkError: it is too large, not audio of this format, or of another direction.
        """
        # Each access to this field makes a copy.
        data, client_ms = chunk.data, chunk.client_ms
        directions = self._directions
        has_direction = chunk.HasField("direction")
        # Nearly all chunks are within these limits and have no other field that could exceed one.
        is_usual = not has_direction and len(data) <= _MAX_BYTES and client_ms <= _MAX_CLIENT_MS
        if not is_usual and (found := limits.violations(chunk, "audio.")):
            raise _RefusedChunkError(invalid(*found[0]))
        try:
            lasts, size = self._measure(data)
        except UnusableAudioError as error:
            raise _RefusedChunkError(bad_audio("audio.data", str(error))) from None
        if has_direction or len(directions) > 1:
            direction = _direction_of(chunk, directions)
        else:
            direction = directions[0]
        return Chunk(chunk.seq, data, lasts, size, chunk.is_final, direction, client_ms)

    def refuse(self, chunk: session_pb2.AudioChunk, why: common_pb2.Error) -> None:
        """Tells the client that a chunk cannot be used."""
        self._counts["refused_chunk"] += 1
        why.metadata["seq"] = str(chunk.seq)
        why.metadata["expected_seq"] = str(self.expected_seq)
        self._out.error(why)

    def _refuse_gap(self, chunk: session_pb2.AudioChunk) -> None:
        self._counts["gap"] += 1
        if self._gap_told != self.expected_seq:
            self._gap_told = self.expected_seq
            told = f"got {chunk.seq}, expected {self.expected_seq}"
            self.refuse(chunk, bad_audio("audio.seq", told))

    def acknowledge(self, open_utterances: Collection[Utterance], gathered: int | None) -> None:
        """Acknowledges all chunks that have become safe.

        Args:
            open_utterances: those that are not over.
            gathered: the first chunk that belongs to no utterance yet.
        """
        # A chunk that has not arrived is not safe, even if later ones are (after a resume).
        safe = self.expected_seq
        for utterance in open_utterances:
            first_seq = utterance.ranges[0][0]
            if first_seq < safe and not utterance.is_safe:
                safe = first_seq
                if safe <= self.acked_seq:
                    return
        if gathered is not None and gathered < safe:
            safe = gathered
        if safe > self.acked_seq:
            self.acked_seq = safe
            ack = self._out.event().audio_ack
            ack.next_seq = safe
            self.kept_seq = self._keep_from(safe, open_utterances)
            if self.kept_seq < safe:
                ack.keep_seq = self.kept_seq

    def _keep_from(self, safe: int, open_utterances: Collection[Utterance]) -> int:
        """The first chunk that a later gateway may need because a node holds it, or may hold it.

        It never decreases: the client cannot send again what it has dropped.
        """
        first_seqs = self._turns.first_seqs if self._turns else []
        for utterance in open_utterances:
            if utterance.reason in MAY_CONTINUE:
                first_seqs.append(utterance.ranges[0][0])
        keep = safe
        for seq in first_seqs:
            if self.kept_seq <= seq < keep:
                keep = seq
        return keep


class _RefusedChunkError(Exception):
    """A chunk cannot be used; `error` is for its client."""

    def __init__(self, error: common_pb2.Error) -> None:
        self.error = error


def _direction_of(chunk: session_pb2.AudioChunk, allowed: Sequence[Direction]) -> Direction:
    direction = Direction(chunk.direction.src.lower(), chunk.direction.tgt.lower())
    if direction in allowed:
        return direction
    may = " or ".join(f"{src}->{tgt}" for src, tgt in allowed)
    said = f"{chunk.direction.src[:40]!r}->{chunk.direction.tgt[:40]!r}"
    raise _RefusedChunkError(invalid("audio.direction", f"{said} must be {may} in this session"))


def invalid(field: str, description: str) -> common_pb2.Error:
    """The error for a field that breaks the contract."""
    return _violation(common_pb2.ERROR_REASON_INVALID_MESSAGE, field, description)


def bad_audio(field: str, description: str) -> common_pb2.Error:
    """The error for audio that does not match its format, or is out of sequence."""
    return _violation(common_pb2.ERROR_REASON_BAD_AUDIO, field, description)


def _violation(
    reason: common_pb2.ErrorReason.ValueType, field: str, description: str
) -> common_pb2.Error:
    return common_pb2.Error(
        reason=reason,
        message=f"{field}: {description}",
        field_violations=[common_pb2.FieldViolation(field=field, description=description)],
    )
