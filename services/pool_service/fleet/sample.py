"""Samples of the fleet: which nodes have changed from one to the next. Pure.

A sample reads every node, so most of what it finds is known. What tells nothing new (a heartbeat,
the load, a renewed lease) is recognised without a closer look at the record.
"""

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.capability_sets import CapabilitySets
from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.v1 import pool_pb2

# The first fields of a packed record (lua/lib/live.lua): heartbeat, epoch, end of the next lease,
# load. All but the epoch tell nothing new.
_FIRST = struct.Struct("<dddd")


class Details(NamedTuple):
    """Facts of a node that are not in its packed record."""

    node_owner: str = ""
    drained_ms: int = 0
    slots_used_at_drain: int = 0
    capabilities: str = ""
    """The id of its capability set; "" if that is not kept."""


class Facts(NamedTuple):
    """What watchers learn of a node. If two are equal, nothing has changed."""

    cell: int
    health: int
    max_concurrent_jobs: int
    used_slots: int
    owner_instance: str
    owner_address: str
    epoch: int
    failures: int
    ejected_until_ms: int
    is_drained: bool
    stages: int
    details: Details


class _Leases(Enum):
    NONE = auto()
    AS_RECORDED = auto()
    COUNTED = auto()


class Outline(NamedTuple):
    """By which a node is recognised as unchanged, without a closer look at its record.

    Attributes:
        rest: what its packed record has beside the fields that tell nothing new (`_rest`).
        is_heard: whether its heartbeats arrive.
        ejected_until_ms: when its ejection ends; infinite if it is not ejected.
        leases: whether its record has any, and whether they had to be counted.
        ended_by: if none of them is left, the end of the next lease by the record; while that
            stays, no script has changed the leases.
    """

    rest: bytes
    is_heard: bool
    ejected_until_ms: float
    leases: _Leases
    ended_by: float


@dataclass(slots=True)
class KnownNode:
    """A node as the last sample found it.

    Attributes:
        outline: by which the next sample recognises it.
        facts: what watchers learn.
        node: the same as a message. Its load and heartbeat are those of the last sample.
        capabilities: its capability set, if that is kept.
        changed: number of the sample in which it changed last.
    """

    outline: Outline
    facts: Facts
    node: pool_pb2.Node
    capabilities: pool_pb2.CapabilitySet | None
    changed: int


class Unsettled(NamedTuple):
    """A node about which the packed record does not say everything.

    Attributes:
        packed: its packed record.
        live: the same, unpacked.
        needs_count: some of its leases may have ended and have to be counted.
        needs_details: its Details have to be read.
    """

    packed: bytes
    live: LiveNode
    needs_count: bool
    needs_details: bool


class Changes(NamedTuple):
    """What has changed since a sample."""

    nodes: list[KnownNode]
    removed: list[str]
    as_of_ms: int


class KnownFleet:
    """All nodes as of the last sample.

    Args:
        stale_ms: a node whose last heartbeat is older is offline.
    """

    def __init__(self, stale_ms: int) -> None:
        self.sets = CapabilitySets()
        self.number = 0
        """Of the last sample; 0: there was none."""
        self._stale_ms = stale_ms
        self._as_of_ms = 0
        self._nodes: dict[str, KnownNode] = {}
        # In which sample a node was missing for the first time.
        self._removed: dict[str, int] = {}
        self._latest = Changes([], [], 0)

    def begin(self) -> "Sample":
        """Begins a sample."""
        return Sample(self._nodes, self._stale_ms, self.sets, self.number + 1)

    def end(self, sample: "Sample", *, oldest: int) -> None:
        """Takes over a sample that has seen and settled all nodes.

        Args:
            sample: from `begin`.
            oldest: the oldest sample that `since` will be asked about.
        """
        gone = [node_id for node_id in self._nodes if node_id not in sample.seen]
        for node_id in gone:
            self.sets.release(self._nodes.pop(node_id).facts.details.capabilities)
        for node_id, node in sample.changed.items():
            before = self._nodes.get(node_id)
            if before is None or before.capabilities is not node.capabilities:
                self.sets.hold(node.facts.details.capabilities)
                self.sets.release(before.facts.details.capabilities if before else "")
            if before is None:
                self._removed.pop(node_id, None)
        self._nodes.update(sample.changed)
        self.sets.drop_unused()
        self.number, self._as_of_ms = sample.number, sample.now_ms
        self._removed.update(dict.fromkeys(gone, self.number))
        self._removed = {key: at for key, at in self._removed.items() if at > oldest}
        self._latest = Changes(list(sample.changed.values()), gone, self._as_of_ms)

    def has_changed_since(self, number: int) -> bool:
        """Whether `since` would return any node."""
        if number == self.number - 1:
            return bool(self._latest.nodes or self._latest.removed)
        changes = self.since(number)
        return bool(changes.nodes or changes.removed)

    def since(self, number: int) -> Changes:
        """What has changed after the sample of this number; 0: all nodes."""
        if number == self.number:
            return Changes([], [], self._as_of_ms)
        if number and number == self.number - 1:
            return self._latest
        nodes = [node for node in self._nodes.values() if node.changed > number]
        removed = [key for key, at in self._removed.items() if at > number] if number else []
        return Changes(nodes, removed, self._as_of_ms)


class Sample:
    """A sample under way. Nothing of it is visible before `KnownFleet.end`.

    It sees one cell after the other.
    """

    def __init__(
        self, known: dict[str, KnownNode], stale_ms: int, sets: CapabilitySets, number: int
    ) -> None:
        self.now_ms = 0
        """The time of the cell that is seen now."""
        self.number = number
        self.seen: set[str] = set()
        self.changed: dict[str, KnownNode] = {}
        self.unsettled: dict[str, Unsettled] = {}
        """Nodes that were seen and wait for `settle`."""
        self._known = known
        self._stale_ms = stale_ms
        self._sets = sets
        self._cell = 0

    def enter(self, cell: int, now_ms: int) -> None:
        """What follows is in this cell, whose clock says so."""
        self._cell, self.now_ms = cell, now_ms

    def give_up(self) -> None:
        """The rest of the nodes of this cell cannot be read."""
        self.seen.difference_update(self.unsettled)
        self.unsettled.clear()

    def see(self, page: Iterable[tuple[str, bytes]]) -> None:
        """Compares some nodes with what is known; `page` has their ids and packed records."""
        now, known_nodes, heard_after = self.now_ms, self._known, self.now_ms - self._stale_ms
        for node_id, packed in page:
            known = known_nodes.get(node_id)
            beat, epoch, next_end, load = _FIRST.unpack_from(packed)
            if node_id in self.seen:
                # A node may be in two cells if it had to leave one that was away.
                if epoch <= self._epoch_of(node_id):
                    continue
                self.changed.pop(node_id, None)
            self.seen.add(node_id)
            if known is not None:
                rest, is_heard, ejected_until, leases, ended_by = known.outline
                if (
                    rest == _rest(packed)
                    and is_heard == (beat > heard_after)
                    and now < ejected_until
                    and (
                        leases is _Leases.NONE
                        or (leases is _Leases.AS_RECORDED and now < next_end)
                        or next_end == ended_by
                    )
                ):
                    known.node.last_heartbeat_ms, known.node.load = int(beat), load
                    continue
            self._look_closer(node_id, packed, known)

    def _epoch_of(self, node_id: str) -> int:
        """Of a node that was seen."""
        if waiting := self.unsettled.get(node_id):
            return waiting.live.epoch
        return (self.changed.get(node_id) or self._known[node_id]).facts.epoch

    def _look_closer(self, node_id: str, packed: bytes, known: KnownNode | None) -> None:
        live = LiveNode.unpack(packed)
        needs_count = live.used > 0 and live.next_end_ms <= self.now_ms
        needs_details = known is None or (
            (live.epoch, live.stages, live.drained)
            != (known.facts.epoch, known.facts.stages, known.facts.is_drained)
        )
        if known is None or needs_count or needs_details:
            self.unsettled[node_id] = Unsettled(packed, live, needs_count, needs_details)
        else:
            self._settle(node_id, packed, live, None, known.facts.details)

    def settle(self, node_id: str, used: int | None, details: Details | None) -> None:
        """Completes what is known of a node in `unsettled`.

        Args:
            node_id: which.
            used: number of its leases that have not ended; None if it needs no count.
            details: None if it needs none.
        """
        packed, live, _, _ = self.unsettled.pop(node_id)
        known = self._known.get(node_id)
        if details is None:
            details = known.facts.details if known else Details()
        self._settle(node_id, packed, live, used, details)

    def _settle(
        self, node_id: str, packed: bytes, live: LiveNode, counted: int | None, details: Details
    ) -> None:
        now, known = self.now_ms, self._known.get(node_id)
        is_ejected = live.ejected_until_ms > now
        facts = Facts(
            cell=self._cell,
            health=live.effective_health(now, self._stale_ms),
            max_concurrent_jobs=live.max_concurrent_jobs,
            used_slots=live.used if counted is None else counted,
            owner_instance=live.owner_instance,
            owner_address=live.owner_address,
            epoch=live.epoch,
            failures=live.failures,
            ejected_until_ms=live.ejected_until_ms if is_ejected else 0,
            is_drained=live.drained,
            stages=live.stages,
            details=details,
        )
        leases = _Leases.AS_RECORDED if live.used else _Leases.NONE
        outline = Outline(
            rest=_rest(packed),
            is_heard=live.beat_ms > now - self._stale_ms,
            ejected_until_ms=live.ejected_until_ms if is_ejected else math.inf,
            leases=leases if counted is None else _Leases.COUNTED,
            ended_by=live.next_end_ms if counted == 0 else math.nan,
        )
        if known is not None and known.facts == facts:
            known.outline = outline
            known.node.last_heartbeat_ms, known.node.load = live.beat_ms, live.load
            return
        self.changed[node_id] = KnownNode(
            outline=outline,
            facts=facts,
            node=_message(node_id, facts, live),
            capabilities=self._sets.get(details.capabilities),
            changed=self.number,
        )


def _rest(packed: bytes) -> bytes:
    """A packed record without heartbeat, end of the next lease, load, and kept slot."""
    return packed[8:16] + packed[32:40] + packed[48:]


def _message(node_id: str, facts: Facts, live: LiveNode) -> pool_pb2.Node:
    details = facts.details
    return pool_pb2.Node(
        node_id=node_id,
        cell=facts.cell,
        health=facts.health,  # type: ignore[arg-type]
        max_concurrent_jobs=facts.max_concurrent_jobs,
        load=live.load,
        last_heartbeat_ms=live.beat_ms,
        owner_instance=facts.owner_instance,
        owner_address=facts.owner_address,
        epoch=facts.epoch,
        failures_in_row=facts.failures,
        ejected_until_ms=facts.ejected_until_ms,
        drained_by_operator=facts.is_drained,
        node_owner=details.node_owner,
        capability_set=details.capabilities,
        drained_ms=details.drained_ms,
        slots_used_at_drain=details.slots_used_at_drain,
        used_slots=facts.used_slots,
    )
