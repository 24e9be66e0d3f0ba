"""Locality: jobs stay at the dispatcher that asks, and every node gets its fair share of them.

Jobs come and go on the real scripts: a fixed number is in flight, random ones end, and random
dispatchers ask for the next ones. Callers' seeds are fixed, those of Redis are not; a fair choice
fails one of these tests less than once in a million runs.
"""

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import pytest
import redis
from scipy import stats

from .scripts import START_MS, Chosen, Refused, Scripts, able, clocked_scripts
from .test_spread import draws

CAN = able(asr=["zh"], tts=["en"])
ALPHA = 1e-7
# As in lua/lib/nearby.lua: jobs that the nodes of a dispatcher may get ahead of their share.
LEAD = 64
DAY = START_MS // 86_400_000
EVEN = {"d1": 25, "d2": 25, "d3": 25, "d4": 25}
UNEVEN = {"d1": 5, "d2": 50, "d3": 20, "d4": 25}


@pytest.fixture(autouse=True)
def _a_server_that_draws_evenly(client: redis.Redis) -> None:
    version: str = client.info("server")["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < (7, 2):
        pytest.skip(f"SRANDMEMBER of Redis {version} prefers some members; needs 7.2 or Valkey")


class Spread(NamedTuple):
    """Where jobs went."""

    jobs: int
    relayed: int
    by_node: Counter[str]
    # Nodes by dispatcher.
    at: dict[str, list[str]]

    def of(self, dispatcher: str) -> int:
        """Jobs on the nodes of a dispatcher."""
        return sum(self.by_node[node] for node in self.at[dispatcher])


def fill(scripts: Scripts, fleet: Mapping[str, int], slots: int) -> dict[str, list[str]]:
    """So many nodes at each dispatcher, in random order; all without an owner."""
    places = [dispatcher for dispatcher, nodes in fleet.items() for _ in range(nodes)]
    random.Random(5).shuffle(places)
    at: dict[str, list[str]] = {dispatcher: [] for dispatcher in fleet}
    for number, dispatcher in enumerate(places):
        scripts.join(f"n{number}", CAN, owner=dispatcher, most=slots)
        at[dispatcher].append(f"n{number}")
    return at


def flow(
    scripts: Scripts, at: dict[str, list[str]], *, jobs: int, in_flight: int, asks: str = ""
) -> Spread:
    """Jobs that come and go, some at a time. asks: the only dispatcher that asks; '': all ask."""
    scripts.with_limits(reservation_ttl_ms=10**9)
    where = {node: dispatcher for dispatcher, nodes in at.items() for node in nodes}
    chance, by_node, relayed = random.Random(7), Counter[str](), 0
    flying: list[tuple[str, str]] = []
    some = max(1, in_flight // 5)
    for first in range(0, jobs, some):
        chance.shuffle(flying)
        ended = flying[in_flight - some :]
        del flying[in_flight - some :]
        askers = [asks or chance.choice([*at]) for _ in range(some)]
        calls = [scripts.returning(*each) for each in ended]
        calls += [
            scripts.allocation(f"j{first + i}", seed=chance.getrandbits(31), instance=asker)
            for i, asker in enumerate(askers)
        ]
        replies = scripts.call_all(calls)[-some:]
        for i, (asker, reply) in enumerate(zip(askers, replies, strict=True)):
            node = reply[5].decode()
            flying.append((node, f"j{first + i}"))
            by_node[node] += 1
            relayed += where[node] != asker
    return Spread(by_node.total(), relayed, by_node, at)


def naive() -> dict[str, str]:
    """Scripts that prefer nodes nearby without limit."""
    limit = "if (move.gained or 0) >= LEAD then return nil end"
    sources = clocked_scripts()
    assert limit in sources["allocate"]
    return {name: source.replace(limit, "") for name, source in sources.items()}


def assert_even(spread: Spread, fleet: Mapping[str, int]) -> None:
    """Fails if the nodes of a dispatcher get more or less than their share.

    The share of a random draw is binomial; choosing by load makes it only more regular.
    """
    for dispatcher, nodes in fleet.items():
        share = stats.binom(spread.jobs, nodes / sum(fleet.values()))
        least, most = share.ppf(ALPHA) - LEAD, share.isf(ALPHA) + LEAD
        assert least <= spread.of(dispatcher) <= most, dispatcher
    for nodes in spread.at.values():
        counts = [spread.by_node[node] for node in nodes]
        assert stats.chisquare(counts).pvalue > ALPHA


# ---- how many jobs are relayed ----


@pytest.mark.parametrize(("slots", "in_flight"), [(1, 50), (4, 200), (4, 8)])
def test_few_jobs_are_relayed(scripts: Scripts, slots: int, in_flight: int) -> None:
    spread = flow(scripts, fill(scripts, EVEN, slots), jobs=4_000, in_flight=in_flight)
    # Without locality it would be three of four.
    assert spread.relayed / spread.jobs < 0.1
    assert_even(spread, EVEN)


@pytest.mark.parametrize("owner", ["one node each", "three nodes each", "one owner"])
def test_few_jobs_of_owners_are_relayed(scripts: Scripts, owner: str) -> None:
    scripts.with_limits(owner_slots=0)
    at: dict[str, list[str]] = {dispatcher: [] for dispatcher in EVEN}
    of_node = {"one node each": 1, "three nodes each": 3, "one owner": 100}[owner]
    for number in range(100):
        dispatcher = f"d{1 + number % 4}"
        node = f"n{number}"
        scripts.join(node, CAN, owner=dispatcher, most=4, node_owner=f"o{number // of_node}")
        at[dispatcher].append(node)
    spread = flow(scripts, at, jobs=2_000, in_flight=100)
    assert spread.relayed / spread.jobs < 0.1


# ---- even load ----


@pytest.mark.parametrize("in_flight", [8, 200])
def test_nodes_get_the_same_load_however_they_are_spread_over_dispatchers(
    scripts: Scripts, in_flight: int
) -> None:
    """A quarter of the jobs is asked for by the dispatcher that has a twentieth of the nodes."""
    spread = flow(scripts, fill(scripts, UNEVEN, 4), jobs=6_000, in_flight=in_flight)
    assert_even(spread, UNEVEN)
    # A quarter is the least that must be relayed then.
    assert spread.relayed / spread.jobs < 0.5


@pytest.mark.long
@pytest.mark.parametrize("in_flight", [8, 200])
def test_a_preference_without_limit_is_noticed(
    client: redis.Redis, prefix: str, in_flight: int
) -> None:
    scripts = Scripts(client, prefix, sources=naive())
    spread = flow(scripts, fill(scripts, UNEVEN, 4), jobs=6_000, in_flight=in_flight)
    with pytest.raises(AssertionError):
        assert_even(spread, UNEVEN)


def test_all_nodes_get_jobs_if_only_one_dispatcher_asks(scripts: Scripts) -> None:
    spread = flow(scripts, fill(scripts, UNEVEN, 4), jobs=3_000, in_flight=10, asks="d1")
    assert_even(spread, UNEVEN)
    # What it has gained, and what others have lost: they may gain only so much as well.
    ledger = scripts.client.hgetall(scripts.key("pool", "zh:en", "moved", DAY))
    assert ledger.pop(b"d1") == b"%d" % LEAD
    assert sum(map(int, ledger.values())) == -LEAD
    assert min(map(int, ledger.values())) >= -LEAD


def test_nodes_that_reconnect_elsewhere_are_preferred_there(scripts: Scripts) -> None:
    at = fill(scripts, {"d1": 10, "d2": 10}, 4)
    flow(scripts, at, jobs=400, in_flight=20)
    for node in at["d1"]:
        scripts.join(node, CAN, owner="d3", most=4, stream="again")
    scripts.with_limits(reservation_ttl_ms=5_000)
    scripts.advance(10**9 + 1)
    scripts.beat(*[(node, scripts.known(node).epoch) for nodes in at.values() for node in nodes])
    assert set(draws(scripts, 300, instance="d3")) == set(at["d1"])
    # The dispatcher that is gone has no node, so its jobs go anywhere.
    assert len(draws(scripts, 600, instance="d1")) == 20


def test_losses_count_only_up_to_a_limit(scripts: Scripts) -> None:
    fill(scripts, {"d1": 10, "d2": 10}, 4)
    key = scripts.key("pool", "zh:en", "moved", DAY)
    scripts.client.hset(key, mapping={"d1": 0, "d2": -LEAD})
    for number in range(20):
        scripts.place(f"j{number}", instance="d1")
    ledger = scripts.client.hgetall(key)
    assert int(ledger[b"d1"]) > 0
    assert int(ledger[b"d2"]) == -LEAD


def test_accounts_of_moves_end_after_two_days(scripts: Scripts) -> None:
    at = fill(scripts, {"d1": 10, "d2": 10}, 4)
    flow(scripts, at, jobs=40, in_flight=4)
    keys = f"{scripts.prefix}:pool:zh:en:moved:*"
    assert len(list(scripts.client.scan_iter(keys))) == 1
    scripts.advance(2 * 86_400_000)
    assert list(scripts.client.scan_iter(keys)) == []


def test_a_selection_records_no_move(scripts: Scripts) -> None:
    fill(scripts, {"d1": 10, "d2": 10}, 4)
    for _ in range(100):
        assert isinstance(scripts.select(instance="d1"), Chosen)
    assert list(scripts.client.scan_iter(f"{scripts.prefix}:pool:*:moved:*")) == []


# ---- shares of owners ----


def owners(scripts: Scripts, *, everywhere: int) -> dict[str, list[str]]:
    """Forty owners with one node each, and one with so many nodes at each dispatcher."""
    scripts.with_limits(owner_nodes=0, owner_slots=0)
    at: dict[str, list[str]] = {dispatcher: [] for dispatcher in EVEN}
    for number in range(40):
        node, dispatcher = f"n{number}", f"d{1 + number % 4}"
        scripts.join(node, CAN, owner=dispatcher, most=20, node_owner=f"o{number}")
        at[dispatcher].append(node)
    for number in range(4 * everywhere):
        node, dispatcher = f"big.{number}", f"d{1 + number % 4}"
        scripts.join(node, CAN, owner=dispatcher, most=20, node_owner="big")
        at[dispatcher].append(node)
    return at


def heard(spread: Spread) -> int:
    """Jobs of the owner with many nodes."""
    return sum(times for node, times in spread.by_node.items() if node.startswith("big."))


@pytest.mark.parametrize("everywhere", [1, 5])
def test_an_owner_gains_nothing_from_nodes_at_every_dispatcher(
    scripts: Scripts, everywhere: int
) -> None:
    spread = flow(scripts, owners(scripts, everywhere=everywhere), jobs=6_000, in_flight=40)
    assert spread.relayed / spread.jobs < 0.15
    # A forty-first of the jobs, and its part of what dispatchers may be ahead: an eleventh each.
    assert heard(spread) <= stats.binom(6_000, 1 / 41).isf(ALPHA) + 4 * LEAD / 11


@pytest.mark.long
def test_an_owner_that_is_nearby_wherever_it_has_a_node_is_noticed(
    client: redis.Redis, prefix: str
) -> None:
    one = "local one = math.random(from, to)"
    for_any = """local one = from
    for i = from, to do
      if live_owner(drawn.packed[i]) == want.instance then one = i end
    end"""
    assert one in clocked_scripts()["allocate"]
    sources = {name: text.replace(one, for_any) for name, text in clocked_scripts().items()}
    scripts = Scripts(client, prefix, sources=sources)
    spread = flow(scripts, owners(scripts, everywhere=1), jobs=6_000, in_flight=40)
    assert heard(spread) > stats.binom(6_000, 1 / 41).isf(ALPHA) + 4 * LEAD / 11


def test_a_full_node_elsewhere_is_not_taken_though_its_cached_count_is_wrong(
    scripts: Scripts,
) -> None:
    at = fill(scripts, {"d2": 2}, 1)
    full, free = at["d2"]
    scripts.client.zadd(scripts.key("node", full, "reserved"), {"x:1": scripts.now + 5_000})
    assert scripts.known(full).used == 0
    assert set(draws(scripts, 50, instance="d1")) == {free}
    assert scripts.known(full).used == 1


def test_the_last_room_is_found_at_any_dispatcher(scripts: Scripts) -> None:
    at = fill(scripts, {"d1": 2, "d2": 2}, 1)
    jobs = [f"j{number}" for number in range(4)]
    for job in jobs:
        scripts.place(job, instance="d1")
    refused = scripts.allocate("j9", instance="d1")
    assert refused == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"full": 4, "drawn": 4})
    node = at["d2"][0]
    scripts.release(node, next(job for job in jobs if scripts.job(job)["1:node"] == node))
    assert scripts.place("j9", instance="d1").node == node
