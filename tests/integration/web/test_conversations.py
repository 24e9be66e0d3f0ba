"""Sessions over WebSockets, on a real gateway, dispatcher, pool service and Redis."""

import asyncio
from collections.abc import Iterator

import pytest
from google.protobuf.json_format import MessageToDict

from lingua_scheduler.v1 import common_pb2, session_pb2
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_client import WebClient, web_client


@pytest.fixture(scope="module", params=["direct frames", "queued frames"])
def gateway(
    request: pytest.FixtureRequest,
    patient_process: DispatcherProcess,
    pool_process: PoolProcess,
    redis_url: str,
) -> Iterator[GatewayProcess]:
    """A gateway that takes audio directly, and one that takes it as the others frames."""
    is_direct = request.param == "direct frames"
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=100,
        limits={"web.direct_queue._USABLE": is_direct},
    ) as process:
        yield process
        assert ("direct frames unavailable" in process.log()) is not is_direct
        assert not process.faults(), process.log()


async def talker(scene: Scene) -> RawNode:
    """A node for both directions of a scene's conversation."""
    both = [scene.src, scene.tgt]
    capabilities = common_pb2.NodeCapabilities(asr_langs=both, semantic_langs=both, tts_langs=both)
    return await scene.node(capabilities=capabilities)


async def test_what_is_said_comes_back_translated_and_spoken(
    web: WebClient, patient: Scene
) -> None:
    node = await patient.node()
    opened = await web.open(new_session(patient.src, patient.tgt))
    assert opened["sessionId"]
    assert opened["limits"]["maxChunkBytes"] == 65536
    async with working(node, spoken=b"spoken"):
        await web.chunk(0, speech(7))
        await web.chunk(1, speech(8), final=True)
        result = await web.result(0)
        assert result["texts"]["translated"] == "7 8"
        assert "speech" not in result
        assert web.speech[0] == b"spoken"
        await web.say(resultsSeen=1)
        await web.say(close={})
        assert await web.closed() == 1000
    assert web.told()[-1] == "closed"
    assert web.events[-1]["closed"] == {"results": 1}


async def test_large_chunks_may_be_sent_before_the_session_is_open(
    web: WebClient, patient: Scene
) -> None:
    """They fill the queue of frames, and keep their order while it empties."""
    said = speech(7, ms=8200)
    largest = 65_536
    async with working(await patient.node()):
        # Not one by one: they have to come before the session is open.
        new = MessageToDict(new_session(patient.src, patient.tgt))
        sending = [web.say(open={"new": new})]
        for seq, at in enumerate(range(0, len(said), largest)):
            sending.append(web.chunk(seq, said[at : at + largest]))
        await asyncio.gather(*sending)
        await web.chunk(len(sending) - 1, final=True)
        result = await web.result(0)
    assert "error" not in web.told()
    assert result["texts"]["translated"].split() == ["7"] * 82


async def test_a_conversation_has_two_directions(web: WebClient, patient: Scene) -> None:
    new = new_session(patient.src)
    new.conversation.CopyFrom(session_pb2.LanguageSet(a=patient.src, b=patient.tgt))
    async with working(await talker(patient)):
        await web.open(new)
        await web.chunk(0, speech(1), final=True, way=1)
        await web.chunk(1, speech(2), final=True, way=2)
        first, second = await web.result(0), await web.result(1)
    assert first["direction"] == {"src": patient.src, "tgt": patient.tgt}
    assert second["direction"] == {"src": patient.tgt, "tgt": patient.src}


async def test_a_broken_connection_is_resumed(gateway: GatewayProcess, patient: Scene) -> None:
    node = await patient.node()
    async with web_client(gateway.web_address) as first:
        opened = await first.open(new_session(patient.src, patient.tgt))
        await first.chunk(0, speech(5), final=True)
        assign = await node.expect_assign()
        first.cut()
        await first.closed()
    async with web_client(gateway.web_address) as second:
        again = await second.resume(opened)
        if "nextSeq" not in again:  # the acknowledgement came too late for the first gateway
            await second.chunk(0, speech(5), final=True)
        await node.ack(assign)
        await node.result(assign, "five")
        assert (await second.result(0))["texts"]["translated"] == "five"


async def test_a_session_moves_between_the_transports(
    gateway: GatewayProcess, patient: Scene
) -> None:
    new = new_session(patient.src)
    new.conversation.CopyFrom(session_pb2.LanguageSet(a=patient.src, b=patient.tgt))
    there = common_pb2.LanguagePair(src=patient.src, tgt=patient.tgt)
    async with working(await talker(patient)):
        async with web_client(gateway.web_address) as web:
            opened = await web.open(new)
            await web.chunk(0, speech(1), final=True, way=1)
            await web.result(0)
        proof = session_pb2.Opened(
            session_id=opened["sessionId"], resume_token=opened["resumeToken"]
        )
        async with raw_client(gateway.address) as grpc:
            await grpc.resume(proof, results_seen=1, next_seq=1)
            await grpc.send(speech(2), final=True, direction=there)
            assert (await grpc.result(1)).texts.translated == "2"
        async with web_client(gateway.web_address) as web:
            await web.resume(opened, seen=2, next_seq=2)
            # The client need not say again which languages it speaks.
            await web.chunk(2, speech(3), final=True, way=2)
            result = await web.result(2)
    assert result["texts"]["translated"] == "3"
    assert result["direction"] == {"src": patient.tgt, "tgt": patient.src}


async def test_a_client_that_sends_gets_signs_of_life(web: WebClient, patient: Scene) -> None:
    opened = await web.open(new_session(patient.src, patient.tgt))
    silence_s = opened["limits"]["silenceMs"] / 1000
    before = web.texts
    for seq in range(int(silence_s / 0.1)):
        await web.chunk(seq, speech(seq))
        await asyncio.sleep(0.1)
    # One in each half of that time.
    assert web.texts >= before + 1
    await web.say(close={})
    assert not [event for event in web.events if "error" in event]
