"""Speech recognition by Moonshine's ONNX models: an encoder, and a token-by-token decoder.

A model folder holds `encoder_model.onnx` and `decoder_model_merged.onnx`; all languages share one
`tokenizer.json`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from interpreter_node.engines import RATE, MissingPartError, Samples, installed

ENCODER, DECODER = "encoder_model.onnx", "decoder_model_merged.onnx"
_BEGIN, _END = 1, 2
# Nobody speaks faster; a confused decoder repeats itself forever.
_TOKENS_PER_SECOND = 13
# Shorter audio is too short for the encoder.
_SHORTEST = RATE // 4
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Moonshine:
    """A Recognizer.

    Args:
        folders: the model folder of each language.
        tokenizer: the shared tokenizer file.
        threads: CPU threads of one run.

    Raises:
        MissingPartError: a file or a package is missing.
    """

    def __init__(self, folders: Mapping[str, Path], tokenizer: Path, *, threads: int = 1) -> None:
        runtime = installed("onnxruntime", "onnxruntime", "runs the speech models")
        for path in (
            tokenizer,
            *(f / name for f in folders.values() for name in (ENCODER, DECODER)),
        ):
            if not path.is_file():
                raise MissingPartError(f"the model file {path} is not there", "make get-models")
        self._tokens = _token_texts(tokenizer)
        self._models = {
            language: _Model(runtime, folder, threads) for language, folder in folders.items()
        }

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """See Recognizer."""
        tokens: list[int] = []
        for token in self._models[language].tokens(samples):
            tokens.append(token)
            yield self._text(tokens)

    def _text(self, tokens: list[int]) -> str:
        written = bytearray()
        for token in tokens:
            piece = self._tokens.get(token, "")
            byte = _BYTE.fullmatch(piece)
            written += bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()
        return written.decode(errors="ignore").strip()


class _Model:
    """One language. Runs may overlap: the sessions of the runtime have no state."""

    def __init__(self, runtime: Any, folder: Path, threads: int) -> None:
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self._encoder, self._decoder = (
            runtime.InferenceSession(
                str(folder / name), options, providers=["CPUExecutionProvider"]
            )
            for name in (ENCODER, DECODER)
        )
        # Before the first token there is no past; its shape is in the model.
        self._no_past = {
            each.name: np.zeros((0, each.shape[1], 1, each.shape[3]), np.float32)
            for each in self._decoder.get_inputs()
            if each.name.startswith("past_key_values.")
        }

    def tokens(self, samples: Samples) -> Iterator[int]:
        most = len(samples) * _TOKENS_PER_SECOND // RATE + 1
        if len(samples) < _SHORTEST:
            samples = np.pad(samples, (0, _SHORTEST - len(samples)))
        (hidden,) = self._encoder.run(None, {"input_values": samples[np.newaxis]})
        past, token = dict(self._no_past), _BEGIN
        for count in range(most):
            logits, *present = self._decoder.run(
                None,
                {
                    "input_ids": [[token]],
                    "encoder_hidden_states": hidden,
                    "use_cache_branch": [count > 0],
                    **past,
                },
            )
            token = int(logits[0, -1].argmax())
            if token == _END:
                return
            yield token
            for name, value in zip(past, present, strict=True):
                # The cached values for the audio do not change after the first step.
                if count == 0 or ".decoder." in name:
                    past[name] = value


def _token_texts(tokenizer: Path) -> dict[int, str]:
    vocabulary: dict[str, int] = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
    return {number: text for text, number in vocabulary.items() if number > _END}
