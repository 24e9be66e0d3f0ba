"""Sessions and rooms in several cells: where they are, lists and limits over all of them."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id
from lingua_scheduler.services.runtime.contract.offers import Offer, offers_key, packed
from lingua_scheduler.services.runtime.redis.cells.cells import CellState
from lingua_scheduler.services.session_gateway.main import GATEWAY
from lingua_scheduler.services.session_gateway.rooms import renewals
from lingua_scheduler.v1 import rooms_pb2, session_pb2, session_pb2_grpc
from tests.support.audio import FORMAT, speech
from tests.support.cells import cell_settings, open_cells
from tests.support.hosted import Hosted, hosted
from tests.support.process import SOON_S
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_listener import listening, raw_listener
from tests.support.room_voice import room_voice
from tests.support.rpc_errors import failure

CELLS = 4
# Longer than any test.
LONG_MS = 60_000
# Nothing is translated here.
NO_DISPATCHER = "127.0.0.1:1"


class Gateway:
    """A gateway with cells."""

    def __init__(self, service: Hosted, stub: Any, stack: contextlib.AsyncExitStack) -> None:
        self.address = service.address
        self.web_address = service.web_address
        self.stub = stub
        self._stack = stack

    async def client(self) -> RawClient:
        """A client that stays until the end of the test."""
        return await self._stack.enter_async_context(raw_client(self.address))

    async def opened(self, count: int, **fields: Any) -> dict[str, session_pb2.Opened]:
        """Opens sessions at the same time; returns those that were not refused, by id."""

        async def one() -> session_pb2.Opened | None:
            client = await self.client()
            await client.say(open=session_pb2.Open(new=new_session("en", **fields)))
            with contextlib.suppress(AssertionError):
                return (await client.event("opened")).opened
            return None

        found = await asyncio.gather(*(one() for _ in range(count)))
        return {each.session_id: each for each in found if each is not None}

    async def rooms(self, count: int) -> dict[str, str]:
        """Creates rooms; returns their host tokens by room id."""
        request = rooms_pb2.CreateRoomRequest(tenant="t")
        made = await asyncio.gather(*(self.stub.CreateRoom(request) for _ in range(count)))
        return {each.room.room_id: each.host_token for each in made}

    async def room(self, room_id: str, holds: Callable[[rooms_pb2.Room], bool]) -> rooms_pb2.Room:
        """Returns a room once it meets a condition."""
        request = rooms_pb2.GetRoomRequest(room_id=room_id)
        async with asyncio.timeout(SOON_S):
            while True:
                answer: rooms_pb2.GetRoomResponse = await self.stub.GetRoom(request)
                if holds(answer.room):
                    return answer.room
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def gateway_of(redis_url: str, prefix: str, **settings: Any) -> AsyncIterator[Gateway]:
    values = {"cells": CELLS, "dispatcher_address": NO_DISPATCHER, **settings}
    async with (
        hosted(GATEWAY, redis_url=redis_url, prefix=prefix, **values) as service,
        contextlib.AsyncExitStack() as stack,
    ):
        channel = await stack.enter_async_context(service.channel())
        yield Gateway(service, session_pb2_grpc.SessionGatewayStub(channel), stack)


@pytest.fixture
async def gateway(redis_url: str, prefix: str) -> AsyncIterator[Gateway]:
    """A gateway with four cells on one server."""
    async with gateway_of(redis_url, prefix) as made:
        yield made


async def in_every_cell(make: Any) -> dict[str, Any]:
    """Makes sessions or rooms until every cell has one."""
    found: dict[str, Any] = {}
    for _ in range(20):
        found |= await make(8)
        if len({cell_of_id(each) for each in found}) == CELLS:
            return found
    raise AssertionError(f"only cells {Counter(map(cell_of_id, found))}")


async def test_sessions_are_in_all_cells_and_found_by_their_ids(
    gateway: Gateway, redis_url: str, prefix: str
) -> None:
    opened = await in_every_cell(gateway.opened)

    async with open_cells(cell_settings(redis_url, prefix, cells=CELLS)) as cells:
        for session_id in opened:
            cell = cells.of_session(session_id)
            assert await cell.link.command("EXISTS", f"{cell.prefix}:session:{session_id}") == 1
    for session_id in opened:
        answer = await gateway.stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
        assert (answer.session.session_id, answer.session.connected) == (session_id, True)
    async with gateway_of(redis_url, prefix) as other:
        for session in opened.values():
            assert (await (await other.client()).resume(session)).session_id == session.session_id


async def test_a_drained_cell_gets_nothing_new(
    gateway: Gateway, redis_url: str, prefix: str
) -> None:
    async with open_cells(cell_settings(redis_url, prefix, cells=CELLS)) as cells:
        for cell in cells.all[1:]:
            await cell.write_state(CellState.DRAINING)
        async with asyncio.timeout(SOON_S):
            while any(map(cell_of_id, await gateway.rooms(10))):
                pass
            assert not any(map(cell_of_id, await gateway.opened(10)))
            await cells.all[3].write_state(CellState.READY)
            while not any(map(cell_of_id, await gateway.rooms(10))):
                pass


@pytest.fixture
async def news_only(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Gateway]:
    """A gateway that reads outcomes only if it gets news of them."""
    monkeypatch.setattr(renewals, "_RENEW_WITHIN_S", 1000.0)
    async with gateway_of(redis_url, prefix, room_lease_ms=LONG_MS) as made:
        yield made


async def test_listeners_hear_what_is_said_in_a_room_of_any_cell(
    news_only: Gateway, redis_url: str, prefix: str
) -> None:
    gateway = news_only
    rooms = await in_every_cell(gateway.rooms)
    one_of_each = {cell_of_id(room_id): room_id for room_id in rooms}
    for cell, room_id in one_of_each.items():
        async with (
            raw_listener(gateway.address) as listener,
            room_voice(redis_url, prefix, room_id, cells=CELLS) as voice,
        ):
            await listener.join(room_id, rooms[room_id], listening("de"))
            await listener.result(await voice.say())
            asked = session_pb2.RoomSpeaker(
                room_id=room_id, join_token=rooms[room_id], language="en"
            )
            speaker = await gateway.client()
            new = session_pb2.NewSession(room=asked, audio_format=FORMAT)
            opened = await speaker.open(new)
            assert cell_of_id(opened.session_id) == cell
            # The room gives it an index, in the same script that records it.
            await speaker.send(speech(1), final=True)
            found = await gateway.room(room_id, lambda room: room.next_index == 2)
            assert [each.session_id for each in found.speakers] == [opened.session_id]
            closed = rooms_pb2.CloseRoomRequest(room_id=room_id, host_token=rooms[room_id])
            await gateway.stub.CloseRoom(closed)
            await listener.event("closed")


async def test_an_id_of_a_cell_that_does_not_exist_is_an_unknown_one(
    gateway: Gateway,
) -> None:
    ((room_id, token),) = (await gateway.rooms(1)).items()
    for unknown in ("none", "none.c3", "none.c4", "none.c999", ".c4", "none.c0"):
        await check_unknown(gateway, unknown, token.replace(room_id, unknown))


async def check_unknown(gateway: Gateway, unknown: str, forged: str) -> None:
    """Checks that there is no session or room with this id."""
    stub = gateway.stub
    client = await gateway.client()
    resume = session_pb2.ResumeSession(session_id=unknown, resume_token="x")
    await client.say(open=session_pb2.Open(resume=resume))
    await client.refused("SESSION_NOT_FOUND")
    speaker = await gateway.client()
    room = session_pb2.RoomSpeaker(room_id=unknown, join_token=forged, language="en")
    new = session_pb2.NewSession(room=room, audio_format=FORMAT)
    await speaker.say(open=session_pb2.Open(new=new))
    await speaker.refused("PERMISSION_DENIED")
    for call, why in (
        (stub.GetSession(session_pb2.GetSessionRequest(session_id=unknown)), "SESSION_NOT_FOUND"),
        (stub.GetRoom(rooms_pb2.GetRoomRequest(room_id=unknown)), "ROOM_NOT_FOUND"),
        (
            stub.GetRoom(rooms_pb2.GetRoomRequest(room_id=unknown, token=forged)),
            "PERMISSION_DENIED",
        ),
        (stub.ListMembers(rooms_pb2.ListMembersRequest(room_id=unknown)), "ROOM_NOT_FOUND"),
        (stub.CloseRoom(rooms_pb2.CloseRoomRequest(room_id=unknown)), "ROOM_NOT_FOUND"),
    ):
        assert (await failure(call))[1] == why


async def test_pages_have_what_is_in_all_cells_once(gateway: Gateway) -> None:
    stub = gateway.stub
    sessions = set(await in_every_cell(gateway.opened))
    rooms = set(await in_every_cell(gateway.rooms))
    for tenant in ("", "t"):
        found: list[str] = []
        request = session_pb2.ListSessionsRequest(tenant=tenant, page_size=3)
        while True:
            page = await stub.ListSessions(request)
            found += [each.session_id for each in page.sessions]
            assert all(each.connected for each in page.sessions)
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        assert (len(found), set(found)) == (len(sessions), sessions)

        found = []
        asked = rooms_pb2.ListRoomsRequest(tenant=tenant, page_size=3)
        while True:
            of_rooms = await stub.ListRooms(asked)
            found += [each.room_id for each in of_rooms.rooms]
            if not of_rooms.next_page_token:
                break
            asked.page_token = of_rooms.next_page_token
        assert (len(found), set(found)) == (len(rooms), rooms)


async def test_a_token_that_no_page_had_does_no_harm(gateway: Gateway) -> None:
    stub = gateway.stub
    for token in ("4", str(2**64 - 1)):
        for call in (
            stub.ListSessions(session_pb2.ListSessionsRequest(page_token=token)),
            stub.ListRooms(rooms_pb2.ListRoomsRequest(page_token=token)),
        ):
            assert (await failure(call))[1] == "INVALID_MESSAGE"
    far = str(2**64 - 4096)
    page = await stub.ListSessions(session_pb2.ListSessionsRequest(page_token=far))
    assert not page.next_page_token


async def test_languages_are_those_of_the_cell_that_was_told_last(
    gateway: Gateway, redis_url: str, prefix: str
) -> None:
    async with open_cells(cell_settings(redis_url, prefix, cells=CELLS)) as cells:
        for cell, as_of_ms, src in zip(cells.all[1:], (1, 3, 2), ("de", "es", "fr"), strict=True):
            value = packed(as_of_ms, [Offer(src, "en", speech=True, room=True)])
            await cell.link.command("SET", offers_key(cell.prefix), value)
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(f"http://{gateway.web_address}/v1/languages") as answer,
    ):
        body = await answer.json()
    assert [each["src"] for each in body["directions"]] == ["es"]
    assert body["asOfMs"] == "3"


async def test_the_limits_of_a_tenant_hold_over_all_cells(redis_url: str, prefix: str) -> None:
    async with gateway_of(redis_url, prefix, quota_sessions=5, quota_rooms=3) as gateway:
        # At the same time, in cells that do not know of each other.
        opened = await gateway.opened(12)
        assert len(opened) == 5
        client = await gateway.client()
        await client.say(open=session_pb2.Open(new=new_session("en")))
        error = await client.refused("QUOTA_EXCEEDED")
        assert error.metadata == {"limit": "sessions", "used": "5", "allowed": "5"}
        assert len(await gateway.opened(6, tenant="another")) == 5

        await gateway.rooms(3)
        refused = await failure(gateway.stub.CreateRoom(rooms_pb2.CreateRoomRequest(tenant="t")))
        assert refused[1] == "QUOTA_EXCEEDED"
        assert refused[2].metadata == {"limit": "rooms", "used": "3", "allowed": "3"}
