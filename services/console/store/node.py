"""One node of the fleet, and the capabilities that nodes share."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lingua_scheduler.services.runtime.contract.capabilities import ANY, Capabilities
from lingua_scheduler.v1 import common_pb2, pool_pb2

READY: Final = "ready"
EJECTED: Final = "ejected"
HEALTHS: Final = {
    common_pb2.NODE_HEALTH_READY: READY,
    common_pb2.NODE_HEALTH_DEGRADED: "degraded",
    common_pb2.NODE_HEALTH_DRAINING: "draining",
    common_pb2.NODE_HEALTH_OFFLINE: "offline",
}
# The groups in which nodes are counted, each node in one of them.
GROUPS: Final = (*HEALTHS.values(), EJECTED)
_OFFLINE: Final = HEALTHS[common_pb2.NODE_HEALTH_OFFLINE]
_TEXT = "text:"
# Languages of a set that a row of a table shows.
SHOWN_LANGUAGES = 6


class FleetNode:
    """A node as the last message told it. Small, because there may be 50,000."""

    __slots__ = (
        "address",
        "capability_set",
        "cell",
        "drained",
        "drained_ms",
        "ejected",
        "ejected_until_ms",
        "epoch",
        "failures",
        "health",
        "instance",
        "last_heartbeat_ms",
        "load",
        "node_id",
        "owner",
        "row",
        "shared",
        "since_tick",
        "slots",
        "used",
        "used_at_drain",
    )

    def __init__(self, node: pool_pb2.Node, *, row: int, tick: int) -> None:
        self.node_id = node.node_id
        self.row = row
        """Its place in the columns of used slots."""
        self.since_tick = tick
        """The first of the columns that has its own value."""
        self.shared: CapabilitySet | None = None
        """What it shares with other nodes; the fleet sets it."""
        self.ejected = False
        """Whether it counts as ejected; the fleet updates this as time passes."""
        self.take(node)

    def take(self, node: pool_pb2.Node) -> None:
        """Replaces all that the message tells."""
        self.health = HEALTHS.get(node.health, _OFFLINE)
        self.slots = node.max_concurrent_jobs
        self.used = node.used_slots
        self.load = node.load
        self.failures = node.failures_in_row
        # Thousands of nodes share these texts.
        self.instance = sys.intern(node.owner_instance)
        self.address = sys.intern(node.owner_address)
        self.owner = sys.intern(node.node_owner)
        self.capability_set = sys.intern(node.capability_set)
        self.ejected_until_ms = node.ejected_until_ms
        self.drained = node.drained_by_operator
        self.drained_ms = node.drained_ms
        self.used_at_drain = node.slots_used_at_drain
        self.epoch = node.epoch
        self.cell = node.cell
        self.last_heartbeat_ms = node.last_heartbeat_ms

    @property
    def group(self) -> str:
        """The group that counts it: its health, or "ejected" if it would be ready otherwise."""
        return EJECTED if self.ejected and self.health == READY else self.health

    @property
    def free(self) -> int:
        """Free slots; a node that reconnected with fewer slots may have more leases than slots."""
        return max(0, self.slots - self.used)


@dataclass(slots=True)
class CapabilitySet:
    """Capabilities that several nodes share, and what these nodes have together.

    `speech` and `text` are directions such as "en:es"; both are empty if the set is left out
    because there are too many directions.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    sources_total: int
    targets_total: int
    speech: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    is_left_out: bool = False
    nodes: int = 0
    ready_nodes: int = 0
    slots: int = 0
    free: int = 0

    def directions(self) -> int:
        """How many directions it takes part in, of speech and of text."""
        return len(self.speech) + len(self.text)

    def include(self, made: "CapabilitySet") -> None:
        """Takes the directions of the same set, which was made again with more room."""
        self.speech, self.text, self.is_left_out = made.speech, made.text, made.is_left_out

    def serves(self, src: str, tgt: str) -> bool:
        """Whether its nodes serve this direction, as speech or as text; "" stands for any."""
        if src and tgt:
            return (
                f"{src}:{tgt}" in self.speech
                or f"{src}:{tgt}" in self.text
                or f"{src}:{ANY}" in self.text
            )
        every = (*self.speech, *self.text)
        if src:
            return any(direction.startswith(f"{src}:") for direction in every)
        return any(direction.endswith((f":{tgt}", f":{ANY}")) for direction in every)


def capability_set_of(declared: common_pb2.NodeCapabilities, room: int) -> CapabilitySet:
    """Makes the set of these capabilities; it is left out if it has more directions than `room`."""
    capabilities = Capabilities.of(declared)
    sources = sorted(set(capabilities.asr_langs) & set(capabilities.semantic_langs))
    targets = _targets(capabilities)
    shown = CapabilitySet(
        sources=_few(sources),
        targets=_few(targets),
        sources_total=len(sources),
        targets_total=len(targets),
    )
    if _most_directions(capabilities, len(sources)) > room:
        shown.is_left_out = True
        return shown
    pools = sorted(capabilities.pools())
    shown.speech = tuple(sys.intern(pool) for pool in pools if not pool.startswith(_TEXT))
    shown.text = tuple(
        sys.intern(pool.removeprefix(_TEXT)) for pool in pools if pool.startswith(_TEXT)
    )
    return shown


def _targets(capabilities: Capabilities) -> list[str]:
    if not capabilities.nmt_pairs:
        return [*capabilities.tts_langs, ANY]
    return sorted({pair.partition(":")[2] for pair in capabilities.nmt_pairs})


def _most_directions(capabilities: Capabilities, sources: int) -> int:
    """An upper bound that does not need the directions themselves."""
    if not capabilities.nmt_pairs:
        return sources * (len(capabilities.tts_langs) + 1)
    return 2 * len(capabilities.nmt_pairs)


def _few(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sys.intern(code) for code in list(codes)[:SHOWN_LANGUAGES])
