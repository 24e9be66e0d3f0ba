"""What the console tells of rooms whose members really speak and listen."""

import json

import pytest

from lingua_scheduler.sdk import Room, RoomRefusedError
from lingua_scheduler.services.runtime.errors import RoomNotFoundError
from lingua_scheduler.v1 import session_pb2
from tests.support.audio import FORMAT, speech
from tests.support.console_backend import Console
from tests.support.raw_client import RawClient
from tests.support.scene import Scene
from tests.support.services import GatewayProcess

TEXT = "the text that was said"


def speaker(room: Room, language: str, name: str = "Ana") -> session_pb2.NewSession:
    """A session that speaks to a room, as its host."""
    return session_pb2.NewSession(
        room=session_pb2.RoomSpeaker(
            room_id=room.room_id, join_token=room.host_token, language=language, name=name
        ),
        audio_format=FORMAT,
    )


async def guest_of(room: Room, gateway: GatewayProcess) -> Room:
    token = await room.join_token("listener")
    return Room(gateway.address, room_id=room.room_id, token=token)


async def test_a_room_is_followed_while_somebody_speaks_and_others_listen(
    console: Console, patient: Scene, client: RawClient, gateway: GatewayProcess
) -> None:
    node = await patient.node()
    room = await Room.create(gateway.address, name="Town hall", tenant="t", max_members=50)
    path = f"rooms/{room.room_id}"
    empty = await console.get(path)
    assert (empty["room"]["speakers"], empty["room"]["listeners"]) == (0, 0)
    guest = await guest_of(room, gateway)
    async with guest.listen(language=patient.tgt, name="Luis", speech=True) as listener:
        opened = await client.open(speaker(room, patient.src))
        shown = await console.until(
            path, lambda each: each["room"]["speakers"] and each["room"]["listeners"]
        )
        assert (shown["room"]["name"], shown["room"]["max_members"]) == ("Town hall", 50)
        assert shown["room"]["gateways"] == ["gateway-7"]
        (own,) = shown["room"]["speaker_list"]
        assert (own["session"], own["name"], own["language"]) == (
            opened.session_id,
            "Ana",
            patient.src,
        )
        full = await console.until(path, lambda each: each["members"]["total"] == 2)
        members = full["members"]["rows"].values()
        assert {(each["name"], each["role"], each["gateway"]) for each in members} == {
            ("Ana", "speaker", "gateway-7"),
            ("Luis", "listener", "gateway-7"),
        }

        await client.send(speech(1), final=True)
        assign = await node.take_job()
        late = await console.until(path, lambda each: each["room"]["lag_ms"])
        (lane,) = late["room"]["language_list"]
        assert (lane["language"], lane["listeners"], lane["speech_listeners"]) == (
            patient.tgt,
            1,
            1,
        )
        assert lane["waiting"] == late["room"]["waiting"] == 1
        await node.result(assign, TEXT)
        heard = await anext(aiter(listener))
        assert heard.text == TEXT
        done = await console.until(path, lambda each: not each["room"]["waiting"])
        assert done["room"]["utterances"] == 1

        session = await console.until(
            f"sessions/{opened.session_id}", lambda each: each["utterances"]["total"]
        )
        assert session["session"]["room"] == room.room_id
        listed = await console.until("rooms", lambda each: room.room_id in each["rows"])
        assert listed["rows"][room.room_id]["languages"] == [patient.tgt]
        found = (await console.get("search", q=room.room_id))["matches"]
        assert found[0] == {"kind": "room", "id": room.room_id, "label": "Town hall"}
        told = json.dumps([empty, shown, late, done, session, listed, found])
        assert TEXT not in told
        # No token, and no secret.
        assert room.host_token not in told
    await room.close()


async def test_an_operator_closes_a_room_for_everybody(
    console: Console, patient: Scene, gateway: GatewayProcess
) -> None:
    room = await Room.create(gateway.address, tenant="t")
    guest = await guest_of(room, gateway)
    async with guest.listen(language=patient.tgt) as listener:
        await console.until(f"rooms/{room.room_id}", lambda each: each["room"]["listeners"])
        await console.actions.close_room(room.room_id, None)
        assert [heard async for heard in listener] == []
        assert listener.room_closed
    with pytest.raises(RoomRefusedError, match="ROOM_CLOSED"):
        async with guest.listen(language=patient.tgt):
            pass
    await console.until("rooms", lambda each: room.room_id not in each["rows"])

    # What was read a moment ago is shown for a moment.
    with pytest.raises(RoomNotFoundError):
        await console.until(f"rooms/{room.room_id}", lambda _: False)
    with pytest.raises(RoomNotFoundError):
        await console.actions.close_room("there-is-none", None)
