"""Audio formats, and the layout of Opus packets."""

from dataclasses import dataclass
from enum import IntEnum

from lingua_scheduler.v1 import common_pb2

PCM_SAMPLE_BYTES = 2

# RFC 6716: the longest packet and the largest frame.
_OPUS_LONGEST_MS = 120.0
_OPUS_FRAME_BYTES = 1275
_LENGTH_BYTES = 2


class Encoding(IntEnum):
    """How samples are encoded."""

    # Signed 16-bit little-endian samples, interleaved.
    PCM_S16LE = common_pb2.AUDIO_ENCODING_PCM_S16LE
    # Opus packets as in RFC 6716.
    OPUS = common_pb2.AUDIO_ENCODING_OPUS


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The format of audio bytes.

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
        """Returns how long `size` bytes of PCM last.

        Raises:
            ValueError: the encoding is not PCM, so the duration does not follow from the size.
        """
        if self.encoding is not Encoding.PCM_S16LE:
            raise ValueError("encoding: the size gives the duration of PCM only")
        return size * 1000 / (self.sample_rate_hz * self.channels * PCM_SAMPLE_BYTES)


def opus_packets(audio: bytes) -> list[bytes]:
    """Returns the packets of a job's Opus audio, in which two bytes of length precede each packet.

    Raises:
        ValueError: a length points beyond the end.
    """
    packets, at = [], 0
    while at < len(audio):
        start = at + _LENGTH_BYTES
        end = start + int.from_bytes(audio[at:start], "big")
        if start > len(audio) or end > len(audio):
            raise ValueError(f"audio: the Opus packet at byte {at} extends beyond the end")
        packets.append(audio[start:end])
        at = end
    return packets


def opus_packet_ms(packet: bytes) -> float:
    """Returns how long one Opus packet lasts, by its header (RFC 6716, section 3).

    Raises:
        ValueError: it is not an Opus packet.
    """
    if not packet:
        raise ValueError("an Opus packet has at least one byte")
    frames = _opus_frames(packet)
    duration = frames * _opus_frame_ms(packet[0] >> 3)
    if duration > _OPUS_LONGEST_MS:
        raise ValueError(f"an Opus packet lasts at most {_OPUS_LONGEST_MS:g} ms, not {duration:g}")
    return duration


def _opus_frame_ms(config: int) -> float:
    if config < 12:
        return (10.0, 20.0, 40.0, 60.0)[config % 4]
    if config < 16:
        return (10.0, 20.0)[config % 2]
    return (2.5, 5.0, 10.0, 20.0)[config % 4]


def _opus_frames(packet: bytes) -> int:
    """Returns the number of frames. Raises ValueError if they do not fit the packet."""
    code, rest = packet[0] & 3, len(packet) - 1
    if code == 0:
        frames, fits = 1, rest <= _OPUS_FRAME_BYTES
    elif code == 1:
        frames, fits = 2, rest % 2 == 0 and rest // 2 <= _OPUS_FRAME_BYTES
    elif code == 2:
        frames, (used, first) = 2, _opus_length(packet, 1)
        fits = 0 <= rest - used - first <= _OPUS_FRAME_BYTES
    else:
        frames, fits = _opus_many(packet)
    if not fits:
        raise ValueError(f"an Opus packet of {len(packet)} bytes cannot hold {frames} such frames")
    return frames


def _opus_many(packet: bytes) -> tuple[int, bool]:
    """For a packet that gives its number of frames: returns it, and whether the frames fit."""
    if len(packet) < 2:
        raise ValueError("an Opus packet of many frames must have their number in its second byte")
    head = packet[1]
    frames, at, padding = head & 0x3F, 2, 0
    if frames == 0:
        raise ValueError("an Opus packet has at least one frame")
    if head & 0x40:
        while True:
            if at >= len(packet):
                return frames, False
            more, at = packet[at], at + 1
            padding += min(more, 254)
            if more != 255:
                break
    if head & 0x80:
        lengths = 0
        for _ in range(frames - 1):
            used, length = _opus_length(packet, at)
            at, lengths = at + used, lengths + length
        return frames, 0 <= len(packet) - at - padding - lengths <= _OPUS_FRAME_BYTES
    room = len(packet) - at - padding
    return frames, room >= 0 and room % frames == 0 and room // frames <= _OPUS_FRAME_BYTES


def _opus_length(packet: bytes, at: int) -> tuple[int, int]:
    """Returns a frame's length: the number of bytes that encode it, and the length itself."""
    field = packet[at : at + 2]
    if not field or (field[0] >= 252 and len(field) < 2):
        raise ValueError("an Opus packet ends before the length of its frame")
    return (1, field[0]) if field[0] < 252 else (2, field[0] + 4 * field[1])
