"""Splits changes of the fleet into messages of limited size. Pure."""

from collections.abc import Iterator

from lingua_scheduler.services.pool_service.fleet.sample import Changes
from lingua_scheduler.v1 import pool_pb2

# Nodes, new and removed together, of one message: building it takes a few milliseconds.
MAX_NODES = 500
# What a field's tag and length add to the size of its value, at most.
_FRAMING = 8


def messages(
    changes: Changes, sent: dict[str, pool_pb2.CapabilitySet], max_bytes: int
) -> Iterator[pool_pb2.WatchFleetResponse]:
    """Yields the messages that tell a watcher about changes; the last one is complete.

    Args:
        changes: what to tell.
        sent: the capability sets that the watcher has, by id; those that it gets are added. A set
            that no node had for a while is another object, and is sent again.
        max_bytes: of a message, unless a single capability set is larger.
    """
    message = pool_pb2.WatchFleetResponse(as_of_ms=changes.as_of_ms)
    count = size = 0

    def is_full(added: int) -> bool:
        return count >= MAX_NODES or (count > 0 and size + added > max_bytes)

    for known in changes.nodes:
        new = known.capabilities
        if new is not None and sent.get(new.id) is new:
            new = None
        added = known.node.ByteSize() + _FRAMING
        added += new.ByteSize() + _FRAMING if new else 0
        if is_full(added):
            yield message
            message, count, size = pool_pb2.WatchFleetResponse(as_of_ms=changes.as_of_ms), 0, 0
        if new is not None:
            message.capability_sets.append(new)
            sent[new.id] = new
        message.nodes.append(known.node)
        count, size = count + 1, size + added
    for node_id in changes.removed:
        added = len(node_id) + _FRAMING
        if is_full(added):
            yield message
            message, count, size = pool_pb2.WatchFleetResponse(as_of_ms=changes.as_of_ms), 0, 0
        message.removed_node_ids.append(node_id)
        count, size = count + 1, size + added
    message.is_complete = True
    yield message
