"""A node that claims as many languages as it may: listings and metrics stay bounded."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from lingua_scheduler.services.pool_service.fleet.directions import MAX_DIRECTIONS, Direction
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.integration.pool.test_capacity import capacity_of
from tests.support.pool_client import Pool, allocation, running_pool

# The most that a node may name, of codes that ISO 639 reserves for local use.
CODES = tuple(f"q{a}{b}" for a in "abcdefghij" for b in "abcdefghijklmnopqrstuvwxyz")[:256]
SPEECH_POOLS = len(CODES) ** 2
# Nobody sends heartbeats here.
PATIENT = {"heartbeat_stale_ms": 600_000}


@pytest.fixture
async def crowded(own_redis: EmbeddedRedis, prefix: str) -> AsyncIterator[Pool]:
    """A pool service with 65,794 pools, all but two of one node."""
    settings = {"redis_timeout_ms": 4000, "sweep_interval_ms": 600_000, **PATIENT}
    async with running_pool(own_redis.url, prefix, **settings) as pool:
        await pool.register("honest-1", slots=3)
        await pool.register("honest-2", slots=3)
        answer = await pool.register("hostile", slots=1, asr=CODES, tts=CODES)
        assert answer.pools == SPEECH_POOLS + len(CODES)
        yield pool


async def pages_of(pool: Pool, **query: Any) -> list[pool_pb2.ListPoolsResponse]:
    pages: list[pool_pb2.ListPoolsResponse] = []
    while not pages or pages[-1].next_page_token:
        token = pages[-1].next_page_token if pages else ""
        request = pool_pb2.ListPoolsRequest(page_token=token, **query)
        pages.append(await pool.stub.ListPools(request))
    return pages


def directions(pages: list[pool_pb2.ListPoolsResponse]) -> set[tuple[str, str]]:
    return {(pool.pair.src, pool.pair.tgt) for page in pages for pool in page.pools}


async def test_all_pools_are_listed_in_pages_of_bounded_size(
    crowded: Pool, own_redis: EmbeddedRedis
) -> None:
    with redis.Redis.from_url(own_redis.url, protocol=2) as store:
        store.config_resetstat()
        pages = await pages_of(crowded)
        calls = sum(stat["calls"] for stat in store.info("commandstats").values())

    assert directions(pages) == {("zh", "en"), *((a, b) for a in CODES for b in CODES)}
    # About a thousand are asked for, and a step of the scan is about a hundred.
    assert max(len(page.pools) for page in pages) <= 1500
    assert max(page.ByteSize() for page in pages) <= 100_000
    # Each pool is read once, by a command of its own.
    assert calls <= 2 * SPEECH_POOLS
    assert all(
        [(it.pair.src, it.pair.tgt) for it in page.pools]
        == sorted((it.pair.src, it.pair.tgt) for it in page.pools)
        for page in pages
    )


async def test_a_filter_and_a_size_hold_over_all_pages(crowded: Pool) -> None:
    from_one = await pages_of(crowded, src="qaa")
    assert directions(from_one) == {("qaa", each) for each in CODES}
    (honest,) = [pool for page in await pages_of(crowded, src="ZH") for pool in page.pools]
    assert honest == pool_pb2.Pool(
        pair=common_pb2.LanguagePair(src="zh", tgt="en"),
        shards=1,
        nodes=2,
        ready_nodes=2,
        slots=6,
        free_slots=6,
    )
    text = await pages_of(crowded, text=True, page_size=10)
    assert directions(text) == {("zh", "*"), *((each, "*") for each in CODES)}
    one = await crowded.stub.ListPools(pool_pb2.ListPoolsRequest(page_size=10))
    assert len(one.pools) <= 300


async def test_metrics_read_few_pools_and_label_few_directions(
    crowded: Pool, own_redis: EmbeddedRedis
) -> None:
    await crowded.stub.Allocate(allocation("j1"))
    async with capacity_of(crowded, own_redis.url, **PATIENT) as capacity:
        with redis.Redis.from_url(own_redis.url, protocol=2) as store:
            store.config_resetstat()
            sample = await capacity.sample(0.0)
            calls = sum(stat["calls"] for stat in store.info("commandstats").values())

    # One for each label, a thousand others, and a thousand names with each step of a scan.
    assert calls <= MAX_DIRECTIONS + 1000 + 300
    assert len(sample.rooms) <= MAX_DIRECTIONS + 2
    # The largest pools have labels, and what they show is exact.
    assert sample.rooms[Direction("speech", "zh", "en")] == (6, 5)
    # All pools of the hostile node have its one slot: the estimate comes near the count.
    other = sum(room.slots for direction, room in sample.rooms.items() if direction.src == "other")
    labelled = len(sample.rooms) - 2
    assert abs(other - (SPEECH_POOLS + len(CODES) + 2 - labelled)) <= 2
