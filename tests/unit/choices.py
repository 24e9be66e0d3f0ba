"""Random runs as sequences of choices: the same choices give the same run.

A failing run is made shorter by leaving choices out (`shrink`). Choice 0 is always harmless.
"""

import random
from collections.abc import Callable, Sequence


class Choices:
    """A sequence of choices: given, or drawn from a seed; and zeros after its end."""

    def __init__(self, given: Sequence[int] = (), seed: int | None = None) -> None:
        self._given = given
        self._random = None if seed is None else random.Random(seed)
        self.made: list[int] = []

    def pick(self, options: int) -> int:
        """A number below `options`."""
        if self._random is not None:
            value = int(self._random.random() * options)
        else:
            at = len(self.made)
            value = self._given[at] % options if at < len(self._given) else 0
        self.made.append(value)
        return value

    def one_in(self, many: int) -> bool:
        """True once in so many times."""
        return self.pick(many) == many - 1

    def delay(self) -> float:
        """Mostly short; now and then longer than any timeout."""
        return (1.0, 2.0, 5.0, 20.0, 60.0, 150.0, 400.0, 1200.0)[min(self.pick(8), self.pick(8))]


def shrink(choices: list[int], breaks: Callable[[list[int]], bool]) -> list[int]:
    """Fewer and smaller choices that still break a promise."""
    size = max(1, len(choices) // 2)
    while True:
        at = 0
        while at < len(choices):
            for shorter in ([], [0] * len(choices[at : at + size])):
                less = choices[:at] + shorter + choices[at + size :]
                if less != choices and breaks(less):
                    choices = less
                    break
            else:
                at += size
        if size == 1:
            return choices
        size //= 2
