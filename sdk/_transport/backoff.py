"""How long to wait before the next try."""

import random

# The first wait is up to FIRST_S, each next one up to twice that, up to LONGEST_S.
FIRST_S = 0.1
LONGEST_S = 5.0


class Backoff:
    """Exponential, with full jitter: a crowd that lost its server must not return as one."""

    def __init__(
        self, rng: random.Random, *, first: float = FIRST_S, longest: float = LONGEST_S
    ) -> None:
        self._rng = rng
        self._first = first
        self._longest = longest
        self._limit = first

    def next(self) -> float:
        """Seconds to wait now."""
        wait = self._rng.uniform(0.0, self._limit)
        self._limit = min(self._longest, self._limit * 2)
        return wait

    def reset(self) -> None:
        """All is well again: the next wait is a short one."""
        self._limit = self._first
