"""Audio formats."""

from dataclasses import dataclass
from enum import IntEnum

from lingua_scheduler.v1 import common_pb2

_PCM_SAMPLE_BYTES = 2


class Encoding(IntEnum):
    """How samples are written."""

    # Signed 16-bit little-endian samples, interleaved.
    PCM_S16LE = common_pb2.AUDIO_ENCODING_PCM_S16LE
    # Opus packets as in RFC 6716.
    OPUS = common_pb2.AUDIO_ENCODING_OPUS


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """What a run of audio bytes is.

    Raises:
        ValueError: names the field and what is allowed.
    """

    encoding: Encoding = Encoding.PCM_S16LE
    sample_rate_hz: int = 16_000
    channels: int = 1

    def __post_init__(self) -> None:
        if not 8000 <= self.sample_rate_hz <= 48_000:
            raise ValueError(f"sample_rate_hz: {self.sample_rate_hz} must be from 8000 to 48000")
        if self.channels not in (1, 2):
            raise ValueError(f"channels: {self.channels} must be 1 or 2")

    def duration_ms(self, size: int) -> float:
        """How long `size` bytes of PCM last.

        Raises:
            ValueError: the encoding is not PCM, so the size does not tell.
        """
        if self.encoding is not Encoding.PCM_S16LE:
            raise ValueError("only the duration of PCM follows from its size")
        return size * 1000 / (self.sample_rate_hz * self.channels * _PCM_SAMPLE_BYTES)
