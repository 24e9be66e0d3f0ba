"""What the node asks of its engines. Each is made once, and may be called from any thread."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Mono samples at RATE, from -1 to 1. Whatever the app sends is made into these.
Samples = NDArray[np.float32]
RATE = 16_000
# Detectors judge so many samples at a time: 32 ms.
FRAME = 512


class MissingPartError(Exception):
    """Something that an engine needs is not there.

    Args:
        what: what is missing, and what it is for.
        how: the command that gets it.
    """

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what}. To get it: {how}")
        self.what = what
        self.how = how


class Recognizer(Protocol):
    """Speech to text."""

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """The text so far, again and again as it grows; the last one is the text.

        Whoever does not ask for the next one has stopped the work.
        """


class Translator(Protocol):
    """Text to text."""

    def translate(self, text: str, src: str, tgt: str) -> str:
        """One or more sentences."""


class Voice(Protocol):
    """Text to speech."""

    @property
    def rate(self) -> int:
        """Samples a second."""

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        """16-bit mono PCM, piece by piece. Whoever does not ask for the next has stopped it."""


class Detector(Protocol):
    """Is this speech?"""

    def judge(self, samples: Samples) -> list[bool]:
        """For each FRAME of samples (the last may be shorter), whether somebody speaks."""


def installed(module: str, package: str, use: str) -> Any:
    """Imports what is not part of every installation.

    Raises:
        MissingPartError: names the package, and the command that installs it.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(
            f"the Python package {package} ({use}) cannot be imported: {error}",
            f"pip install {package}",
        ) from error
