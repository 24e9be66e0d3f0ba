"""Measures speech: how long it is, whether it has ended, and whether it is only a tone. Pure."""

import sys
from array import array
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

from lingua_scheduler.sdk import AudioFormat, Encoding, Job, JobError, Reason

# Peaks above this, of 32767, are speech.
LOUD = 500
# The end of a sentence is this much silence.
SILENT_END_S = 0.1
# Windows in which the peak is measured, per second.
_WINDOWS_PER_S = 100
# In a tone, this share of the periods
_MOST = 0.9
# differs from the median by at most this share. In a voice, far fewer do.
_EVEN = 0.1


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
    # Silence has no pitch, so it does not count.
    where = set(loud)
    rises = [
        at for at, (a, b) in enumerate(pairwise(samples)) if a < 0 <= b and at // size in where
    ]
    return Heard(
        spoken_s=(loud[-1] + 1 - loud[0]) / _WINDOWS_PER_S,
        loud_s=len(loud) / _WINDOWS_PER_S,
        tone_hz=_pitch([b - a for a, b in pairwise(rises)], rate),
    )


def _pitch(periods: list[int], rate: int) -> float:
    """The pitch of a tone with these periods, in samples; 0 if they are not those of a tone."""
    if not periods:
        return 0.0
    middle = median(periods)
    even = [each for each in periods if abs(each - middle) <= max(1.0, middle * _EVEN)]
    return rate / fmean(even) if len(even) >= len(periods) * _MOST else 0.0


def is_unfinished(job: Job, samples: "array[int]") -> bool:
    """Whether more of the same sentence must follow."""
    if job.reason in (Reason.MAX_DURATION, Reason.MAX_LENGTH):
        return True
    tail = samples[-int(job.audio_format.sample_rate_hz * SILENT_END_S) :]
    may_go_on = job.reason in (Reason.TIMEOUT, Reason.INTERRUPTED)
    return may_go_on and any(abs(each) > LOUD for each in tail)
