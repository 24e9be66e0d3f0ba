"""A Redis Cluster moves the slot of a cell to another server while people speak."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.faults.crowd import LONG, PEOPLE, notices, talking
from tests.support.redis_cluster import RedisCluster, running_cluster
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

WORK_MS = 300
# A slot that moves for longer than this shows.
REDIS_TIMEOUT_MS = 1000


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster(replicas=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scheduler(cluster: RedisCluster) -> Iterator[Scheduler]:
    timeout = {"redis_timeout_ms": REDIS_TIMEOUT_MS}
    with Scheduler(redis_url=cluster.url, tag="c7", cells=1, **timeout) as made:
        made.add_nodes([addresses(made.dispatchers)] * 2, slots=PEOPLE, work_ms=WORK_MS)
        yield made
        made.check_logs()


async def test_people_notice_nothing_of_a_slot_that_moves(
    cluster: RedisCluster, scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        for move in (cluster.reshard, cluster.reshard_atomically, cluster.reshard):
            await asyncio.to_thread(move, scheduler.prefix)
            await crowd.hear_more(1)
    crowd.check("a slot that moves", record_property)
    assert sum(each.session.counts.resumes for each in crowd.people) == 0


@pytest.mark.long
async def test_no_word_is_lost_while_a_slot_moves_for_long(
    cluster: RedisCluster, scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        moving = await asyncio.to_thread(cluster.begin_resharding, scheduler.prefix)
        await asyncio.to_thread(moving.move, 5)
        for service in scheduler.services:
            await notices(service, up=False)
        while await asyncio.to_thread(moving.move, 10):
            pass
        await asyncio.to_thread(moving.finish)
        for service in scheduler.services:
            await notices(service, up=True)
        await crowd.hear_more(2)
    crowd.check("a slot that moves for long", record_property)
