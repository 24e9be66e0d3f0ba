"""Speech by Kokoro's ONNX model (`kokoro-onnx`): the most natural voice that is offered here."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from interpreter_node import parts
from interpreter_node.engines import MissingPartError, installed
from interpreter_node.sentences import split_sentences

# What the phonemes are made for, by eSpeak NG.
_ACCENTS = {"en": "en-us", "es": "es"}
_FULL = 32767
_STYLE = (-1, 1, 256)


class Kokoro:
    """A Voice.

    Args:
        models: the folder of downloaded models.
        voices: the name of the voice for each language.
        threads: CPU threads.

    Raises:
        MissingPartError: a file or the package is missing.
    """

    rate = 24_000

    def __init__(
        self, models: Path, voices: Mapping[str, str] | None = None, *, threads: int = 1
    ) -> None:
        names = voices or {language: each[0] for language, each in parts.VOICES.items()}
        model = models / parts.KOKORO / "model.onnx"
        files = {language: models / parts.voice_file(name) for language, name in names.items()}
        for path in (model, *files.values()):
            if not path.is_file():
                raise MissingPartError(f"the model file {path} is not there", "make get-models")
        package = installed("kokoro_onnx", "kokoro-onnx", "speaks")
        runtime = installed("onnxruntime", "onnxruntime", "runs the speech models")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        # The package wants one file with all voices. It gets none: `create` takes them as arrays.
        with tempfile.TemporaryDirectory(prefix="kokoro-") as place:
            none = Path(place) / "voices.npy"
            np.save(none, np.zeros(0, np.float32))
            self._speaker = package.Kokoro.from_session(session, str(none))
        self._styles = {
            language: np.fromfile(path, "<f4").reshape(_STYLE) for language, path in files.items()
        }

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        """See Voice. A piece is a sentence, made in about a third of its duration."""
        for sentence in split_sentences(text):
            if not any(letter.isalnum() for letter in sentence):
                continue
            samples, _ = self._speaker.create(
                sentence, self._styles[language], lang=_ACCENTS[language]
            )
            yield (np.clip(samples, -1.0, 1.0) * _FULL).astype("<i2").tobytes()
