"""Listeners while Redis is away or has lost everything, and while their gateway drains."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import rooms_pb2, session_pb2_grpc
from tests.support.cells import prefix_of
from tests.support.process import SOON_S
from tests.support.raw_listener import RawListener, listening, raw_listener
from tests.support.room_voice import RoomVoice, room_voice
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    all_running,
    running,
)

# A call fails within half of this time; the rest allows for a busy machine.
FAST_S = 2.0
LEASE_MS = 2000


def gateway_of(pool: PoolProcess, url: str, dispatcher: DispatcherProcess) -> GatewayProcess:
    return GatewayProcess(
        pool=pool,
        redis_url=url,
        dispatchers=dispatcher.address,
        redis_timeout_ms=1000,
        room_lease_ms=LEASE_MS,
    )


@pytest.fixture(scope="module")
def gateways(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, frail_dispatcher: DispatcherProcess
) -> Iterator[list[GatewayProcess]]:
    """Two gateways on the frail Redis."""
    made = [gateway_of(frail_pool, frail_redis.url, frail_dispatcher) for _ in range(2)]
    with all_running(made):
        yield made
        for each in made:
            assert not each.faults(), each.log()


@contextlib.asynccontextmanager
async def voice_of(
    frail_redis: EmbeddedRedis, pool: PoolProcess, room_id: str
) -> AsyncIterator[RoomVoice]:
    async with room_voice(frail_redis.url, pool.prefix, room_id) as voice:
        yield voice


async def new_room(gateway: GatewayProcess) -> rooms_pb2.CreateRoomResponse:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
        made = await stub.CreateRoom(rooms_pb2.CreateRoomRequest())
        assert isinstance(made, rooms_pb2.CreateRoomResponse)
        return made


async def room_of(gateway: GatewayProcess, room_id: str) -> rooms_pb2.Room | None:
    """A room as operators see it; None if that is not possible now."""
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
        try:
            found = await stub.GetRoom(rooms_pb2.GetRoomRequest(room_id=room_id))
        except grpc.aio.AioRpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND):
                raise
            return None
        assert isinstance(found, rooms_pb2.GetRoomResponse)
        return found.room


async def until_listeners(gateway: GatewayProcess, room_id: str, count: int) -> rooms_pb2.Room:
    """Waits until a room has so many listeners."""
    deadline = time.monotonic() + SOON_S
    while (room := await room_of(gateway, room_id)) is None or room.listeners != count:
        assert time.monotonic() < deadline, f"the room is {room}"
        await asyncio.sleep(0.05)
    return room


async def say(voice: RoomVoice, *listeners: RawListener) -> int:
    """Says something, as soon as that is possible; returns its index."""
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
    for listener in listeners:
        await listener.result(index)
    return index


async def test_listeners_wait_for_redis_and_nobody_joins_meanwhile(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, gateways: list[GatewayProcess]
) -> None:
    made = await new_room(gateways[0])
    room_id, token = made.room.room_id, made.host_token
    async with (
        raw_listener(gateways[0].address) as listener,
        raw_listener(gateways[0].address) as late,
        voice_of(frail_redis, frail_pool, room_id) as voice,
    ):
        await listener.join(room_id, token, listening("de"))
        await say(voice, listener)
        frail_redis.pause()
        try:
            began = time.monotonic()
            asked = rooms_pb2.JoinRoom(room_id=room_id, join_token=token, listening=listening("de"))
            await late.say(join=asked)
            await late.refused("SCHEDULER_DEPENDENCY_DOWN")
            assert time.monotonic() - began < FAST_S
            # A change fails as well, and the listener goes on as before.
            await listener.say(change=rooms_pb2.ChangeListening(listening=listening("fr")))
            await listener.event("error")
            before = listener.messages
            await listener.until(lambda: listener.messages > before)
        finally:
            frail_redis.resume()
        room = await until_listeners(gateways[0], room_id, 1)
        deadline = time.monotonic() + SOON_S
        while [each.language for each in room.languages] != ["de"]:
            assert time.monotonic() < deadline, room
            room = await until_listeners(gateways[0], room_id, 1)
        await say(voice, listener)
        assert [each.language for each in listener.of("result")] == ["de", "de"]


async def test_a_room_that_redis_has_lost_goes_on_with_its_members_and_its_numbers(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, gateways: list[GatewayProcess]
) -> None:
    made = await new_room(gateways[0])
    room_id, token = made.room.room_id, made.host_token
    async with (
        raw_listener(gateways[0].address) as german,
        raw_listener(gateways[1].address) as french,
        raw_listener(gateways[1].address) as late,
        voice_of(frail_redis, frail_pool, room_id) as voice,
    ):
        await german.join(room_id, token, listening("de"))
        await french.join(room_id, token, listening("fr"))
        for _ in range(3):
            await say(voice, german, french)
        with contextlib.closing(redis.Redis.from_url(frail_redis.url)) as client:
            client.flushall()
        room = await until_listeners(gateways[0], room_id, 2)
        assert room.next_index == 3
        assert {each.language for each in room.languages} == {"de", "fr"}
        await voice.open()
        assert await say(voice, german, french) == 3
        # Tokens from before are still valid.
        joined = await late.join(room_id, token, listening("de"))
        assert joined.position == 4
        assert german.texts() == [f"de {index}" for index in range(4)]


async def test_members_that_redis_has_lost_join_again(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, gateways: list[GatewayProcess]
) -> None:
    made = await new_room(gateways[0])
    room_id = made.room.room_id
    async with (
        raw_listener(gateways[0].address) as listener,
        voice_of(frail_redis, frail_pool, room_id) as voice,
    ):
        await listener.join(room_id, made.host_token, listening("de"))
        with contextlib.closing(redis.Redis.from_url(frail_redis.url)) as client:
            # As if the lease of the gateway had ended.
            key = f"{prefix_of(frail_pool.prefix, room_id)}:room:{room_id}"
            client.delete(*[f"{key}:{part}" for part in ("members", "wants", "gateways")])
        await until_listeners(gateways[0], room_id, 1)
        await say(voice, listener)


async def test_news_come_again_after_their_connection_was_lost(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, gateways: list[GatewayProcess]
) -> None:
    made = await new_room(gateways[0])
    room_id = made.room.room_id
    async with (
        raw_listener(gateways[0].address) as listener,
        voice_of(frail_redis, frail_pool, room_id) as voice,
    ):
        await listener.join(room_id, made.host_token, listening("de"))
        with contextlib.closing(redis.Redis.from_url(frail_redis.url)) as client:
            client.client_kill_filter(_type="pubsub")
        await say(voice, listener)
        before = await gateways[0].metric("lingua_gateway_room_news_total")
        deadline = time.monotonic() + SOON_S
        while await gateways[0].metric("lingua_gateway_room_news_total") <= before:
            assert time.monotonic() < deadline, "no news"
            await say(voice, listener)


async def test_a_draining_gateway_sends_listeners_elsewhere_and_their_languages_stay_wanted(
    frail_redis: EmbeddedRedis,
    frail_pool: PoolProcess,
    frail_dispatcher: DispatcherProcess,
    gateways: list[GatewayProcess],
) -> None:
    leaving = gateway_of(frail_pool, frail_redis.url, frail_dispatcher)
    async with running(leaving):
        made = await new_room(leaving)
        room_id, token = made.room.room_id, made.host_token
        async with (
            raw_listener(leaving.address) as listener,
            raw_listener(leaving.address) as late,
            raw_listener(gateways[0].address) as again,
            voice_of(frail_redis, frail_pool, room_id) as voice,
        ):
            joined = await listener.join(room_id, token, listening("de"))
            await say(voice, listener)
            leaving.terminate()
            go_away = (await listener.event("go_away")).go_away
            assert 0 <= go_away.after_ms < 1000
            join = rooms_pb2.JoinRoom(room_id=room_id, join_token=token, listening=listening("de"))
            await late.say(join=join)
            await late.refused("DRAINING")
            # It is served on until it leaves.
            await say(voice, listener)
            await again.join(
                room_id, token, listening("de"), member_id=joined.member_id, position=1
            )
            await listener.close()
            assert await leaving.exit_code() == 0
            await say(voice, again)
            assert again.texts() == ["de 1", "de 2"]
            assert (await until_listeners(gateways[0], room_id, 1)).gateway_instances


async def test_listeners_of_a_gateway_that_was_killed_come_back_elsewhere(
    frail_redis: EmbeddedRedis,
    frail_pool: PoolProcess,
    frail_dispatcher: DispatcherProcess,
    gateways: list[GatewayProcess],
) -> None:
    killed = gateway_of(frail_pool, frail_redis.url, frail_dispatcher)
    async with running(killed):
        made = await new_room(killed)
        room_id, token = made.room.room_id, made.host_token
        async with (
            raw_listener(killed.address) as listener,
            raw_listener(killed.address) as gone,
            raw_listener(gateways[0].address) as again,
            voice_of(frail_redis, frail_pool, room_id) as voice,
        ):
            joined = await listener.join(room_id, token, listening("de"))
            await gone.join(room_id, token, listening("fr"))
            await say(voice, listener, gone)
            killed.kill()
            await say(voice)
            member_id = joined.member_id
            await again.join(room_id, token, listening("de"), member_id=member_id, position=1)
            await say(voice, again)
            assert again.texts() == ["de 1", "de 2"]
            # Who does not come back counts no more when the lease has ended.
            room = await until_listeners(gateways[0], room_id, 1)
            assert [each.language for each in room.languages] == ["de"]
