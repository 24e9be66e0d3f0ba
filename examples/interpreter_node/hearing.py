"""Converts audio of any format to mono samples at 16 kHz."""

import math

import numpy as np

from interpreter_node.engines import RATE, MissingPartError, Samples, installed
from lingua_scheduler.sdk import AudioFormat, Encoding, JobError, opus_packets

_FULL = 32768.0
# Input samples on each side of an output sample; more is sharper and slower.
_REACH = 16
_OPUS_RATE = 48_000


def samples_of(audio: bytes, audio_format: AudioFormat) -> Samples:
    """Convert a job's audio. Raises JobError if that is impossible."""
    if not audio:
        # A flush without held audio.
        return np.zeros(0, np.float32)
    if audio_format.encoding is Encoding.OPUS:
        return _opus(audio, audio_format.channels)
    if audio_format.encoding is not Encoding.PCM_S16LE:
        raise JobError("UNKNOWN_AUDIO", f"{audio_format.encoding!r}", worth_retry=False)
    frame = 2 * audio_format.channels
    whole = np.frombuffer(audio[: len(audio) // frame * frame], "<i2").astype(np.float32) / _FULL
    mono = whole.reshape(-1, audio_format.channels).mean(axis=1)
    return resampled(mono, audio_format.sample_rate_hz)


def _opus(audio: bytes, channels: int) -> Samples:
    try:
        av = installed("av", "av", "decodes Opus")
    except MissingPartError as error:
        # Another node may be able to.
        raise JobError("UNKNOWN_AUDIO", str(error)) from error
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate = _OPUS_RATE
    decoder.layout = "stereo" if channels == 2 else "mono"
    converter = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    heard = bytearray()
    try:
        packets = [av.Packet(packet) for packet in opus_packets(audio)]
        frames = [frame for packet in packets for frame in decoder.decode(packet)]
        for frame in (*frames, None):
            for converted in converter.resample(frame):
                heard += converted.to_ndarray().tobytes()
    except (ValueError, av.error.FFmpegError) as error:
        raise JobError("BROKEN_AUDIO", str(error), worth_retry=False) from error
    return np.frombuffer(bytes(heard), "<i2").astype(np.float32) / _FULL


def resampled(samples: Samples, rate: int) -> Samples:
    """Resample to 16 kHz by a windowed sinc, without aliasing."""
    if rate == RATE or not len(samples):
        return samples.astype(np.float32)
    common = math.gcd(rate, RATE)
    up, down = RATE // common, rate // common
    # For the lower of both rates, in input samples.
    cutoff = min(1.0, RATE / rate)
    reach = math.ceil(_REACH / cutoff)
    padded = np.pad(samples, (reach, reach + 1))
    count = len(samples) * up // down
    heard = np.empty(count, np.float32)
    offsets = np.arange(-reach, reach + 1)
    # Output samples with the same offset to input samples share their weights.
    for phase in range(up):
        exact = phase * down / up
        whole = int(exact)
        distance = offsets - (exact - whole)
        window = np.cos(np.pi * distance / (2 * (reach + 1))) ** 2
        weights = (cutoff * np.sinc(cutoff * distance) * window).astype(np.float32)
        filtered = np.convolve(padded, weights[::-1], mode="valid")
        places = np.arange(phase, count, up)
        heard[places] = filtered[(places // up) * down + whole]
    return heard
