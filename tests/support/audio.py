"""Audio of the tests: its format, and chunks that nodes can tell apart."""

from lingua_scheduler.v1 import common_pb2

FORMAT = common_pb2.AudioFormat(
    encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16000, channels=1
)
# 100 ms of FORMAT.
CHUNK_BYTES = 3200


def speech(mark: int, ms: int = 100) -> bytes:
    """Audio of FORMAT that a node can tell from that of any other mark."""
    return bytes([mark % 256, mark // 256]) * (ms * CHUNK_BYTES // 200)
