"""A synthetic voice, for tests that need real speech."""

import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

_EXAMPLES = str(Path(__file__).parents[2] / "examples")


@cache
def spoken(
    text: str = "Good morning, where is the station", rate: int = 16_000, language: str = "en"
) -> bytes:
    """A sentence without a pause in it, as 16-bit PCM of one channel."""
    # The examples are not installed.
    if _EXAMPLES not in sys.path:
        sys.path.insert(0, _EXAMPLES)
    voice = import_module("interpreter_node.voices.espeak").Espeak()
    pcm = b"".join(voice.speak(text, language))
    samples = np.frombuffer(pcm, "<i2").astype(np.float32)
    samples = import_module("interpreter_node.hearing").resampled(samples, voice.rate)
    if rate != 16_000:
        places = np.arange(0, len(samples), 16_000 / rate)
        samples = np.interp(places, np.arange(len(samples)), samples)
    return bytes(samples.astype("<i2").tobytes())
