"""Reads WAV files for a session."""

import asyncio
import os
import wave
from collections.abc import AsyncGenerator

from lingua_scheduler.sdk.audio import PCM_SAMPLE_BYTES, AudioFormat, Encoding

StrPath = str | os.PathLike[str]


def wav_format(path: StrPath) -> AudioFormat:
    """Returns the format of a WAV file, for `Session(audio_format=...)`.

    Raises:
        ValueError: it is not a WAV file of 16-bit PCM, or its rate is not allowed.
        OSError: it cannot be read.
    """
    with _open(path) as file:
        return _format(path, file)


async def wav_blocks(
    path: StrPath, *, expected: AudioFormat, ms: int
) -> AsyncGenerator[bytes, None]:
    """Yields the samples of a WAV file, `ms` milliseconds at a time.

    Raises:
        ValueError: as `wav_format`, or the file has another format than expected.
        OSError: it cannot be read.
    """
    # In a thread, because a slow disk must not block the event loop.
    file = await asyncio.to_thread(_open, path)
    try:
        found = _format(path, file)
        if found != expected:
            raise ValueError(
                f"path: {path} has {_told(found)}, but the session has {_told(expected)};"
                " open it with Session(audio_format=wav_format(path))"
            )
        frames = max(1, found.sample_rate_hz * ms // 1000)
        frame = PCM_SAMPLE_BYTES * found.channels
        while block := await asyncio.to_thread(file.readframes, frames):
            # A truncated file may end within a sample.
            if whole := block[: len(block) // frame * frame]:
                yield whole
    finally:
        file.close()


def _open(path: StrPath) -> wave.Wave_read:
    try:
        return wave.open(os.fspath(path), "rb")
    except (wave.Error, EOFError) as error:
        why = str(error) or "it is truncated"
        raise ValueError(f"path: {path} is not a WAV file of PCM: {why}") from None


def _format(path: StrPath, file: wave.Wave_read) -> AudioFormat:
    if file.getsampwidth() != PCM_SAMPLE_BYTES:
        bits = 8 * file.getsampwidth()
        raise ValueError(f"path: {path} has {bits}-bit samples; they must have 16 bits")
    try:
        return AudioFormat(Encoding.PCM_S16LE, file.getframerate(), file.getnchannels())
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from None


def _told(audio: AudioFormat) -> str:
    return f"{audio.encoding.name} at {audio.sample_rate_hz} Hz in {audio.channels} channel(s)"
