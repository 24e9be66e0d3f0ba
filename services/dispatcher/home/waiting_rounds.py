"""Which waiting job asks the pool next: first come, first served, and nobody is overtaken.

A sign of room (a slot was given back, a node has connected) starts a round in a queue: the first
waiting job asks the pool, and as long as there is room, the next one. At most one job of a queue
asks at a time; otherwise a later one could get the slot that an earlier one was just refused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from lingua_scheduler.services.dispatcher.home.job import Job, direction_of
from lingua_scheduler.services.dispatcher.home.waiting import WaitingBytes, WaitingRoom
from lingua_scheduler.services.dispatcher.job.model import Phase

# How many jobs that were refused for reasons of their own a round passes over before it ends.
_MAX_ASIDE = 8


@dataclass(slots=True)
class _Round:
    """The jobs of a queue ask one by one, until one of them is told that all nodes are full."""

    asks: str = ""
    # Jobs refused for reasons of their own, such as the only node that they may go to. The next job
    # may still be placed.
    aside: list[str] = field(default_factory=list)
    # A slot may have become free since the last question.
    again: bool = False


class WaitingRounds:
    """The jobs that wait for room, and the order in which they ask for it.

    Args:
        room: where they wait.
        job: finds a job by its id.
        ask: makes a waiting job ask the pool; the answer is reported by `has_answer`.
        audio: limits the audio that waits.
    """

    def __init__(
        self,
        *,
        room: WaitingRoom,
        job: Callable[[str], Job | None],
        ask: Callable[[Job], None],
        audio: WaitingBytes,
    ) -> None:
        self._room = room
        self._job = job
        self._ask = ask
        self._audio = audio
        self._rounds: dict[str, _Round] = {}
        # The queue of the round, for each job that asks.
        self._asking: dict[str, str] = {}
        # Queues whose first jobs wait for reasons of their own: there may be room for others.
        self._choosy: set[str] = set()

    def has_come(self, job: Job) -> None:
        """A new job is behind others, which may wait for something that it does not need."""
        if job.queue in self._choosy:
            self.room_in([job.queue])

    def wait(self, job: Job) -> bool:
        """Joins the queue; a job that has waited before keeps its place. False: it is full."""
        queue = job.line
        round_ = self._rounds.get(queue)
        if self._room.queue_of(job.job_id) not in (None, queue):
            # It lacks something else now; in that queue, too, the order of submission counts.
            self._room.leave(job.job_id)
            job.has_waited = False
        if round_ is not None and round_.asks == job.job_id and job.is_particular:
            round_.aside.append(job.job_id)
        elif job.has_waited:
            self._room.rejoin_front(queue, job.job_id)
        else:
            job.has_waited = self._join(queue, job)
        return job.has_waited

    def _join(self, queue: str, job: Job) -> bool:
        if not self._audio.take(job.job_id, job.spec.tenant, len(job.spec.audio)):
            return False
        joined = self._room.join(queue, job.job_id, job.ticket)
        if not joined:
            self._audio.give_back(job.job_id)
        return joined

    def leave(self, job: Job) -> None:
        """The job was placed, or is over."""
        self._room.leave(job.job_id)
        self._audio.give_back(job.job_id)

    def room_for(self, serves: frozenset[str]) -> None:
        """A slot may be free on a node that is in these pools."""
        self.room_in(name for name in self._room.queues() if _serves(serves, name))

    def node_for(self, serves: frozenset[str]) -> None:
        """A node has connected that is in these pools: it may be one that jobs have not tried."""
        for name in list(self._room.queues()):
            direction = direction_of(name)
            if direction and _serves(serves, direction):
                self.room_in([name])

    def room_in(self, queues: Iterable[str]) -> None:
        """A slot may be free: the first job that waits in these queues asks for it."""
        queues = list(queues)
        for name in queues:
            if name in self._rounds:
                self._rounds[name].again = True
        waiter = self._room.room_for([name for name in queues if name not in self._rounds])
        if waiter is not None:
            self._call(waiter, _Round())

    def poll(self) -> None:
        """Tries every queue: this instance does not see the slots that others free."""
        for name in list(self._room.queues()):
            if name not in self._rounds:
                self.room_in([name])

    def has_answer(self, job: Job) -> None:
        """The pool has answered a job. If it asked as part of a round, the round goes on."""
        queue = self._asking.pop(job.job_id, None)
        if queue is None:
            return
        round_ = self._rounds.pop(queue)
        # A job that has moved to another queue does not wait here.
        waits = job.machine.phase is Phase.WAITING and job.line == queue
        # A refusal older than the last sign of room means nothing: the first job asks again.
        goes_on = not waits or (job.job_id in round_.aside and len(round_.aside) < _MAX_ASIDE)
        if goes_on and not (waits and round_.again):
            waiter = self._next(queue, round_)
            if waiter is not None:
                self._call(waiter, round_)
                return
        for each in round_.aside:
            aside = self._job(each)
            if aside is not None and aside.machine.phase is Phase.WAITING:
                self._room.rejoin_front(queue, each)
        (self._choosy.add if round_.aside else self._choosy.discard)(queue)
        if round_.again:
            self.room_in([queue])

    def _next(self, queue: str, round_: _Round) -> str | None:
        """The next job to ask, passing over those that want a node that others were refused."""
        refused = {node_id for each in round_.aside if (node_id := self._only_node(each))}
        while len(round_.aside) < _MAX_ASIDE:
            waiter = self._room.room_for([queue])
            if waiter is None or self._only_node(waiter) not in refused:
                return waiter
            round_.aside.append(waiter)
        return None

    def _only_node(self, job_id: str) -> str:
        """The only node that the job may go to; "" if there are others."""
        job = self._job(job_id)
        return job.spec.preferred_node_id if job is not None and job.spec.strict else ""

    def _call(self, waiter: str, round_: _Round) -> None:
        job = self._job(waiter)
        if job is None:
            self._room.leave(waiter)
            return
        round_.asks = waiter
        self._rounds[job.line] = round_
        self._asking[waiter] = job.line
        self._ask(job)
        if not job.is_asking:
            # It no longer needs a node: the round must not wait for it.
            self._room.leave(waiter)
            self.has_answer(job)


def _serves(pools: frozenset[str], queue: str) -> bool:
    if queue in pools:
        return True
    head, _, _ = queue.rpartition(":")
    return f"{head}:*" in pools
