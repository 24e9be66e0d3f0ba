"""How long to wait before the next attempt to connect."""

import random

# The limit of the first wait. It doubles with each wait, up to LONGEST_S.
FIRST_S = 0.1
LONGEST_S = 5.0


class Backoff:
    """Exponential backoff with full jitter, so that clients do not all reconnect at once."""

    def __init__(
        self, rng: random.Random, *, first: float = FIRST_S, longest: float = LONGEST_S
    ) -> None:
        self._rng = rng
        self._first = first
        self._longest = longest
        self._limit = first

    def next(self) -> float:
        """Returns the seconds to wait now."""
        wait = self._rng.uniform(0.0, self._limit)
        self._limit = min(self._longest, self._limit * 2)
        return wait

    def reset(self) -> None:
        """Makes the next wait a short one again."""
        self._limit = self._first
