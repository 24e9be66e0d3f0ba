"""Clients that talk without a pause, and a way to find a process that has work."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence

from tests.support.all_in_one import Part
from tests.support.node_process import NodeProcess
from tests.support.scheduler import Scheduler
from tests.support.services import ServiceProcess, addresses
from tests.support.speaker import Speaker, sentences, speaking

PEOPLE = 8
# Lengths of sentences, in words of a tenth of a second: from half a second to one and a half.
SHORT = (5, 12, 8, 15, 6, 10)
# And some that are longer than an utterance may be.
LONG = (5, 18, 8, 12, 31, 6)
# Far more than anything here may take, and less than the 30 s after which a result is missing.
RECOVERED_S = 25.0

# People share all even words, so that nobody can be taken for another.
_WORDS = 24_000

Victim = ServiceProcess | NodeProcess


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
        for sentence in sentences(2 + _WORDS // len(self.people) // 2 * 2 * at, lengths):
            for word in sentence:
                await speaker.say(word, pace=True)
                if self._enough.is_set():
                    break
            await speaker.session.finish()
            if self._enough.is_set():
                return

    def stop(self) -> None:
        """Everybody breaks off, which ends their sentences."""
        self._enough.set()

    async def hear_more(self, results: int) -> None:
        """Returns when everybody has heard that many more results."""
        wanted = [len(each.outcomes) + results for each in self.people]
        for each, count in zip(self.people, wanted, strict=True):
            await each.until(lambda who=each, most=count: len(who.outcomes) >= most, RECOVERED_S)

    def check(self, title: str, record: Callable[[str, object], None]) -> None:
        """Fails unless all words were heard; records the longest wait."""
        for each in self.people:
            each.check_all_heard()
        slowest = max(each.slowest for each in self.people)
        said = sum(len(words) for each in self.people for words in each.said.values())
        resumes = sum(each.session.counts.resumes for each in self.people)
        print(f"{title}: longest stall {slowest:.2f} s; {said} words, {resumes} resumes")
        record(f"longest stall, {title}", slowest)


@contextlib.asynccontextmanager
async def talking(scheduler: Scheduler, lengths: Sequence[int]) -> AsyncIterator[Crowd]:
    """People who talk inside the block; at its end all results have come."""
    async with contextlib.AsyncExitStack() as stack:
        to = addresses(scheduler.gateways)
        people = [await stack.enter_async_context(speaking(to)) for _ in range(PEOPLE)]
        crowd = Crowd(people, lengths)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(crowd.talk())
            await crowd.hear_more(1)
            yield crowd
            crowd.stop()


async def notices(service: ServiceProcess | Part, *, up: bool) -> None:
    """Returns when a service knows that Redis is up, or away."""
    deadline = time.monotonic() + RECOVERED_S
    while await service.metric(f"lingua_{service.service}_redis_up") != up:
        assert time.monotonic() < deadline, f"{service.service} does not notice"
        await asyncio.sleep(0.02)


async def busiest(services: Sequence[ServiceProcess], metric: str) -> ServiceProcess:
    """Waits until a service has work; returns the busiest one."""
    deadline = time.monotonic() + RECOVERED_S
    while True:
        load = [await each.metric(metric) for each in services]
        if max(load) >= 2:
            return services[load.index(max(load))]
        assert time.monotonic() < deadline, f"{metric}: {load}"


async def busy_node(scheduler: Scheduler) -> NodeProcess:
    """Waits until a node has at least two jobs; returns it."""
    deadline = time.monotonic() + RECOVERED_S
    while True:
        for node in scheduler.nodes:
            if node.running >= 2:
                return node
        assert time.monotonic() < deadline, "no node has two jobs"
        await asyncio.sleep(0.01)


async def victim(scheduler: Scheduler, kind: str) -> Victim:
    """Waits until a process of this kind has work; returns it."""
    match kind:
        case "gateway":
            return await busiest(scheduler.gateways, "lingua_gateway_jobs")
        case "dispatcher":
            return await busiest(scheduler.dispatchers, "lingua_dispatcher_jobs")
        case "pool service":
            return await busiest(scheduler.pools, "lingua_pool_allocations_total")
        case _:
            return await busy_node(scheduler)
