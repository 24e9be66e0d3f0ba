"""Chunks of live speech share messages, unless something may be urgent."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lingua_scheduler.sdk import PauseDetection, Session
from lingua_scheduler.sdk.session.protocol.kept_chunks import MAX_SHARED_BYTES, KeptChunks
from lingua_scheduler.sdk.session.sharing import AFTER_END_MS, SHARE_MS, Sharing
from lingua_scheduler.v1.session_pb2 import ClientMessage
from tests.unit.sdk.session_driver import Driver
from tests.unit.sdk.session_peer import Peer, PeerStream, english, entered, leave, peers

CHUNK_MS = 100.0
CHUNK = bytes(3200)
BEFORE_SHARING = int(AFTER_END_MS / CHUNK_MS)
LIMITS = {"pause_ms": 3000, "max_chunks": 32}
# With these, and a long share_ms, nothing is sent in a test because its time is over.
PATIENT = {"pause_ms": 600_000, "max_chunks": 32}


# ---- which chunks wait ----


def speak(sharing: Sharing, count: int, *, pause_ms: float = 3000, max_chunks: int = 32) -> str:
    """Returns what becomes of this many chunks: w if it waits, s if it is sent."""
    return "".join(
        "w" if sharing.waits(CHUNK_MS, pause_ms=pause_ms, max_chunks=max_chunks) else "s"
        for _ in range(count)
    )


def test_two_of_three_chunks_of_live_speech_wait_for_the_next() -> None:
    sharing = Sharing(SHARE_MS)
    assert speak(sharing, BEFORE_SHARING) == "s" * BEFORE_SHARING
    assert speak(sharing, 6) == "wwswws"


def test_what_follows_an_end_is_sent_at_once_as_it_may_belong_to_what_has_ended() -> None:
    sharing = Sharing(SHARE_MS)
    assert speak(sharing, BEFORE_SHARING + 1).endswith("w")
    sharing.end()
    assert speak(sharing, BEFORE_SHARING) == "s" * BEFORE_SHARING


@pytest.mark.parametrize(
    ("share_ms", "pause_ms", "max_chunks"),
    [(0, 3000, 32), (SHARE_MS, 500, 32), (SHARE_MS, 0, 32), (SHARE_MS, 3000, 1)],
    ids=["not asked for", "short pauses", "unknown pauses", "an older gateway"],
)
def test_nothing_waits_if(share_ms: int, pause_ms: int, max_chunks: int) -> None:
    found = speak(Sharing(share_ms), 20, pause_ms=pause_ms, max_chunks=max_chunks)
    assert found == "s" * 20


def test_small_packets_share_a_message_up_to_the_same_duration() -> None:
    sharing = Sharing(SHARE_MS)
    speak(sharing, BEFORE_SHARING)
    waits = [sharing.waits(20.0, pause_ms=3000, max_chunks=32) for _ in range(30)]
    assert waits == ([True] * 14 + [False]) * 2


def test_no_wait_is_longer_than_an_eighth_of_a_pause() -> None:
    sharing = Sharing(SHARE_MS)
    assert (sharing.longest_ms(3000), sharing.longest_ms(600)) == (SHARE_MS, 75)


# ---- which chunks share a message ----


def test_a_message_takes_as_many_chunks_as_the_gateway_allows() -> None:
    kept = KeptChunks()
    for _ in range(7):
        kept.add(b"00")
    assert [[chunk.seq for chunk in kept.take(3)] for _ in range(4)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6],
        [],
    ]


def test_chunks_that_are_large_together_do_not_share_a_message() -> None:
    kept = KeptChunks()
    for size in (MAX_SHARED_BYTES - 2, 2, 2, MAX_SHARED_BYTES * 2, 2):
        kept.add(bytes(size))
    taken = []
    while chunks := kept.take(32):
        taken.append([chunk.seq for chunk in chunks])
    assert taken == [[0, 1], [2], [3], [4]]


def test_a_chunk_that_waits_is_written_with_the_next_one_that_does_not() -> None:
    kept = KeptChunks()
    kept.add(b"00", waits=True)
    kept.add(b"00", waits=True)
    assert kept.take(32) == []
    kept.add(b"00")
    assert [chunk.seq for chunk in kept.take(32)] == [0, 1, 2]
    kept.add(b"00", waits=True)
    assert kept.take(32) == []
    kept.release()
    assert [chunk.seq for chunk in kept.take(32)] == [3]


def test_a_new_stream_does_not_write_what_waits_either() -> None:
    kept = KeptChunks()
    kept.add(b"00")
    kept.take()
    kept.add(b"00", waits=True)
    kept.begin_at(0)
    assert [chunk.seq for chunk in kept.take(32)] == [0]


def test_close_does_not_overtake_a_chunk_that_waits() -> None:
    driver = Driver()
    driver.connect(max_chunks=32)
    driver.protocol.state.kept.add(b"00", waits=True)
    driver.protocol.close()
    assert [each.WhichOneof("message") for each in driver.drain()] == ["audio", "close"]


def seqs(message: ClientMessage) -> list[int]:
    if message.HasField("audio"):
        return [message.audio.seq]
    return [chunk.seq for chunk in message.audio_chunks.chunks]


def test_chunks_that_wait_share_a_message_also_after_a_resume() -> None:
    driver = Driver()
    for _ in range(3):
        driver.protocol.state.kept.add(b"00")
    assert driver.connect(max_chunks=2) == ["open", "audio_chunks", "audio"]
    driver.lose()
    assert driver.connect(max_chunks=32) == ["open", "audio_chunks"]


def test_an_older_gateway_gets_each_chunk_in_a_message_of_its_own() -> None:
    driver = Driver()
    for _ in range(3):
        driver.protocol.state.kept.add(b"00")
    assert driver.connect() == ["open", "audio", "audio", "audio"]


# ---- a session ----


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers("a") as (made,):
        yield made


async def spoken(session: Session, stream: PeerStream, **said: Any) -> None:
    """Speaks until chunks may wait; each of these arrives before the next one is sent."""
    for seq in range(BEFORE_SHARING):
        await session.send(CHUNK, **said)
        assert await heard(stream) == [seq]


async def heard(stream: PeerStream) -> list[int]:
    """Returns the chunks of the next message."""
    message = await stream.hear()
    assert message is not None
    return seqs(message)


async def test_live_speech_waits_to_share_a_message_and_its_end_does_not(peer: Peer) -> None:
    session = english(peer, share_ms=10_000)
    stream = await entered(session, peer, **PATIENT)
    await spoken(session, stream)
    for _ in range(3):
        await session.send(CHUNK)
    # Other messages do not take it along.
    await session.playback_started()
    await stream.hear_kind("playback_started")
    assert stream.has_heard() == 0
    await session.finish()
    assert await heard(stream) == [BEFORE_SHARING + at for at in range(4)]
    await leave(session)


async def test_a_chunk_that_no_other_follows_is_sent_after_a_while(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer, **LIMITS)
    await spoken(session, stream)
    await session.send(CHUNK)
    assert await heard(stream) == [BEFORE_SHARING]
    await leave(session)


async def test_a_chunk_that_no_other_follows_does_not_wait_longer_than_a_pause_allows(
    peer: Peer,
) -> None:
    session = english(peer, share_ms=10_000)
    stream = await entered(session, peer, **LIMITS)
    await spoken(session, stream)
    began = asyncio.get_running_loop().time()
    await session.send(CHUNK)
    assert await heard(stream) == [BEFORE_SHARING]
    # Not after share_ms, but after an eighth of the pause, 0.4 s.
    assert asyncio.get_running_loop().time() - began < 8
    await leave(session)


async def test_a_change_of_direction_is_sent_at_once(peer: Peer) -> None:
    session = Session(peer.address, a="en", b="es", share_ms=10_000)
    stream = await entered(session, peer, **PATIENT)
    await spoken(session, stream, direction=("en", "es"))
    await session.send(CHUNK, direction=("en", "es"))
    await session.send(CHUNK, direction=("es", "en"))
    assert await heard(stream) == [BEFORE_SHARING, BEFORE_SHARING + 1]
    await leave(session)


async def test_nothing_waits_if_the_gateway_listens_for_pauses(peer: Peer) -> None:
    session = english(peer, pause_detection=PauseDetection.VOICE_ACTIVITY)
    stream = await entered(session, peer, **LIMITS)
    await spoken(session, stream)
    for seq in range(BEFORE_SHARING, BEFORE_SHARING + 3):
        await session.send(CHUNK)
        assert await heard(stream) == [seq]
    await leave(session)


async def test_what_waits_is_sent_when_the_session_is_closed(peer: Peer) -> None:
    session = english(peer, share_ms=10_000)
    stream = await entered(session, peer, **PATIENT)
    await spoken(session, stream)
    await session.send(CHUNK)
    closing = asyncio.create_task(session.close())
    assert await heard(stream) == [BEFORE_SHARING]
    await stream.hear_kind("close")
    closing.cancel()
    await leave(session)
