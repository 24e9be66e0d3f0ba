"""Engines that are small enough to know what they must answer.

A word is a level: a fifth of a second in which all samples have it. Silence is silence. A word of
which a part is missing has a question mark, so audio that was cut in a wrong place shows.
"""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from interpreter_node.engines import FRAME, RATE, Samples

WORD = RATE // 5
_WORDS = "_ hello big house and dog please the"
VOCABULARY = [*_WORDS.split(), *(f"w{n}" for n in range(8, 90))]
_STEP = 300


def pcm(*said: str, silence: float = 0.0) -> bytes:
    """Words one after the other, and silence after them."""
    levels = [VOCABULARY.index(word) * _STEP for word in said]
    samples = np.repeat(np.array(levels, "<i2"), WORD)
    return samples.tobytes() + bytes(int(silence * RATE) * 2)


class Ears:
    """A Recognizer: says the words, one more each time."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.words = 0

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        said: list[str] = []
        self.runs.append("")
        for level, run in groupby(np.rint(samples * 32768 / _STEP).astype(int).tolist()):
            if level <= 0 or level >= len(VOCABULARY):
                continue
            count, rest = divmod(len(list(run)), WORD)
            said += [VOCABULARY[level]] * count + [f"{VOCABULARY[level]}?"] * bool(rest)
            self.runs[-1] = " ".join(said)
            self.words += 1
            yield self.runs[-1]


class Echo:
    """A Translator."""

    def translate(self, text: str, src: str, tgt: str) -> str:
        return f"[{tgt}] {text}"


class Beep:
    """A Voice: a tenth of a second for each word."""

    rate = 8000

    def __init__(self) -> None:
        self.spoken = 0

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        for _ in text.split():
            self.spoken += 1
            yield b"\x01\x00" * (self.rate // 10)


class Level:
    """A Detector: what is not silent is speech."""

    def judge(self, samples: Samples) -> list[bool]:
        return [
            bool(np.any(np.abs(samples[at : at + FRAME]) > 0.001))
            for at in range(0, len(samples), FRAME)
        ]
