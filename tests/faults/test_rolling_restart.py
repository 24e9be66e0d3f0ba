"""All services are restarted, one process after the other, while people speak: nothing is lost.

As a rolling update does it: a process is told to end, its successor starts at the same address, and
the next one follows when that is ready.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.faults.test_speech_kill import DRAINED_S, LONG, PEOPLE, WORK_MS, talking
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

# A node has room for everybody, so that no job waits while the others reconnect.
NODES = 3
SLOTS = PEOPLE


@pytest.fixture(scope="module")
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    """Two of each service, whose connections are also made anew all the time."""
    times = {"drain_grace_ms": 10_000, "channel_renew_ms": 1000}
    with Scheduler(redis_url=redis_url, instances=2, **times) as made:
        made.add_nodes([addresses(made.dispatchers)] * NODES, slots=SLOTS, work_ms=WORK_MS)
        yield made


async def slots_taken(scheduler: Scheduler) -> int:
    """Slots of all nodes that are reserved or run a job."""
    async with grpc.aio.insecure_channel(scheduler.pools[0].address) as channel:
        listed = await pool_pb2_grpc.PoolServiceStub(channel).ListNodes(pool_pb2.ListNodesRequest())
    assert len(listed.nodes) == NODES
    return sum(node.reserved + node.running for node in listed.nodes)


async def end_all(scheduler: Scheduler) -> None:
    """Ends those that use others before those."""
    for group in (scheduler.gateways, scheduler.nodes, scheduler.dispatchers, scheduler.pools):
        for each in group:
            each.terminate()
        for each in group:
            assert await each.exit_code(DRAINED_S) == 0, each.log()


# In CI, tests/upgrade replaces every process under load.
@pytest.mark.long
async def test_a_rolling_restart_of_all_services_loses_no_word_and_repeats_none(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        for each in scheduler.services:
            each.terminate()
            assert await each.exit_code(DRAINED_S) == 0, each.log()
            await each.restart()
        await crowd.hear_more(2)
    crowd.check("rolling restart", record_property)
    deadline = time.monotonic() + DRAINED_S
    while taken := await slots_taken(scheduler):
        assert time.monotonic() < deadline, f"{taken} slots are still taken"
        await asyncio.sleep(0.05)
    await end_all(scheduler)
    scheduler.check_logs()
