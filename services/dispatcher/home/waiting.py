"""Jobs that wait for room, in the order of their submission; and how much audio they may hold.

Pure: no clock, no I/O. `waiting_rounds` decides who asks the pool when.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

# With fewer dead entries than this, a sweep is not worth its cost.
_MIN_DEAD = 16
# One tenant may have at most one part in this many of the audio that may wait, so that its jobs do
# not keep those of others from waiting.
_TENANT_SHARE = 2


@dataclass(slots=True, eq=False)
class _Waiter:
    ticket: int
    job_id: str
    queue: str
    # False: it was called, and has not yet said how that went.
    waits: bool = True

    def __lt__(self, other: _Waiter) -> bool:
        return self.ticket < other.ticket


@dataclass(slots=True)
class _Queue:
    # The waiting jobs, and dead entries of those that left.
    heap: list[_Waiter] = field(default_factory=list)
    waiting: int = 0
    # Called, and neither back nor gone yet.
    called: int = 0


class WaitingRoom:
    """The queues of waiting jobs.

    A queue is a direction, such as "zh:en" or "text:zh:en". A job is in at most one queue. A job
    that is called (`room_for`) keeps its place until it says how that went: `leave` if it was
    placed or is over, `rejoin_front` if it was refused again. Whenever a called job was placed,
    call again for its queue: there may be room for the next one.

    Args:
        max_waiting: how many jobs one queue holds.
    """

    def __init__(self, *, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiters: dict[str, _Waiter] = {}
        # Only queues that are not empty, counting called jobs.
        self._queues: dict[str, _Queue] = {}
        self._last = 0
        self._first = 0

    def __len__(self) -> int:
        """How many jobs wait or are called, in all queues."""
        return len(self._waiters)

    @property
    def is_empty(self) -> bool:
        """Whether no job waits or is called, in any queue."""
        return not self._waiters

    def join(self, queue: str, job_id: str, ticket: int | None = None) -> bool:
        """Puts a job into a queue. If it is in a queue already, nothing changes.

        Args:
            queue: what it waits for.
            job_id: which job.
            ticket: its place, lower first; None: behind those that joined without a ticket before.

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
        """Takes a job out, whether it waits or was called. Otherwise nothing happens."""
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
        """Whether a new job of this queue has to go behind others, waiting or called."""
        return queue in self._queues

    def room_for(self, queues: Iterable[str]) -> str | None:
        """Calls the first of all jobs that wait in these queues.

        Looks at each of the queues once; if they are a set, only at those that are not empty.
        """
        if isinstance(queues, AbstractSet) and len(queues) > len(self._queues):
            queues = [queue for queue in self._queues if queue in queues]
        heads = (self._head(queue) for queue in queues)
        first = min((head for head in heads if head is not None), default=None)
        return None if first is None else self._call(first)

    def rejoin_front(self, queue: str, job_id: str) -> None:
        """Puts a job before all that came later, however many wait.

        A job that was called gets its place back. One that has left, or was called from another
        queue, comes before all others; one that waits stays where it is.
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
        """The queues that are not empty, counting called jobs. Valid until the next change."""
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
        """Takes the head of a queue out of its heap."""
        line = self._queues[head.queue]
        heapq.heappop(line.heap)
        head.waits = False
        line.waiting -= 1
        line.called += 1
        return head.job_id


class WaitingBytes:
    """Counts the audio of waiting jobs, in total and for each tenant.

    Args:
        max_bytes: the limit for all jobs; one tenant may have half.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._jobs: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()
        self.total = 0
        """Bytes that wait."""

    def take(self, job_id: str, tenant: str, size: int) -> bool:
        """Counts a job that starts to wait; False, and nothing counted, if it does not fit.

        If the job is counted already, nothing changes.
        """
        if job_id in self._jobs:
            return True
        most = self._max_bytes
        if self.total + size > most or self._tenants[tenant] + size > most // _TENANT_SHARE:
            return False
        self._jobs[job_id] = tenant, size
        self._tenants[tenant] += size
        self.total += size
        return True

    def give_back(self, job_id: str) -> None:
        """The job no longer waits. If it is not counted, nothing happens."""
        tenant, size = self._jobs.pop(job_id, ("", 0))
        self.total -= size
        self._tenants[tenant] -= size
        if self._tenants[tenant] <= 0:
            del self._tenants[tenant]
