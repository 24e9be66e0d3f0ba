"""Speech recognition by faster-whisper, with Whisper base or a model folder of your own."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from interpreter_node.engines import RATE, MissingPartError, Samples, installed

# Without these files, faster-whisper would ask a model hub.
FILES = ("model.bin", "tokenizer.json")
# Nobody speaks faster; a confused decoder repeats itself forever.
_TOKENS_PER_SECOND = 13
# The model hears this much at a time, and costs as much for less.
_WINDOW_S = 30


class Whisper:
    """A Recognizer of all languages that the model knows.

    Args:
        folder: a model in CTranslate2's format.
        threads: CPU threads.
        how: what gets the model if it is missing.

    Raises:
        MissingPartError: the folder or the package is missing.
    """

    def __init__(self, folder: Path, *, threads: int = 1, how: str = "") -> None:
        for name in FILES:
            if not (folder / name).is_file():
                raise MissingPartError(
                    f"{folder} has no {name}, so it is no Whisper model in CTranslate2's format",
                    how
                    or "ct2-transformers-converter --model openai/whisper-small"
                    " --copy_files tokenizer.json --output_dir DIR, and --asr-model DIR",
                )
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        package = installed("faster_whisper", "faster-whisper", "runs Whisper models")
        self._model = package.WhisperModel(
            str(folder),
            device="auto",
            compute_type="int8",
            cpu_threads=threads,
            local_files_only=True,
        )
        # More than one run at a time would take more threads and memory than were given.
        self._lock = threading.Lock()

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """See Recognizer. The text grows phrase by phrase, at most 30 s of speech each."""
        if not len(samples):
            return
        seconds = min(len(samples) / RATE, _WINDOW_S)
        with self._lock:
            phrases, _ = self._model.transcribe(
                samples,
                language=language,
                beam_size=1,
                # One attempt: the time of a run is bounded.
                temperature=0.0,
                condition_on_previous_text=False,
                max_new_tokens=int(seconds * _TOKENS_PER_SECOND) + 8,
            )
            text = ""
            for phrase in phrases:
                text = f"{text} {phrase.text.strip()}".strip()
                yield text
