"""Invalid input of clients: the error names it, earlier speech is kept, others are unaffected."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import SessionOptions
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import RawClient, new_session, raw_client, working
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

OPUS = common_pb2.AudioFormat(
    encoding=common_pb2.AUDIO_ENCODING_OPUS, sample_rate_hz=48000, channels=1
)
# Of one frame each: the first byte encodes the duration (RFC 6716, section 3.1).
OPUS_20_MS, OPUS_60_MS = b"\x08" + b"\1" * 30, b"\x18" + b"\2" * 70
BY_VOICE = SessionOptions(pause_detection=session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY)


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that the tests of this file share."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=0,
        limits={"live.sessions._OPEN_WITHIN_S": 1.5},
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture(autouse=True)
async def neighbour(
    gateway: GatewayProcess, patient_process: DispatcherProcess, pool_process: PoolProcess
) -> AsyncIterator[RawClient]:
    """A session that runs beside each test and must not be affected."""
    async with (
        scene(patient_process, pool_process) as beside,
        raw_client(gateway.address) as other,
        working(await beside.node()),
    ):
        await other.open(new_session(beside.src, beside.tgt))
        await other.send(speech(1), final=True)
        await other.result(0)
        await other.send(speech(2))
        yield other
        await other.send(speech(3), final=True)
        await other.result(1)
        assert other.outcomes() == [(0, "1"), (1, "2 3")]
        assert "error" not in other.told()


def fields_of(error: common_pb2.Error) -> set[str]:
    return {violation.field for violation in error.field_violations}


async def says(client: RawClient, text: str, index: int = 0) -> None:
    """The session works: the speech that was accepted gives this text."""
    assert (await client.result(index)).texts.translated == text


# ---- streams that do not open ----


@pytest.mark.parametrize(
    "first",
    [
        {"audio": session_pb2.AudioChunk(data=b"\0\0")},
        {"close": session_pb2.Close()},
        {"results_seen": 3},
        {"open": session_pb2.Open()},
        {},
    ],
)
async def test_a_stream_that_does_not_begin_with_open_is_refused(
    client: RawClient, first: dict[str, Any]
) -> None:
    await client.say(**first)
    assert fields_of(await client.refused("INVALID_MESSAGE")) == {"open"}
    assert (await client.status()) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream_that_says_nothing_is_ended(client: RawClient) -> None:
    assert fields_of(await client.refused("INVALID_MESSAGE")) == {"open"}


async def test_a_stream_that_ends_before_it_began_is_told_so(client: RawClient) -> None:
    await client.half_close()
    assert fields_of(await client.refused("INVALID_MESSAGE")) == {"open"}


@pytest.mark.parametrize("begun", [False, True])
async def test_bytes_that_are_no_message_end_the_stream_but_not_the_session(
    gateway: GatewayProcess, patient: Scene, begun: bool
) -> None:
    opened = session_pb2.Opened()
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        call: Any = channel.stream_stream("/lingua_scheduler.v1.SessionGateway/Converse")()
        if begun:
            start = session_pb2.Open(new=new_session(patient.src, patient.tgt))
            await call.write(session_pb2.ClientMessage(open=start).SerializeToString())
            told = session_pb2.ServerMessage.FromString(await call.read())
            opened = told.events[0].opened
        await call.write(b"\xff\xff\xff")
        last = session_pb2.ServerMessage.FromString(await call.read())
        assert reason(last.events[-1].error) == "INVALID_MESSAGE"
        code, why, _ = await failure(call.read())
        assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    if begun:
        async with raw_client(gateway.address) as again, working(await patient.node()):
            await again.resume(opened)
            await again.send(speech(7), final=True)
            await says(again, "7")


def changed(**fields: Any) -> session_pb2.NewSession:
    return new_session("en", "es", **fields)


@pytest.mark.parametrize(
    ("new", "bad"),
    [
        (
            changed(direction=common_pb2.LanguagePair(src="english", tgt="")),
            {"direction.src", "direction.tgt"},
        ),
        (session_pb2.NewSession(audio_format=FORMAT), {"languages"}),
        (
            session_pb2.NewSession(
                conversation=session_pb2.LanguageSet(a="en", b="EN"), audio_format=FORMAT
            ),
            {"conversation.b"},
        ),
        (
            session_pb2.NewSession(
                conversation=session_pb2.LanguageSet(a="e", b="es"), audio_format=FORMAT
            ),
            {"conversation.a"},
        ),
        (
            changed(audio_format=None),
            {"audio_format.encoding", "audio_format.sample_rate_hz", "audio_format.channels"},
        ),
        (
            changed(
                audio_format=common_pb2.AudioFormat(
                    encoding=9,
                    sample_rate_hz=7999,
                    channels=3,  # type: ignore[arg-type]
                )
            ),
            {"audio_format.encoding", "audio_format.sample_rate_hz", "audio_format.channels"},
        ),
        (
            changed(
                audio_format=common_pb2.AudioFormat(
                    encoding=common_pb2.AUDIO_ENCODING_OPUS, sample_rate_hz=48001, channels=0
                )
            ),
            {"audio_format.sample_rate_hz", "audio_format.channels"},
        ),
        (changed(options=SessionOptions(strict=True)), {"options.strict"}),
        (changed(options=SessionOptions(preferred_node_id="a b")), {"options.preferred_node_id"}),
        (
            changed(options=SessionOptions(partial_interval_ms=60_001)),
            {"options.partial_interval_ms"},
        ),
        (
            changed(options=SessionOptions(features={str(n): "" for n in range(33)})),
            {"options.features"},
        ),
        (changed(options=SessionOptions(features={"a": "b" * 257})), {"options.features['a']"}),
        (changed(tenant="t/1"), {"tenant"}),
        (
            changed(options=SessionOptions(pause_detection=7)),  # type: ignore[arg-type]
            {"options.pause_detection"},
        ),
        (
            changed(options=BY_VOICE, audio_format=OPUS),
            {"audio_format.encoding"},
        ),
        (
            changed(
                options=BY_VOICE,
                audio_format=common_pb2.AudioFormat(encoding=1, sample_rate_hz=44_100, channels=2),
            ),
            {"audio_format.sample_rate_hz", "audio_format.channels"},
        ),
    ],
)
async def test_what_is_wrong_with_a_new_session_is_named_field_by_field(
    client: RawClient, new: session_pb2.NewSession, bad: set[str]
) -> None:
    await client.say(open=session_pb2.Open(new=new))
    error = await client.refused("INVALID_MESSAGE")
    assert fields_of(error) == {f"open.new.{field}" for field in bad}
    assert client.told() == ["error"]


@pytest.mark.parametrize(
    ("resume", "bad"),
    [
        ({"session_id": "", "resume_token": ""}, {"session_id", "resume_token"}),
        ({"session_id": "a:b", "resume_token": "x" * 257}, {"session_id", "resume_token"}),
        ({"session_id": "a", "resume_token": "x", "results_seen": 2**32 - 1}, {"results_seen"}),
        ({"session_id": "a", "resume_token": "x", "next_seq": 2**64 - 1}, {"next_seq"}),
    ],
)
async def test_what_is_wrong_with_a_resume_is_named_field_by_field(
    client: RawClient, resume: dict[str, Any], bad: set[str]
) -> None:
    await client.say(open=session_pb2.Open(resume=session_pb2.ResumeSession(**resume)))
    error = await client.refused("INVALID_MESSAGE")
    assert fields_of(error) == {f"open.resume.{field}" for field in bad}


# ---- messages that do not end the session ----


@pytest.mark.parametrize(
    ("chunk", "why", "field"),
    [
        ({"seq": 1, "data": b"\0"}, "BAD_AUDIO", "audio.data"),
        ({"seq": 1, "data": bytes(65_538)}, "INVALID_MESSAGE", "audio.data"),
        ({"seq": 3, "data": b"\0\0"}, "BAD_AUDIO", "audio.seq"),
        (
            {"seq": 1, "direction": common_pb2.LanguagePair(src="es", tgt="en")},
            *("INVALID_MESSAGE", "audio.direction"),
        ),
    ],
)
async def test_a_chunk_that_cannot_be_used_is_refused_and_may_be_sent_again(
    client: RawClient, patient: Scene, chunk: dict[str, Any], why: str, field: str
) -> None:
    await client.open(new_session(patient.src, patient.tgt))
    async with working(await patient.node()):
        await client.send(speech(1))
        await client.say(audio=session_pb2.AudioChunk(**chunk))
        error = await client.error(why)
        assert fields_of(error) == {field}
        assert error.metadata["expected_seq"] == "1"
        assert error.metadata["seq"] == str(chunk["seq"])
        await client.send(speech(2), final=True)
        await says(client, "1 2")
    assert len(client.of("error")) == 1


async def test_of_a_conversation_every_chunk_says_its_direction(
    client: RawClient, patient: Scene
) -> None:
    new = session_pb2.NewSession(
        conversation=session_pb2.LanguageSet(a=patient.src, b=patient.tgt),
        audio_format=FORMAT,
        options=SessionOptions(require_tts=True),
    )
    await client.open(new)
    async with working(await patient.node()):
        for direction in (None, common_pb2.LanguagePair(src=patient.src, tgt=patient.src)):
            await client.say(audio=session_pb2.AudioChunk(data=speech(1), direction=direction))
        pair = common_pb2.LanguagePair(src=patient.src.upper(), tgt=patient.tgt)
        await client.send(speech(2), direction=pair, final=True)
        await says(client, "2")
    errors = client.of("error")
    assert [fields_of(error) for error in errors] == [{"audio.direction"}] * 2
    assert {error.metadata["expected_seq"] for error in errors} == {"0"}


async def test_a_gap_is_told_once_and_what_is_sent_again_is_used_once(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    gaps = await gateway.metric("lingua_gateway_gaps_total")
    repeats = await gateway.metric("lingua_gateway_repeated_chunks_total")
    await client.open(new_session(patient.src, patient.tgt))
    async with working(await patient.node()):
        for seq in (0, 2, 3, 0, 1, 1, 2, 3):
            await client.send(speech(seq), seq=seq)
        await client.send(b"", seq=4, final=True)
        await says(client, "0 1 2 3")
    assert [error.metadata["expected_seq"] for error in client.of("error")] == ["1"]
    assert await gateway.metric("lingua_gateway_gaps_total") == gaps + 2
    assert await gateway.metric("lingua_gateway_repeated_chunks_total") == repeats + 2


async def test_a_chunk_that_cannot_be_used_does_not_affect_those_before_it_in_its_message(
    client: RawClient, patient: Scene
) -> None:
    await client.open(new_session(patient.src, patient.tgt))
    async with working(await patient.node()):
        datas = [speech(0), speech(1), speech(2) + b"\0", speech(3)]
        chunks = [session_pb2.AudioChunk(seq=seq, data=data) for seq, data in enumerate(datas)]
        await client.say(audio_chunks=session_pb2.AudioChunks(chunks=chunks))
        error = await client.error("BAD_AUDIO")
        assert fields_of(error) == {"audio.data"}
        assert (error.metadata["seq"], error.metadata["expected_seq"]) == ("2", "2")
        again = [session_pb2.AudioChunk(seq=seq, data=speech(seq)) for seq in range(1, 5)]
        again[-1].is_final = True
        await client.say(audio_chunks=session_pb2.AudioChunks(chunks=again))
        await says(client, "0 1 2 3 4")
        await client.acked(5)


@pytest.mark.parametrize("count", [0, 33])
async def test_a_message_of_no_chunks_or_too_many_ends_the_stream_but_not_the_session(
    client: RawClient, patient: Scene, gateway: GatewayProcess, count: int
) -> None:
    opened = await client.open(new_session(patient.src, patient.tgt))
    assert opened.limits.max_chunks == 32
    chunks = [session_pb2.AudioChunk(seq=seq, data=b"\0\0") for seq in range(count)]
    await client.say(audio_chunks=session_pb2.AudioChunks(chunks=chunks))
    assert fields_of(await client.error("INVALID_MESSAGE")) == {"audio_chunks.chunks"}
    assert await client.status() is grpc.StatusCode.INVALID_ARGUMENT
    async with raw_client(gateway.address) as again, working(await patient.node()):
        assert (await again.resume(opened)).next_seq == 0
        await again.send(speech(1), final=True)
        await says(again, "1")


async def test_more_results_than_there_were_cannot_have_been_seen(
    client: RawClient, patient: Scene
) -> None:
    await client.open(new_session(patient.src, patient.tgt))
    async with working(await patient.node()):
        await client.say(results_seen=1)
        error = await client.error("INVALID_MESSAGE")
        assert fields_of(error) == {"results_seen"}
        await client.send(speech(1), final=True)
        await says(client, "1")
        await client.say(results_seen=1, close=session_pb2.Close())
        assert (await client.event("closed")).closed.results == 1
    assert len(client.of("error")) == 1
    assert (await client.status()) is grpc.StatusCode.OK


async def test_a_stream_opens_one_session_only(client: RawClient, patient: Scene) -> None:
    await client.open(new_session(patient.src, patient.tgt))
    async with working(await patient.node()):
        await client.send(speech(1))
        await client.say(open=session_pb2.Open(new=new_session(patient.src, patient.tgt)))
        assert fields_of(await client.error("INVALID_MESSAGE")) == {"open"}
        await client.send(speech(2), final=True)
        await says(client, "1 2")
    assert len(client.of("opened")) == 1


async def test_audio_after_close_is_refused_and_what_was_said_before_is_delivered(
    client: RawClient, patient: Scene
) -> None:
    await client.open(new_session(patient.src, patient.tgt))
    node = await patient.node()
    await client.send(speech(1))
    await client.say(close=session_pb2.Close())
    await client.send(speech(2), final=True)
    assert fields_of(await client.error("INVALID_MESSAGE")) == {"audio"}
    async with working(node):
        await says(client, "1")
        assert (await client.event("closed")).closed.results == 1
    await client.say(results_seen=1)
    assert (await client.status()) is grpc.StatusCode.OK


async def test_a_message_that_is_too_large_for_any_stream_ends_it_but_not_the_session(
    client: RawClient, patient: Scene, gateway: GatewayProcess
) -> None:
    opened = await client.open(new_session(patient.src, patient.tgt))
    await client.send(speech(1))
    await client.send(bytes(5 * 1024 * 1024))
    assert (await client.status()) is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with raw_client(gateway.address) as again, working(await patient.node()):
        await again.resume(opened)
        await again.send(speech(1))
        await again.send(speech(2), final=True)
        await says(again, "1 2")


# ---- Opus ----


async def test_opus_packets_go_into_a_job_each_after_its_length(
    client: RawClient, patient: Scene
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt, audio_format=OPUS))
    for packet in (OPUS_20_MS, OPUS_60_MS, OPUS_20_MS):
        await client.send(packet)
    await client.send(b"", final=True)
    job = (await node.take_job()).job
    assert job.audio == b"".join(
        len(packet).to_bytes(2, "big") + packet for packet in (OPUS_20_MS, OPUS_60_MS, OPUS_20_MS)
    )
    assert job.audio_format == OPUS
    assert (await client.utterance(0, "finalized")).finalized.audio_ms == 100


@pytest.mark.parametrize(
    "packet",
    [
        b"\x09" + b"\0" * 3,  # two frames of one size, and an odd number of bytes
        b"\x0b",  # the number of frames is missing
        b"\x0b\x00",  # no frame
        b"\x1b\x03" + b"\0" * 30,  # 180 ms
        b"\x08" + b"\0" * 1276,  # a frame that is too large
    ],
)
async def test_a_broken_opus_packet_is_refused_and_the_session_goes_on(
    client: RawClient, patient: Scene, packet: bytes
) -> None:
    node = await patient.node()
    await client.open(new_session(patient.src, patient.tgt, audio_format=OPUS))
    await client.say(audio=session_pb2.AudioChunk(seq=0, data=packet))
    error = await client.error("BAD_AUDIO")
    assert fields_of(error) == {"audio.data"}
    assert error.metadata["expected_seq"] == "0"
    await client.send(OPUS_20_MS, final=True)
    assert (await node.take_job()).job.audio == b"\0\x1f" + OPUS_20_MS
