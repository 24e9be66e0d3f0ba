"""The state of one connection of one node, and the attempts that the node was given over it."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# How long a stream that is to end may take to write what is queued: a node that does not read would
# keep it open forever.
_FLUSH_S = 1.0

AttemptKey = tuple[str, int]

# What a node may say of an attempt.
Report = (
    dispatcher_pb2.JobAck
    | dispatcher_pb2.JobReject
    | dispatcher_pb2.JobPartial
    | dispatcher_pb2.JobResult
    | dispatcher_pb2.JobFailed
)


def attempt_key(attempt: common_pb2.AttemptRef) -> AttemptKey:
    """An attempt as a key of a dict."""
    return attempt.job_id, attempt.attempt


class Responsible(Protocol):
    """Answers for attempts: the jobs of this dispatcher, or the relay stream of another home."""

    def on_report(self, node_id: str, report: Report) -> None:
        """The node has said something of an attempt."""

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """The assignment never got to the node."""

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection of a node that may have the attempt is gone."""


class PartialLimiter:
    """Lets at most one partial result through in each interval. The caller gives the time.

    A partial result that comes up to half an interval early passes too, because the one before it
    may have been delayed on its way; the next one then waits longer. So at most n + 1 pass in n
    intervals.

    Args:
        interval_ms: 0: no partial results are wanted, and none passes.
    """

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._due_ms = float("-inf")

    def passes(self, now_ms: float) -> bool:
        """Whether a partial result that comes now is passed on."""
        if not self._interval_ms or now_ms < self._due_ms - self._interval_ms / 2:
            return False
        self._due_ms = max(now_ms, self._due_ms) + self._interval_ms
        return True


@dataclass(slots=True, eq=False)
class Assignment:
    """An attempt that a node was given, and who answers for it."""

    job: dispatcher_pb2.JobSpec
    responsible: Responsible | None
    # When it was written to the stream; 0: it has not been yet.
    sent_us: int = 0
    # Limits its partial results; made with the first of them.
    partials: PartialLimiter | None = None
    # Whether it has a slot of the node: from its sending until two heartbeats did not list it.
    has_slot: bool = True
    # Heartbeats in a row that did not list it.
    beats_without: int = 0

    def takes_partial(self, now_ms: float) -> bool:
        """Whether a partial result that comes now is passed on: see PartialLimiter."""
        if self.partials is None:
            self.partials = PartialLimiter(self.job.partial_interval_ms)
        return self.partials.passes(now_ms)


# A message for the node, serialized, and the assignment in it, if there is one. Concatenated
# messages are one message, because repeated fields append.
Written = tuple[bytes, Assignment | None]


@dataclass(slots=True, eq=False)
class NodeStream:
    """One connection of one node, from Hello to the end of its stream."""

    hello: dispatcher_pb2.Hello
    stream_id: str
    heard_ms: float
    outbox: Outbox[Written]
    serves: frozenset[str]
    assigned: dict[AttemptKey, Assignment]
    owner: str
    """Of the node, as its token says; empty: none, or the token names the node itself."""
    epoch: int = 0
    cell: int = 0
    """The cell that the pool service has put the node in."""
    health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_READY
    load: common_pb2.NodeLoad | None = None
    running: dict[AttemptKey, common_pb2.AttemptRef] = field(default_factory=dict)
    beat_due: bool = False
    said_bye: bool = False
    ended_for: errors.LinguaError | None = None
    """The error with which this side has ended the stream, if any."""
    binding: dict[AttemptKey, asyncio.Future[Any]] = field(default_factory=dict)
    """Attempts whose audio the node holds, while the pool service is being told."""
    holds: set[AttemptKey] = field(default_factory=set)
    """Attempts that the node brought along and whose audio it holds, until their homes ask."""
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: the stream ends, whatever is left to write."""
    node_id: str = field(init=False)
    """The node."""
    brought: frozenset[AttemptKey] = field(init=False)
    """Attempts that it said it has when it connected."""

    def __post_init__(self) -> None:
        self.node_id = self.hello.node_id
        brought = (*self.hello.running, *self.hello.unconfirmed)
        self.brought = frozenset(map(attempt_key, brought))

    @property
    def is_full(self) -> bool:
        """Whether all slots of the node are taken by what it was given here or says it runs.

        The pool reserves no more slots than there are. But an order may be late: its home lost the
        connection and gave the slot back before the order arrived. Or the node still runs an
        attempt of another dispatcher that has lost its slot since.
        """
        slots = self.hello.max_concurrent_jobs
        if len(self.assigned) + len(self.running) < slots:
            return False
        holding = set(self.running)
        holding.update(key for key, each in self.assigned.items() if each.has_slot)
        return len(holding) >= slots

    def has(self, key: AttemptKey) -> bool:
        """Whether the node was given that attempt here, or says that it runs it."""
        return key in self.assigned or key in self.running

    def drop(self, key: AttemptKey) -> None:
        """Forgets an attempt that is over at the node, or that the node is told to stop."""
        self.assigned.pop(key, None)
        self.running.pop(key, None)

    def runs(self, attempts: Iterable[common_pb2.AttemptRef]) -> None:
        """Sets what the node says it runs."""
        self.running = {attempt_key(each): each for each in attempts}

    def heard_beat(self, beat: dispatcher_pb2.Heartbeat) -> None:
        """Updates the state with what a heartbeat says."""
        self.load, self.health = beat.load, beat.health
        self.runs(beat.running)
        for key, assignment in self.assigned.items():
            if key in self.running:
                assignment.has_slot, assignment.beats_without = True, 0
            else:
                # The first such beat may have been on the way before the node had the assignment.
                assignment.beats_without += 1
                assignment.has_slot = assignment.has_slot and assignment.beats_without < 2
        self.beat_due = True

    def end(self, why: errors.LinguaError | None = None) -> None:
        """Ends the stream when all that is queued is written, and soon in any case.

        An error becomes its status.
        """
        self.ended_for = self.ended_for or why
        self.outbox.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.cut.set)

    def registration(self, *, instance_id: str, address: str) -> pool_pb2.RegisterNodeRequest:
        """The request that registers this connection with the pool service."""
        running = self.running.values() if self.epoch else self.hello.running
        return pool_pb2.RegisterNodeRequest(
            node_id=self.node_id,
            incarnation=self.hello.incarnation,
            stream_id=self.stream_id,
            capabilities=self.hello.capabilities,
            max_concurrent_jobs=self.hello.max_concurrent_jobs,
            health=self.health,
            load=self.load or self.hello.load,
            owner_instance=instance_id,
            owner_address=address,
            node_owner=self.owner,
            running=running,
            finished=self.hello.unconfirmed,
        )

    def beat(self) -> pool_pb2.NodeBeat:
        """The entry of this node in the next batch of heartbeats."""
        return pool_pb2.NodeBeat(
            node_id=self.node_id,
            epoch=self.epoch,
            health=self.health,
            load=self.load,
            running=self.running.values(),
            cell=self.cell,
        )
