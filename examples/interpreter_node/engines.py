"""Interfaces of the engines. Each is created once and may be called from any thread."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# Mono samples at RATE, from -1 to 1. All audio is converted to these.
Samples = NDArray[np.float32]
RATE = 16_000
# Detectors classify this many samples at a time: 32 ms.
FRAME = 512


class MissingPartError(Exception):
    """Something that an engine needs is missing.

    Args:
        what: what is missing, and what it is for.
        how: the command that installs it.
    """

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what}. To get it: {how}")
        self.what = what
        self.how = how


class Recognizer(Protocol):
    """Speech to text."""

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """Yield the growing text; the last one is final. Stop iterating to stop the work."""


class Translator(Protocol):
    """Text to text."""

    def translate(self, text: str, src: str, tgt: str) -> str:
        """Translate one or more sentences."""


class Voice(Protocol):
    """Text to speech."""

    @property
    def rate(self) -> int:
        """Samples a second."""

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        """Yield pieces of 16-bit mono PCM. Stop iterating to stop the work."""


class Detector(Protocol):
    """Detects speech."""

    def judge(self, samples: Samples) -> list[bool]:
        """For each FRAME of samples (the last may be shorter), whether somebody speaks."""


def installed(module: str, package: str, use: str) -> Any:
    """Import an optional package.

    Raises:
        MissingPartError: it is missing; the message has the command that installs it.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPartError(
            f"the Python package {package} ({use}) cannot be imported: {error}",
            f"pip install {package}",
        ) from error
