"""What viewers cost: the services the same for one as for fifty, and little on the wire."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import pytest

from tests.browser.console.crowd import JOBS, Crowd
from tests.browser.console.scheduler import ConsoleScheduler
from tests.support.console import EventReader, watching

VIEWS = ("overview", "nodes?search=crowd-0", "jobs?state=failed", "sessions", "instances")
VIEWERS = 50
# Long enough for several rounds of polls, the slowest of which is every 2 s.
WINDOW_S = 5.0
# Polls that one window has and the other has not: at most one round of each source of each service.
TOLERANCE = 6
# Of a viewer of an overview on which nothing happens. Charts that are full, with 180 points, take
# most of it: they change every 5 s.
BYTES_PER_MINUTE = 100_000


class Viewers:
    """Readers of event streams.

    Attributes:
        overview_bytes: what each viewer of the overview has got after its first document.
    """

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.overview_bytes: list[int] = []
        self._url = url
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, client: aiohttp.ClientSession, count: int) -> None:
        """Adds viewers, who look at different views; returns when each has its document."""
        for at in range(count):
            view = VIEWS[at % len(VIEWS)]
            reader = await self._stack.enter_async_context(
                watching(client, f"{self._url}/api/v1/{view}")
            )
            assert (await reader.next())[0] == "document"
            self._tasks.append(asyncio.create_task(self._count(reader, view)))

    async def _count(self, reader: EventReader, view: str) -> None:
        at = len(self.overview_bytes)
        if view == "overview":
            self.overview_bytes.append(0)
        async for data in reader.response.content.iter_any():
            if view == "overview":
                self.overview_bytes[at] += len(data)

    async def stop(self) -> None:
        """Nobody looks any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.mark.long
def test_fifty_viewers_cost_the_services_the_same_as_one(
    fleet: ConsoleScheduler, crowd: Crowd
) -> None:
    one, fifty, sizes = fleet.run(_compare(fleet))
    assert one > 0
    assert fifty <= one + TOLERANCE, (one, fifty)
    # The first viewer of the overview was there in both windows.
    assert sizes[0] * 60 / (2 * WINDOW_S) < BYTES_PER_MINUTE, sizes
    assert max(sizes[1:]) <= sizes[0]


async def _compare(fleet: ConsoleScheduler) -> tuple[float, float, list[int]]:
    """Calls of the services with few and with many viewers, and bytes of overviews."""
    connector = aiohttp.TCPConnector(limit=2 * VIEWERS)
    async with aiohttp.ClientSession(connector=connector) as client, AsyncExitStack() as stack:
        await _until_read(client, fleet.url)
        viewers = Viewers(fleet.url, stack)
        await viewers.add(client, len(VIEWS))
        one = await _calls_in_a_window(fleet)
        await viewers.add(client, VIEWERS - len(VIEWS))
        console = fleet.console
        assert await console.metric("lingua_console_viewers") == VIEWERS
        assert await console.metric("lingua_console_watched_documents") == len(VIEWS)
        fifty = await _calls_in_a_window(fleet)
        await viewers.stop()
    return one, fifty, viewers.overview_bytes


async def _until_read(client: aiohttp.ClientSession, url: str) -> None:
    """Returns when the console has read all jobs: until then it asks more often."""
    total = 0
    while total < JOBS:
        async with client.get(f"{url}/api/v1/jobs?limit=1") as answer:
            total = (await answer.json())["total"]
        await asyncio.sleep(0.1)


async def _calls_in_a_window(fleet: ConsoleScheduler) -> float:
    before = await _calls(fleet)
    await asyncio.sleep(WINDOW_S)
    return await _calls(fleet) - before


async def _calls(fleet: ConsoleScheduler) -> float:
    """Calls that the services have answered."""
    services = [each for each in fleet.services if each.process.poll() is None]
    return await fleet.total(services, "lingua_grpc_server_handled_total")
