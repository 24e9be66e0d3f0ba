"""All nodes, as `WatchFleet` tells them, and what they have together."""

from array import array
from collections import Counter, deque
from collections.abc import Generator, Iterator

from lingua_scheduler.services.console.store.node import (
    READY,
    CapabilitySet,
    FleetNode,
    capability_set_of,
)
from lingua_scheduler.v1 import pool_pb2

# Directions of all capability sets together. A hundred languages into sixty are 6,000.
MAX_DIRECTIONS = 200_000
# Ten times what the scheduler is made for.
MAX_NODES = 500_000
MAX_SETS = 50_000
# Used slots of each node: 10 minutes, a value every 5 s.
USED_POINTS = 120
# Nodes that are taken in at once: about five milliseconds.
_STEP = 500
# The largest number that a column can have. A node has at most 1000 slots.
_MOST_USED = 65_535

_UNKNOWN_SET = CapabilitySet((), (), 0, 0, is_left_out=True)


class Fleet:
    """The nodes, their counts by health, and the sets of capabilities that they share.

    One object owns all of it and applies messages in order. Sums are kept up to date with each
    node that changes, so that nothing has to walk over all nodes.

    Used slots over time are kept in columns, one per tick, each with a value for every node: a tick
    copies one array, also if there are 50,000 nodes.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, FleetNode] = {}
        self.sets: dict[str, CapabilitySet] = {}
        self.groups: Counter[str] = Counter()
        """Number of nodes by health; ejected nodes that are ready otherwise count as "ejected"."""
        self.slots = 0
        """Slots of the nodes that may be chosen, and how many of them are free."""
        self.free = 0
        self.version = 0
        """Changes whenever anything about pools does."""
        self.is_known = False
        """Whether all nodes have been read at least once."""
        self.as_of_ms = 0
        self.has_cells = False
        """Whether there was a node in another cell than the first."""
        self._directions = 0
        # Nodes beyond MAX_NODES, by id.
        self._refused: set[str] = set()
        self._ejected: dict[str, FleetNode] = {}
        # While a snapshot is read: the nodes and sets that it has mentioned.
        self._seen_nodes: set[str] | None = None
        self._seen_sets: set[str] = set()
        self._used = array("H")
        self._free_rows: list[int] = []
        self._columns: deque[array[int]] = deque(maxlen=USED_POINTS)
        self._ticks = 0
        self.ticked_ms = 0
        """Time of the last tick."""

    @property
    def left_out_nodes(self) -> int:
        """Nodes that no matrix includes, because there are too many of them or of directions."""
        left = sum(each.nodes for each in self.sets.values() if each.is_left_out)
        return left + len(self._refused) + self._without_set()

    def begin(self) -> None:
        """A new stream begins, with all nodes. Those that it does not mention are gone."""
        self._seen_nodes, self._seen_sets = set(), set()

    def apply(self, message: pool_pb2.WatchFleetResponse, now_ms: int) -> None:
        """Takes in what has changed."""
        for _ in self.apply_in_steps(message, now_ms):
            pass

    def apply_in_steps(
        self, message: pool_pb2.WatchFleetResponse, now_ms: int
    ) -> Generator[None, None, None]:
        """Takes in what has changed, a few milliseconds' worth at each step.

        A message may have 30,000 nodes. Everything can be read between two steps.
        """
        for given in message.capability_sets:
            self._add_set(given)
            yield
        for count, node in enumerate(message.nodes, 1):
            self._put(node, now_ms)
            if count % _STEP == 0:
                yield
        for node_id in message.removed_node_ids:
            self._remove(node_id)
        self.as_of_ms = message.as_of_ms
        if message.is_complete and self._seen_nodes is not None:
            self._end_snapshot(self._seen_nodes)

    def settle(self, now_ms: int) -> None:
        """Ends the ejections whose time is over. To be called before anything is read."""
        over = [each for each in self._ejected.values() if each.ejected_until_ms <= now_ms]
        for node in over:
            self._count(node, -1)
            self._set_ejected(node, now_ms)
            self._count(node, 1)
        self.version += bool(over)

    def tick(self, now_ms: int) -> None:
        """Adds a value to the used slots of every node."""
        self._columns.append(self._used[:])
        self._ticks += 1
        self.ticked_ms = now_ms

    def used_series(self, node: FleetNode) -> list[int]:
        """Used slots of a node at the last ticks, the oldest first; shorter if it is newer."""
        oldest = self._ticks - len(self._columns)
        newer = list(self._columns)[max(0, node.since_tick - oldest) :]
        return [column[node.row] for column in newer]

    def set_of(self, node: FleetNode) -> CapabilitySet:
        """The capabilities of a node."""
        return node.shared or _UNKNOWN_SET

    def sets_that_serve(self, src: str, tgt: str) -> set[str]:
        """The ids of the sets whose nodes serve this direction; "" stands for any language."""
        return {name for name, each in self.sets.items() if each.serves(src, tgt)}

    def with_nodes(self) -> Iterator[CapabilitySet]:
        """The sets that have nodes and are not left out."""
        return (each for each in self.sets.values() if each.nodes and not each.is_left_out)

    def _add_set(self, given: pool_pb2.CapabilitySet) -> None:
        self._seen_sets.add(given.id)
        known = self.sets.get(given.id)
        if (known is not None and not known.is_left_out) or len(self.sets) >= MAX_SETS:
            return
        made = capability_set_of(given.capabilities, MAX_DIRECTIONS - self._directions)
        self._directions += made.directions()
        if known is None:
            self.sets[given.id] = made
        else:
            # It was left out until now. Its nodes refer to it.
            known.include(made)

    def _put(self, message: pool_pb2.Node, now_ms: int) -> None:
        if self._seen_nodes is not None:
            self._seen_nodes.add(message.node_id)
        node = self.nodes.get(message.node_id)
        if node is None:
            if len(self.nodes) >= MAX_NODES:
                self._refused.add(message.node_id)
                return
            node = FleetNode(message, row=self._new_row(), tick=self._ticks)
            self.nodes[node.node_id] = node
        else:
            self._count(node, -1)
            node.take(message)
        self.has_cells = self.has_cells or node.cell > 0
        node.shared = self.sets.get(node.capability_set)
        self._set_ejected(node, now_ms)
        self._count(node, 1)
        self._used[node.row] = min(node.used, _MOST_USED)
        self.version += 1

    def _remove(self, node_id: str) -> None:
        self._refused.discard(node_id)
        node = self.nodes.pop(node_id, None)
        if node is not None:
            self._count(node, -1)
            self._ejected.pop(node_id, None)
            self._used[node.row] = 0
            self._free_rows.append(node.row)
            self.version += 1

    def _end_snapshot(self, seen: set[str]) -> None:
        for node_id in [each for each in self.nodes if each not in seen]:
            self._remove(node_id)
        self._refused &= seen
        # A set that this stream has not sent will be sent if it is needed.
        for name in [each for each in self.sets if each not in self._seen_sets]:
            if not self.sets[name].nodes:
                self._directions -= self.sets.pop(name).directions()
        self._seen_nodes = None
        self.is_known = True

    def _new_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self._used.append(0)
        return len(self._used) - 1

    def _set_ejected(self, node: FleetNode, now_ms: int) -> None:
        node.ejected = node.ejected_until_ms > now_ms
        if node.ejected:
            self._ejected[node.node_id] = node
        else:
            self._ejected.pop(node.node_id, None)

    def _count(self, node: FleetNode, sign: int) -> None:
        """Adds a node to all sums, or takes it out of them."""
        self.groups[node.group] += sign
        shared = node.shared
        if shared is not None:
            shared.nodes += sign
        if node.group != READY:
            return
        slots, free = sign * node.slots, sign * node.free
        self.slots += slots
        self.free += free
        if shared is not None:
            shared.ready_nodes += sign
            shared.slots += slots
            shared.free += free

    def _without_set(self) -> int:
        return len(self.nodes) - sum(each.nodes for each in self.sets.values())
