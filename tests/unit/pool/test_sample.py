"""Which nodes have changed from one sample of the fleet to the next."""

from typing import Any

import pytest

from lingua_scheduler.services.pool_service.fleet.capability_sets import CapabilitySets
from lingua_scheduler.services.pool_service.fleet.sample import Details, KnownFleet
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.support.live_records import live_record

STALE_MS = 1000
READY, OFFLINE = common_pb2.NODE_HEALTH_READY, common_pb2.NODE_HEALTH_OFFLINE
DRAINING = common_pb2.NODE_HEALTH_DRAINING


class Fleet:
    """Samples a fleet of records; every node has a heartbeat with each sample."""

    def __init__(self) -> None:
        self.known = KnownFleet(STALE_MS)
        self.now = 10_000
        self.records: dict[str, dict[str, Any]] = {}
        self.details: dict[str, Details] = {}
        self.counts: dict[str, int] = {}
        self.counted: list[str] = []
        self.described: list[str] = []

    def sample(self, *, oldest: int = 0) -> None:
        """Takes a sample 100 ms after the last."""
        self.now += 100
        sample = self.known.begin()
        sample.enter(0, self.now)
        page = [
            (name, live_record(**{"beat": self.now, **fields}))
            for name, fields in self.records.items()
        ]
        sample.see(page)
        self.counted, self.described = [], []
        for name, each in list(sample.unsettled.items()):
            self.counted += [name] if each.needs_count else []
            self.described += [name] if each.needs_details else []
            sample.settle(
                name,
                self.counts[name] if each.needs_count else None,
                self.details.get(name, Details()) if each.needs_details else None,
            )
        self.known.end(sample, oldest=oldest)

    def news(self, **options: int) -> dict[str, pool_pb2.Node]:
        """The nodes that another sample finds changed."""
        before = self.known.number
        self.sample(**options)
        changes = self.known.since(before)
        assert changes.as_of_ms == self.now
        return {each.node.node_id: each.node for each in changes.nodes}


@pytest.fixture
def fleet() -> Fleet:
    """A fleet of two nodes, sampled once."""
    made = Fleet()
    made.records = {"a": {}, "b": {"used": 1, "next_end": 60_000.0}}
    made.sample()
    return made


def test_the_first_sample_finds_every_node(fleet: Fleet) -> None:
    changes = fleet.known.since(0)
    nodes = {each.node.node_id: each.node for each in changes.nodes}
    assert (set(nodes), changes.removed) == ({"a", "b"}, [])
    assert nodes["b"] == pool_pb2.Node(
        node_id="b",
        health=READY,
        max_concurrent_jobs=4,
        last_heartbeat_ms=fleet.now,
        owner_instance="dispatcher-0",
        owner_address="127.0.0.1:7720",
        epoch=1,
        used_slots=1,
    )
    assert fleet.described == ["a", "b"]


@pytest.mark.parametrize("change", [{}, {"load": 0.5}, {"next_end": 70_000.0}])
def test_a_heartbeat_a_load_or_a_renewed_lease_is_no_change(
    fleet: Fleet, change: dict[str, Any]
) -> None:
    fleet.records["b"].update(change)
    assert fleet.news() == {}
    assert not fleet.known.has_changed_since(fleet.known.number - 1)
    assert (fleet.counted, fleet.described) == ([], [])


def test_who_comes_later_gets_the_latest_load_and_heartbeat(fleet: Fleet) -> None:
    fleet.records["a"]["load"] = 0.25
    fleet.sample()
    fleet.sample()
    (node,) = (each.node for each in fleet.known.since(0).nodes if each.node.node_id == "a")
    assert (node.load, node.last_heartbeat_ms) == (0.25, fleet.now)


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"used": 2}, "used_slots", 2),
        ({"most": 9}, "max_concurrent_jobs", 9),
        ({"health": common_pb2.NODE_HEALTH_DEGRADED}, "health", common_pb2.NODE_HEALTH_DEGRADED),
        ({"health": 5}, "health", OFFLINE),
        ({"drained": True}, "drained_by_operator", True),
        ({"drained": True}, "health", DRAINING),
        ({"failures": 3}, "failures_in_row", 3),
        ({"ejected": 90_000.0}, "ejected_until_ms", 90_000),
        ({"owner": "dispatcher-1"}, "owner_instance", "dispatcher-1"),
        ({"address": "127.0.0.1:1"}, "owner_address", "127.0.0.1:1"),
        ({"epoch": 2}, "epoch", 2),
    ],
)
def test_a_change_is_told_once(
    fleet: Fleet, change: dict[str, Any], field: str, value: object
) -> None:
    fleet.records["b"].update(change)
    news = fleet.news()
    assert set(news) == {"b"}
    assert getattr(news["b"], field) == value
    assert fleet.news() == {}


def test_a_node_that_falls_silent_changes_once_and_again_when_it_is_heard(fleet: Fleet) -> None:
    fleet.records["a"]["beat"] = fleet.now
    told = [fleet.news() for _ in range(12)]
    assert [set(news) for news in told] == [*[set()] * 9, {"a"}, set(), set()]
    assert told[9]["a"].health == OFFLINE
    del fleet.records["a"]["beat"]
    assert fleet.news()["a"].health == READY


def test_an_ejection_that_ends_by_time_is_a_change(fleet: Fleet) -> None:
    fleet.records["a"]["ejected"] = fleet.now + 250
    assert fleet.news()["a"].ejected_until_ms > 0
    assert fleet.news() == {}
    assert fleet.news()["a"].ejected_until_ms == 0
    assert fleet.news() == {}


def test_leases_that_may_have_ended_are_counted_until_the_record_says_more(fleet: Fleet) -> None:
    fleet.records["b"].update(used=3, next_end=fleet.now + 150)
    assert fleet.news()["b"].used_slots == 3
    assert fleet.counted == []
    fleet.counts["b"] = 2
    assert fleet.news()["b"].used_slots == 2
    assert fleet.news() == {}
    assert fleet.counted == ["b"]
    fleet.counts["b"] = 0
    assert fleet.news()["b"].used_slots == 0
    # Without a script that changes the record, there is no new lease.
    assert fleet.news() == {}
    assert fleet.counted == []
    fleet.records["b"].update(used=1, next_end=fleet.now + 60_000)
    assert fleet.news()["b"].used_slots == 1
    assert fleet.counted == []


def test_details_are_read_of_new_reconnected_and_drained_nodes_only(fleet: Fleet) -> None:
    fleet.records["c"] = {}
    fleet.news()
    assert fleet.described == ["c"]
    fleet.records["b"]["epoch"] = 7
    fleet.news()
    assert fleet.described == ["b"]
    fleet.details["b"] = Details(drained_ms=5, slots_used_at_drain=3)
    fleet.records["b"]["drained"] = True
    node = fleet.news()["b"]
    assert (node.drained_ms, node.slots_used_at_drain) == (5, 3)
    fleet.records["b"]["used"] = 0
    node = fleet.news()["b"]
    assert (node.drained_ms, node.slots_used_at_drain, node.used_slots) == (5, 3, 0)
    assert fleet.described == []


def test_a_node_that_is_gone_is_removed_and_may_come_back(fleet: Fleet) -> None:
    del fleet.records["a"]
    fleet.sample()
    assert (fleet.known.since(1).nodes, fleet.known.since(1).removed) == ([], ["a"])
    assert fleet.known.since(0).removed == []
    fleet.records["a"] = {}
    assert set(fleet.news()) == {"a"}
    assert fleet.known.since(1).removed == []


def test_who_missed_samples_gets_all_changes_at_once(fleet: Fleet) -> None:
    fleet.records["a"]["used"] = 1
    fleet.sample()
    fleet.records["c"] = {}
    fleet.sample()
    del fleet.records["b"]
    fleet.sample()
    fleet.sample()
    changes = fleet.known.since(1)
    assert {each.node.node_id for each in changes.nodes} == {"a", "c"}
    assert changes.removed == ["b"]
    assert fleet.known.has_changed_since(1)
    assert {each.node.node_id for each in fleet.known.since(2).nodes} == {"c"}
    assert not fleet.known.has_changed_since(4)


def test_removed_nodes_are_remembered_no_longer_than_anyone_may_ask(fleet: Fleet) -> None:
    fleet.records.clear()
    fleet.sample(oldest=1)
    assert set(fleet.known.since(1).removed) == {"a", "b"}
    fleet.sample(oldest=2)
    assert fleet.known.since(1).removed == []


def capabilities(*asr: str, stages: int = 15) -> Capabilities:
    return Capabilities(asr, asr, ("en",), (), stages)


def test_equal_capabilities_are_one_set_and_stages_make_a_difference() -> None:
    sets = CapabilitySets()
    first, same = sets.add(capabilities("zh")), sets.add(capabilities("zh"))
    other = sets.add(capabilities("zh", stages=31))
    assert first is same
    assert first is not None
    assert other is not None
    assert first.id != other.id
    assert list(first.capabilities.asr_langs) == ["zh"]
    assert len(sets) == 2


def test_a_set_is_kept_while_a_node_refers_to_it(fleet: Fleet) -> None:
    added = fleet.known.sets.add(capabilities("zh"))
    assert added is not None
    for name in ("c", "d"):
        fleet.details[name] = Details(capabilities=added.id)
        fleet.records[name] = {}
    fleet.sample()
    assert all(each.capabilities is added for each in fleet.known.since(1).nodes)
    del fleet.records["c"]
    fleet.sample()
    assert fleet.known.sets.get(added.id) is added
    fleet.details["d"] = Details()
    fleet.records["d"]["epoch"] = 2
    fleet.sample()
    assert (fleet.known.sets.get(added.id), len(fleet.known.sets)) == (None, 0)


def test_too_many_large_sets_are_not_kept() -> None:
    sets = CapabilitySets(max_bytes=400)
    added = [sets.add(capabilities(f"x{number}", "y" * 90)) for number in range(3)]
    assert [each is not None for each in added] == [True, True, False]
    assert sets.is_full
    sets.drop_unused()
    assert not sets.is_full
    assert sets.add(capabilities("zh")) is not None
