"""Speech by SVOX Pico (`ttspico`): small, quick and clear."""

import threading
from collections.abc import Iterator

from interpreter_node.engines import RATE, installed
from interpreter_node.sentences import split_sentences

LOCALES = {"en": "en-US", "es": "es-ES"}


class Pico:
    """A Voice.

    Args:
        locales: Pico's voice for each language.
        pitch: in percent of the default.
        speed: in percent of the default.

    Raises:
        MissingPartError: the package is missing.
    """

    rate = RATE

    def __init__(
        self, locales: dict[str, str] | None = None, *, pitch: int = 100, speed: int = 100
    ) -> None:
        package = installed(
            "ttspico", "ttspico", "speaks; it is compiled, which takes a C compiler"
        )
        self._voices = {}
        for language, locale in (locales or LOCALES).items():
            engine = package.TtsEngine(locale)
            engine.pitch, engine.rate = pitch, speed
            # An engine can say only one text at a time.
            self._voices[language] = (engine, threading.Lock())

    def speak(self, text: str, language: str) -> Iterator[bytes]:
        """See Voice. A piece is a sentence, made in a hundredth of its duration."""
        engine, lock = self._voices[language]
        for sentence in split_sentences(text):
            with lock:
                piece = engine.speak(sentence)
            yield bytes(piece)
