"""Redis is down for longer than nodes may be silent: their turns go on when it is back."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2
from tests.support.raw_node import RawNode
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

STALE_MS = 3500
BEATS = {"node_heartbeat_ms": 1000, "heartbeat_batch_ms": 1000, "heartbeat_stale_ms": STALE_MS}
MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis server that keeps its data when it is killed."""
    with EmbeddedRedis(data_dir=tmp_path / "redis") as server:
        yield server


@pytest.fixture
async def at(own_redis: EmbeddedRedis, prefix: str) -> AsyncIterator[Scene]:
    """A scene at a dispatcher whose Redis can be killed."""
    settings = {**BEATS, "redis_timeout_ms": 300}
    with PoolProcess(
        redis_url=own_redis.url, prefix=prefix, sweep_interval_ms=50, **settings
    ) as pool:
        async with (
            running_dispatcher(pool, own_redis.url, affinity_away_ms=200, **settings) as process,
            scene(process, pool) as made,
        ):
            yield made


async def begin_turn(at: Scene, node: RawNode) -> None:
    """Gives the node the first part of a sentence."""
    gateway = at.gateway()
    job = await gateway.submit(at.spec(0, reason=MAX_DURATION))
    assign = await node.take_job()
    await node.result(assign)
    await gateway.delivered(job)


async def outage(redis: EmbeddedRedis) -> None:
    """Takes Redis down for longer than a node may be silent."""
    redis.kill()
    await asyncio.sleep(1.5 * STALE_MS / 1000)
    redis.restart()


async def connect_when_redis_is_back(at: Scene, name: str) -> RawNode:
    """A node that connects again until it is admitted."""
    while True:
        with contextlib.suppress(AssertionError):
            return await at.node(name)


async def go_on(at: Scene) -> str:
    """Submits the next part until Redis is back; returns the node that has it."""
    gateway, node_id = at.gateway(), ""
    while not node_id:
        await gateway.submit(at.spec(1, deadline_ms=60_000))
        event = await gateway.inbox.take(
            lambda each: each.WhichOneof("event") in ("accepted", "failed")
        )
        node_id = event.accepted.node_id
    return node_id


async def test_a_turn_waits_until_its_node_is_heard_again(
    at: Scene, own_redis: EmbeddedRedis
) -> None:
    holder = await at.node("holder")
    await begin_turn(at, holder)
    await outage(own_redis)
    # This one is fresh at once; the other is silent until the next batch of heartbeats.
    other = await connect_when_redis_is_back(at, "other")
    for node in (holder, other):
        node.answers_jobs()
    assert await go_on(at) == holder.node_id


async def test_a_turn_does_not_wait_for_a_node_that_has_left_meanwhile(
    at: Scene, own_redis: EmbeddedRedis
) -> None:
    holder = await at.node("holder")
    await begin_turn(at, holder)
    other = await at.node("other")
    own_redis.kill()
    await holder.cut()
    await asyncio.sleep(1.5 * STALE_MS / 1000)
    own_redis.restart()
    other.answers_jobs()
    async with asyncio.timeout(15):
        assert await go_on(at) == other.node_id
