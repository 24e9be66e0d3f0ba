"""Peers of the web entry that do what no browser does, beside a client that is served."""

import asyncio
import contextlib
import json
import random
import struct
import time
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.audio import speech
from tests.support.raw_client import new_session, working
from tests.support.raw_http import CLOSE, TEXT, frame, handshake, raw_connection, raw_socket
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_attacks import (
    BAD_FRAMES,
    BAD_FRAMES_LATER,
    FLOODS,
    flood,
    noise,
    open_frame,
)
from tests.support.web_client import WebClient, web_client

SEED = 16


@pytest.fixture(scope="module")
def pool(redis_url: str) -> Iterator[PoolProcess]:
    """A pool service without auth."""
    with PoolProcess(redis_url=redis_url, prefix=f"test:{uuid.uuid4().hex[:8]}") as process:
        yield process


@pytest.fixture(scope="module")
def dispatcher(pool: PoolProcess, redis_url: str) -> Iterator[DispatcherProcess]:
    """A dispatcher without auth."""
    with DispatcherProcess(pool=pool, redis_url=redis_url) as process:
        yield process


@pytest.fixture(scope="module")
def gateway(
    pool: PoolProcess, dispatcher: DispatcherProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that everybody may call; its log must not tell of a bug."""
    with GatewayProcess(
        pool=pool,
        redis_url=redis_url,
        dispatchers=dispatcher.address,
        hangover_manual_ms=50,
        web_frames_per_s=500,
        limits={"runtime.web.connections._REQUEST_WITHIN_S": 2.0},
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture
async def here(dispatcher: DispatcherProcess, pool: PoolProcess) -> AsyncIterator[Scene]:
    """The scene of a test."""
    async with scene(dispatcher, pool) as made:
        yield made


class GoodClient:
    """A client that speaks all the time, and must get every result."""

    def __init__(self, web: WebClient) -> None:
        self._web = web
        self.said = 0
        self._spoke = asyncio.Event()

    async def speak(self) -> None:
        """Says one utterance, and waits for its result."""
        await self._web.chunk(self.said, speech(self.said), final=True)
        result = await self._web.result(self.said)
        assert result["texts"]["translated"] == str(self.said)
        self.said += 1
        await self._web.say(resultsSeen=self.said)
        self._spoke.set()

    async def says(self, count: int, meanwhile: asyncio.Task[None]) -> None:
        """Returns when so many more utterances have come back."""
        until = self.said + count
        async with asyncio.timeout(20):
            while self.said < until and not meanwhile.done():
                self._spoke.clear()
                await asyncio.wait(
                    {meanwhile, asyncio.ensure_future(self._spoke.wait())},
                    return_when=asyncio.FIRST_COMPLETED,
                )


@pytest.fixture
async def good(gateway: GatewayProcess, here: Scene) -> AsyncIterator[GoodClient]:
    """A good client, which is served before and after what a test does, and meanwhile."""
    async with working(await here.node()), web_client(gateway.web_address) as web:
        await web.open(new_session(here.src, here.tgt))
        client = GoodClient(web)
        await client.speak()

        async def go_on() -> None:
            while True:
                await client.speak()

        speaking = asyncio.create_task(go_on())
        yield client
        await client.says(2, meanwhile=speaking)
        speaking.cancel()
        (ended,) = await asyncio.gather(speaking, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), repr(ended)


def opening(here: Scene) -> bytes:
    return open_frame(new_session(here.src, here.tgt))


@pytest.mark.parametrize("name", list(BAD_FRAMES))
async def test_a_bad_first_frame_closes_the_connection_with_its_code(
    gateway: GatewayProcess, name: str
) -> None:
    data, code = BAD_FRAMES[name]
    async with raw_socket(gateway.web_address) as peer:
        await peer.send(data)
        assert await peer.close_code() == code


@pytest.mark.parametrize("name", list(BAD_FRAMES_LATER))
async def test_a_bad_frame_ends_the_session_with_an_error(
    gateway: GatewayProcess, here: Scene, name: str
) -> None:
    async with raw_socket(gateway.web_address) as peer:
        await peer.send(opening(here))
        assert b'"opened"' in (await peer.next_frame())[1]
        await peer.send(BAD_FRAMES_LATER[name])
        kind, text = await peer.next_frame()
        assert (kind, json.loads(text)["events"][0]["error"]["reason"]) == (
            TEXT,
            "ERROR_REASON_INVALID_MESSAGE",
        )
        assert await peer.close_code() == 4400


async def test_noise_of_all_kinds_disturbs_nobody(
    gateway: GatewayProcess, here: Scene, good: GoodClient
) -> None:
    chance = random.Random(SEED)
    address = gateway.web_address

    async def disturb() -> None:
        with contextlib.suppress(ConnectionError):
            async with raw_connection(address) as peer:
                await peer.send(handshake(address))
                await peer.status()
                if chance.random() < 0.7:
                    await peer.send(opening(here))
                for _ in range(chance.randrange(1, 6)):
                    await peer.send(noise(chance))
                if chance.random() < 0.5:
                    with contextlib.suppress(TimeoutError):
                        await peer.close_code(within=0.3)

    for _ in range(20):
        await asyncio.gather(*(disturb() for _ in range(5)))
    assert good.said


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_slows_only_its_sender_down(
    gateway: GatewayProcess, here: Scene, good: GoodClient, kind: str
) -> None:
    memory = gateway.memory_bytes()
    said = good.said
    async with raw_socket(gateway.web_address) as peer:
        await peer.send(opening(here))
        began = time.monotonic()
        await flood(peer, kind, 3.0)
        # A connection that is cut off is over sooner.
        await asyncio.sleep(max(0.0, 3.0 - (time.monotonic() - began)))
    assert good.said > said
    assert gateway.memory_bytes() < memory + 50_000_000


async def test_many_slow_peers_hold_no_place_for_long(
    gateway: GatewayProcess, good: GoodClient
) -> None:
    address = gateway.web_address
    async with contextlib.AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(raw_connection(address)) for _ in range(50)]
        for peer in peers:
            await peer.send(b"GET /v1/converse HTTP/1.1\r\nHost: " + address.encode())
        await asyncio.gather(*(peer.ended(within=10) for peer in peers))
    assert good.said


async def test_a_client_may_close_with_any_code(gateway: GatewayProcess, here: Scene) -> None:
    for code in (1000, 1001, 3000, 4999):
        async with raw_socket(gateway.web_address) as peer:
            await peer.send(opening(here))
            assert b'"opened"' in (await peer.next_frame())[1]
            await peer.send(frame(CLOSE, struct.pack(">H", code) + b"bye"))
            assert await peer.close_code() in (1000, code)
