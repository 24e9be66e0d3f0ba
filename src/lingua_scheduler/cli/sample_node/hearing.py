"""Measures speech: how long it is, whether it has ended, and whether it is only a tone. Pure."""

import sys
from array import array
from dataclasses import dataclass
from itertools import pairwise

from lingua_scheduler.sdk import AudioFormat, Encoding, Job, JobError, Reason

# Peaks above this, of 32767, are speech.
LOUD = 500
# The end of a sentence is this much silence.
SILENT_END_S = 0.1
# Windows in which the peak is measured, per second. Each has two periods of the lowest phrase.
_WINDOWS_PER_S = 100
# A tone reaches this share of its peak
_EVEN = 0.8
# in this share of the windows. Speech does in few.
_MOST = 0.9


def samples_of(audio: bytes, audio_format: AudioFormat) -> "array[int]":
    """The 16-bit samples of the first channel."""
    if audio_format.encoding is not Encoding.PCM_S16LE:
        raise JobError("UNKNOWN_AUDIO", "this node hears PCM only", worth_retry=False)
    samples = array("h", audio[: len(audio) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    return samples[:: audio_format.channels]


@dataclass(frozen=True)
class Heard:
    """Measurements of audio.

    Attributes:
        spoken_s: from the first sound to the last; 0 if there is none.
        loud_s: as that, without the pauses.
        tone_hz: the pitch if it is a tone, otherwise 0.
    """

    spoken_s: float
    loud_s: float
    tone_hz: float


SILENCE = Heard(0.0, 0.0, 0.0)


def measure(samples: "array[int]", rate: int) -> Heard:
    """Measure the samples of one channel."""
    size = rate // _WINDOWS_PER_S
    peaks = [
        max(map(abs, samples[at : at + size]), default=0) for at in range(0, len(samples), size)
    ]
    loud = [at for at, peak in enumerate(peaks) if peak > LOUD]
    if not loud:
        return SILENCE
    loud_s = len(loud) / _WINDOWS_PER_S
    even = sum(peaks[at] > max(peaks) * _EVEN for at in loud)
    tone_hz = 0.0
    if even >= len(loud) * _MOST:
        # Silence has no pitch, so it does not count.
        tone_hz = sum(a < 0 <= b for a, b in pairwise(samples)) / loud_s
    return Heard((loud[-1] + 1 - loud[0]) / _WINDOWS_PER_S, loud_s, tone_hz)


def is_unfinished(job: Job, samples: "array[int]") -> bool:
    """Whether more of the same sentence must follow."""
    if job.reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH):
        return True
    tail = samples[-int(job.audio_format.sample_rate_hz * SILENT_END_S) :]
    may_go_on = job.reason in (Reason.TIMEOUT, Reason.INTERRUPTED)
    return may_go_on and any(abs(each) > LOUD for each in tail)
