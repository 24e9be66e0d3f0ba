"""The choice is fair: no node gets more work because of where it sits.

Chance is the callers' seeds and Redis' own, so the counts differ from run to run. A fair choice
fails such a test once in ten million runs; an unfair one fails every time.
"""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import redis
from scipy import stats

from .scripts import Chosen, Limits, Scripts, able, clocked_scripts

ALPHA = 1e-7


@pytest.fixture(autouse=True)
def _a_server_that_draws_evenly(client: redis.Redis) -> None:
    version: str = client.info("server")["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < (7, 2):
        pytest.skip(f"SRANDMEMBER of Redis {version} prefers some members; needs 7.2 or Valkey")


def assert_uniform(counts: Counter[str], nodes: int) -> None:
    """Fails where the counts are not those of a fair die with so many sides."""
    observed = [*counts.values()] + [0] * (nodes - len(counts))
    assert len(observed) == nodes
    assert stats.chisquare(observed).pvalue > ALPHA


def draws(scripts: Scripts, times: int, **criteria: Any) -> Counter[str]:
    """How often each node is selected. Sent together: nothing changes in between."""
    seeds = random.Random(20)
    pipeline = scripts.client.pipeline(transaction=False)
    sha = scripts.sha("select_node")
    for _ in range(times):
        want = scripts.want(seed=seeds.getrandbits(31), **criteria)
        pipeline.evalsha(sha, 1, scripts.prefix, *want)
    return Counter(reply[1].decode() for reply in pipeline.execute())


def grow(scripts: Scripts, nodes: int, **options: Any) -> None:
    """That many nodes, all in the pool zh:en and in text:zh:*."""
    for number in range(nodes):
        scripts.join(f"n{number}", able(asr=["zh"], tts=["en"]), **options)


@pytest.mark.parametrize(
    ("nodes", "shards"),
    [(10, [10, 0, 0]), (100, [100, 0, 0]), (101, [100, 1, 0]), (250, [100, 100, 50])],
)
def test_every_node_of_a_pool_is_drawn_alike(
    scripts: Scripts, nodes: int, shards: list[int]
) -> None:
    scripts.with_limits(sample_k=100)
    grow(scripts, nodes)
    assert [len(scripts.shard("zh:en", shard)) for shard in range(3)] == shards
    assert_uniform(draws(scripts, 15 * nodes + 500), nodes)


@pytest.mark.long
def test_a_draw_that_takes_each_shard_as_often_is_noticed(client: redis.Redis, prefix: str) -> None:
    fair = "math.floor(at / want.size)"
    unfair = "math.random(0, math.floor((sizes[number] - 1) / want.size))"
    sources = {name: text.replace(fair, unfair) for name, text in clocked_scripts().items()}
    scripts = Scripts(client, prefix, limits=Limits(sample_k=20, pool_size=20), sources=sources)
    grow(scripts, 50)
    with pytest.raises(AssertionError):
        assert_uniform(draws(scripts, 1_250), 50)


def test_a_sample_of_a_shard_is_drawn_alike(scripts: Scripts) -> None:
    scripts.with_limits(sample_k=5, pool_size=20)
    grow(scripts, 50)
    assert_uniform(draws(scripts, 2_500), 50)


def test_every_node_of_two_text_pools_is_drawn_alike(scripts: Scripts) -> None:
    scripts.with_limits(sample_k=20, pool_size=20)
    for number in range(70):
        explicit = {"nmt": ["zh:fr"]} if number < 25 else {}
        scripts.join(f"n{number}", able(asr=["zh"], tts=[], **explicit))
    sizes = scripts.client.hgetall(scripts.key("pools"))
    assert sizes == {b"text:zh:fr": b"25", b"text:zh:*": b"45"}
    assert_uniform(draws(scripts, 2_000, tgt="fr", text=True), 70)


def test_every_node_that_is_on_its_way_into_the_pools_is_drawn_alike(scripts: Scripts) -> None:
    for number in range(12):
        scripts.register(f"n{number}")
    assert_uniform(draws(scripts, 2_000), 12)


def test_jobs_are_spread_alike_over_nodes_with_ample_room(scripts: Scripts) -> None:
    scripts.with_limits(sample_k=20, pool_size=20)
    grow(scripts, 50, most=1000)
    seeds = random.Random(21)
    counts: Counter[str] = Counter()
    for number in range(1_500):
        job = f"j{number}"
        placed = scripts.place(job, seed=seeds.getrandbits(31), session="s", reason=1)
        scripts.release(placed.node, job)
        counts[placed.node] += 1
    assert_uniform(counts, 50)


def test_the_jobs_of_one_session_do_not_stick_to_a_node(scripts: Scripts) -> None:
    grow(scripts, 10, most=1000)
    follows: Counter[str] = Counter()
    last = ""
    for number in range(1_000):
        placed = scripts.place(f"j{number}", session="s", utterance=number, reason=1)
        scripts.release(placed.node, f"j{number}")
        follows["same" if placed.node == last else "other"] += 1
        last = placed.node
    assert stats.binomtest(follows["same"], 1_000, 0.1).pvalue > ALPHA


def test_loaded_nodes_are_chosen_less_and_only_when_no_other_was_drawn(scripts: Scripts) -> None:
    scripts.with_limits(sample_k=3, pool_size=20)
    grow(scripts, 20, most=4)
    loaded = {f"n{number}" for number in range(10)}
    for node in loaded:
        scripts.reserve(node, f"busy-{node}")
    counts = draws(scripts, 4_000)
    share = sum(counts[node] for node in loaded) / 4_000
    # All three of a sample are loaded with chance C(10, 3) / C(20, 3) = 0.105.
    assert 0.07 < share < 0.14


def eject(scripts: Scripts, nodes: Iterable[str]) -> None:
    for node in nodes:
        for number in range(3):
            scripts.reserve(node, f"bad-{node}-{number}")
            scripts.release(node, f"bad-{node}-{number}", fault=True)
        assert scripts.known(node).ejected_until_ms > scripts.now


def test_ejected_nodes_get_nothing_while_they_are_few(scripts: Scripts) -> None:
    grow(scripts, 20)
    ejected = {f"n{number}" for number in range(10)}
    eject(scripts, ejected)
    counts = draws(scripts, 2_000)
    assert not ejected & set(counts)
    assert_uniform(counts, 10)


@pytest.mark.parametrize(("nodes", "honest"), [(8, 7), (40, 36)])
def test_who_gets_the_others_ejected_hears_little_more(
    scripts: Scripts, nodes: int, honest: int
) -> None:
    grow(scripts, nodes)
    eject(scripts, [f"n{number}" for number in range(honest)])
    counts = draws(scripts, 4_000)
    share = sum(counts[f"n{number}"] for number in range(honest, nodes)) / 4_000
    # Half of those drawn are left out at most, which doubles the share of the rest. Of large pools
    # a few are looked at first, and one that is idle is taken.
    fair = 1 - honest / nodes
    assert share < fair + (1 - fair) * 2 * fair + 0.04


def test_work_evens_out_when_jobs_stay(scripts: Scripts) -> None:
    grow(scripts, 20, most=10)
    for number in range(100):
        scripts.place(f"j{number}")
    assert {scripts.known(f"n{number}").used for number in range(20)} == {5}


def test_without_seeds_of_its_own_the_server_would_repeat_itself_but_seeds_differ(
    scripts: Scripts,
) -> None:
    scripts.with_limits(sample_k=4)
    grow(scripts, 4)
    same = {scripts.select(seed=7) for _ in range(20)}
    assert len(same) == 1
    assert all(isinstance(choice, Chosen) for choice in same)
    assert len({scripts.select() for _ in range(100)}) == 4
