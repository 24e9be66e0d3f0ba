"""Jobs that wait for room, first come first served. Pure: no clock, no I/O."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

# Below this many dead entries it is not worth while to sweep them out.
_MIN_DEAD = 16


@dataclass(slots=True, eq=False)
class _Waiter:
    number: int
    job_id: str
    queue: str
    # False: it was called and has not yet said how that went.
    waits: bool = True

    def __lt__(self, other: _Waiter) -> bool:
        return self.number < other.number


@dataclass(slots=True)
class _Queue:
    # Whoever waits, and dead entries of those that left.
    heap: list[_Waiter] = field(default_factory=list)
    waiting: int = 0
    # Called and not yet back or gone.
    called: int = 0


class WaitingRoom:
    """Who waits in which queue, by the order in which they came.

    A queue is a direction, such as "zh:en" or "text:zh:en". A job is in one queue at most. One that
    is called (`room_for`) keeps its place until it says how that went: `leave` when it was placed
    or is over, `rejoin_front` when it was refused again. Whenever a called job was placed, call
    again for its queue: there may be room for the next.

    Args:
        max_waiting: jobs that one queue holds.
    """

    def __init__(self, *, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiters: dict[str, _Waiter] = {}
        # Only queues with someone in them, called or not.
        self._queues: dict[str, _Queue] = {}
        self._last = 0
        self._first = 0

    def __len__(self) -> int:
        """How many jobs wait or are called, in all queues."""
        return len(self._waiters)

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits or is called, in any queue."""
        return not self._waiters

    def join(self, queue: str, job_id: str, ticket: int | None = None) -> bool:
        """Puts a job into a queue; nothing changes for one that is in a queue already.

        Args:
            queue: what it waits for.
            job_id: who waits.
            ticket: its place among all that have one, lower first; None: behind those that came
                without one before it.

        Returns:
            False: the queue is full, and the job is not in it.
        """
        if job_id in self._waiters:
            return True
        line = self._queues.get(queue)
        if (line.waiting + line.called if line else 0) >= self._max_waiting:
            return False
        if ticket is None:
            self._last += 1
            ticket = self._last
        self._add(_Waiter(ticket, job_id, queue))
        return True

    def leave(self, job_id: str) -> None:
        """Takes a job out, whether it waits or was called, or does nothing if it is not here."""
        waiter = self._waiters.pop(job_id, None)
        if waiter is None:
            return
        line = self._queues[waiter.queue]
        if waiter.waits:
            waiter.waits = False
            line.waiting -= 1
            if len(line.heap) > 2 * line.waiting + _MIN_DEAD:
                line.heap = [other for other in line.heap if other.waits]
                heapq.heapify(line.heap)
        else:
            line.called -= 1
        if line.waiting + line.called == 0:
            del self._queues[waiter.queue]

    def queue_of(self, job_id: str) -> str | None:
        """The queue that a job is in, waiting or called; None: it is in none."""
        waiter = self._waiters.get(job_id)
        return None if waiter is None else waiter.queue

    def must_wait(self, queue: str) -> bool:
        """Whether a new job of this queue has to go behind others, waiting or just called."""
        return queue in self._queues

    def room_for(self, queues: Iterable[str]) -> str | None:
        """Calls the job that came first of all that wait in these queues.

        Costs one look at each of the queues; of a set, at no more than have someone waiting.
        """
        if isinstance(queues, AbstractSet) and len(queues) > len(self._queues):
            queues = [queue for queue in self._queues if queue in queues]
        heads = (self._head(queue) for queue in queues)
        first = min((head for head in heads if head is not None), default=None)
        return None if first is None else self._call(first)

    def rejoin_front(self, queue: str, job_id: str) -> None:
        """Puts a job before all that came later, however many wait.

        One that was called gets its place back. One that has left, or was called from another
        queue, comes before everyone; one that waits stays where it is.
        """
        waiter = self._waiters.get(job_id)
        if waiter is not None and waiter.waits:
            return
        if waiter is None or waiter.queue != queue:
            self._first -= 1
            waiter = _Waiter(self._first, job_id, queue)
        self.leave(job_id)
        waiter.waits = True
        self._add(waiter)

    def queues(self) -> Iterable[str]:
        """The queues that someone is in, waiting or called; not to be kept over a change."""
        return self._queues.keys()

    def _add(self, waiter: _Waiter) -> None:
        line = self._queues.setdefault(waiter.queue, _Queue())
        self._waiters[waiter.job_id] = waiter
        heapq.heappush(line.heap, waiter)
        line.waiting += 1

    def _head(self, queue: str) -> _Waiter | None:
        line = self._queues.get(queue)
        if line is None:
            return None
        while line.heap and not line.heap[0].waits:
            heapq.heappop(line.heap)
        return line.heap[0] if line.heap else None

    def _call(self, head: _Waiter) -> str:
        """Takes a head out of its queue's heap."""
        line = self._queues[head.queue]
        heapq.heappop(line.heap)
        head.waits = False
        line.waiting -= 1
        line.called += 1
        return head.job_id
