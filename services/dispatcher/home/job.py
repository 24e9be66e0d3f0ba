"""The jobs at their home: the machine of each, and what the shell knows about it."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Allocate,
    Attempt,
    AttemptState,
    Effect,
)
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.job.timeline import Timeline
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.runtime.errors import SessionTakenOverError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# Failures that say nothing about the job, only that no node was available at the time.
_NO_NODE_NOW = frozenset(
    (
        common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
        common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
        common_pb2.ERROR_REASON_BOUND_NODE_FULL,
        common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED,
        common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
        common_pb2.ERROR_REASON_PREFERRED_NODE_NOT_CAPABLE,
        common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
        common_pb2.ERROR_REASON_DRAINING,
        common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    )
)

# Begins the names of queues of jobs that wait for a node that has not tried them. No direction has
# such a name.
_OTHERS = "!"

# The turn had a node, and the attempt was placed on another one.
_LEFT_ITS_NODE = (
    pool_pb2.BINDING_OUTCOME_UNAVAILABLE,
    pool_pb2.BINDING_OUTCOME_FULL,
    pool_pb2.BINDING_OUTCOME_EXCLUDED,
)


class Gateway(Protocol):
    """The receiver of a job's events."""

    def put(self, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        """Queues an event; False: the gateway is gone or does not read."""


@dataclass(slots=True, eq=False)
class Job:
    """One job at its home."""

    job_id: str
    key: str
    spec: dispatcher_pb2.JobSpec
    machine: JobMachine
    timeline: Timeline
    # Jobs of the same queue wait for the same nodes.
    queue: str
    # Counts up: jobs wait in the order of their submission.
    ticket: int
    submitted_ms: float
    deadline_ms: float | None
    gateway: Gateway | None
    # The highest epoch of the session that it was submitted or attached to with; 0: unknown.
    epoch: int = 0
    # The pool has placed an attempt.
    has_begun: bool = False
    # Another dispatcher began it.
    is_taken_up: bool = False
    sent_ms: dict[int, float] = field(default_factory=dict)
    # The nodes that attempts did not reach, by the attempt's number.
    not_sent: dict[int, str] = field(default_factory=dict)
    # Attempts whose connection was lost: that of their node, or only the relay to its dispatcher.
    cut_off: set[int] = field(default_factory=set)
    # A node runs this attempt, which the gateway has not been told yet.
    begun: Attempt | None = None
    # The last event other than partials, for a gateway that attaches later.
    last: dispatcher_pb2.JobEvent | None = None
    # It has failed, or its result is safe: taken by a client, or kept.
    is_settled: bool = False
    # Its end is recorded, or on the way there.
    is_recorded: bool = False
    # It has asked the pool, and has no answer yet.
    is_asking: bool = False
    # Others waited for the same nodes when it was submitted.
    is_behind: bool = False
    has_waited: bool = False
    # Since when it waits for room; None: it does not wait.
    waits_since_ms: float | None = None
    # The last refusal says nothing about others that wait in the same queue.
    is_particular: bool = False
    # The last refusal was because of its tenant's quota.
    is_over_quota: bool = False
    # The last refusal told it to wait for this node, which has the beginning of its turn.
    turn_node: str = ""
    # The queue in which it waits for a node that has not tried it; "": it waits for something else.
    others_line: str = ""
    session_id: str = field(init=False)
    utterance_index: int = field(init=False)

    def __post_init__(self) -> None:
        self.session_id = self.spec.session_id
        self.utterance_index = self.spec.utterance_index

    @property
    def line(self) -> str:
        """The queue in which it waits: that of the jobs that lack the same thing."""
        if self.others_line:
            return self.others_line
        if self.is_over_quota:
            return self.tenant_line
        return node_line(self.turn_node) if self.turn_node else self.queue

    @property
    def tenant_line(self) -> str:
        """The queue of its tenant's jobs over the quota. No direction has such a name."""
        return f"@{self.spec.tenant}"

    def line_besides(self, nodes: tuple[str, ...]) -> str:
        """The queue of jobs for which only nodes besides these will do: "" if there are none.

        All jobs in it ask for the same, so a refusal of one applies to all. They do not hold up
        other jobs of the direction, for which there may be room.
        """
        if not nodes:
            return ""
        tried = ",".join(sorted({*nodes} - self._missed))
        stages = ",".join(map(str, sorted({*self.spec.required_stages})))
        return f"{_OTHERS}{self.queue} {tried} {stages}"

    @property
    def has_left_its_turn(self) -> bool:
        """Whether a node did it that does not have the beginning of its turn."""
        if self.spec.included_utterances:
            return False
        has_left = False
        for each in self.machine.attempts.values():
            if each.state is AttemptState.DONE and each.placement.path in BY_BINDING:
                return False
            has_left = has_left or each.placement.binding in _LEFT_ITS_NODE
        return has_left

    def ref(self, number: int) -> common_pb2.AttemptRef:
        """The reference to an attempt of this job."""
        return common_pb2.AttemptRef(job_id=self.job_id, attempt=number)

    def is_on(self, number: int, node_id: str) -> bool:
        """Whether that attempt was given to that node."""
        attempt = self.machine.attempts.get(number)
        return attempt is not None and attempt.node_id == node_id

    def check_epoch(self, epoch: int) -> None:
        """Raises SessionTakenOverError if a later epoch of the session has the job."""
        check_epoch(self.job_id, epoch, self.epoch)

    @property
    def has_found_no_node(self) -> bool:
        """Whether it failed only because no node was available at the time."""
        return self.last is not None and self.last.failed.reason in _NO_NODE_NOW

    def may_begin_anew(self, epoch: int) -> bool:
        """Whether it failed in a way that a new submission, in this epoch, may fix."""
        over = self.machine.phase is Phase.OVER and not self.is_asking
        if not over or self.last is None or not self.last.HasField("failed"):
            return False
        reason = self.last.failed.reason
        # The session moved on before the job began; now the session itself submits it.
        was_behind = reason == common_pb2.ERROR_REASON_SESSION_TAKEN_OVER and epoch > self.epoch
        return self.has_found_no_node or was_behind

    def preferred(self, asks: Allocate) -> str:
        """The node that the caller prefers, unless it was tried: it may be gone for good."""
        tried = self.spec.preferred_node_id in asks.exclude and not self.spec.strict
        return "" if tried else self.spec.preferred_node_id

    def excluded(self, asks: Allocate) -> list[str]:
        """The nodes that were tried. After a wait, those that were not reached may be back."""
        missed = self._missed if self.has_waited else ()
        return [node_id for node_id in asks.exclude if node_id not in missed]

    @property
    def _missed(self) -> set[str]:
        """The nodes that were not reached, and have not had the job since."""
        attempts = self.machine.attempts.items()
        had = {each.node_id for number, each in attempts if number not in self.not_sent}
        return {*self.not_sent.values()} - had

    def waits_to_be_taken(self, number: int) -> bool:
        """Whether that attempt's result was delivered, and is confirmed once it is taken."""
        if self.is_settled or self.last is None or not self.last.HasField("delivered"):
            return False
        return self.last.delivered.result.attempt.attempt == number

    def is_unwanted(self, number: int) -> bool:
        """Whether a node that still has that attempt should drop it."""
        attempt = self.machine.attempts.get(number)
        over = attempt is not None and not attempt.is_alive
        return over and not self.waits_to_be_taken(number)


# Carries out the effects of an event of a job, which happened at this time.
Feed = Callable[[Job, float, Iterable[Effect]], None]


def node_line(node_id: str) -> str:
    """The queue of jobs that wait for the node of their turn. No direction has such a name."""
    return f"#{node_id}"


def direction_of(line: str) -> str:
    """The direction of a queue made by `line_besides`; "" for all other queues."""
    return line.removeprefix(_OTHERS).partition(" ")[0] if line.startswith(_OTHERS) else ""


def check_epoch(job_id: str, epoch: int, latest: int) -> None:
    """Raises SessionTakenOverError if `epoch` is known (not 0) and older than the latest."""
    if 0 < epoch < latest:
        raise SessionTakenOverError(
            f"job {job_id!r} belongs to epoch {latest} of its session; epoch {epoch} is over"
        )


class JobRegistry:
    """Every job that is known here: those under way, and those that ended a short time ago."""

    def __init__(self, metrics: DispatcherMetrics) -> None:
        self._jobs: dict[str, Job] = {}
        self.get: Callable[[str], Job | None] = self._jobs.get
        """The job with an id, or None. Not a method: every report of a node calls it."""
        self._unsettled = 0
        self.idle = asyncio.Event()
        """Set while no job is under way and no result waits to be taken."""
        self.idle.set()
        metrics.jobs.set_function(lambda: len(self._jobs))

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    @property
    def under_way(self) -> int:
        """The number of jobs that have not settled."""
        return self._unsettled

    def add(self, job: Job) -> None:
        """Adds a job that begins."""
        self._jobs[job.job_id] = job
        self._unsettled += 1
        self.idle.clear()

    def settle(self, job: Job) -> None:
        """Marks a job as settled: it failed, or its result is safe. Called once for each job."""
        job.is_settled = True
        self._unsettled -= 1
        if self._unsettled == 0:
            self.idle.set()

    def remove(self, job: Job) -> None:
        """Forgets a job that is over."""
        del self._jobs[job.job_id]
