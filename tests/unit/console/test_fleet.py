"""The fleet: nodes, sums, the matrix, pages of nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.store import fleet as fleet_module
from lingua_scheduler.services.console.store.fleet import USED_POINTS, Fleet
from lingua_scheduler.services.console.store.matrix import MatrixCache, matrix_of
from lingua_scheduler.services.console.store.node_pages import NodeQuery, node_page
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.unit.console.messages import NOW, capabilities, capability_set, node

DEGRADED = common_pb2.NODE_HEALTH_DEGRADED
DRAINING = common_pb2.NODE_HEALTH_DRAINING
OFFLINE = common_pb2.NODE_HEALTH_OFFLINE
A = capability_set("a", capabilities("en", "es de"))
B = capability_set("b", capabilities("en fr", "es", pairs="en:es fr:es fr:de"))


def fleet_of(*nodes: pool_pb2.Node, sets: tuple[pool_pb2.CapabilitySet, ...] = (A, B)) -> Fleet:
    fleet = Fleet()
    fleet.begin()
    tell(fleet, *nodes, sets=sets)
    return fleet


def tell(
    fleet: Fleet,
    *nodes: pool_pb2.Node,
    sets: tuple[pool_pb2.CapabilitySet, ...] = (),
    removed: tuple[str, ...] = (),
    now: int = NOW,
    complete: bool = True,
) -> None:
    message = pool_pb2.WatchFleetResponse(
        nodes=nodes,
        capability_sets=sets,
        removed_node_ids=removed,
        is_complete=complete,
        as_of_ms=now,
    )
    fleet.apply(message, now)


def test_each_node_is_counted_once_by_its_health() -> None:
    fleet = fleet_of(
        node("ready"),
        node("degraded", health=DEGRADED),
        node("draining", health=DRAINING),
        node("offline", health=OFFLINE),
        node("ejected", ejected_until_ms=NOW + 1000),
        node("ejected-and-draining", health=DRAINING, ejected_until_ms=NOW + 1000),
    )
    assert fleet.groups == {"ready": 1, "degraded": 1, "draining": 2, "offline": 1, "ejected": 1}
    assert (fleet.slots, fleet.free) == (4, 4)


def test_a_changed_node_replaces_what_it_was() -> None:
    fleet = fleet_of(node("n1", used_slots=1))
    tell(fleet, node("n1", "b", used_slots=3, max_concurrent_jobs=8))
    assert (fleet.slots, fleet.free) == (8, 5)
    assert fleet.sets["a"].nodes == 0
    assert fleet.sets["b"].ready_nodes == 1


def test_more_leases_than_slots_are_no_negative_room() -> None:
    fleet = fleet_of(node("n1", used_slots=9))
    assert fleet.free == 0
    tell(fleet, node("n1"))
    assert fleet.free == 4


def test_an_ejection_ends_when_its_time_is_over() -> None:
    fleet = fleet_of(node("n1", ejected_until_ms=NOW + 1000))
    fleet.settle(NOW + 999)
    assert fleet.slots == 0
    fleet.settle(NOW + 1000)
    assert fleet.slots == 4
    assert fleet.groups["ready"] == 1
    assert fleet.groups["ejected"] == 0


def test_a_new_stream_removes_nodes_that_it_does_not_mention_once_it_is_complete() -> None:
    fleet = fleet_of(node("n1"), node("n2"))
    fleet.begin()
    tell(fleet, node("n2"), complete=False)
    assert set(fleet.nodes) == {"n1", "n2"}
    tell(fleet, node("n3"))
    assert set(fleet.nodes) == {"n2", "n3"}
    # Later messages have only what changed.
    tell(fleet, node("n2", used_slots=1))
    assert set(fleet.nodes) == {"n2", "n3"}


def test_a_set_that_a_new_stream_does_not_send_is_forgotten() -> None:
    fleet = fleet_of(node("n1", "a"), node("n2", "b"))
    fleet.begin()
    tell(fleet, node("n2", "b"), sets=(B,))
    assert set(fleet.sets) == {"b"}


def test_used_slots_are_kept_for_ten_minutes() -> None:
    fleet = fleet_of(node("n1", used_slots=1))
    fleet.tick(NOW)
    tell(fleet, node("n1", used_slots=2), node("n2", used_slots=7))
    fleet.tick(NOW + 5000)
    assert fleet.used_series(fleet.nodes["n1"]) == [1, 2]
    assert fleet.used_series(fleet.nodes["n2"]) == [7]
    for tick in range(200):
        fleet.tick(NOW + 10_000 + 5000 * tick)
    assert fleet.used_series(fleet.nodes["n2"]) == [7] * USED_POINTS


def test_a_new_node_does_not_inherit_the_past_of_a_removed_one() -> None:
    fleet = fleet_of(node("old", used_slots=3))
    fleet.tick(NOW)
    tell(fleet, removed=("old",))
    fleet.tick(NOW + 5000)
    tell(fleet, node("new", used_slots=1))
    fleet.tick(NOW + 10_000)
    assert fleet.used_series(fleet.nodes["new"]) == [1]


def test_the_matrix_sums_the_room_of_ready_nodes_by_direction() -> None:
    fleet = fleet_of(
        node("n1", "a", used_slots=1),
        node("n2", "b", used_slots=4),
        node("n3", "b", health=DEGRADED),
        node("n4", "b", ejected_until_ms=NOW + 1),
    )
    speech = matrix_of(fleet, "speech")
    assert speech.cells == {"en:es": (3, 8, 2), "en:de": (3, 4, 1), "fr:es": (0, 4, 1)}
    text = matrix_of(fleet, "text")
    assert text.cells == {
        "en:*": (3, 4, 1),
        "en:es": (0, 4, 1),
        "fr:es": (0, 4, 1),
        "fr:de": (0, 4, 1),
    }


def test_shortages_come_first_and_no_slots_at_all_before_them() -> None:
    fleet = fleet_of(
        node("n1", "a", used_slots=2),
        node("n2", "b", health=DEGRADED),
        node("n3", "c", used_slots=4),
        sets=(A, B, capability_set("c", capabilities("it", "es"))),
    )
    matrix = matrix_of(fleet, "speech")
    assert [direction for direction, _ in matrix.shortages(3)] == ["fr:es", "it:es", "en:de"]
    assert matrix.sources == ("fr", "it", "en")
    assert matrix.targets == ("es", "de")


def test_the_matrix_is_computed_again_only_after_a_change() -> None:
    fleet = fleet_of(node("n1"))
    cache = MatrixCache(fleet)
    before = cache.get("speech")
    tell(fleet, now=NOW + 2000)
    assert cache.get("speech") is before
    tell(fleet, node("n1", used_slots=1))
    assert cache.get("speech").cells["en:es"].free == 3


def test_sets_with_too_many_directions_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet_module, "MAX_DIRECTIONS", 5)
    large = capability_set("large", capabilities("en fr it", "es de"))
    fleet = fleet_of(node("n1", "a"), node("n2", "large"), node("n3", "large"), sets=(A, large))
    assert set(matrix_of(fleet, "speech").cells) == {"en:es", "en:de"}
    assert fleet.left_out_nodes == 2
    # Its nodes are listed like others.
    assert node_page(fleet, NodeQuery()).total == 3
    # A later stream without the others has room for it.
    monkeypatch.setattr(fleet_module, "MAX_DIRECTIONS", 12)
    fleet.begin()
    tell(fleet, node("n2", "large"), node("n3", "large"), sets=(large,))
    assert fleet.left_out_nodes == 0
    assert matrix_of(fleet, "speech").cells["it:de"] == (8, 8, 2)


def test_nodes_beyond_the_limit_are_counted_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "MAX_NODES", 2)
    fleet = fleet_of(node("n1"), node("n2"), node("n3"))
    assert len(fleet.nodes) == 2
    assert fleet.left_out_nodes == 1
    tell(fleet, removed=("n3",))
    assert fleet.left_out_nodes == 0


def test_a_node_whose_set_was_never_sent_is_left_out() -> None:
    fleet = fleet_of(node("n1", "unknown"))
    assert fleet.left_out_nodes == 1
    tell(fleet, sets=(capability_set("unknown", capabilities("en", "es")),))
    tell(fleet, removed=("n1",))
    assert fleet.left_out_nodes == 0
    assert fleet.sets["unknown"].nodes == 0


def test_nodes_are_searched_filtered_and_sorted() -> None:
    fleet = fleet_of(
        node("gpu-1", "a", used_slots=3),
        node("gpu-2", "b", used_slots=1, load=0.5),
        node("GPU-3", "b", health=DRAINING),
        node("cpu-1", "a", ejected_until_ms=NOW + 1),
    )

    def ids(**query: object) -> list[str]:
        return [each.node_id for each in node_page(fleet, NodeQuery(**query)).nodes]  # type: ignore[arg-type]

    assert ids() == ["GPU-3", "cpu-1", "gpu-1", "gpu-2"]
    assert ids(search="gpu", sort="used", desc=True) == ["gpu-1", "gpu-2", "GPU-3"]
    assert ids(health="ready", sort="free") == ["gpu-1", "gpu-2"]
    assert ids(health="ejected") == ["cpu-1"]
    assert ids(src="fr") == ["GPU-3", "gpu-2"]
    assert ids(src="en", tgt="de") == ["cpu-1", "gpu-1"]
    # A node that translates into any language serves it as text.
    assert ids(src="en", tgt="it") == ["cpu-1", "gpu-1"]
    assert ids(offset=1, limit=2) == ["cpu-1", "gpu-1"]
    page = node_page(fleet, NodeQuery(search="gpu", health="ready"))
    assert page.total == 2
    assert page.counts == {"ready": 2, "degraded": 0, "draining": 1, "offline": 0, "ejected": 0}


NODES = st.builds(
    node,
    st.sampled_from(["n1", "n2", "n3"]),
    st.sampled_from(["a", "b", "unknown"]),
    health=st.sampled_from([1, 2, 3, 4]),
    used_slots=st.integers(0, 6),
    ejected_until_ms=st.sampled_from([0, NOW + 1, NOW + 50]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NODES),
        st.tuples(st.just("remove"), st.sampled_from(["n1", "n2", "n3"])),
        st.tuples(st.just("begin"), st.none()),
        st.tuples(st.just("settle"), st.integers(0, 100)),
    ),
    max_size=30,
)


@given(STEPS)
def test_sums_are_those_of_the_nodes_whatever_happens(steps: list[tuple[str, object]]) -> None:
    fleet, now = fleet_of(), NOW
    for step, value in steps:
        if isinstance(value, pool_pb2.Node):
            tell(fleet, value, now=now)
        elif step == "remove":
            tell(fleet, removed=(str(value),), now=now)
        elif step == "begin":
            fleet.begin()
            tell(fleet, sets=(A, B), complete=False, now=now)
        elif isinstance(value, int):
            now = max(now, NOW + value)
            fleet.settle(now)
    fleet.settle(now)
    ready = [
        each
        for each in fleet.nodes.values()
        if each.health == "ready" and each.ejected_until_ms <= now
    ]
    assert fleet.slots == 4 * len(ready)
    assert fleet.free == sum(max(0, 4 - each.used) for each in ready)
    assert sum(fleet.groups.values()) == len(fleet.nodes)
    for name, shared in fleet.sets.items():
        assert shared.nodes == sum(e.capability_set == name for e in fleet.nodes.values())
        assert shared.ready_nodes == sum(e.capability_set == name for e in ready)


def test_a_long_message_is_taken_in_step_by_step_and_sums_are_right_after_each() -> None:
    fleet = Fleet()
    fleet.begin()
    message = pool_pb2.WatchFleetResponse(
        capability_sets=[capability_set("a", capabilities("en", "es"))],
        nodes=[node(f"n{number:04d}") for number in range(2000)],
        is_complete=True,
        as_of_ms=NOW,
    )
    steps = 0
    for _ in fleet.apply_in_steps(message, NOW):
        steps += 1
        assert fleet.slots == 4 * len(fleet.nodes) == 4 * fleet.groups["ready"]
        assert not fleet.is_known
    assert steps >= 4
    assert fleet.is_known
    assert len(fleet.nodes) == 2000
