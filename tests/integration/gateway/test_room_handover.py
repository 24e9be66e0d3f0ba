"""A speaker of a room who resumes elsewhere while the gateway before still has outcomes to put."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2, session_pb2, session_pb2_grpc
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import RawClient, raw_client
from tests.support.raw_listener import RawListener, listening, raw_listener
from tests.support.raw_node import RawNode
from tests.support.services import (
    PATIENT,
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    all_running,
)

SRC, TGT = "en", "de"


@pytest.fixture
def dispatchers(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess
) -> Iterator[list[DispatcherProcess]]:
    to = {"pool": frail_pool, "redis_url": frail_redis.url}
    made = [DispatcherProcess(**to, **PATIENT) for _ in range(2)]
    with all_running(made):
        yield made


@pytest.fixture
def gateways(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, dispatchers: list[DispatcherProcess]
) -> Iterator[list[GatewayProcess]]:
    """Two gateways, each with a dispatcher of its own."""
    to = {"pool": frail_pool, "redis_url": frail_redis.url}
    made = [GatewayProcess(**to, dispatchers=each.address) for each in dispatchers]
    with all_running(made):
        yield made


class Meeting:
    """A room with a listener, a speaker at the first gateway, and a node at its dispatcher."""

    def __init__(self, listener: RawListener, speaker: RawClient, node: RawNode) -> None:
        self.listener = listener
        self.speaker = speaker
        self.node = node
        self.opened = session_pb2.Opened()

    async def begin(self, gateway: GatewayProcess) -> None:
        """Everybody is there."""
        async with grpc.aio.insecure_channel(gateway.address) as channel:
            stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
            made = await stub.CreateRoom(rooms_pb2.CreateRoomRequest())
        room, token = made.room.room_id, made.host_token
        await self.listener.join(room, token, listening(TGT))
        await self.node.open()
        speaks = session_pb2.RoomSpeaker(room_id=room, join_token=token, language=SRC)
        new = session_pb2.NewSession(room=speaks, audio_format=FORMAT)
        self.opened = await self.speaker.open(new)


@pytest.fixture
async def meeting(
    gateways: list[GatewayProcess], dispatchers: list[DispatcherProcess]
) -> AsyncIterator[Meeting]:
    first, second = gateways
    can = common_pb2.NodeCapabilities(asr_langs=[SRC], semantic_langs=[SRC], tts_langs=[TGT])
    hello = dispatcher_pb2.Hello(
        node_id="n", incarnation="n-1", max_concurrent_jobs=2, capabilities=can
    )
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(raw_listener(second.address))
        speaker = await stack.enter_async_context(raw_client(first.address))
        node = RawNode(dispatchers[0].address, hello)
        stack.push_async_callback(node.cut)
        made = Meeting(listener, speaker, node)
        await made.begin(first)
        yield made


async def test_an_outcome_that_a_draining_gateway_puts_is_not_missing_for_the_next_one(
    meeting: Meeting, gateways: list[GatewayProcess]
) -> None:
    """The next one asked the room before that, and the home of the job for the result after it."""
    first, second = gateways
    await meeting.speaker.send(speech(1), final=True)
    assign = await meeting.node.take_job()
    await meeting.speaker.acked(1)
    first.terminate()
    await meeting.speaker.event("go_away")
    async with raw_client(second.address) as again:
        await again.resume(meeting.opened, next_seq=1)
        await meeting.node.result(assign, "1")
        assert (await meeting.listener.result(0)).texts.translated == "1"
        receipt = (await again.result(0)).room
        assert (list(receipt.delivered), list(receipt.missing)) == ([TGT], [])
