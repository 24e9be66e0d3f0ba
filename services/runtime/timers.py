"""All timers of all jobs, or of all sessions, behind one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

# Below this many dead entries it is not worth while to sweep them out.
_MIN_DEAD = 64

_log = logging.getLogger(__name__)

Owner = TypeVar("Owner", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)


class Alarm(Protocol):
    """What `call_at` gives back."""

    def cancel(self) -> None:
        """Prevents the call."""


class Timers(Generic[Owner, Key]):
    """Timers by owner (a job, a session) and key (what for). No task, and O(log n) for each change.

    Promises:
    - `on_due` is called once for each timer that is neither cleared nor moved, never before its
      time, in the order of the times. It may set and clear timers; one that it sets for now or
      earlier comes in a later turn of the loop.
    - An error of `on_due` is logged and stops no other timer.
    - Memory is bounded by the timers that are set, however many are cleared or moved.

    Args:
        on_due: called with owner and key.
        clock: the time in ms; that of the event loop, unless `call_at` says otherwise.
        call_at: has a callback called at a time of that clock.
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
        # Time, number, owner, key. Numbers are unique, so entries of one time come in the order in
        # which they were set.
        self._heap: list[tuple[float, int, Owner, Key]] = []
        # The numbers of the entries that count; every other one was cleared or moved.
        self._live: dict[Owner, dict[Key, int]] = {}
        self._count = 0
        self._seq = 0
        self._alarm: Alarm | None = None
        self._alarm_ms = 0.0

    def __len__(self) -> int:
        """How many timers are set."""
        return self._count

    def set(self, owner_key: Owner, key: Key, at_ms: float) -> None:
        """Sets a timer, or moves it."""
        self._seq += 1
        mine = self._live.get(owner_key)
        if mine is None:
            mine = self._live[owner_key] = {}
        if key not in mine:
            self._count += 1
        mine[key] = self._seq
        heapq.heappush(self._heap, (at_ms, self._seq, owner_key, key))
        if len(self._heap) > 2 * self._count + _MIN_DEAD:
            self._sweep()
        # An alarm that comes too early, because its timer was cleared, costs less than moving it.
        if self._alarm is None or at_ms < self._alarm_ms:
            self._arm()

    def clear(self, owner_key: Owner, key: Key) -> None:
        """Forgets a timer, if it is set."""
        mine = self._live.get(owner_key)
        if mine is None or mine.pop(key, None) is None:
            return
        self._count -= 1
        if not mine:
            del self._live[owner_key]

    def clear_all(self, owner_key: Owner) -> None:
        """Forgets every timer of an owner."""
        self._count -= len(self._live.pop(owner_key, ()))

    def close(self) -> None:
        """Forgets every timer."""
        self._live.clear()
        self._heap.clear()
        self._count = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _is_live(self, entry: tuple[float, int, Owner, Key]) -> bool:
        _, number, owner, key = entry
        mine = self._live.get(owner)
        return mine is not None and mine.get(key) == number

    def _sweep(self) -> None:
        """Takes the dead entries out when they are the larger half: O(1) for each that is set."""
        self._heap = [entry for entry in self._heap if self._is_live(entry)]
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
        due: list[tuple[float, int, Owner, Key]] = []
        while self._heap and (self._heap[0][0] <= now or not self._is_live(self._heap[0])):
            due.append(heapq.heappop(self._heap))
        for entry in due:
            # One before it may have cleared or moved this one.
            if not self._is_live(entry):
                continue
            _, _, owner, key = entry
            self.clear(owner, key)
            try:
                self._on_due(owner, key)
            except Exception:
                facts = {"owner": str(owner), "timer": str(key)}
                _log.exception("a timer's callback failed", extra=facts)
        self._arm()


def now_ms() -> float:
    """The time by the event loop's clock, in ms, but finer than the loop itself tells it."""
    return time.monotonic() * 1000


def _call_at(at_ms: float, callback: Callable[[], None]) -> Alarm:
    return asyncio.get_running_loop().call_at(at_ms / 1000, callback)
