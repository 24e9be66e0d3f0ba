"""Speech recognition by faster-whisper, with your own model folder."""

from collections.abc import Iterator
from pathlib import Path

from interpreter_node.engines import MissingPartError, Samples, installed


class Whisper:
    """A Recognizer of all languages that the model knows.

    Args:
        folder: a model in CTranslate2's format, with its `model.bin`.
        threads: CPU threads.

    Raises:
        MissingPartError: the folder or the package is missing.
    """

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        if not (folder / "model.bin").is_file():
            raise MissingPartError(
                f"--asr-model: {folder} holds no Whisper model in CTranslate2's format",
                "ct2-transformers-converter --model openai/whisper-small --output_dir DIR",
            )
        package = installed("faster_whisper", "faster-whisper", "runs Whisper models")
        self._model = package.WhisperModel(
            str(folder), device="auto", cpu_threads=threads, local_files_only=True
        )

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """See Recognizer. The text grows phrase by phrase."""
        phrases, _ = self._model.transcribe(samples, language=language, beam_size=1)
        text = ""
        for phrase in phrases:
            text = f"{text} {phrase.text.strip()}".strip()
            yield text
