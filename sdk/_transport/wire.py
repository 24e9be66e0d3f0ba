"""Converts messages of the contract that nodes and sessions share. No I/O, no clock.

A newer server may send enum values that this version does not know. Each function says what it
returns for them.
"""

from collections.abc import Iterable

from lingua_scheduler.sdk.audio import AudioFormat, Encoding
from lingua_scheduler.sdk.types import Reason, Stage
from lingua_scheduler.v1 import common_pb2

# The largest message that either side may send, unless the server asks for less.
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

_REASONS = {int(reason): reason for reason in Reason}
_STAGES = {int(stage): stage for stage in Stage}


def audio_format_from(message: common_pb2.AudioFormat) -> AudioFormat:
    """Returns the format. Raises ValueError if the encoding is unknown or a field is invalid."""
    try:
        encoding = Encoding(message.encoding)
    except ValueError:
        raise ValueError(f"encoding: this SDK does not know encoding {message.encoding}") from None
    return AudioFormat(encoding, message.sample_rate_hz, message.channels)


def audio_format_message(audio_format: AudioFormat) -> common_pb2.AudioFormat:
    """Returns the format as a message."""
    return common_pb2.AudioFormat(
        encoding=common_pb2.AudioEncoding.ValueType(audio_format.encoding),
        sample_rate_hz=audio_format.sample_rate_hz,
        channels=audio_format.channels,
    )


def reason_from(number: int) -> Reason:
    """Returns the reason for a cut; UNSPECIFIED if it is unknown."""
    return _REASONS.get(number, Reason.UNSPECIFIED)


def stages_from(numbers: Iterable[int]) -> tuple[Stage, ...]:
    """Returns the stages in order, without unknown ones."""
    return tuple(_STAGES[number] for number in numbers if number in _STAGES)


def stage_from(number: int) -> Stage | None:
    """Returns the stage; None if it is unknown."""
    return _STAGES.get(number)
