"""Deadlines of utterances, on a clock that can be stopped."""

import math
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Deadline:
    at_ms: float
    # When its index was added, and for how much longer the clock may be stopped for it.
    since_ms: float
    spare_ms: float


class Deadlines:
    """When each index is overdue.

    The clock stops while at least one cause stops it. For each index it is stopped for at most
    `stop_max_ms` in total, and then runs again.

    Args:
        stop_max_ms: for how long the clock may be stopped for an index.
    """

    def __init__(self, stop_max_ms: float = 0.0) -> None:
        self._stop_max_ms = stop_max_ms
        self._deadlines: dict[int, _Deadline] = {}
        self._causes: set[Hashable] = set()
        self._stopped_ms = 0.0

    @property
    def is_stopped(self) -> bool:
        """Whether a cause stops the clock now."""
        return bool(self._causes)

    def add(self, index: int, at_ms: float, now: float = 0.0) -> None:
        """Adds an index that is overdue at this time, or later if the clock is stopped."""
        self._deadlines[index] = _Deadline(at_ms, now, self._stop_max_ms)

    def remove(self, index: int) -> bool:
        """Removes an index. Returns False if it has no deadline."""
        return self._deadlines.pop(index, None) is not None

    def stop(self, now: float, cause: Hashable) -> bool:
        """Adds a cause that stops the clock. Returns False if the cause is known already."""
        if cause in self._causes:
            return False
        if not self._causes:
            self._stopped_ms = now
        self._causes.add(cause)
        return True

    def go_on(self, now: float, cause: Hashable) -> bool:
        """Removes a cause. Returns True if this starts the clock again."""
        if cause not in self._causes:
            return False
        self._causes.remove(cause)
        if self._causes:
            return False
        for each in self._deadlines.values():
            stopped_ms = self._stopped_for_ms(each, now)
            each.at_ms += stopped_ms
            each.spare_ms -= stopped_ms
        return True

    def at(self, index: int, now: float) -> float:
        """When an index is overdue if the clock runs from now on."""
        each = self._deadlines[index]
        return each.at_ms + (self._stopped_for_ms(each, now) if self._causes else 0.0)

    def overdue(self, now: float) -> list[int]:
        """The overdue indexes, in the order in which they were added."""
        return [index for index in self._deadlines if self.at(index, now) <= now]

    @property
    def next_ms(self) -> float | None:
        """The earliest time at which an index can be overdue."""
        stopped = bool(self._causes)
        first = min(
            (each.at_ms + (each.spare_ms if stopped else 0.0) for each in self._deadlines.values()),
            default=math.inf,
        )
        return None if first == math.inf else first

    def _stopped_for_ms(self, each: _Deadline, now: float) -> float:
        return min(each.spare_ms, now - max(self._stopped_ms, each.since_ms))
