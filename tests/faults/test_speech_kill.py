"""Any process dies, or is told to end, while people speak: every word comes back, once, in order.

Eight people talk all the while, at the pace of speech, over two of each service and three nodes.
The victim is struck when it has work. So there is speech that is gathered, utterances that are
cut, submitted, running, and results on their way.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.faults.crowd import (
    LONG,
    PEOPLE,
    Victim,
    busiest,
    notices,
    talking,
    victim,
)
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

# Long enough that there is always something under way.
WORK_MS = 300
DRAINED_S = 15.0


@pytest.fixture(scope="module")
def processes(redis: EmbeddedRedis) -> Iterator[Scheduler]:
    """Two of each service, and three nodes that know both dispatchers."""
    with Scheduler(redis_url=redis.url, instances=2) as made:
        made.add_nodes([addresses(made.dispatchers)] * 3, slots=PEOPLE, work_ms=WORK_MS)
        yield made
        made.check_logs()


@pytest.fixture
async def scheduler(processes: Scheduler) -> Scheduler:
    """All of them, alive."""
    everyone: list[Victim] = [*processes.services, *processes.nodes]
    for each in everyone:
        if each.process.poll() is not None:
            await each.restart()
    return processes


@pytest.mark.parametrize(
    ("kind", "comes_back"),
    [
        ("gateway", True),
        ("gateway", False),
        ("dispatcher", True),
        ("pool service", True),
        ("node", True),
    ],
)
async def test_kill_9_while_people_speak_loses_no_word_of(
    scheduler: Scheduler,
    record_property: Callable[[str, object], None],
    kind: str,
    comes_back: bool,
) -> None:
    async with talking(scheduler, LONG) as crowd:
        struck = await victim(scheduler, kind)
        struck.kill()
        await crowd.hear_more(2)
        if comes_back:
            await struck.restart()
            await crowd.hear_more(1)
    back = "comes back" if comes_back else "stays away"
    crowd.check(f"kill -9 of a {kind} that {back}", record_property)


async def test_kill_9_of_a_node_and_the_gateway_at_once_loses_no_word(
    scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    """What the node held comes from the client, by way of the other gateway."""
    async with talking(scheduler, LONG) as crowd:
        gateway = await victim(scheduler, "gateway")
        node = await victim(scheduler, "node")
        gateway.kill()
        node.kill()
        await crowd.hear_more(2)
        await gateway.restart()
        await node.restart()
        await crowd.hear_more(1)
    crowd.check("kill -9 of a node and a gateway", record_property)


async def test_kill_9_of_redis_while_people_speak_loses_no_word(
    scheduler: Scheduler, redis: EmbeddedRedis, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        await busiest(scheduler.gateways, "lingua_gateway_jobs")
        redis.kill()
        for each in scheduler.services:
            await notices(each, up=False)
        await asyncio.to_thread(redis.restart)
        await crowd.hear_more(2)
    crowd.check("kill -9 of Redis", record_property)


@pytest.mark.parametrize("kind", ["gateway", "dispatcher", "pool service", "node"])
async def test_an_orderly_end_while_people_speak_loses_no_word_of(
    scheduler: Scheduler, record_property: Callable[[str, object], None], kind: str
) -> None:
    async with talking(scheduler, LONG) as crowd:
        struck = await victim(scheduler, kind)
        struck.terminate()
        started = time.monotonic()
        assert await struck.exit_code(DRAINED_S) == 0, struck.log()
        print(f"{kind}: ended within {time.monotonic() - started:.2f} s")
        await crowd.hear_more(2)
    crowd.check(f"SIGTERM of a {kind}", record_property)
