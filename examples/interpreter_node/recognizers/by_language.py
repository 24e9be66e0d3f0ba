"""One recognizer for each language."""

from collections.abc import Iterator, Mapping

from interpreter_node.engines import Recognizer, Samples


class ByLanguage:
    """A Recognizer that leaves each language to another one."""

    def __init__(self, recognizers: Mapping[str, Recognizer]) -> None:
        self._recognizers = recognizers

    def transcribe(self, samples: Samples, language: str) -> Iterator[str]:
        """See Recognizer."""
        return self._recognizers[language].transcribe(samples, language)
