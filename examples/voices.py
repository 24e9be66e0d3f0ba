"""Voices for the examples: tones, and the silence that ends a sentence."""

import math
import wave
from array import array
from collections.abc import Iterator
from pathlib import Path

RATE = 16000
CHUNK_MS = 100
SILENCE_S = 0.3


def speech(seconds: float, hertz: int, *, ends: bool) -> bytes:
    """16-bit PCM of a voice, followed by silence if the sentence ends."""
    tone = array(
        "h",
        (int(9000 * math.sin(2 * math.pi * hertz * i / RATE)) for i in range(int(seconds * RATE))),
    )
    return tone.tobytes() + (bytes(int(SILENCE_S * RATE) * 2) if ends else b"")


def chunks(audio: bytes) -> Iterator[bytes]:
    """The audio in pieces of a tenth of a second, as from a microphone."""
    size = RATE * CHUNK_MS // 1000 * 2
    return (audio[at : at + size] for at in range(0, len(audio), size))


def write_wav(path: Path, audio: bytes) -> None:
    """The audio as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(audio)
