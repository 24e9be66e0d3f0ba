"""Speech of a synthetic voice in WAV files."""

import wave
from pathlib import Path

from interpreter_node.engines import RATE
from interpreter_node.pico import Pico


def speakers_voice() -> Pico:
    """Another voice than that of the nodes."""
    return Pico({"en": "en-GB", "es": "es-ES"}, pitch=90, speed=95)


def write_speech(path: Path, text: str, *, language: str, voice: Pico) -> Path:
    """Write spoken text to a file; returns its path."""
    write_wav(path, b"".join(voice.speak(text, language)), RATE)
    return path


def write_wav(path: Path, pcm: bytes, rate: int) -> None:
    """Write 16-bit mono PCM to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm)
