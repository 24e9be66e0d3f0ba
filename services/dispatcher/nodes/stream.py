"""The state of one connection of one node."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lingua_scheduler.services.dispatcher.nodes.attempts import (
    Assignment,
    AttemptKey,
    attempt_key,
)
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# How long a stream that is to end may take to write what is queued: a node that does not read would
# keep it open forever.
_FLUSH_S = 1.0

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
    owner: str = ""
    """Of the node, as its token says; empty: none, or the token names the node itself."""
    epoch: int = 0
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
        )
