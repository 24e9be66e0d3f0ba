"""Speech of a synthetic voice in WAV files."""

import os
import wave
from pathlib import Path

from interpreter_node import parts
from interpreter_node.engines import Voice
from interpreter_node.settings import models_folder
from interpreter_node.voices.kokoro import Kokoro

# What `speak` uses of the CPU: nothing else works while speech is recorded.
_THREADS = 2


def speakers_voice() -> Voice:
    """Other voices than those of the nodes."""
    others = {language: voices[1] for language, voices in parts.VOICES.items()}
    return Kokoro(models_folder(os.environ), others, threads=_THREADS)


def write_speech(path: Path, text: str, *, language: str, voice: Voice) -> Path:
    """Write spoken text to a file; returns its path."""
    write_wav(path, b"".join(voice.speak(text, language)), voice.rate)
    return path


def write_wav(path: Path, pcm: bytes, rate: int) -> None:
    """Write 16-bit mono PCM to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm)
