"""Cells on two servers, one of which is away, frozen, or has lost all data."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import aiohttp
import grpc
import pytest

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.session_gateway.main import GATEWAY
from lingua_scheduler.v1 import rooms_pb2, session_pb2, session_pb2_grpc
from tests.support.audio import speech
from tests.support.hosted import Hosted, hosted
from tests.support.process import SOON_S
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_listener import RawListener, listening, raw_listener
from tests.support.room_voice import RoomVoice, room_voice
from tests.support.rpc_errors import failure

DOWN = "SCHEDULER_DEPENDENCY_DOWN"
CELLS = 4
# A call fails within half of this time; the rest allows for a busy machine.
FAST_S = 2.0


def is_steady(id_: str) -> bool:
    """Whether a session or room is on the server that stays."""
    return cell_of_id(id_) % 2 == 0


class World:
    """A gateway whose cells are in turns on two servers."""

    def __init__(self, service: Hosted, stub: Any, stack: contextlib.AsyncExitStack) -> None:
        self.address = service.address
        self.web_address = service.web_address
        self.stub = stub
        self._stack = stack

    async def session(self, wanted: Callable[[str], bool]) -> tuple[RawClient, session_pb2.Opened]:
        """Opens sessions until one is where it should be."""
        for _ in range(50):
            client = await self._stack.enter_async_context(raw_client(self.address))
            opened = await client.open(new_session("en"))
            if wanted(opened.session_id):
                return client, opened
        raise AssertionError("no session is there")

    async def room(self, wanted: Callable[[str], bool]) -> rooms_pb2.CreateRoomResponse:
        """Creates rooms until one is where it should be."""
        for _ in range(50):
            made: rooms_pb2.CreateRoomResponse = await self.stub.CreateRoom(
                rooms_pb2.CreateRoomRequest()
            )
            if wanted(made.room.room_id):
                return made
        raise AssertionError("no room is there")

    async def listener(self, made: rooms_pb2.CreateRoomResponse) -> RawListener:
        """A listener of a room."""
        listener = await self._stack.enter_async_context(raw_listener(self.address))
        await listener.join(made.room.room_id, made.host_token, listening("de"))
        return listener

    async def utterances(self, session_id: str) -> int:
        """How many utterances the record of a session has; -1 if it cannot be read now."""
        request = session_pb2.GetSessionRequest(session_id=session_id)
        try:
            answer = await self.stub.GetSession(request)
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
                raise
            return -1
        return int(answer.session.next_utterance_index)

    async def recorded(self, session_id: str, utterances: int) -> None:
        """Returns when the record of a session has so many utterances."""
        deadline = time.monotonic() + SOON_S
        while (found := await self.utterances(session_id)) != utterances:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.02)

    async def listed(self) -> tuple[set[str], set[str]]:
        """The ids of all sessions and rooms that are listed."""
        sessions = await self.stub.ListSessions(session_pb2.ListSessionsRequest(page_size=1000))
        rooms = await self.stub.ListRooms(rooms_pb2.ListRoomsRequest(page_size=1000))
        assert not sessions.next_page_token
        assert not rooms.next_page_token
        return {each.session_id for each in sessions.sessions}, {
            each.room_id for each in rooms.rooms
        }


@pytest.fixture
def frail() -> Iterator[EmbeddedRedis]:
    """The server with the odd cells."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def urls(redis_url: str, frail: EmbeddedRedis) -> str:
    """One URL for each cell."""
    return " ".join([redis_url, frail.url] * (CELLS // 2))


@pytest.fixture
async def world(urls: str, prefix: str) -> AsyncIterator[World]:
    """A gateway; nothing is translated."""
    async with (
        hosted(
            GATEWAY,
            redis_url=urls,
            prefix=prefix,
            cells=CELLS,
            redis_timeout_ms=1000,
            dispatcher_address="127.0.0.1:1",
        ) as service,
        contextlib.AsyncExitStack() as stack,
    ):
        channel = await stack.enter_async_context(service.channel())
        yield World(service, session_pb2_grpc.SessionGatewayStub(channel), stack)


async def web_health(address: str) -> int:
    """The status of the web entry's health."""
    async with aiohttp.ClientSession() as client, client.get(f"http://{address}/healthz") as answer:
        return answer.status


async def say(voice: RoomVoice, listener: RawListener) -> None:
    """Says something that is heard at once."""
    await listener.result(await voice.say())


async def say_again(voice: RoomVoice, listener: RawListener) -> None:
    """Says something as soon as that is possible."""
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            index = await voice.say()
            break
        except Exception:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
            with contextlib.suppress(Exception):
                await voice.open()
    await listener.result(index)


async def test_a_server_that_is_away_stalls_only_its_own_cells(
    world: World, frail: EmbeddedRedis, urls: str, prefix: str
) -> None:
    client, steady = await world.session(is_steady)
    stalled, lost = await world.session(lambda each: not is_steady(each))
    calm_room = await world.room(is_steady)
    frail_room = await world.room(lambda each: not is_steady(each))
    calm, waiting = await world.listener(calm_room), await world.listener(frail_room)
    async with (
        room_voice(urls, prefix, calm_room.room.room_id, cells=CELLS) as voice,
        room_voice(urls, prefix, frail_room.room.room_id, cells=CELLS) as frail_voice,
    ):
        await say(voice, calm)
        await say(frail_voice, waiting)

        frail.kill()
        # Its own fail at once, and say why.
        began = time.monotonic()
        request = session_pb2.GetSessionRequest(session_id=lost.session_id)
        assert (await failure(world.stub.GetSession(request)))[1] == DOWN
        asked = rooms_pb2.GetRoomRequest(room_id=frail_room.room.room_id)
        assert (await failure(world.stub.GetRoom(asked)))[1] == DOWN
        async with raw_client(world.address) as other:
            resume = session_pb2.ResumeSession(
                session_id=lost.session_id, resume_token=lost.resume_token
            )
            await other.say(open=session_pb2.Open(resume=resume))
            await other.refused(DOWN)
        assert time.monotonic() - began < FAST_S
        await stalled.send(speech(1), final=True)
        assert await web_health(world.web_address) == 200
        # The others do not notice.
        await client.send(speech(1), final=True)
        await world.recorded(steady.session_id, 1)
        await say(voice, calm)
        # New ones avoid it, and lists leave it out.
        for _ in range(10):
            assert is_steady((await world.session(lambda _: True))[1].session_id)
            assert is_steady((await world.room(lambda _: True)).room.room_id)
        sessions, rooms = await world.listed()
        assert all(map(is_steady, sessions | rooms))
        assert {steady.session_id} < sessions
        assert {calm_room.room.room_id} < rooms

        frail.restart()
        # It has lost everything. What was here is written again, and goes on.
        await world.recorded(lost.session_id, 1)
        await say_again(frail_voice, waiting)
        sessions, rooms = await world.listed()
        assert lost.session_id in sessions
        assert frail_room.room.room_id in rooms
        await world.session(lambda each: not is_steady(each))
        await world.room(lambda each: not is_steady(each))
        assert not client.of("error")
        assert not calm.of("error")


async def test_what_is_opened_in_a_server_that_hangs_is_opened_in_another(
    world: World, frail: EmbeddedRedis
) -> None:
    frail.pause()
    try:
        # Most of them are sent before the gateway has noticed.
        opened = await asyncio.gather(*(world.session(lambda _: True) for _ in range(16)))
        rooms = await asyncio.gather(*(world.room(lambda _: True) for _ in range(16)))
    finally:
        frail.resume()
    assert all(is_steady(each.session_id) for _, each in opened)
    assert all(is_steady(each.room.room_id) for each in rooms)


async def test_nothing_is_listed_or_opened_if_all_cells_are_away(
    frail: EmbeddedRedis, prefix: str
) -> None:
    async with hosted(
        GATEWAY,
        redis_url=frail.url,
        prefix=prefix,
        cells=CELLS,
        redis_timeout_ms=1000,
        dispatcher_address="127.0.0.1:1",
    ) as service:
        assert await web_health(service.web_address) == 200
        frail.kill()
        async with service.channel() as channel:
            stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
            for call in (
                stub.ListSessions(session_pb2.ListSessionsRequest()),
                stub.ListRooms(rooms_pb2.ListRoomsRequest()),
                stub.CreateRoom(rooms_pb2.CreateRoomRequest()),
            ):
                assert (await failure(call))[1] == DOWN
        assert await web_health(service.web_address) == 503
