"""Rooms with auth on: what a token of a room allows, and what it does not."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest

from lingua_scheduler.services.runtime.auth.room_tokens import RoomTokenRole, new_secret, sign
from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2, session_pb2_grpc
from tests.security.conftest import Services
from tests.security.issuer import Issuer, Metadata, bearer
from tests.support.audio import FORMAT
from tests.support.raw_client import new_session, raw_client
from tests.support.raw_listener import listening, raw_listener
from tests.support.rpc_errors import failure
from tests.support.web_client import web_client, web_listener

DENIED = "PERMISSION_DENIED"


class Gate:
    """The gateway, and a room of tenant acme."""

    def __init__(self, address: str, web_address: str, stub: Any, client: Metadata) -> None:
        self.address = address
        self.web_address = web_address
        self.stub = stub
        self.client = client
        self.room_id = ""
        self.host = ""

    async def create(self, **options: Any) -> None:
        """Makes the room."""
        asked = rooms_pb2.CreateRoomRequest(options=rooms_pb2.RoomOptions(**options))
        made = await self.stub.CreateRoom(asked, metadata=self.client)
        assert made.room.tenant == "acme"
        self.room_id, self.host = made.room.room_id, made.host_token

    async def token(self, role: str, lifetime_s: int = 60) -> str:
        """A join token."""
        asked = rooms_pb2.CreateJoinTokenRequest(
            room_id=self.room_id,
            host_token=self.host,
            role=rooms_pb2.RoomRole.Value(f"ROOM_ROLE_{role}"),
            lifetime_s=lifetime_s,
        )
        made = await self.stub.CreateJoinToken(asked, metadata=self.client)
        return str(made.join_token)

    def forged(self, room_id: str = "") -> str:
        """A token that somebody else has signed."""
        return sign(room_id or self.room_id, new_secret(), RoomTokenRole.HOST)

    def speaker(self, token: str = "") -> session_pb2.NewSession:
        """A session that speaks to the room."""
        room = session_pb2.RoomSpeaker(room_id=self.room_id, join_token=token, language="en")
        return session_pb2.NewSession(room=room, audio_format=FORMAT)


@pytest.fixture
async def gate(services: Services, issuer: Issuer) -> AsyncIterator[Gate]:
    """A room of the test's own."""
    gateway = services.gateway
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = session_pb2_grpc.SessionGatewayStub(channel)
        made = Gate(gateway.address, gateway.web_address, stub, issuer.metadata("client"))
        await made.create()
        yield made


async def refusal_of_join(gate: Gate, metadata: Metadata, **fields: Any) -> str:
    """The reason why somebody may not listen; empty if it may."""
    asked = {"room_id": gate.room_id, "listening": listening("de"), **fields}
    async with raw_listener(gate.address, metadata) as listener:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await listener.say(join=rooms_pb2.JoinRoom(**asked))
        await listener.until(lambda: bool(listener.events))
        if listener.told()[0] == "joined":
            return ""
        error = listener.events[0].error
        return common_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")


async def test_a_join_token_is_all_that_a_member_needs(gate: Gate) -> None:
    for role in ("LISTENER", "SPEAKER"):
        token = await gate.token(role)
        assert await refusal_of_join(gate, bearer(token)) == ""
        # Or an app of any tenant passes the token on.
        assert await refusal_of_join(gate, gate.client, join_token=token) == ""
    assert await refusal_of_join(gate, bearer(gate.host)) == ""


async def test_a_token_of_a_client_alone_opens_no_room(gate: Gate, issuer: Issuer) -> None:
    assert await refusal_of_join(gate, gate.client) == DENIED
    asked = rooms_pb2.GetRoomRequest(room_id=gate.room_id)
    assert (await failure(gate.stub.GetRoom(asked, metadata=gate.client)))[1] == DENIED


async def test_a_wrong_token_and_an_unknown_room_get_the_same_answer(gate: Gate) -> None:
    told = []
    for room_id in (gate.room_id, "no-such-room"):
        token = gate.forged(room_id)
        for call in (
            gate.stub.GetRoom(
                rooms_pb2.GetRoomRequest(room_id=room_id, token=token), metadata=gate.client
            ),
            gate.stub.CloseRoom(
                rooms_pb2.CloseRoomRequest(room_id=room_id, host_token=token), metadata=gate.client
            ),
            gate.stub.ListMembers(
                rooms_pb2.ListMembersRequest(room_id=room_id), metadata=bearer(token)
            ),
        ):
            code, reason, error = await failure(call)
            told.append((code, reason, error.message, dict(error.metadata)))
        assert await refusal_of_join(gate, bearer(token), room_id=room_id) == DENIED
    assert told[:3] == told[3:]
    # Nor does a stranger learn that a room was closed.
    close = rooms_pb2.CloseRoomRequest(room_id=gate.room_id, host_token=gate.host)
    await gate.stub.CloseRoom(close, metadata=gate.client)
    assert await refusal_of_join(gate, bearer(gate.forged())) == DENIED
    assert await refusal_of_join(gate, bearer(gate.host)) == "ROOM_CLOSED"
    assert {each[1] for each in told} == {DENIED}


async def test_a_token_is_for_one_room(gate: Gate) -> None:
    first = gate.host
    await gate.create()
    assert await refusal_of_join(gate, bearer(first)) == DENIED
    assert await refusal_of_join(gate, gate.client, join_token=first) == DENIED
    assert await refusal_of_join(gate, bearer(gate.host)) == ""


async def test_a_token_that_was_changed_is_worth_nothing(gate: Gate) -> None:
    listener = await gate.token("LISTENER")
    raised = listener.replace(".l.", ".h.")
    parts = listener.split(".")
    longer = ".".join([*parts[:-3], str(int(parts[-3]) + 10**6), *parts[-2:]])
    for token in (raised, longer, listener[:-1] + ("A" if listener[-1] != "A" else "B")):
        assert await refusal_of_join(gate, bearer(token)) == DENIED
    close = rooms_pb2.CloseRoomRequest(room_id=gate.room_id)
    assert (await failure(gate.stub.CloseRoom(close, metadata=bearer(raised))))[1] == DENIED


async def test_only_the_host_and_operators_invite_and_close(gate: Gate, issuer: Issuer) -> None:
    invite = rooms_pb2.CreateJoinTokenRequest(
        room_id=gate.room_id, role=rooms_pb2.ROOM_ROLE_LISTENER
    )
    close = rooms_pb2.CloseRoomRequest(room_id=gate.room_id)
    for role in ("LISTENER", "SPEAKER"):
        metadata = bearer(await gate.token(role))
        call = gate.stub.CreateJoinToken(invite, metadata=metadata)
        assert (await failure(call))[1] == DENIED
        assert (await failure(gate.stub.CloseRoom(close, metadata=metadata)))[1] == DENIED
    viewer = issuer.metadata("viewer")
    assert (await failure(gate.stub.CloseRoom(close, metadata=viewer)))[1] == DENIED
    for metadata in (bearer(gate.host), issuer.metadata("operator")):
        assert (await gate.stub.CreateJoinToken(invite, metadata=metadata)).join_token
    await gate.stub.CloseRoom(close, metadata=issuer.metadata("operator"))
    assert await refusal_of_join(gate, bearer(gate.host)) == "ROOM_CLOSED"


async def test_members_see_the_room_and_not_where_it_runs(gate: Gate, issuer: Issuer) -> None:
    asked = rooms_pb2.GetRoomRequest(room_id=gate.room_id)
    roster = rooms_pb2.ListMembersRequest(room_id=gate.room_id)
    listener, speaker = await gate.token("LISTENER"), await gate.token("SPEAKER")
    async with raw_listener(gate.address, bearer(listener)) as stream:
        await stream.join(gate.room_id, "", listening("de"), name="Bo")
        room = (await gate.stub.GetRoom(asked, metadata=bearer(listener))).room
        assert (room.listeners, list(room.gateway_instances)) == (1, [])
        for metadata in (issuer.metadata("operator"), issuer.metadata("viewer")):
            room = (await gate.stub.GetRoom(asked, metadata=metadata)).room
            assert room.gateway_instances
        assert (await failure(gate.stub.ListMembers(roster, metadata=bearer(listener))))[
            1
        ] == DENIED
        (member,) = (await gate.stub.ListMembers(roster, metadata=bearer(speaker))).members
        assert (member.name, member.gateway_instance) == ("Bo", "")


async def test_who_may_speak_is_up_to_the_room(gate: Gate) -> None:
    listener, speaker = await gate.token("LISTENER"), await gate.token("SPEAKER")
    for token, may in ((listener, False), (speaker, True), (gate.host, True)):
        async with raw_client(gate.address, bearer(token)) as client:
            if may:
                await client.open(gate.speaker())
            else:
                await client.say(open=session_pb2.Open(new=gate.speaker()))
                await client.refused(DENIED)
    await gate.create(speak=rooms_pb2.SPEAK_POLICY_ANYONE)
    async with raw_client(gate.address, bearer(await gate.token("LISTENER"))) as client:
        await client.open(gate.speaker())


async def test_a_member_opens_no_session_of_its_own(gate: Gate) -> None:
    for tenant in ("", "acme", "other"):
        async with raw_client(gate.address, bearer(gate.host)) as client:
            await client.say(open=session_pb2.Open(new=new_session("en", tenant=tenant)))
            await client.refused(DENIED)


@pytest.mark.long
async def test_a_stream_ends_when_the_token_of_a_member_expires(gate: Gate) -> None:
    # Tokens are valid for ten seconds longer than they say, because clocks differ.
    lasting = await gate.token("LISTENER", lifetime_s=1)
    async with web_listener(gate.web_address, lasting) as web:
        await web.join(gate.room_id, "")
        assert await web.closed(within=20) == 4401


async def test_a_token_that_has_expired_opens_no_stream(gate: Gate) -> None:
    expired = sign(gate.room_id, new_secret(), RoomTokenRole.LISTENER, 1)
    async with raw_listener(gate.address, bearer(expired)) as listener:
        assert await listener.status() is grpc.StatusCode.UNAUTHENTICATED
    # The same in a message is refused by the handler.
    assert await refusal_of_join(gate, gate.client, join_token=expired) == DENIED


async def test_a_room_belongs_to_the_tenant_of_its_maker(gate: Gate, issuer: Issuer) -> None:
    asked = rooms_pb2.CreateRoomRequest(tenant="other")
    call = gate.stub.CreateRoom(asked, metadata=gate.client)
    assert (await failure(call))[1] == DENIED
    listed = gate.stub.ListRooms(rooms_pb2.ListRoomsRequest(), metadata=gate.client)
    assert (await failure(listed))[1] == DENIED
    mine = await gate.stub.ListRooms(
        rooms_pb2.ListRoomsRequest(tenant="acme", page_size=1000),
        metadata=issuer.metadata("viewer"),
    )
    assert gate.room_id in {each.room_id for each in mine.rooms}


async def test_a_tenant_makes_no_more_rooms_than_its_token_says(gate: Gate, issuer: Issuer) -> None:
    limited = issuer.metadata("client", tenant="small", limits={"rooms": 1})
    await gate.stub.CreateRoom(rooms_pb2.CreateRoomRequest(), metadata=limited)
    call = gate.stub.CreateRoom(rooms_pb2.CreateRoomRequest(), metadata=limited)
    _, reason, error = await failure(call)
    assert (reason, error.metadata["limit"]) == ("QUOTA_EXCEEDED", "rooms")


async def test_browsers_of_members_need_only_the_token_of_the_room(gate: Gate) -> None:
    token = await gate.token("SPEAKER")
    async with web_listener(gate.web_address, token) as listener:
        await listener.join(gate.room_id, "")
    async with web_client(gate.web_address, token) as speaker:
        await speaker.open(gate.speaker())
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        url = f"http://{gate.web_address}/v1/rooms"
        async with http.post(f"{url}/get", json={"roomId": gate.room_id}) as response:
            assert response.status == 200
        async with http.post(f"{url}/create", json={}) as response:
            assert response.status == 403
        async with http.post(f"{url}/close", json={"roomId": gate.room_id}) as response:
            assert response.status == 403
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"http://{gate.web_address}/v1/rooms/create", json={}) as response,
    ):
        assert response.status == 401


async def test_nobody_can_take_the_place_of_a_speaker(gate: Gate) -> None:
    async with raw_client(gate.address, bearer(gate.host)) as speaker:
        opened = await speaker.open(gate.speaker())
        # Every listener knows the id of the session.
        token = await gate.token("LISTENER")
        async with raw_listener(gate.address, bearer(token)) as listener:
            await listener.join(gate.room_id, "", listening("de"), member_id=opened.session_id)
            asked = rooms_pb2.GetRoomRequest(room_id=gate.room_id)
            room = (await gate.stub.GetRoom(asked, metadata=bearer(token))).room
            assert [each.session_id for each in room.speakers] == [opened.session_id]
            assert room.listeners == 1
