"""Owners of nodes: each has one place in the draw, and brings no more than it may."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import redis

from .scripts import OUT, Chosen, Placed, Refused, Scripts, able, clocked_scripts
from .test_quotas import COUNTING
from .test_spread import assert_uniform, draws, eject

CAN = able(asr=["zh"], tts=["en"])


@pytest.fixture
def _even(client: redis.Redis) -> None:
    """Needs a server that draws evenly."""
    version: str = client.info("server")["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < (7, 2):
        pytest.skip(f"SRANDMEMBER of Redis {version} prefers some members; needs 7.2 or Valkey")


def bring(scripts: Scripts, owner: str, nodes: int, **options: Any) -> None:
    """So many nodes of an owner."""
    for number in range(nodes):
        scripts.join(f"{owner}.{number}", CAN, node_owner=owner, **options)


def grow(scripts: Scripts, nodes: int, **options: Any) -> None:
    """So many nodes that have no owner."""
    for number in range(nodes):
        scripts.join(f"n{number}", CAN, **options)


def by_owner(counts: Counter[str]) -> Counter[str]:
    """The same counts, of owners and of nodes without one."""
    owners: Counter[str] = Counter()
    for node, times in counts.items():
        owners[node.partition(".")[0]] += times
    return owners


# ---- shares ----


@pytest.mark.usefixtures("_even")
@pytest.mark.parametrize(("ids", "others"), [(90, 10), (90, 3), (250, 40)])
def test_an_owner_with_many_ids_hears_as_much_as_a_node_with_none(
    scripts: Scripts, ids: int, others: int
) -> None:
    scripts.with_limits(owner_nodes=0, owner_slots=0)
    grow(scripts, others)
    bring(scripts, "big", ids)
    counts = draws(scripts, 4_000)
    assert_uniform(by_owner(counts), others + 1)
    # And its nodes are drawn alike.
    own = Counter({node: times for node, times in counts.items() if node.startswith("big.")})
    assert len(own) > min(ids, 50) / 2


@pytest.mark.usefixtures("_even")
def test_owners_of_any_size_hear_alike(scripts: Scripts) -> None:
    for number in range(30):
        bring(scripts, f"o{number}", 1 + number % 10)
    assert_uniform(by_owner(draws(scripts, 6_000)), 30)


@pytest.mark.usefixtures("_even")
def test_the_nodes_of_an_owner_are_drawn_alike(scripts: Scripts) -> None:
    bring(scripts, "big", 40)
    assert_uniform(draws(scripts, 4_000), 40)


def test_a_draw_by_nodes_is_noticed(client: redis.Redis, prefix: str) -> None:
    sources = {
        name: text.replace(
            "if owner == '' then\n    return (entry_add", "if true then\n    return (entry_add"
        )
        for name, text in clocked_scripts().items()
    }
    scripts = Scripts(client, prefix, sources=sources)
    grow(scripts, 10)
    bring(scripts, "big", 30)
    with pytest.raises(AssertionError):
        assert_uniform(by_owner(draws(scripts, 2_000)), 11)


@pytest.mark.usefixtures("_even")
def test_an_owner_that_claims_many_slots_hears_no_more(scripts: Scripts) -> None:
    grow(scripts, 9, most=4)
    for number in range(9):
        scripts.reserve(f"n{number}", f"busy-{number}")
    bring(scripts, "big", 1, most=1000)
    # It is always the least loaded by far.
    assert_uniform(by_owner(draws(scripts, 3_000)), 10)


def test_shares_hold_while_everybody_has_room(scripts: Scripts) -> None:
    grow(scripts, 10, most=100)
    bring(scripts, "big", 90, most=10)
    seeds, counts = random.Random(3), Counter[str]()
    for number in range(600):
        counts[scripts.place(f"j{number}", seed=seeds.getrandbits(31)).node] += 1
    # 1 / 11 of 600 are 55; it was 540 by the number of its ids.
    assert by_owner(counts)["big"] < 110


def test_load_decides_among_the_nodes_of_an_owner(scripts: Scripts) -> None:
    bring(scripts, "big", 20, most=10)
    for number in range(100):
        scripts.place(f"j{number}")
    assert {scripts.known(f"big.{number}").used for number in range(20)} == {5}


def test_idle_nodes_of_an_owner_are_used_if_nobody_else_has_room(scripts: Scripts) -> None:
    scripts.with_limits(owner_slots=0)
    grow(scripts, 10, most=1)
    bring(scripts, "big", 90, most=1)
    placed, refused = Counter[str](), 0
    for number in range(100):
        for _ in range(200):
            answer = scripts.allocate(f"j{number}")
            if isinstance(answer, Placed):
                placed[answer.node] += 1
                break
            refused += 1
        else:
            pytest.fail(f"{100 - number} slots are free, and none is found")
    assert set(placed.values()) == {1}
    assert len(placed) == 100


def test_an_owner_is_looked_for_elsewhere_only_after_all_that_were_drawn(scripts: Scripts) -> None:
    bring(scripts, "one", 1, most=1)
    bring(scripts, "two", 1, most=1)
    assert {scripts.place(f"j{number}").node for number in range(2)} == {"one.0", "two.0"}
    refused = scripts.allocate("j3")
    assert refused == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"full": 2, "drawn": 2})


def test_an_ejected_node_that_is_all_its_owner_has_gets_nothing(scripts: Scripts) -> None:
    grow(scripts, 9)
    bring(scripts, "one", 1)
    for number in range(3):
        scripts.reserve("one.0", f"bad-{number}")
        scripts.release("one.0", f"bad-{number}", fault=True)
    assert draws(scripts, 500)["one.0"] == 0


@pytest.mark.usefixtures("_even")
def test_an_owner_that_gets_the_others_ejected_hears_little_more(scripts: Scripts) -> None:
    for number in range(20):
        bring(scripts, f"o{number}", 1 + number % 2)
    bring(scripts, "greedy", 1)
    eject(scripts, [f"o{owner}.{node}" for owner in range(20) for node in range(1 + owner % 2)])
    # Half of those drawn are left out at most, so at most twice its share, and a little more for
    # the owners whose turn is passed on. Without a bound it would hear everything.
    assert draws(scripts, 3_000)["greedy.0"] / 3_000 < 4 / 21


def test_among_the_nodes_of_an_owner_one_of_the_asking_dispatcher_is_preferred(
    scripts: Scripts,
) -> None:
    scripts.join("big.0", CAN, node_owner="big", owner="d1")
    scripts.join("big.1", CAN, node_owner="big", owner="d2")
    assert draws(scripts, 100, instance="d2") == Counter({"big.1": 100})


def counted(scripts: Scripts) -> Callable[[], float]:
    """Gives a function that says how many commands a selection takes."""
    sources = {name: COUNTING + source for name, source in clocked_scripts().items()}
    counting = Scripts(scripts.client, scripts.prefix, sources=sources)

    def commands() -> float:
        scripts.client.delete(scripts.key("test", "commands"))
        for _ in range(200):
            assert isinstance(counting.select(), Chosen)
        return int(scripts.client.get(scripts.key("test", "commands")) or 0) / 200

    return commands


def test_the_cost_of_a_draw_does_not_grow_with_owners_or_their_nodes(scripts: Scripts) -> None:
    scripts.with_limits(owner_nodes=0, owner_slots=0)
    commands = counted(scripts)
    bring(scripts, "a", 20)
    few = commands()
    bring(scripts, "b", 300)
    for number in range(100):
        bring(scripts, f"o{number}", 2)
    assert commands() <= few


def test_an_owner_with_one_node_costs_a_draw_no_more_than_a_node_that_has_none(
    scripts: Scripts,
) -> None:
    commands = counted(scripts)
    grow(scripts, 30)
    without = commands()
    for number in range(30):
        scripts.remove(f"n{number}")
        bring(scripts, f"o{number}", 1)
    assert commands() == without
    # Not even if its node is busy, since its load is not compared with others'.
    for number in range(30):
        scripts.reserve(f"o{number}.0", f"busy-{number}")
    assert commands() == without


# ---- limits ----


def over(limit: str, used: int, most: int) -> Refused:
    return Refused("QUOTA_EXCEEDED", {limit: used, "limit": most, "retry_ms": 5000})


def test_an_owner_brings_no_more_nodes_than_it_may(scripts: Scripts) -> None:
    scripts.with_limits(owner_nodes=2)
    bring(scripts, "big", 2)
    assert scripts.register("big.9", CAN, node_owner="big") == over("owner_nodes", 2, 2)
    assert scripts.live("big.9") is None
    # It reconnects, others are not concerned, and one that leaves makes room.
    scripts.join("big.0", CAN, node_owner="big", stream="s2")
    bring(scripts, "small", 2)
    grow(scripts, 5)
    scripts.remove("big.1")
    scripts.join("big.9", CAN, node_owner="big")


def test_an_owner_brings_no_more_slots_than_it_may(scripts: Scripts) -> None:
    scripts.with_limits(owner_slots=10)
    bring(scripts, "big", 2, most=4)
    assert scripts.register("big.9", CAN, node_owner="big", most=3) == over("owner_slots", 8, 10)
    assert isinstance(scripts.register("big.9", CAN, node_owner="big", most=2), tuple)
    grown = scripts.register("big.0", CAN, node_owner="big", most=5, stream="s2")
    assert grown == over("owner_slots", 6, 10)
    assert scripts.known("big.0").max_concurrent_jobs == 4


def test_a_node_that_fell_silent_counts_no_longer_than_it_is_in_pools(scripts: Scripts) -> None:
    scripts.with_limits(owner_nodes=1)
    bring(scripts, "big", 1)
    scripts.remove("big.0", forget=False)
    assert scripts.known("big.0").health == OUT
    scripts.join("big.1", CAN, node_owner="big")
    again = scripts.register("big.0", CAN, node_owner="big", stream="s2")
    assert again == over("owner_nodes", 1, 1)


def test_a_node_that_comes_back_with_another_owner_changes_its_places(scripts: Scripts) -> None:
    scripts.join("a.b.1", CAN, node_owner="a")
    assert scripts.shard("zh:en") == {"+a.b.1"}
    scripts.join("a.b.1", CAN, node_owner="a.b", stream="s2")
    assert scripts.shard("zh:en") == {"+a.b.1"}
    assert scripts.client.hgetall(scripts.key("owner", "a", "pools")) == {}
    assert scripts.client.hgetall(scripts.key("owner", "a", "nodes")) == {}
    scripts.join("a.b.1", CAN, stream="s3")
    assert scripts.shard("zh:en") == {"a.b.1"}
    assert scripts.select(session="s") == scripts.select(session="s")
    scripts.remove("a.b.1")
    left = [key for key in scripts.client.scan_iter(f"{scripts.prefix}:*") if b":test:" not in key]
    assert left == []
