"""Audio of the microphone as a stream of PCM."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from typing import Any

from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.sdk import AudioFormat

BLOCK_MS = 100
# Blocks that may wait while the session is slow: half a minute. Then the oldest are dropped.
WAITING_BLOCKS = 300


def open_device() -> Any:
    """The sound library, if it is installed and finds a microphone.

    Raises:
        Failure: something is missing; the message says how to install it.
    """
    try:
        library = importlib.import_module("sounddevice")
    except ImportError:
        raise Failure(
            "--mic needs the package sounddevice: pip install 'lingua-scheduler[mic]'",
            reason="NO_MICROPHONE",
        ) from None
    except OSError as error:
        raise Failure(
            f"--mic needs the PortAudio library ({error}): apt-get install libportaudio2",
            reason="NO_MICROPHONE",
        ) from None
    try:
        library.query_devices(kind="input")
    except (ValueError, library.PortAudioError) as error:
        raise Failure(
            f"--mic: found no microphone ({error}). Use a WAV file instead: lingua speak "
            "FILE.wav --vad --from LANG --to LANG",
            reason="NO_MICROPHONE",
        ) from None
    return library


async def hear(library: Any, audio_format: AudioFormat) -> AsyncIterator[bytes]:
    """Blocks of audio as they are recorded, until the caller stops.

    Raises:
        Failure: the microphone cannot be used.
    """
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes] = asyncio.Queue(WAITING_BLOCKS)

    def put(block: bytes) -> None:
        if waiting.full():
            waiting.get_nowait()
        waiting.put_nowait(block)

    def on_audio(block: Any, _frames: int, _time: Any, _status: Any) -> None:
        # Runs in a thread of the library, which reuses the block.
        loop.call_soon_threadsafe(put, bytes(block))

    try:
        stream = library.RawInputStream(
            samplerate=audio_format.sample_rate_hz,
            channels=audio_format.channels,
            dtype="int16",
            blocksize=audio_format.sample_rate_hz * BLOCK_MS // 1000,
            callback=on_audio,
        )
    except (ValueError, library.PortAudioError) as error:
        raise Failure(
            f"--mic: the microphone cannot record {audio_format.sample_rate_hz} Hz: {error}",
            reason="NO_MICROPHONE",
        ) from None
    with stream:
        while True:
            yield await waiting.get()
