"""What the microphone of a test hears."""

import io
import wave
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATE = 48_000
"""Of the files. The browser records at a rate of its own choice."""

Samples = NDArray[np.float64]


@dataclass(frozen=True)
class Sound:
    """A sound that a microphone hears over and over.

    Attributes:
        make: returns its samples at RATE, from -1 to 1.
    """

    name: str
    make: Callable[[], Samples]

    def wav(self) -> bytes:
        """A WAV file of 16-bit PCM with one channel."""
        file = io.BytesIO()
        with wave.open(file, "wb") as written:
            written.setnchannels(1)
            written.setsampwidth(2)
            written.setframerate(RATE)
            written.writeframes((self.make() * 32_000).astype("<i2").tobytes())
        return file.getvalue()


def tone(hertz: float, seconds: float, level: float = 0.4) -> Samples:
    """A steady tone."""
    return level * np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE)


def silence(seconds: float) -> Samples:
    """Nothing at all."""
    return np.zeros(int(RATE * seconds))


def _murmur() -> Samples:
    noise = np.random.default_rng(16).standard_normal(RATE * 60)
    # Without its high frequencies, which resampling would remove.
    smooth = np.convolve(noise, np.hanning(16) / 8, mode="same")
    return np.clip(0.25 * smooth, -0.9, 0.9)


def _sentences() -> Samples:
    loud = (np.arange(int(RATE * 1.2)) % (RATE // 5)) < RATE // 7
    return np.concatenate([tone(440, 1.2) * loud, silence(1.8)])


MURMUR = Sound("murmur", _murmur)
"""A minute in which no two stretches are alike, and none is silent: audio that is lost, repeated or
out of order shows."""

SENTENCES = Sound("sentences", _sentences)
"""Syllables for 1.2 s, then silence for 1.8 s: an utterance for voice activity."""

GOOD_MORNING = Sound("good-morning", lambda: tone(150, 4.0))
"""A tone that stands for a sentence, as in examples/phrases.py. It loops without a click."""
