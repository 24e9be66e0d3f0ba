"""Deadlines of utterances, on a clock that can be stopped. No I/O, no clock of its own."""

import math
from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(slots=True)
class _Deadline:
    at_ms: float
    # Since when a stop of the clock counts for it, and how much longer it may be stopped.
    since_ms: float
    spare_ms: float


class Deadlines:
    """When each index is overdue.

    The clock is stopped while at least one cause stops it. For each index it stands still for
    `stop_max_ms` in all, then it runs on.

    Args:
        stop_max_ms: how long the clock may stand still for an index.
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
        """An index that is overdue at that time, or later if the clock is stopped."""
        self._deadlines[index] = _Deadline(at_ms, now, self._stop_max_ms)

    def remove(self, index: int) -> bool:
        """Forgets an index; False if there is none."""
        return self._deadlines.pop(index, None) is not None

    def stop(self, now: float, cause: Hashable) -> bool:
        """Stops the clock until the same cause ends; False if it was stopped for it already."""
        if cause in self._causes:
            return False
        if not self._causes:
            self._stopped_ms = now
        self._causes.add(cause)
        return True

    def go_on(self, now: float, cause: Hashable) -> bool:
        """Ends a cause; True if the clock runs again by that."""
        if cause not in self._causes:
            return False
        self._causes.remove(cause)
        if self._causes:
            return False
        for each in self._deadlines.values():
            stood_ms = self._stood_ms(each, now)
            each.at_ms += stood_ms
            each.spare_ms -= stood_ms
        return True

    def at(self, index: int, now: float) -> float:
        """When an index is overdue if the clock runs from now on."""
        each = self._deadlines[index]
        return each.at_ms + (self._stood_ms(each, now) if self._causes else 0.0)

    def overdue(self, now: float) -> list[int]:
        """Indexes whose time is over, in the order in which they were added."""
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

    def _stood_ms(self, each: _Deadline, now: float) -> float:
        return min(each.spare_ms, now - max(self._stopped_ms, each.since_ms))
