"""WAV files to speak, and WAV files of what comes back."""

import io
import shlex
import wave
from collections.abc import Sequence
from pathlib import Path

from lingua_scheduler.cli.failures import USAGE, Failure
from lingua_scheduler.cli.private_files import make_folder, write_over
from lingua_scheduler.sdk import AudioFormat, Encoding, Result, wav_format

_SAMPLE_BYTES = 2
_ALLOWED = "WAV files of 16-bit PCM, from 8 to 48 kHz, with one channel or two"


def format_of_all(files: Sequence[Path]) -> AudioFormat:
    """The common format of files that are spoken in one session.

    Raises:
        Failure: a file is unusable or empty, or its format differs from that of the first.
    """
    formats = [_format(path) for path in files]
    for path, found in zip(files, formats, strict=True):
        if found != formats[0]:
            raise Failure(
                f"{path} has {_told(found)}, but {files[0]} has {_told(formats[0])}: all files of "
                f"a session need the same format. {_how_to_convert(path, formats[0])}",
                reason="USAGE",
                exit_code=USAGE,
            )
    return formats[0]


def _format(path: Path) -> AudioFormat:
    try:
        found = wav_format(path)
    except ValueError as error:
        problem = str(error).removeprefix("path: ")
        how = _how_to_convert(path, AudioFormat())
        raise Failure(
            f"{problem}. Expected {_ALLOWED}. {how}", reason="USAGE", exit_code=USAGE
        ) from None
    # The header may announce more than the file has.
    with wave.open(str(path), "rb") as file:
        if len(file.readframes(1)) < _SAMPLE_BYTES * found.channels:
            raise Failure(f"{path} contains no audio", reason="USAGE", exit_code=USAGE)
    return found


def length_s(path: Path) -> float:
    """The length of a file that is valid, by its header."""
    with wave.open(str(path), "rb") as file:
        return file.getnframes() / file.getframerate()


def _how_to_convert(path: Path, to: AudioFormat) -> str:
    source, made = (shlex.quote(str(each)) for each in (path, path.with_suffix(".speech.wav")))
    wanted = f"-ac {to.channels} -ar {to.sample_rate_hz} -c:a pcm_s16le"
    return f"'ffmpeg -i {source} {wanted} {made}' converts it"


def _told(audio: AudioFormat) -> str:
    return f"{audio.channels} channel(s) at {audio.sample_rate_hz} Hz"


class SpeechFolder:
    """Saves speech, one file per utterance, replacing those of earlier sessions.

    Args:
        folder: created if it does not exist.
        option: that named it, for messages.

    Raises:
        Failure: it cannot be created.
    """

    def __init__(self, folder: Path, *, option: str = "--save") -> None:
        self._folder = folder
        try:
            make_folder(folder)
        except OSError as error:
            raise Failure(
                f"{option}: cannot create {folder}: {error.strerror}",
                reason="USAGE",
                exit_code=USAGE,
            ) from error

    def save(self, result: Result) -> Path | None:
        """Write the speech of a result; None if it has none that a WAV file can hold."""
        return self.save_audio(result.index, result.speech, result.speech_format)

    def save_audio(self, index: int, audio: bytes, audio_format: AudioFormat | None) -> Path | None:
        """Write the audio of an utterance; None if there is none that a WAV file can hold."""
        if not audio or audio_format is None or audio_format.encoding is not Encoding.PCM_S16LE:
            return None
        path = self._folder / f"utterance-{index:04}.wav"
        content = io.BytesIO()
        with wave.open(content, "wb") as file:
            file.setnchannels(audio_format.channels)
            file.setsampwidth(_SAMPLE_BYTES)
            file.setframerate(audio_format.sample_rate_hz)
            file.writeframes(audio)
        write_over(path, content.getvalue())
        return path
