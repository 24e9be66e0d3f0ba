"""Any process dies, or is told to end, while people speak: every word comes back, once, in order.

Eight people talk all the while, at the pace of speech, over two of each service and three nodes.
The victim is struck when it has work. So there is speech that is gathered, utterances that are
cut, submitted, running, and results on their way.
"""

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis_server import EmbeddedRedis
from tests.e2e.scheduler_processes import NodeProcess, Scheduler, addresses
from tests.e2e.speech import Speaker, sentences, speaking
from tests.integration.service_process import ServiceProcess

PEOPLE = 8
# In words of a tenth of a second: from half a second to one and a half.
SHORT = (5, 12, 8, 15, 6, 10)
# And some that are longer than an utterance may be.
LONG = (5, 18, 8, 12, 31, 6)
# Long enough that there is always something under way.
WORK_MS = 300
# Far more than anything here may take, and less than the 30 s after which a result is missing.
RECOVERED_S = 25.0
DRAINED_S = 15.0

Victim = ServiceProcess | NodeProcess


@pytest.fixture(scope="module")
def redis() -> Iterator[EmbeddedRedis]:
    """A Redis that comes back with its data."""
    # Without a sync that may hold up a write: what was answered is in the file.
    no_sync = ("--appendfsync", "no")
    with (
        tempfile.TemporaryDirectory(prefix="lingua-redis-") as folder,
        EmbeddedRedis(data_dir=Path(folder), args=no_sync) as server,
    ):
        yield server


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


class Crowd:
    """People who talk until they are told to stop."""

    def __init__(self, people: list[Speaker], lengths: Sequence[int]) -> None:
        self.people = people
        self._lengths = lengths
        self._enough = asyncio.Event()

    async def talk(self) -> None:
        """Returns when everybody has stopped."""
        await asyncio.gather(*(self._talk(at, each) for at, each in enumerate(self.people)))

    async def _talk(self, at: int, speaker: Speaker) -> None:
        lengths = itertools.islice(itertools.cycle(self._lengths), at, None)
        for sentence in sentences(2 + 3000 * at, lengths):
            for word in sentence:
                await speaker.say(word, pace=True)
                if self._enough.is_set():
                    break
            await speaker.session.finish()
            if self._enough.is_set():
                return

    def stop(self) -> None:
        """They break off, and that ends their sentences."""
        self._enough.set()

    async def hear_more(self, results: int) -> None:
        """Returns when each has heard so many results more than now."""
        wanted = [len(each.outcomes) + results for each in self.people]
        for each, count in zip(self.people, wanted, strict=True):
            await each.until(lambda who=each, most=count: len(who.outcomes) >= most, RECOVERED_S)

    def check(self, title: str, record: Callable[[str, object], None]) -> None:
        """All that was said was heard; says how long somebody had to wait for it."""
        for each in self.people:
            each.check_all_heard()
        slowest = max(each.slowest for each in self.people)
        said = sum(len(words) for each in self.people for words in each.said.values())
        resumes = sum(each.session.counts.resumes for each in self.people)
        print(f"{title}: longest stall {slowest:.2f} s; {said} words, {resumes} resumes")
        record(f"longest stall, {title}", slowest)


@contextlib.asynccontextmanager
async def talking(scheduler: Scheduler, lengths: Sequence[int]) -> AsyncIterator[Crowd]:
    """People talk inside the block; at its end they have been heard to the end."""
    async with contextlib.AsyncExitStack() as stack:
        to = addresses(scheduler.gateways)
        people = [await stack.enter_async_context(speaking(to)) for _ in range(PEOPLE)]
        crowd = Crowd(people, lengths)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(crowd.talk())
            await crowd.hear_more(1)
            yield crowd
            crowd.stop()


async def busiest(services: Sequence[ServiceProcess], metric: str) -> ServiceProcess:
    """The one with the most work, when it has some."""
    deadline = time.monotonic() + RECOVERED_S
    while True:
        load = [await each.metric(metric) for each in services]
        if max(load) >= 2:
            return services[load.index(max(load))]
        assert time.monotonic() < deadline, f"{metric}: {load}"


async def busy_node(scheduler: Scheduler) -> NodeProcess:
    """A node with at least two jobs."""
    deadline = time.monotonic() + RECOVERED_S
    while True:
        for node in scheduler.nodes:
            if node.running >= 2:
                return node
        assert time.monotonic() < deadline, "no node has two jobs"
        await asyncio.sleep(0.01)


async def victim(scheduler: Scheduler, kind: str) -> Victim:
    """A process of this kind that has work."""
    match kind:
        case "gateway":
            return await busiest(scheduler.gateways, "lingua_gateway_jobs")
        case "dispatcher":
            return await busiest(scheduler.dispatchers, "lingua_dispatcher_jobs")
        case "pool service":
            return await busiest(scheduler.pools, "lingua_pool_allocations_total")
        case _:
            return await busy_node(scheduler)


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
    # What a node holds dies with it.
    lengths = SHORT if kind == "node" else LONG
    async with talking(scheduler, lengths) as crowd:
        struck = await victim(scheduler, kind)
        struck.kill()
        await crowd.hear_more(2)
        if comes_back:
            await struck.restart()
            await crowd.hear_more(1)
    back = "comes back" if comes_back else "stays away"
    crowd.check(f"kill -9 of a {kind} that {back}", record_property)


async def test_kill_9_of_redis_while_people_speak_loses_no_word(
    scheduler: Scheduler, redis: EmbeddedRedis, record_property: Callable[[str, object], None]
) -> None:
    async with talking(scheduler, LONG) as crowd:
        await busiest(scheduler.gateways, "lingua_gateway_jobs")
        redis.kill()
        for each in scheduler.services:
            await notices_outage(each)
        await asyncio.to_thread(redis.restart)
        await crowd.hear_more(2)
    crowd.check("kill -9 of Redis", record_property)


async def notices_outage(service: ServiceProcess) -> None:
    """Returns when a service knows that Redis is away."""
    deadline = time.monotonic() + RECOVERED_S
    while await service.metric(f"lingua_{service.name}_redis_up") > 0:
        assert time.monotonic() < deadline, f"{service.name} does not notice"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", ["gateway", "dispatcher", "pool service", "node"])
async def test_an_orderly_end_while_people_speak_loses_no_word_of(
    scheduler: Scheduler, record_property: Callable[[str, object], None], kind: str
) -> None:
    async with talking(scheduler, SHORT if kind == "node" else LONG) as crowd:
        struck = await victim(scheduler, kind)
        struck.terminate()
        started = time.monotonic()
        assert await struck.exit_code(DRAINED_S) == 0, struck.log()
        print(f"{kind}: ended within {time.monotonic() - started:.2f} s")
        await crowd.hear_more(2)
    crowd.check(f"SIGTERM of a {kind}", record_property)
