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
from google.protobuf.json_format import MessageToDict

from tests.support.audio import speech
from tests.support.raw_client import new_session, working
from tests.support.raw_http import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    RawConnection,
    frame,
    handshake,
    raw_connection,
    raw_socket,
)
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_client import WebClient, audio_frame, web_client

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
        limits={"web.connections._REQUEST_WITHIN_S": 2.0},
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
    new = MessageToDict(new_session(here.src, here.tgt))
    return frame(TEXT, json.dumps({"open": {"new": new}}).encode())


BAD_FRAMES = {
    "a text frame before open": (frame(TEXT, b'{"close": {}}'), 4400),
    "audio before open": (frame(BINARY, audio_frame(0, b"ab")), 4400),
    "no JSON": (frame(TEXT, b"hello"), 4400),
    "an unknown field": (frame(TEXT, b'{"shout": 1}'), 4400),
    "audio in JSON": (frame(TEXT, b'{"audio": {"seq": 0}}'), 4400),
    "an open without a start": (frame(TEXT, b'{"open": {}}'), 4400),
    "deep JSON": (frame(TEXT, b'{"open":' * 10_000), 4400),
    "text that is not UTF-8": (frame(TEXT, b"\xff\xfe{}"), 1007),
    "an unknown opcode": (frame(3, b"x"), 1002),
    "a reserved bit": (frame(TEXT, b"{}", first=0xC1), 1002),
    "a long ping": (frame(PING, bytes(126)), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
    "a frame in the middle of another": (
        frame(TEXT, b"{", first=TEXT) + frame(TEXT, b"{}"),
        1002,
    ),
    "a session that does not exist": (
        frame(TEXT, b'{"open": {"resume": {"sessionId": "x", "resumeToken": "y"}}}'),
        4404,
    ),
}


@pytest.mark.parametrize("name", list(BAD_FRAMES))
async def test_a_bad_first_frame_closes_the_connection_with_its_code(
    gateway: GatewayProcess, name: str
) -> None:
    data, code = BAD_FRAMES[name]
    async with raw_socket(gateway.web_address) as peer:
        await peer.send(data)
        assert await peer.close_code() == code


BAD_FRAMES_LATER = {
    "an empty binary frame": frame(BINARY, b""),
    "an unknown type": frame(BINARY, struct.pack(">BBHQQ", 9, 0, 0, 0, 0)),
    "a direction that the session has not": frame(BINARY, struct.pack(">BBHQQ", 1, 2, 0, 0, 0)),
    "an unknown flag": frame(BINARY, struct.pack(">BBHQQ", 1, 0x80, 0, 0, 0)),
    "a negative count": frame(TEXT, b'{"resultsSeen": -1}'),
}


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

    def noise() -> bytes:
        kind = chance.randrange(6)
        if kind == 0:
            return chance.randbytes(chance.randrange(1, 300))
        if kind == 1:
            return frame(BINARY, chance.randbytes(chance.randrange(60)))
        if kind == 2:
            return frame(TEXT, chance.randbytes(chance.randrange(60)))
        if kind == 3:
            return frame(chance.randrange(16), chance.randbytes(chance.randrange(200)))
        if kind == 4:
            return frame(TEXT, b"{}")[: chance.randrange(8)]
        return frame(BINARY, audio_frame(chance.randrange(9), chance.randbytes(200)))

    async def disturb() -> None:
        with contextlib.suppress(ConnectionError):
            async with raw_connection(address) as peer:
                await peer.send(handshake(address))
                await peer.status()
                if chance.random() < 0.7:
                    await peer.send(opening(here))
                for _ in range(chance.randrange(1, 6)):
                    await peer.send(noise())
                if chance.random() < 0.5:
                    with contextlib.suppress(TimeoutError):
                        await peer.close_code(within=0.3)

    for _ in range(20):
        await asyncio.gather(*(disturb() for _ in range(5)))
    assert good.said


async def flood(peer: RawConnection, data: bytes, seconds: float) -> None:
    """Sends as fast as the connection takes it."""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            while not peer.reader.at_eof():
                peer.writer.write(data)
                await peer.writer.drain()


@pytest.mark.parametrize("kind", ["empty frames", "pings", "signs of life", "audio", "fragments"])
async def test_a_flood_slows_only_its_sender_down(
    gateway: GatewayProcess, here: Scene, good: GoodClient, kind: str
) -> None:
    data = {
        "empty frames": frame(BINARY, b"") * 1000,
        "pings": frame(PING, b"") * 1000,
        "signs of life": frame(TEXT, b"{}") * 1000,
        "audio": b"".join(frame(BINARY, audio_frame(at, bytes(320))) for at in range(1000)),
        "fragments": frame(0, b"", first=0) * 1000,
    }[kind]
    memory = gateway.memory_bytes()
    said = good.said
    async with raw_socket(gateway.web_address) as peer:
        await peer.send(opening(here))
        if kind == "fragments":
            await peer.send(frame(BINARY, b"", first=BINARY))
        began = time.monotonic()
        await flood(peer, data, 3.0)
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
