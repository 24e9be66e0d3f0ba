"""Many timers, of all jobs or sessions, with one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

# Fewer dead entries than this are not worth removing.
_MIN_DEAD = 64
# uvloop rounds to whole milliseconds. Half a millisecond too early, nothing would be due, and the
# alarm would ring again and again until the time has come: five times for each timer.
_ROUNDING_MS = 0.5

_log = logging.getLogger(__name__)

Owner = TypeVar("Owner", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)


class Alarm(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Prevents the call."""


@dataclass(slots=True, eq=False)
class _Timer(Generic[Owner, Key]):
    # None if it was cleared or replaced, or has fired. Its entry in the heap may stay for long, and
    # must not keep a session or job that is over.
    owner: Owner | None
    key: Key
    at_ms: float
    # Of timers for the same time, the one with the lower number fires first.
    number: int
    # The time of its heap entry, which stays in place if the timer is moved to a later time.
    entry_ms: float

    @property
    def is_set(self) -> bool:
        return self.owner is not None


class Timers(Generic[Owner, Key]):
    """Timers by owner (a job, a session) and key (its purpose), at O(log n) per change.

    Promises:
    - `on_due` is called once for each timer that is not cleared or moved, never before its time, in
      the order of the times. It may set and clear timers; a timer that it sets for now or earlier
      fires in a later iteration of the event loop.
    - An error of `on_due` is logged and does not affect other timers.
    - Memory is bounded by the timers that are set, however many are cleared or moved. Nothing
      refers to an owner without timers.

    Args:
        on_due: called with owner and key.
        clock: the time in ms; that of the event loop unless `call_at` is given.
        call_at: schedules a callback at a time of that clock.
    """

    def __init__(
        self,
        *,
        on_due: Callable[[Owner, Key], None],
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Alarm] | None = None,
    ) -> None:
        self._on_due = on_due
        self._clock = clock
        self._call_at = call_at or _call_at
        # Time, number, timer. Numbers are unique, so timers for the same time fire in the order in
        # which they were set. Each timer that is set has one entry until it is due.
        self._heap: list[tuple[float, int, _Timer[Owner, Key]]] = []
        # Timers that are set; all others in the heap are dead.
        self._live: dict[Owner, dict[Key, _Timer[Owner, Key]]] = {}
        self._count = 0
        self._seq = 0
        self._alarm: Alarm | None = None
        self._alarm_ms = 0.0

    def __len__(self) -> int:
        """How many timers are set."""
        return self._count

    def set(self, owner_key: Owner, key: Key, at_ms: float) -> None:
        """Sets a timer, or moves it."""
        if owner_key not in self._live:
            self._live[owner_key] = {}
        mine = self._live[owner_key]
        self._seq += 1
        if key not in mine:
            self._count += 1
        elif mine[key].entry_ms < at_ms:
            # Most timers are moved again or cleared before their entry is due.
            mine[key].at_ms, mine[key].number = at_ms, self._seq
            return
        else:
            mine[key].owner = None
        timer = mine[key] = _Timer(owner_key, key, at_ms, self._seq, at_ms)
        heapq.heappush(self._heap, (at_ms, self._seq, timer))
        if len(self._heap) > 2 * self._count + _MIN_DEAD:
            self._sweep()
        # An alarm that fires too early, because its timer was cleared, costs less than moving it.
        if self._alarm is None or at_ms < self._alarm_ms:
            self._arm()

    def clear(self, owner_key: Owner, key: Key) -> None:
        """Clears a timer, if it is set."""
        if owner_key in self._live and key in self._live[owner_key]:
            self._end(owner_key, self._live[owner_key][key])

    def clear_all(self, owner_key: Owner) -> None:
        """Clears every timer of an owner."""
        if owner_key in self._live:
            for timer in self._live.pop(owner_key).values():
                timer.owner = None
                self._count -= 1

    def close(self) -> None:
        """Clears every timer."""
        for owner in list(self._live):
            self.clear_all(owner)
        self._heap.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _end(self, owner: Owner, timer: _Timer[Owner, Key]) -> None:
        timer.owner = None
        self._count -= 1
        mine = self._live[owner]
        del mine[timer.key]
        if not mine:
            del self._live[owner]

    def _sweep(self) -> None:
        """Removes the dead entries, once they are the larger half: O(1) amortized."""
        self._heap = [entry for entry in self._heap if entry[2].is_set]
        heapq.heapify(self._heap)

    def _arm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._heap:
            self._alarm_ms = self._heap[0][0]
            self._alarm = self._call_at(self._alarm_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock()
        due: list[_Timer[Owner, Key]] = []
        while self._heap:
            entry_ms, _, timer = self._heap[0]
            if timer.is_set and timer.at_ms > entry_ms:
                timer.entry_ms = timer.at_ms
                heapq.heapreplace(self._heap, (timer.at_ms, timer.number, timer))
            elif entry_ms <= now or not timer.is_set:
                heapq.heappop(self._heap)
                timer.entry_ms = math.inf  # no entry
                due.append(timer)
            else:
                break
        for timer in due:
            owner = timer.owner
            # An earlier callback may have cleared or moved this one.
            if owner is None:
                continue
            self._end(owner, timer)
            try:
                self._on_due(owner, timer.key)
            except Exception:
                facts = {"owner": str(owner), "timer": str(timer.key)}
                _log.exception("timer callback failed", extra=facts)
        self._arm()


def now_ms() -> float:
    """The time of the event loop's clock in ms, with a finer resolution than `loop.time`."""
    return time.monotonic() * 1000


def _call_at(at_ms: float, callback: Callable[[], None]) -> Alarm:
    return asyncio.get_running_loop().call_at((at_ms + _ROUNDING_MS) / 1000, callback)
