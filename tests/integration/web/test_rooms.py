"""Rooms over the web entry: a WebSocket for listeners, and a POST for each call."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.raw_http import TEXT, frame, handshake, raw_connection, request
from tests.support.raw_listener import listening, raw_listener
from tests.support.room_voice import RoomVoice, room_voice
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, running
from tests.support.web_attacks import EVIL
from tests.support.web_client import WebListener, all_left, web_listener

Eventually = Callable[..., Awaitable[None]]


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that the tests of this file share."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        room_members_max=20,
        limits={"rooms.rooms._OPEN_WITHIN_S": 1.0, "rooms.listener._MAX_BYTES": 4_000_000},
    ) as process:
        yield process
        assert not process.faults(), process.log()


async def call(
    gateway: GatewayProcess, name: str, body: Any, **headers: str
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of a call about rooms."""
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    given = {"Content-Type": "application/json", **headers}
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            f"http://{gateway.web_address}/v1/rooms/{name}", data=data, headers=given
        ) as response,
    ):
        text = await response.text()
        return response.status, dict(response.headers), json.loads(text) if text else None


class Hall:
    """A room, and somebody who speaks there."""

    def __init__(self, gateway: GatewayProcess, made: dict[str, Any], voice: RoomVoice) -> None:
        self.gateway = gateway
        self.room_id: str = made["room"]["roomId"]
        self.host: str = made["hostToken"]
        self.voice = voice


@pytest.fixture
async def hall(
    gateway: GatewayProcess, redis_url: str, pool_process: PoolProcess
) -> AsyncIterator[Hall]:
    """A room of the test's own."""
    status, _, made = await call(gateway, "create", {"options": {"name": "Hall"}})
    assert status == 200
    async with room_voice(redis_url, pool_process.prefix, made["room"]["roomId"]) as voice:
        yield Hall(gateway, made, voice)


@contextlib.asynccontextmanager
async def joined(hall: Hall, language: str = "de", **fields: Any) -> AsyncIterator[WebListener]:
    """A listener of the room."""
    async with web_listener(hall.gateway.web_address) as listener:
        await listener.join(hall.room_id, hall.host, language, **fields)
        yield listener


async def test_a_room_is_made_shared_and_closed_by_posts(hall: Hall) -> None:
    asked = {"roomId": hall.room_id, "hostToken": hall.host, "role": "ROOM_ROLE_LISTENER"}
    status, _, made = await call(hall.gateway, "token", asked)
    assert status == 200
    token = made["joinToken"]
    assert int(made["expiresMs"]) > 0
    async with web_listener(hall.gateway.web_address) as listener:
        await listener.join(hall.room_id, token, name="Bo")
        status, _, found = await call(hall.gateway, "get", {"roomId": hall.room_id, "token": token})
        assert (status, found["room"]["listeners"]) == (200, 1)
        status, _, found = await call(
            hall.gateway, "members", {"roomId": hall.room_id, "token": hall.host}
        )
        assert (status, [each["name"] for each in found["members"]]) == (200, ["Bo"])
        close = {"roomId": hall.room_id, "hostToken": hall.host}
        assert (await call(hall.gateway, "close", close))[0] == 200
        assert await listener.closed() == 1000
        assert listener.told()[-1] == "closed"
    assert (await call(hall.gateway, "close", close))[0] == 200
    status, _, refusal = await call(hall.gateway, "get", {"roomId": hall.room_id, "token": token})
    assert (status, refusal["reason"]) == (410, "ROOM_CLOSED")


async def test_listeners_over_the_web_and_over_grpc_get_the_same(hall: Hall) -> None:
    async with joined(hall) as web, raw_listener(hall.gateway.address) as grpc:
        await grpc.join(hall.room_id, hall.host, listening("de"))
        for _ in range(3):
            await hall.voice.say()
        await web.said(2)
        await grpc.result(2)
        texts = [event["result"]["texts"]["translated"] for event in web.events[1:]]
        assert texts == grpc.texts() == ["de 0", "de 1", "de 2"]


async def test_audio_comes_in_binary_frames_before_the_result(hall: Hall) -> None:
    everything = {"speech": True, "originalAudio": True}
    async with joined(hall, listening=everything) as all_of_it, joined(hall) as captions:
        spoken = await hall.voice.cut()
        await hall.voice.put(spoken.room_index, "de", speech=b"s" * 70_000, original=b"o" * 300)
        result = await all_of_it.said(0)
        assert (all_of_it.speech, all_of_it.originals) == ({0: b"s" * 70_000}, {0: b"o" * 300})
        assert "speech" not in result
        assert "originalAudio" not in result
        assert result["speechFormat"]["sampleRateHz"] == 16000
        assert "speechFormat" not in await captions.said(0)
        assert captions.speech == {}


async def test_a_listener_resumes_and_changes_its_language(hall: Hall) -> None:
    async with web_listener(hall.gateway.web_address) as first:
        told = await first.join(hall.room_id, hall.host)
        await hall.voice.say()
        await first.said(0)
    await hall.voice.say()
    async with web_listener(hall.gateway.web_address) as again:
        await again.join(hall.room_id, hall.host, memberId=told["memberId"], position="1")
        await again.said(1)
        await again.say(change={"listening": {"language": "fr", "captions": True}})
        changed = await again.event("changed")
        assert changed["position"] == "2"
        await hall.voice.say()
        assert (await again.said(2))["language"] == "fr"
        await again.say(leave={})
        assert await again.closed() == 1000


@pytest.mark.parametrize(
    ("message", "code", "reason"),
    [
        ({"change": {"listening": {"language": "de", "captions": True}}}, 4400, "INVALID_MESSAGE"),
        ({"join": {"roomId": "x"}}, 4400, "INVALID_MESSAGE"),
        ({"open": {}}, 4400, "INVALID_MESSAGE"),
        ([], 4400, "INVALID_MESSAGE"),
    ],
)
async def test_a_bad_first_frame_closes_the_connection_with_its_own_code(
    gateway: GatewayProcess, message: Any, code: int, reason: str
) -> None:
    async with web_listener(gateway.web_address) as listener:
        await listener.socket.send_str(json.dumps(message))
        error = await listener.event("error")
        assert error["reason"] == f"ERROR_REASON_{reason}"
        assert await listener.closed() == code


async def test_a_listener_sends_no_binary_frames(hall: Hall) -> None:
    async with joined(hall) as listener:
        await listener.socket.send_bytes(b"\x01" + bytes(19))
        await listener.event("error")
        assert await listener.closed() == 4400


async def test_close_codes_tell_why_a_listener_cannot_join(hall: Hall) -> None:
    gateway = hall.gateway
    status, _, small = await call(gateway, "create", {"options": {"maxMembers": 1}})
    assert status == 200
    room_id, host = small["room"]["roomId"], small["hostToken"]
    wanted = {"listening": {"language": "de", "captions": True}}
    async with web_listener(gateway.web_address) as first:
        await first.join(room_id, host)
        for asked, code, reason in (
            ({"roomId": room_id, "joinToken": host}, 4429, "ROOM_FULL"),
            ({"roomId": hall.room_id, "joinToken": host}, 4403, "PERMISSION_DENIED"),
            ({"roomId": "no-such-room", "joinToken": host}, 4403, "PERMISSION_DENIED"),
        ):
            async with web_listener(gateway.web_address) as other:
                await other.say(join={**asked, **wanted})
                assert (await other.event("error"))["reason"] == f"ERROR_REASON_{reason}"
                assert await other.closed() == code
    close = {"roomId": room_id, "hostToken": host}
    assert (await call(gateway, "close", close))[0] == 200
    async with web_listener(gateway.web_address) as late:
        await late.say(join={"roomId": room_id, "joinToken": host, **wanted})
        assert await late.closed() == 4410


async def test_a_listener_that_does_not_join_in_time_is_disconnected(
    gateway: GatewayProcess,
) -> None:
    async with web_listener(gateway.web_address) as silent:
        assert await silent.closed() == 4408


async def test_a_listener_that_does_not_read_is_cut_off_and_others_are_served(hall: Hall) -> None:
    address = hall.gateway.web_address
    join = {
        "roomId": hall.room_id,
        "joinToken": hall.host,
        "listening": {"language": "de", "captions": True, "speech": True},
    }
    before = await hall.gateway.metric("lingua_gateway_web_closed_total", code="1013")
    async with raw_connection(address) as deaf, joined(hall) as other:
        await deaf.send(handshake(address, path="/v1/listen"))
        assert await deaf.status() == 101
        await deaf.send(frame(TEXT, json.dumps({"join": join}).encode()))
        await hall.gateway.reaches(2, "lingua_gateway_room_listeners", transport="web")
        for index in range(30):
            await hall.voice.say(audio=bytes(500_000))
            await other.said(index)
        await hall.gateway.reaches(before + 1, "lingua_gateway_web_closed_total", code="1013")


async def test_listeners_leave_nothing_behind(hall: Hall) -> None:
    for _ in range(3):
        async with joined(hall):
            pass
    await all_left(hall.gateway)
    assert await hall.gateway.metric("lingua_gateway_room_listeners") == 0


async def test_a_gateway_that_drains_sends_listeners_away(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> None:
    leaving = GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        drain_grace_ms=1500,
    )
    async with running(leaving):
        _, _, made = await call(leaving, "create", {})
        room_id, host = made["room"]["roomId"], made["hostToken"]
        async with web_listener(leaving.web_address) as listener:
            await listener.join(room_id, host)
            leaving.terminate()
            await listener.event("goAway")
            # It does not go, so the connection ends with the gateway.
            assert await listener.closed() == 1001
        assert await leaving.exit_code() == 0


@pytest.mark.parametrize(
    ("name", "body", "headers", "status", "reason"),
    [
        ("get", {}, {}, 400, "INVALID_MESSAGE"),
        ("get", "{", {}, 400, "INVALID_MESSAGE"),
        ("get", b"\xff\xfe", {}, 400, "INVALID_MESSAGE"),
        ("get", {"roomId": "x", "what": 1}, {}, 400, "INVALID_MESSAGE"),
        ("get", {"roomId": "none"}, {}, 404, "ROOM_NOT_FOUND"),
        ("get", {"roomId": "none", "token": "x"}, {}, 403, "PERMISSION_DENIED"),
        ("token", {"roomId": "x", "role": "ROOM_ROLE_HOST"}, {}, 400, "INVALID_MESSAGE"),
        ("create", {"options": {"name": "x" * 20_000}}, {}, 413, "TOO_LARGE"),
        ("create", {}, {"Content-Type": "text/plain"}, 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("create", {}, {"Origin": EVIL}, 403, "WRONG_ORIGIN"),
        ("create", {}, {"Host": "evil.example"}, 403, "WRONG_HOST"),
        ("open", {}, {}, 404, "NOT_FOUND"),
    ],
)
async def test_a_bad_call_is_refused_and_told_why(
    gateway: GatewayProcess,
    name: str,
    body: Any,
    headers: dict[str, str],
    status: int,
    reason: str,
) -> None:
    found, answered, refusal = await call(gateway, name, body, **headers)
    assert (found, refusal["reason"]) == (status, reason)
    assert answered["Connection"] == "close"


async def test_a_call_is_a_post(gateway: GatewayProcess) -> None:
    async with aiohttp.ClientSession() as http:
        url = f"http://{gateway.web_address}/v1/rooms/create"
        async with http.get(url) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
        own = {"Origin": f"http://{gateway.web_address}"}
        async with http.options(url, headers=own) as response:
            assert response.status == 204
            assert "content-type" in response.headers["Access-Control-Allow-Headers"]
            assert "POST" in response.headers["Access-Control-Allow-Methods"]


async def test_a_body_that_never_ends_is_not_waited_for(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> None:
    hasty = GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        limits={"web.room_calls._BODY_WITHIN_S": 0.5},
    )
    headers = {"Content_Type": "application/json", "Content_Length": "100"}
    async with running(hasty), raw_connection(hasty.web_address) as peer:
        await peer.send(request(hasty.web_address, "/v1/rooms/create", "POST", **headers) + b"{")
        assert await peer.status() == 408


async def test_rooms_have_the_limits_of_the_gateway(gateway: GatewayProcess) -> None:
    _, _, made = await call(gateway, "create", {"options": {"maxMembers": 500}})
    assert made["room"]["options"]["maxMembers"] == 20


async def test_a_page_can_ask_why_it_may_not_listen(gateway: GatewayProcess) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.get(f"http://{gateway.web_address}/v1/listen") as response,
    ):
        assert response.status == 426
        assert (await response.json())["reason"] == "UPGRADE_REQUIRED"


async def test_a_listener_gets_signs_of_life(hall: Hall, eventually: Eventually) -> None:
    async with joined(hall) as listener:
        before = listener.texts
        await eventually(lambda: listener.texts >= before + 2)
