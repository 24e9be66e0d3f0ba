"""Audio of chunks and jobs: validity, duration, and the form in which jobs carry it."""

from collections.abc import Callable, Sequence

from lingua_scheduler.v1 import common_pb2

MAX_CHUNK_BYTES = 64 * 1024
# Of an AudioChunks message.
MAX_CHUNKS = 32

_PCM = common_pb2.AUDIO_ENCODING_PCM_S16LE
_OPUS = common_pb2.AUDIO_ENCODING_OPUS
_SAMPLE_BYTES = 2
# Length prefix of each Opus packet of a job. Packets that are too long for it are refused.
_LENGTH_BYTES = 2
_MAX_PACKET_BYTES = 2 ** (8 * _LENGTH_BYTES) - 1

# RFC 6716, section 3.1: ms of a frame by the configuration number, which is the top five bits.
_SILK_MS = (10.0, 20.0, 40.0, 60.0)
_HYBRID_MS = (10.0, 20.0)
_CELT_MS = (2.5, 5.0, 10.0, 20.0)
# Section 3.4: limits of every packet.
_MAX_FRAME_BYTES = 1275
_MAX_PACKET_MS = 120.0


class UnusableAudioError(ValueError):
    """The bytes are not valid in their format; the message says why."""


def duration_ms(audio_format: common_pb2.AudioFormat, data: bytes) -> float:
    """Duration of a chunk; 0 ms if it is empty.

    Raises:
        UnusableAudioError: it is not a whole number of samples, or not an Opus packet.
    """
    if not data:
        return 0.0
    if audio_format.encoding == _OPUS:
        return _opus_ms(data)
    frame = _SAMPLE_BYTES * audio_format.channels
    if len(data) % frame:
        raise UnusableAudioError(
            f"{len(data)} bytes are not whole samples: {audio_format.channels} channel(s) of 16 "
            f"bits make {frame} bytes per sample"
        )
    return len(data) * 1000 / (audio_format.sample_rate_hz * frame)


def measure_of(audio_format: common_pb2.AudioFormat) -> Callable[[bytes], tuple[float, int]]:
    """Returns a function that measures chunks of this format: `duration_ms` and `size_in_job`.

    It reads the format once, and not for every chunk.
    """
    if audio_format.encoding == _OPUS:
        return lambda data: (duration_ms(audio_format, data), size_in_job(audio_format, data))
    frame = _SAMPLE_BYTES * audio_format.channels
    bytes_per_s = audio_format.sample_rate_hz * frame

    def measure(data: bytes) -> tuple[float, int]:
        size = len(data)
        if size % frame:
            return duration_ms(audio_format, data), size  # raises
        return size * 1000 / bytes_per_s, size

    return measure


def size_in_job(audio_format: common_pb2.AudioFormat, data: bytes) -> int:
    """Bytes that a chunk takes in a job."""
    framing = _LENGTH_BYTES if audio_format.encoding == _OPUS else 0
    return len(data) + framing if data else 0


def as_job_audio(audio_format: common_pb2.AudioFormat, chunks: Sequence[bytes]) -> bytes:
    """Makes the audio of a job: concatenated samples, or packets with length prefixes."""
    if audio_format.encoding == _OPUS:
        framed = (len(chunk).to_bytes(_LENGTH_BYTES, "big") + chunk for chunk in chunks)
        return b"".join(framed)
    return b"".join(chunks)


def is_job_audio(audio_format: common_pb2.AudioFormat, audio: bytes) -> bool:
    """Whether the bytes are valid audio of a job: whole samples, or whole packets."""
    try:
        job_audio_ms(audio_format, audio)
    except UnusableAudioError:
        return False
    return True


def job_audio_ms(audio_format: common_pb2.AudioFormat, audio: bytes) -> float:
    """Duration of the audio of a job.

    Raises:
        UnusableAudioError: it is not in the form that `as_job_audio` makes.
    """
    if audio_format.encoding != _OPUS:
        return duration_ms(audio_format, audio)
    lasts, at = 0.0, 0
    while at < len(audio):
        size = int.from_bytes(audio[at : at + _LENGTH_BYTES], "big")
        at += _LENGTH_BYTES
        packet = audio[at : at + size]
        if not size or len(packet) < size:
            raise UnusableAudioError(
                "it is not a sequence of Opus packets, each after its length in two bytes"
            )
        lasts += _opus_ms(packet)
        at += size
    return lasts


def _opus_ms(packet: bytes) -> float:
    if len(packet) > _MAX_PACKET_BYTES:
        raise UnusableAudioError(
            f"an Opus packet has at most {_MAX_PACKET_BYTES} bytes here, this one {len(packet)}"
        )
    config, code = packet[0] >> 3, packet[0] & 3
    if config < 12:
        frame_ms = _SILK_MS[config & 3]
    elif config < 16:
        frame_ms = _HYBRID_MS[config & 1]
    else:
        frame_ms = _CELT_MS[config & 3]
    frames = len(_opus_frames(packet, code))
    if frames * frame_ms > _MAX_PACKET_MS:
        raise UnusableAudioError(
            f"an Opus packet lasts at most {_MAX_PACKET_MS:g} ms, this one {frames * frame_ms:g}"
        )
    return frames * frame_ms


def _opus_frames(packet: bytes, code: int) -> list[int]:
    """The sizes of a packet's frames, by the rules of RFC 6716, section 3.4."""
    body = len(packet) - 1
    if code == 0:
        sizes = [body]
    elif code == 1:
        if body % 2:
            raise _broken("two frames of one size cannot have an odd number of bytes")
        sizes = [body // 2] * 2
    elif code == 2:
        first, used = _frame_length(packet, 1)
        sizes = [first, body - used - first]
    else:
        sizes = _many_frames(packet)
    if min(sizes) < 0 or max(sizes) > _MAX_FRAME_BYTES:
        raise _broken("the sizes of its frames do not fit")
    return sizes


def _many_frames(packet: bytes) -> list[int]:
    if len(packet) < 2:
        raise _broken("the number of its frames is missing")
    varies, padded, count = packet[1] & 0x80, packet[1] & 0x40, packet[1] & 0x3F
    if count == 0:
        raise _broken("it says that it has no frame")
    at, padding = 2, 0
    while padded:
        if at >= len(packet):
            raise _broken("the length of its padding is missing")
        said = packet[at]
        at += 1
        # 255 means 254 bytes, and that another length follows.
        padding += 254 if said == 255 else said
        padded = said == 255
    sizes: list[int] = []
    if varies:
        for _ in range(count - 1):
            size, used = _frame_length(packet, at)
            at += used
            sizes.append(size)
        sizes.append(len(packet) - at - padding - sum(sizes))
        return sizes
    left = len(packet) - at - padding
    if left < 0 or left % count:
        raise _broken("frames of one size do not fill it")
    return [left // count] * count


def _frame_length(packet: bytes, at: int) -> tuple[int, int]:
    """The size of a frame that is encoded at this position, and the bytes of its encoding."""
    if at >= len(packet):
        raise _broken("the size of a frame is missing")
    if packet[at] < 252:
        return packet[at], 1
    if at + 1 >= len(packet):
        raise _broken("the size of a frame is missing")
    return packet[at + 1] * 4 + packet[at], 2


def _broken(why: str) -> UnusableAudioError:
    return UnusableAudioError(f"this is not an Opus packet: {why}")
