"""One node's stream, as this instance sees it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from lingua_scheduler.services.dispatcher.responsible import Responsible
from lingua_scheduler.services.runtime.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# What may wait for a node that reads slowly. An assignment carries up to 2 MiB of audio; a node
# that lets more than this pile up is as good as gone, and jobs go elsewhere.
MAX_EVENTS = 1000
MAX_BYTES = 32 * 1024 * 1024
# What a stream that is to end has to write the rest; a node that does not read never would.
_FLUSH_S = 1.0

AttemptKey = tuple[str, int]


def attempt_key(attempt: common_pb2.AttemptRef) -> AttemptKey:
    """An attempt as a key of a dict."""
    return attempt.job_id, attempt.attempt


@dataclass(slots=True, eq=False)
class Assignment:
    """An attempt that this node was given, and who answers for it."""

    job: dispatcher_pb2.JobSpec
    responsible: Responsible | None
    # When it was written to the stream; 0: it has not been yet.
    sent_us: int = 0
    # Whether it has a slot of the node: from its sending until a heartbeat does not list it.
    has_slot: bool = True


# A message for the node, serialized, and the assignment in it, if there is one. Messages one after
# the other are one message.
Written = tuple[bytes, Assignment | None]


@dataclass(slots=True, eq=False)
class NodeStream:
    """The state of one connection of one node."""

    hello: dispatcher_pb2.Hello
    stream_id: str
    heard_ms: float
    outbox: Outbox[Written]
    serves: frozenset[str]
    assigned: dict[AttemptKey, Assignment]
    epoch: int = 0
    health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_READY
    load: common_pb2.NodeLoad | None = None
    running: tuple[common_pb2.AttemptRef, ...] = ()
    beat_due: bool = False
    said_bye: bool = False
    binding: dict[AttemptKey, asyncio.Future[Any]] = field(default_factory=dict)
    """Attempts whose audio the node holds, while the pool service is told so."""
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: the stream ends, whatever is left to write."""
    node_id: str = field(init=False)
    """The node."""

    def __post_init__(self) -> None:
        self.node_id = self.hello.node_id

    @property
    def is_full(self) -> bool:
        """Whether what the node was given here has all of its slots, as far as it has told.

        The pool gives no more than that. But an order may be late: its home has lost its way here,
        given the slot back, and the order comes out of the network after all.
        """
        slots = self.hello.max_concurrent_jobs
        return (
            len(self.assigned) >= slots
            and sum(each.has_slot for each in self.assigned.values()) >= slots
        )

    def end(self) -> None:
        """Ends the stream after what is queued, and soon in any case."""
        self.outbox.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.cut.set)

    def registration(self, *, instance_id: str, address: str) -> pool_pb2.RegisterNodeRequest:
        """What the pool service is told of this connection."""
        running = self.running if self.epoch else self.hello.running
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
            running=running,
        )

    def beat(self) -> pool_pb2.NodeBeat:
        """What the next batch of heartbeats says of it."""
        return pool_pb2.NodeBeat(
            node_id=self.node_id,
            epoch=self.epoch,
            health=self.health,
            load=self.load,
            running=self.running,
        )
