"""Opening a session and sending audio, against a peer that the test controls."""

import asyncio
import itertools
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from lingua_scheduler.sdk import (
    AudioFormat,
    Encoding,
    Missing,
    PauseDetection,
    Result,
    Session,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc
from lingua_scheduler.v1.session_pb2 import ClientMessage, ServerMessage
from tests.unit.sdk.session_peer import (
    Peer,
    ack,
    closed,
    english,
    entered,
    failed,
    leave,
    missing,
    opened,
    peers,
    result,
)

SECOND = bytes(32_000)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers("a") as (made,):
        yield made


# ---- opening ----


async def test_a_session_asks_for_what_it_was_made_for(peer: Peer) -> None:
    session = english(
        peer,
        require_tts=True,
        preferred_node_id="gpu-1",
        strict=True,
        partial_interval_ms=250,
        features={"voice": "low"},
        pause_detection=PauseDetection.VOICE_ACTIVITY,
        tenant="acme",
        token="t0ken",
        metadata=[("x-app", "demo")],
    )
    entering = asyncio.create_task(session.__aenter__())
    stream = await peer.stream()
    new = (await stream.opens(pause_ms=3000)).new
    await entering
    assert (new.direction.src, new.direction.tgt, new.tenant) == ("en", "es", "acme")
    assert new.audio_format == common_pb2.AudioFormat(encoding=1, sample_rate_hz=16000, channels=1)
    options = new.options
    assert (options.require_tts, options.preferred_node_id, options.strict) == (True, "gpu-1", True)
    assert (options.partial_interval_ms, dict(options.features)) == (250, {"voice": "low"})
    assert options.pause_detection == session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY
    assert (peer.metadata["authorization"], peer.metadata["x-app"]) == ("Bearer t0ken", "demo")
    assert (session.session_id, session.limits.pause_ms) == ("s-1", 3000)
    await leave(session)


async def test_a_refused_open_says_why_and_which_field(peer: Peer) -> None:
    session = english(peer)
    entering = asyncio.create_task(session.__aenter__())
    stream = await peer.stream()
    await stream.hear_kind("open")
    error = common_pb2.Error(reason=common_pb2.ERROR_REASON_INVALID_MESSAGE, message="bad")
    error.field_violations.add(field="open.new.direction.src", description="not known")
    stream.say(session_pb2.ServerEvent(error=error))
    with pytest.raises(SessionRefusedError, match=r"direction\.src: not known") as raised:
        await entering
    assert raised.value.reason == "INVALID_MESSAGE"
    assert raised.value.fields == (("open.new.direction.src", "not known"),)


async def test_an_open_that_is_refused_by_its_status_alone_is_refused(peer: Peer) -> None:
    entering = asyncio.create_task(english(peer).__aenter__())
    stream = await peer.stream()
    # gRPC hides the status of a stream that ends while something is written to it.
    await stream.hear_kind("open")
    stream.end(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    with pytest.raises(SessionRefusedError, match="UNAUTHENTICATED: who are you"):
        await entering


async def test_a_gateway_that_drains_or_has_no_redis_is_asked_again(peer: Peer) -> None:
    session = english(peer)
    entering = asyncio.create_task(session.__aenter__())
    for reason in (
        common_pb2.ERROR_REASON_DRAINING,
        common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
    ):
        stream = await peer.stream()
        stream.say(failed(reason))
        stream.end(grpc.StatusCode.UNAVAILABLE)
    (await peer.stream()).say(opened())
    await entering
    await leave(session)


async def test_a_session_that_no_gateway_answers_gives_up_in_time() -> None:
    session = Session("127.0.0.1:1", src="en", tgt="es", reconnect_seconds=0.3)
    with pytest.raises(
        SessionUnavailableError,
        match=r"no gateway accepted the session within 0\.3 s; last: UNAVAIL",
    ):
        async with session:
            pass


async def test_a_session_is_opened_once_and_not_used_before(peer: Peer) -> None:
    session = english(peer)
    with pytest.raises(RuntimeError, match="not open"):
        await session.send(SECOND)
    await entered(session, peer)
    with pytest.raises(RuntimeError, match="opened once"):
        await session.__aenter__()
    await leave(session)


# ---- sending ----


async def test_audio_is_cut_in_chunks_and_results_come_until_the_session_is_closed(
    peer: Peer,
) -> None:
    async def serve() -> None:
        stream = await peer.stream()
        await stream.opens()
        chunks = [await stream.hear_kind("audio") for _ in range(11)]
        assert [chunk.seq for chunk in chunks] == list(range(11))
        assert {len(chunk.data) for chunk in chunks[:10]} == {3200}
        assert [chunk.is_final for chunk in chunks] == [False] * 10 + [True]
        times = [chunk.client_ms for chunk in chunks]
        assert times == sorted(times)
        assert times[9] - times[0] in range(899, 902)
        stream.say(ack(11), result(0, "uno"))
        await stream.hear_kind("close")
        stream.say(missing(1), closed(1, 1))
        last = await stream.hear()
        assert last is not None
        assert last.results_seen == 2
        assert await stream.hear() is None
        stream.end()

    serving = asyncio.create_task(serve())
    async with english(peer) as session:
        await session.send(SECOND)
        await session.finish()
        await session.drained()
        assert session.unacknowledged == (0, 0)
    heard = [each async for each in session.results()]
    assert [type(each) for each in heard] == [Result, Missing]
    assert (heard[0].index, heard[1].index) == (0, 1)
    assert session.counts == (11, 2, 1, 1, 0, 0)
    with pytest.raises(RuntimeError, match="closed"):
        await session.send(SECOND)
    await serving


async def test_a_time_that_no_chunk_can_have_is_refused_and_the_session_goes_on(
    peer: Peer,
) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    for wrong in (float("nan"), float("inf"), -1.0, 1.7e18):
        with pytest.raises(ValueError, match=r"^recorded_at: "):
            await session.send(b"1234", recorded_at=wrong)
    await session.send(b"1234", recorded_at=1.5)
    chunk = await stream.hear_kind("audio")
    assert (chunk.seq, chunk.client_ms) == (0, 1500)
    await leave(session)


async def test_a_conversation_says_who_speaks(peer: Peer) -> None:
    session = Session(peer.address, a="en", b="es")
    stream = await entered(session, peer)
    with pytest.raises(ValueError, match=r"^direction: nothing was sent"):
        await session.finish()
    with pytest.raises(ValueError, match=r"^direction: is required, and must be \('en', 'es'\) or"):
        await session.send(SECOND)
    await session.send(b"1234", direction=("ES", "en"))
    await session.finish()
    for _ in range(2):
        chunk = await stream.hear_kind("audio")
        assert (chunk.direction.src, chunk.direction.tgt) == ("es", "en")
    await leave(session)


async def test_send_waits_while_too_much_is_not_acknowledged(peer: Peer) -> None:
    session = english(peer, max_unacknowledged_bytes=1024 * 1024)
    stream = await entered(session, peer)
    sending = asyncio.create_task(session.send(bytes(2 * 1024 * 1024)))
    seq = 0
    while session.unacknowledged.bytes <= 1024 * 1024 or seq < 328:
        await stream.hear_kind("audio")
        seq += 1
    await asyncio.sleep(0.05)
    assert not sending.done()
    assert session.unacknowledged.bytes < 1024 * 1024 + 3201
    stream.say(ack(200))
    for _ in range(100):
        await stream.hear_kind("audio")
    assert not sending.done()
    stream.say(ack(656))
    while not sending.done():
        await stream.hear_kind("audio")
        seq += 1
        stream.say(ack(1000))
    await sending
    await leave(session)


async def test_all_of_an_iterator_is_sent_whether_it_blocks_or_not(peer: Peer) -> None:
    async def live() -> AsyncIterator[bytes]:
        yield b"12"
        yield b"34"

    def blocking() -> Iterator[bytes]:
        yield b"56"

    session = english(peer)
    stream = await entered(session, peer)
    await session.send_all(live())
    await session.send_all(blocking())
    assert [(await stream.hear_kind("audio")).data for _ in range(3)] == [b"12", b"34", b"56"]
    await leave(session)


def wav(path: Path, seconds: float, rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(int(seconds * rate) * 2))
    return path


async def test_a_file_at_full_speed_has_times_without_a_pause(peer: Peer, tmp_path: Path) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await session.send_file(wav(tmp_path / "a.wav", 8.0), pace=False)
    assert loop.time() - began < 4
    times = [(await stream.hear_kind("audio")).client_ms for _ in range(80)]
    steps = {later - before for before, later in itertools.pairwise(times)}
    assert steps <= {99, 100, 101}
    await leave(session)


async def test_a_file_is_sent_at_the_pace_of_speech(peer: Peer, tmp_path: Path) -> None:
    session = english(peer)
    await entered(session, peer)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await session.send_file(wav(tmp_path / "a.wav", 0.5))
    assert loop.time() - began >= 0.49
    await leave(session)


async def test_a_file_in_another_format_is_refused(peer: Peer, tmp_path: Path) -> None:
    session = english(peer)
    await entered(session, peer)
    with pytest.raises(ValueError, match="has PCM_S16LE at 8000 Hz in 1 channel"):
        await session.send_file(wav(tmp_path / "a.wav", 0.1, rate=8000))
    (tmp_path / "b.wav").write_bytes(b"no")
    with pytest.raises(ValueError, match="is not a WAV file"):
        await session.send_file(tmp_path / "b.wav")
    await leave(session)


async def test_playback_is_said_and_said_again_after_a_reconnection(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    await session.playback_started()
    await stream.hear_kind("playback_started")
    stream.end(grpc.StatusCode.UNAVAILABLE)
    again = await peer.stream()
    await again.opens()
    await again.hear_kind("playback_started")
    await session.playback_ended()
    await again.hear_kind("playback_ended")
    await leave(session)


async def test_opus_packets_are_sent_as_they_are(peer: Peer) -> None:
    session = english(peer, audio_format=AudioFormat(Encoding.OPUS, 48_000))
    stream = await entered(session, peer)
    await session.send(b"\xf8abc")
    with pytest.raises(ValueError, match=r"^data: an Opus packet of 4 bytes cannot hold 2"):
        await session.send(b"\xf9abc")
    assert (await stream.hear_kind("audio")).data == b"\xf8abc"
    await leave(session)


async def test_a_peer_hears_what_a_client_says_and_says_what_it_is_told() -> None:
    async with peers("a") as (peer,), grpc.aio.insecure_channel(peer.address) as channel:
        call = session_pb2_grpc.SessionGatewayStub(channel).Converse()
        await call.write(ClientMessage(open=session_pb2.Open()))
        stream = await peer.stream()
        await stream.opens()
        answer = await call.read()
        assert isinstance(answer, ServerMessage)
        assert answer.events[0].opened.session_id == "s-1"
        await call.done_writing()
        assert await stream.hear() is None
        stream.end()
        assert await call.read() is grpc.aio.EOF
