"""Results, reconnections and the end of a session, against a peer that the test controls."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.sdk import (
    PartialText,
    Problem,
    Reconnecting,
    Result,
    Resumed,
    Session,
    SessionLostError,
)
from lingua_scheduler.v1 import common_pb2
from tests.conftest import Eventually
from tests.unit.sdk.session_peer import (
    Peer,
    ack,
    closed,
    english,
    entered,
    failed,
    finalized,
    go_away,
    leave,
    partial,
    peers,
    result,
)

SECOND = bytes(32_000)


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers("a") as (made,):
        yield made


# ---- results ----


async def test_results_are_confirmed_with_the_next_message_or_alone_after_a_moment(
    peer: Peer,
) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    loop = asyncio.get_running_loop()
    began = loop.time()
    stream.say(result(0))
    alone = await stream.hear()
    assert alone is not None
    assert (alone.WhichOneof("message"), alone.results_seen) == (None, 1)
    assert 0.15 < loop.time() - began < 2
    results = session.results()
    await anext(results)
    stream.say(result(1))
    await anext(results)
    await session.send(b"12")
    beside = await stream.hear()
    assert beside is not None
    assert (beside.WhichOneof("message"), beside.results_seen) == ("audio", 2)
    await asyncio.sleep(0.3)
    assert stream.has_heard() == 0
    await leave(session)


async def test_events_have_everything_and_results_only_what_counts(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    stream.say(partial(0, "h"), partial(0, "hel"), partial(0, "hello"), result(0))
    results, events = session.results(), session.events()
    assert (await anext(results)).index == 0
    first, second = await anext(events), await anext(events)
    assert isinstance(first, PartialText)
    assert first.texts.source == "hello"
    assert isinstance(second, Result)
    await leave(session)
    with pytest.raises(SessionLostError, match="ABORTED"):
        await anext(results)


async def test_what_was_said_is_counted_before_its_events_are_read(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    await session.send(b"12")
    await session.finish()
    # An acknowledgement of audio that has not been sent yet does not count.
    for _ in range(2):
        await stream.hear_kind("audio")
    stream.say(finalized(0), finalized(1), ack(2))
    await session.drained()
    assert (session.counts.utterances, session.counts.results) == (2, 0)
    await leave(session)


# ---- reconnecting ----


async def test_a_broken_stream_is_resumed_at_the_other_gateway() -> None:
    async with peers("a", "b") as (one, other):
        session = Session([one.address, other.address], src="en", tgt="es")
        entering = asyncio.create_task(session.__aenter__())
        first = asyncio.create_task(one.stream())
        second = asyncio.create_task(other.stream())
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        begun, rest = (first, second) if first.done() else (second, first)
        stream = begun.result()
        await stream.opens()
        await entering
        for data in (b"00", b"11", b"22"):
            await session.send(data)
            await stream.hear_kind("audio")
        stream.say(ack(1), result(0))
        events = session.events()
        await anext(events)
        stream.end(grpc.StatusCode.UNAVAILABLE, "gone")
        again = await rest
        resume = (await again.opens()).resume
        assert (resume.session_id, resume.resume_token) == ("s-1", "secret")
        assert (resume.results_seen, resume.next_seq, resume.tries) == (1, 1, 1)
        heard = [await again.hear_kind("audio") for _ in range(2)]
        assert [(chunk.seq, chunk.data) for chunk in heard] == [(1, b"11"), (2, b"22")]
        again.say(result(0), result(1))
        assert isinstance(await anext(events), Reconnecting)
        resumed = await anext(events)
        assert isinstance(resumed, Resumed)
        assert resumed.chunks_again == 2
        new = await anext(events)
        assert isinstance(new, Result)
        assert new.index == 1
        assert (session.counts.repeated, session.counts.resumes) == (1, 1)
        await leave(session)


async def test_go_away_moves_the_session_when_its_time_has_come(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    await session.send(b"00")
    await stream.hear_kind("audio")
    stream.say(go_away(after_ms=200))
    await session.send(b"11")
    assert (await stream.hear_kind("audio")).data == b"11"
    again = await peer.stream()
    await stream.gone.wait()
    assert (await again.opens()).resume.next_seq == 0
    assert [(await again.hear_kind("audio")).data for _ in range(2)] == [b"00", b"11"]
    await leave(session)


async def test_close_is_said_again_after_a_reconnection(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    await session.send(b"00")
    closing = asyncio.create_task(session.close())
    await stream.hear_kind("audio")
    await stream.hear_kind("close")
    stream.end(grpc.StatusCode.UNAVAILABLE)
    again = await peer.stream()
    await again.opens()
    await again.hear_kind("audio")
    await again.hear_kind("close")
    again.say(ack(1), closed())
    assert await again.hear() is None
    again.end()
    await closing
    await leave(session)


async def test_a_forgotten_session_is_lost_and_says_what_was_lost(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    await session.send(b"0011")
    stream.say(result(0))
    await stream.hear_kind("audio")
    await anext(session.results())
    stream.end(grpc.StatusCode.UNAVAILABLE)
    again = await peer.stream()
    again.say(failed(common_pb2.ERROR_REASON_SESSION_NOT_FOUND))
    with pytest.raises(SessionLostError, match="SESSION_NOT_FOUND") as raised:
        await session.drained()
    error = raised.value
    assert (error.unacknowledged_chunks, error.unacknowledged_bytes, error.results_seen) == (
        1,
        4,
        1,
    )
    with pytest.raises(SessionLostError):
        await session.send(b"00")
    with pytest.raises(SessionLostError):
        await anext(session.results())
    await leave(session)


async def test_a_session_that_another_client_has_is_not_fought_for(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    stream.say(failed(common_pb2.ERROR_REASON_SESSION_TAKEN_OVER))
    stream.end(grpc.StatusCode.ABORTED)
    with pytest.raises(SessionLostError, match="SESSION_TAKEN_OVER"):
        await session.close()
    assert peer.waiting() == 0
    await leave(session)


async def test_a_session_gives_up_when_no_gateway_comes_back() -> None:
    async with peers("a") as (peer,):
        session = english(peer, reconnect_seconds=0.5)
        await entered(session, peer)
    with pytest.raises(
        SessionLostError, match=r"UNREACHABLE: no gateway accepted the session within 0\.5 s"
    ):
        await session.close()
    await leave(session)


async def test_a_refused_packet_is_told_and_what_follows_it_is_sent_again(peer: Peer) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    for data in (b"00", b"11", b"22"):
        await session.send(data)
        await stream.hear_kind("audio")
    bad = common_pb2.ERROR_REASON_BAD_AUDIO
    stream.say(failed(bad, seq="1", expected_seq="1"), failed(bad, seq="2", expected_seq="1"))
    heard = [await stream.hear_kind("audio") for _ in range(2)]
    assert [(chunk.seq, chunk.data) for chunk in heard] == [(1, b""), (2, b"22")]
    events = session.events()
    assert isinstance(await anext(events), Problem)
    await session.send(b"33")
    assert (await stream.hear_kind("audio")).seq == 3
    await leave(session)


# ---- the end ----


def left_behind(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Returns tasks that are new, except those of the server."""
    now = asyncio.all_tasks() - before
    return [each for each in now if "AioServer" not in repr(each)]


async def test_leaving_by_an_exception_leaves_no_task_behind(
    peer: Peer, eventually: Eventually
) -> None:
    before = asyncio.all_tasks()

    async def talk() -> None:
        async with english(peer) as session:
            await session.send(SECOND)
            raise KeyError("stop")

    talking = asyncio.create_task(talk())
    stream = await peer.stream()
    await stream.opens()
    with pytest.raises(KeyError):
        await talking
    await asyncio.wait_for(stream.gone.wait(), 5)
    await eventually(lambda: not left_behind(before))


async def test_cancelling_an_open_that_is_not_answered_leaves_no_task_behind(
    peer: Peer, eventually: Eventually
) -> None:
    before = asyncio.all_tasks()
    entering = asyncio.create_task(english(peer).__aenter__())
    stream = await peer.stream()
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    await asyncio.wait_for(stream.gone.wait(), 5)
    await eventually(lambda: not left_behind(before))


async def test_a_session_that_the_server_closes_ends_its_results_and_takes_no_audio(
    peer: Peer,
) -> None:
    session = english(peer)
    stream = await entered(session, peer)
    stream.say(result(0), closed(1))
    assert [each.index async for each in session.results()] == [0]
    stream.end()
    with pytest.raises(SessionLostError, match="CLOSED"):
        await session.send(SECOND)
    await session.close()
    await leave(session)
