"""Whether a chunk can be used, and what is said where it cannot. No I/O."""

from collections.abc import Sequence

from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.audio import (
    UnusableAudioError,
    duration_ms,
    size_in_job,
)
from lingua_scheduler.services.session_gateway.session.speech import Chunk, Direction
from lingua_scheduler.v1 import common_pb2, session_pb2


class RefusedChunkError(Exception):
    """A chunk cannot be used; `error` is what its client is told."""

    def __init__(self, error: common_pb2.Error) -> None:
        self.error = error


def checked_chunk(
    chunk: session_pb2.AudioChunk,
    audio_format: common_pb2.AudioFormat,
    directions: Sequence[Direction],
) -> Chunk:
    """A chunk of a session in this format, which is spoken in one of these directions.

    Raises:
        RefusedChunkError: it is too large, no audio of that format, or of no such direction.
    """
    if found := limits.problems(chunk, "audio."):
        raise RefusedChunkError(invalid(*found[0]))
    # Read once: each time it is a copy.
    data = chunk.data
    try:
        lasts = duration_ms(audio_format, data)
    except UnusableAudioError as error:
        raise RefusedChunkError(bad_audio("audio.data", str(error))) from None
    if len(directions) == 1 and not chunk.HasField("direction"):
        direction = directions[0]
    else:
        direction = _direction_of(chunk, directions)
    return Chunk(
        seq=chunk.seq,
        data=data,
        ms=lasts,
        size=size_in_job(audio_format, data),
        is_final=chunk.is_final,
        direction=direction,
        client_ms=chunk.client_ms,
    )


def _direction_of(chunk: session_pb2.AudioChunk, allowed: Sequence[Direction]) -> Direction:
    direction = Direction(chunk.direction.src.lower(), chunk.direction.tgt.lower())
    if direction in allowed:
        return direction
    may = " or ".join(f"{src}->{tgt}" for src, tgt in allowed)
    said = f"{chunk.direction.src[:40]!r}->{chunk.direction.tgt[:40]!r}"
    raise RefusedChunkError(invalid("audio.direction", f"{said} must be {may} in this session"))


def invalid(field: str, description: str) -> common_pb2.Error:
    """A field that is not as the contract says."""
    return _violation(common_pb2.ERROR_REASON_INVALID_MESSAGE, field, description)


def bad_audio(field: str, description: str) -> common_pb2.Error:
    """Audio that is not what its format says, or out of sequence."""
    return _violation(common_pb2.ERROR_REASON_BAD_AUDIO, field, description)


def _violation(
    reason: common_pb2.ErrorReason.ValueType, field: str, description: str
) -> common_pb2.Error:
    return common_pb2.Error(
        reason=reason,
        message=f"{field}: {description}",
        field_violations=[common_pb2.FieldViolation(field=field, description=description)],
    )
