"""All timers of all jobs, or of all sessions, behind one timer of the event loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

# Below this many dead entries it is not worth while to sweep them out.
_MIN_DEAD = 64

_log = logging.getLogger(__name__)

Owner = TypeVar("Owner", bound=Hashable)
Key = TypeVar("Key", bound=Hashable)


class Alarm(Protocol):
    """What `call_at` gives back."""

    def cancel(self) -> None:
        """Prevents the call."""


class _Entry(NamedTuple, Generic[Owner, Key]):
    at_ms: float
    # Unique, so that entries of one time come in the order in which they were set.
    seq: int
    owner: Owner
    key: Key


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
        self._heap: list[_Entry[Owner, Key]] = []
        # The entries of the heap that count; every other one was cleared or moved.
        self._live: dict[Owner, dict[Key, _Entry[Owner, Key]]] = {}
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
        entry = _Entry(at_ms, self._seq, owner_key, key)
        mine = self._live.setdefault(owner_key, {})
        if key not in mine:
            self._count += 1
        mine[key] = entry
        heapq.heappush(self._heap, entry)
        self._sweep()
        self._arm()

    def clear(self, owner_key: Owner, key: Key) -> None:
        """Forgets a timer, if it is set."""
        mine = self._live.get(owner_key)
        if mine is None or mine.pop(key, None) is None:
            return
        self._count -= 1
        if not mine:
            del self._live[owner_key]
        self._sweep()

    def clear_all(self, owner_key: Owner) -> None:
        """Forgets every timer of an owner."""
        self._count -= len(self._live.pop(owner_key, ()))
        self._sweep()

    def close(self) -> None:
        """Forgets every timer."""
        self._live.clear()
        self._heap.clear()
        self._count = 0
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _is_live(self, entry: _Entry[Owner, Key]) -> bool:
        mine = self._live.get(entry.owner)
        return mine is not None and mine.get(entry.key) is entry

    def _sweep(self) -> None:
        """Takes the dead entries out when they are the larger half: O(1) for each change."""
        if len(self._heap) > 2 * self._count + _MIN_DEAD:
            self._heap = [entry for mine in self._live.values() for entry in mine.values()]
            heapq.heapify(self._heap)

    def _arm(self) -> None:
        # An alarm that comes too early, because its timer was cleared, costs less than moving it.
        if not self._heap or (self._alarm is not None and self._alarm_ms <= self._heap[0].at_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = self._heap[0].at_ms
        self._alarm = self._call_at(self._alarm_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock()
        due: list[_Entry[Owner, Key]] = []
        while self._heap and (self._heap[0].at_ms <= now or not self._is_live(self._heap[0])):
            due.append(heapq.heappop(self._heap))
        for entry in due:
            # One before it may have cleared or moved this one.
            if not self._is_live(entry):
                continue
            self.clear(entry.owner, entry.key)
            try:
                self._on_due(entry.owner, entry.key)
            except Exception:
                facts = {"owner": str(entry.owner), "timer": str(entry.key)}
                _log.exception("a timer's callback failed", extra=facts)
        self._arm()


def _call_at(at_ms: float, callback: Callable[[], None]) -> Alarm:
    return asyncio.get_running_loop().call_at(at_ms / 1000, callback)
