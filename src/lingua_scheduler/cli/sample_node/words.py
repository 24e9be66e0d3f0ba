"""What a sample node says of speech, in the language of whoever reads it."""

from collections.abc import Sequence

# By language: the sentence, and the decimal separator.
_SENTENCES = {
    "en": ("Demo: heard {} s of speech.", "."),
    "es": ("Demo: se oyeron {} s de voz.", ","),
    "zh": ("演示：听到了 {} 秒语音。", "."),
    "fr": ("Démo : {} s de parole entendues.", ","),
    "de": ("Demo: {} s Sprache gehört.", ","),
}
LANGUAGES: Sequence[str] = tuple(_SENTENCES)
"""The languages in which it has words; others get English."""


def heard_words(language: str, seconds: float) -> str:
    """Such as "Demo: heard 2.3 s of speech."."""
    sentence, separator = _SENTENCES.get(language, _SENTENCES["en"])
    return sentence.format(f"{seconds:.1f}".replace(".", separator))
