"""Word error rate of a speech or of parts of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*", re.UNICODE)
# Recognisers write small numbers in different ways.
_EN = "zero one two three four five six seven eight nine ten"
_ES = "cero uno dos tres cuatro cinco seis siete ocho nueve diez"
_NUMBERS = (_EN.split(), _ES.split())
_SAME = {word: str(at) for numbers in _NUMBERS for at, word in enumerate(numbers)} | {
    "twenty": "20",
    "veinte": "20",
}


@dataclass(frozen=True, slots=True)
class WordErrors:
    """The number of words, and of errors in them."""

    words: int = 0
    errors: int = 0

    @property
    def rate(self) -> float:
        """From 0; above 1 if more was heard than was said."""
        return self.errors / self.words if self.words else 0.0

    def __add__(self, other: "WordErrors") -> "WordErrors":
        return WordErrors(self.words + other.words, self.errors + other.errors)


def words(text: str) -> list[str]:
    """Normalised words: lower case, no punctuation, small numbers as digits."""
    found = (each.lower().replace("’", "'") for each in _WORD.findall(text))
    return [_SAME.get(each, each) for each in found]


def errors_by_word(said: Sequence[str], heard: Sequence[str]) -> list[int]:
    """Errors at each word that was said, by an optimal alignment.

    An inserted word counts for the word before it (at the beginning: after it).
    """
    # costs[i][j]: the fewest errors between the first i words said and the first j heard.
    costs = [list(range(len(heard) + 1))]
    for i, word in enumerate(said, start=1):
        row = [i]
        for j, other in enumerate(heard, start=1):
            row.append(
                min(
                    costs[i - 1][j - 1] + (word != other),
                    costs[i - 1][j] + 1,
                    row[j - 1] + 1,
                )
            )
        costs.append(row)
    found = [0] * len(said)
    i, j = len(said), len(heard)
    while said and (i or j):
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (said[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            found[i] += said[i] != heard[j]
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            found[i] += 1
        else:
            j -= 1
            found[max(i - 1, 0)] += 1
    return found


def word_errors(said: str, heard: str) -> WordErrors:
    """Errors of a whole text."""
    reference, hypothesis = words(said), words(heard)
    if not reference:
        return WordErrors(0, len(hypothesis))
    return WordErrors(len(reference), sum(errors_by_word(reference, hypothesis)))


def near(
    times: Sequence[float], errors: Sequence[int], cuts: Sequence[float], within: float
) -> WordErrors:
    """Errors of the words near a cut; `times` and `errors` have one entry per word."""
    chosen = [
        error
        for time, error in zip(times, errors, strict=True)
        if any(abs(time - cut) <= within for cut in cuts)
    ]
    return WordErrors(len(chosen), sum(chosen))
