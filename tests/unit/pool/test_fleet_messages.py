"""Changes of the fleet as messages of limited size."""

from lingua_scheduler.services.pool_service.fleet.capability_sets import CapabilitySets
from lingua_scheduler.services.pool_service.fleet.fleet_messages import MAX_NODES, messages
from lingua_scheduler.services.pool_service.fleet.sample import Changes, Details, KnownFleet
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.v1 import pool_pb2
from tests.support.live_records import live_record

MAX_BYTES = 100_000


def changes(sets: dict[str, Capabilities | None], removed: int = 0) -> Changes:
    """New nodes with these capabilities, and some that are gone."""
    fleet = KnownFleet(stale_ms=1000)
    sample = fleet.begin()
    sample.enter(0, 5)
    sample.see((name, live_record()) for name in sets)
    for name, able in sets.items():
        added = fleet.sets.add(able) if able else None
        sample.settle(name, None, Details(capabilities=added.id if added else ""))
    fleet.end(sample, oldest=0)
    return fleet.since(0)._replace(removed=[f"gone-{number}" for number in range(removed)])


def able(pairs: int, name: str = "zh") -> Capabilities:
    return Capabilities((name,), (name,), (), tuple(f"{name}:x{n}" for n in range(pairs)), 15)


def told(said: list[pool_pb2.WatchFleetResponse]) -> list[str]:
    return [node.node_id for message in said for node in message.nodes]


def test_no_change_is_one_complete_message_with_its_time() -> None:
    (message,) = messages(Changes([], [], 7), {}, MAX_BYTES)
    assert message == pool_pb2.WatchFleetResponse(is_complete=True, as_of_ms=7)


def test_a_small_change_is_one_message() -> None:
    (message,) = messages(changes({"a": able(1)}, removed=2), {}, MAX_BYTES)
    assert (len(message.nodes), len(message.removed_node_ids)) == (1, 2)
    assert [each.id for each in message.capability_sets] == [message.nodes[0].capability_set]
    assert (message.is_complete, message.as_of_ms) == (True, 5)


def test_only_the_last_of_many_messages_is_complete() -> None:
    names = [f"n{number}" for number in range(3 * MAX_NODES)]
    found = list(messages(changes(dict.fromkeys(names), removed=MAX_NODES), {}, MAX_BYTES))
    assert told(found) == names
    assert [each.is_complete for each in found] == [*[False] * (len(found) - 1), True]
    assert sum(len(each.removed_node_ids) for each in found) == MAX_NODES
    for message in found:
        assert len(message.nodes) + len(message.removed_node_ids) <= MAX_NODES
        assert message.ByteSize() <= MAX_BYTES
        assert message.as_of_ms == 5


def test_a_set_is_sent_once_with_the_first_node_that_has_it() -> None:
    shared = able(2)
    sent: dict[str, pool_pb2.CapabilitySet] = {}
    new = changes({"a": shared, "b": able(3), "c": shared})
    found = list(messages(new, sent, MAX_BYTES))
    assert len(sent) == 2
    assert [each.id for message in found for each in message.capability_sets] == [
        found[0].nodes[0].capability_set,
        found[0].nodes[1].capability_set,
    ]
    (again,) = messages(new, sent, MAX_BYTES)
    assert not again.capability_sets


def test_a_set_that_no_node_had_for_a_while_is_sent_again() -> None:
    sent: dict[str, pool_pb2.CapabilitySet] = {}
    list(messages(changes({"a": able(2)}), sent, MAX_BYTES))
    # A fleet that has forgotten the set, and reads it again.
    (again,) = messages(changes({"a": able(2)}), sent, MAX_BYTES)
    assert [each.id for each in again.capability_sets] == [again.nodes[0].capability_set]


def test_large_sets_share_no_message_but_every_set_is_sent() -> None:
    large = {f"n{number}": able(16_384, f"l{number}") for number in range(3)}
    sets = CapabilitySets()
    size = max(added.ByteSize() for each in large.values() if (added := sets.add(each)))
    found = list(messages(changes(dict(large)), {}, MAX_BYTES))
    assert [len(each.capability_sets) for each in found] == [1, 1, 1]
    assert all(each.ByteSize() < size + 1000 for each in found)
