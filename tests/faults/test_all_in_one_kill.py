"""A process with all services dies, or is told to end, while people speak: no word is lost.

As test_speech_kill, with two such processes instead of two of each service: a gateway, a dispatcher
with half of the nodes, and a pool service are gone at the same moment.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.faults.crowd import LONG, PEOPLE, busiest, busy_node, notices, talking
from tests.support.all_in_one import AllInOneProcess, Part
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

pytestmark = pytest.mark.long

# Long enough that there is always something under way.
WORK_MS = 300
DRAINED_S = 15.0


@pytest.fixture(scope="module")
def processes(redis: EmbeddedRedis) -> Iterator[Scheduler]:
    """Two processes with all services, and three nodes that know both."""
    with Scheduler(redis_url=redis.url, instances=2, split=False) as made:
        made.add_nodes([addresses(made.dispatchers)] * 3, slots=PEOPLE, work_ms=WORK_MS)
        yield made
        made.check_logs()


@pytest.fixture
async def scheduler(processes: Scheduler) -> Scheduler:
    """All of them, alive."""
    for each in (*processes.all_in_one, *processes.nodes):
        if each.process.poll() is not None:
            await each.restart()
    return processes


async def busy_process(scheduler: Scheduler) -> AllInOneProcess:
    """Waits until a process has jobs; returns the busiest one."""
    part = await busiest(scheduler.gateways, "lingua_gateway_jobs")
    assert isinstance(part, Part)
    return part.host


@pytest.mark.parametrize("comes_back", [True, False])
async def test_kill_9_while_people_speak_loses_no_word(
    scheduler: Scheduler, record_property: Callable[[str, object], None], comes_back: bool
) -> None:
    async with talking(scheduler, LONG) as crowd:
        struck = await busy_process(scheduler)
        struck.kill()
        await crowd.hear_more(2)
        if comes_back:
            await struck.restart()
            await crowd.hear_more(1)
    back = "comes back" if comes_back else "stays away"
    crowd.check(f"kill -9 of a process with all services that {back}", record_property)


async def test_kill_9_of_a_node_and_such_a_process_at_once_loses_no_word(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        struck = await busy_process(scheduler)
        node = await busy_node(scheduler)
        struck.kill()
        node.kill()
        await crowd.hear_more(2)
        await struck.restart()
        await node.restart()
        await crowd.hear_more(1)
    crowd.check("kill -9 of a node and a process with all services", record_property)


async def test_kill_9_of_redis_while_people_speak_loses_no_word(
    scheduler: Scheduler, redis: EmbeddedRedis, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        await busy_process(scheduler)
        redis.kill()
        for each in scheduler.services:
            await notices(each, up=False)
        await asyncio.to_thread(redis.restart)
        for each in scheduler.services:
            await notices(each, up=True)
        await crowd.hear_more(2)
    crowd.check("kill -9 of Redis under processes with all services", record_property)


async def test_both_processes_are_replaced_in_turn_while_people_speak_and_no_word_is_lost(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        await busy_process(scheduler)
        for each in scheduler.all_in_one:
            each.terminate()
            started = time.monotonic()
            assert await each.exit_code(DRAINED_S) == 0, each.log()
            print(f"ended within {time.monotonic() - started:.2f} s")
            await crowd.hear_more(2)
            await each.restart()
            await crowd.hear_more(1)
    crowd.check("SIGTERM of both processes with all services in turn", record_property)
