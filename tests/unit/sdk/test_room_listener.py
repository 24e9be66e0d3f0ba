"""A listener over real streams, against a gateway that the test controls."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lingua_scheduler.sdk import (
    Channels,
    Listener,
    ListenerLostError,
    Listening,
    Problem,
    Reconnecting,
    Rejoined,
    RoomRefusedError,
    RoomStatus,
    RoomUnavailableError,
    Said,
)
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import RoomEvent
from tests.conftest import Eventually
from tests.unit.sdk.room_driver import changed, go_away, room_closed, said
from tests.unit.sdk.room_peer import Peer, entered, leave, peers, room_at, some


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers() as (made,):
        yield made


def listener_at(*made: Peer, **options: Any) -> Listener:
    return room_at(*made).listen(**{"language": "es", **options})


async def test_it_hears_what_is_said_until_the_room_is_closed(peer: Peer) -> None:
    listener = listener_at(peer, name="Ana", speech=True)
    entering = asyncio.create_task(listener.__aenter__())
    stream = await peer.stream()
    asked = await stream.joins(position=3)
    await entering
    assert (asked.room_id, asked.name, asked.status) == ("r-1", "Ana", False)
    assert asked.listening == rooms_pb2.Listening(language="es", captions=True, speech=True)
    assert (listener.member_id, listener.position, listener.connected) == ("m-1", 3, True)
    assert listener.room.room_id == "r-1"
    stream.say(said(3, 2), said(4, 3))
    stream.say(said(5, 4), room_closed(6))
    stream.end()
    assert [each.room_index async for each in listener] == [3, 4, 5]
    assert listener.room_closed
    await leave(listener)


async def test_the_token_of_the_room_identifies_the_caller_unless_there_is_another(
    peer: Peer,
) -> None:
    for options, bearer in (
        ({}, "room.r-1.l.1.n.mac"),
        ({"caller_token": "of-the-app"}, "of-the-app"),
    ):
        listener = room_at(peer, **options).listen(language="es")
        entering = asyncio.create_task(listener.__aenter__())
        stream = await peer.stream()
        asked = await stream.joins()
        await entering
        assert asked.join_token == "room.r-1.l.1.n.mac"
        assert peer.metadata["authorization"] == f"Bearer {bearer}"
        await leave(listener, stream)


async def test_leaving_the_block_leaves_the_room(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    leaving = asyncio.create_task(leave(listener))
    await stream.hear_kind("leave")
    assert await stream.hear() is None
    stream.end()
    await leaving
    assert [each async for each in listener] == []


async def test_leaving_the_block_by_an_exception_leaves_the_room_too(peer: Peer) -> None:
    async def fail() -> None:
        async with listener_at(peer):
            raise KeyError("of the app")

    failing = asyncio.create_task(fail())
    stream = await peer.stream()
    await stream.joins()
    await stream.hear_kind("leave")
    stream.end()
    with pytest.raises(KeyError):
        await failing


async def test_a_cancelled_listener_leaves_the_room(peer: Peer) -> None:
    inside = asyncio.Event()

    async def listen() -> None:
        async with listener_at(peer) as listener:
            inside.set()
            async for _ in listener:
                pass

    listening = asyncio.create_task(listen())
    stream = await peer.stream()
    await stream.joins()
    await inside.wait()
    listening.cancel()
    await stream.hear_kind("leave")
    stream.end()
    with pytest.raises(asyncio.CancelledError):
        await listening


async def test_a_gateway_that_does_not_answer_holds_nobody_who_leaves(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    async with asyncio.timeout(5):
        await listener.leave()
        await listener.leave()
    assert stream.gone.is_set() or await stream.gone.wait()
    await leave(listener)


async def test_what_has_arrived_can_be_read_after_leaving(
    peer: Peer, eventually: Eventually
) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    stream.say(said(0), said(1, 0))
    await eventually(lambda: listener.position == 2)
    stream.end()
    await listener.leave()
    assert [each.room_index async for each in listener] == [0, 1]
    await leave(listener)


async def test_it_goes_on_at_another_gateway_where_it_was() -> None:
    async with peers(2) as both:
        listener = listener_at(*both)
        events = listener.events()
        entering = asyncio.create_task(listener.__aenter__())
        first, stream = await first_stream(both)
        await stream.joins(position=5)
        await entering
        stream.say(said(5, 4), said(7, 5))
        assert [each.room_index for each in await some(listener, 2)] == [5, 7]
        stream.end()
        other = both[1 - both.index(first)]
        stream = await other.stream()
        asked = await stream.joins(position=9)
        assert (asked.member_id, asked.position) == ("m-1", 8)
        stream.say(said(7, 5), said(8, 7))
        assert [each.room_index for each in await some(listener, 1)] == [8]
        kinds = [type(await anext(events)) for _ in range(5)]
        assert kinds == [Said, Said, Reconnecting, Rejoined, Said]
        assert listener.counts == (3, 0, 1, 1)
        await leave(listener, stream)


async def first_stream(both: list[Peer]) -> tuple[Peer, Any]:
    """Returns the gateway that is asked first, and its stream."""
    asked = {asyncio.create_task(peer.stream()): peer for peer in both}
    done, rest = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    for each in rest:
        each.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    (task,) = done
    return asked[task], task.result()


async def test_it_goes_elsewhere_when_a_gateway_says_so() -> None:
    async with peers(2) as both:
        listener = listener_at(*both)
        entering = asyncio.create_task(listener.__aenter__())
        first, stream = await first_stream(both)
        await stream.joins()
        await entering
        stream.say(go_away())
        other = both[1 - both.index(first)]
        stream = await other.stream()
        await stream.joins()
        await leave(listener, stream)


async def test_a_frozen_gateway_is_left() -> None:
    async with peers(2) as both:
        listener = listener_at(*both)
        entering = asyncio.create_task(listener.__aenter__())
        first, stream = await first_stream(both)
        await stream.joins(silence_ms=400)
        await entering
        other = both[1 - both.index(first)]
        stream = await other.stream()
        await stream.joins()
        await leave(listener, stream)


async def test_a_gateway_without_redis_is_asked_again(peer: Peer) -> None:
    listener = listener_at(peer)
    entering = asyncio.create_task(listener.__aenter__())
    stream = await peer.stream()
    await stream.hear_kind("join")
    stream.end(errors.DependencyDownError("no Redis"))
    stream = await peer.stream()
    await stream.joins()
    await entering
    await leave(listener, stream)


@pytest.mark.parametrize(
    "error",
    [
        errors.RoomNotFoundError("there is no room 'r-1'"),
        errors.RoomClosedError("it is closed"),
        errors.RoomFullError("it has 2 members"),
        errors.PermissionDeniedError("the token is not of this room"),
    ],
)
async def test_a_listener_that_is_not_let_in_says_why(
    peer: Peer, error: errors.LinguaError
) -> None:
    listener = listener_at(peer)
    entering = asyncio.create_task(listener.__aenter__())
    stream = await peer.stream()
    await stream.hear_kind("join")
    stream.end(error)
    with pytest.raises(RoomRefusedError) as refused:
        await entering
    assert refused.value.reason == errors.reason_name(error.reason)
    assert error.message in str(refused.value)
    assert "room.r-1.l" not in str(refused.value)


async def test_no_gateway_at_all_is_unavailable() -> None:
    async with peers() as (peer,):
        listener = listener_at(peer, reconnect_seconds=0.3)
    with pytest.raises(RoomUnavailableError) as error:
        await listener.__aenter__()
    assert error.value.reason == "UNREACHABLE"


async def test_a_member_that_lost_its_permission_is_told_after_the_last_utterance(
    peer: Peer,
) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    stream.say(said(0))
    stream.end(errors.PermissionDeniedError("the token has expired"))
    heard = aiter(listener)
    assert (await anext(heard)).room_index == 0
    with pytest.raises(ListenerLostError) as error:
        await anext(heard)
    assert (error.value.reason, error.value.position) == ("PERMISSION_DENIED", 1)
    with pytest.raises(ListenerLostError):
        await listener.change(language="fr")
    await leave(listener)


async def test_a_token_that_expires_says_who_can_make_another_one(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    stream.end(errors.UnauthenticatedError("the token has expired"))
    with pytest.raises(ListenerLostError, match="the host of the room can make another one"):
        await anext(aiter(listener))
    await leave(listener)


async def test_a_change_returns_when_the_gateway_has_confirmed_it(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    changing = asyncio.create_task(listener.change(language="fr", speech=True))
    asked = await stream.hear_kind("change")
    assert asked.listening == rooms_pb2.Listening(language="fr", captions=True, speech=True)
    assert listener.listening == Listening(language="es")
    stream.say(changed(3))
    await changing
    assert listener.listening == Listening(language="fr", speech=True)
    await listener.change(language="fr")
    await leave(listener, stream)


async def test_a_refused_change_raises_and_the_listener_goes_on(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    for error, kind in (
        (errors.RoomFullError("it has 16 languages"), RoomRefusedError),
        (errors.DependencyDownError("no Redis"), RoomUnavailableError),
    ):
        changing = asyncio.create_task(listener.change(language="fr"))
        await stream.hear_kind("change")
        stream.say(RoomEvent(error=errors.to_proto(error)))
        with pytest.raises(kind):
            await changing
    stream.say(said(0))
    (utterance,) = await some(listener, 1)
    assert utterance.room_index == 0
    assert listener.listening == Listening(language="es")
    await leave(listener, stream)


async def test_a_change_that_makes_no_sense_is_refused_before_it_is_sent(peer: Peer) -> None:
    listener = listener_at(peer)
    stream = await entered(listener, peer)
    with pytest.raises(ValueError, match="language"):
        await listener.change(language="not a language")
    with pytest.raises(ValueError, match="captions"):
        await listener.change(captions=False)
    await leave(listener, stream)


async def test_a_status_goes_to_the_app_and_what_the_app_raises_is_its_own_problem(
    peer: Peer, eventually: Eventually
) -> None:
    shown: list[RoomStatus] = []

    def show(status: RoomStatus) -> None:
        shown.append(status)
        raise KeyError("of the app")

    listener = listener_at(peer, on_status=show)
    entering = asyncio.create_task(listener.__aenter__())
    stream = await peer.stream()
    asked = await stream.joins()
    assert asked.status
    await entering
    stream.say(RoomEvent(status=rooms_pb2.RoomStatus(listeners=2)))
    stream.say(said(0))
    assert len(await some(listener, 1)) == 1
    await eventually(lambda: [each.listeners for each in shown] == [2])
    await leave(listener, stream)


async def test_a_broken_chain_is_a_named_event(peer: Peer) -> None:
    listener = listener_at(peer)
    events = listener.events()
    stream = await entered(listener, peer)
    stream.say(said(0), said(2, 1))
    stream = await peer.stream()
    assert (await stream.joins(position=3)).position == 1
    stream.say(said(1, 0), said(2, 1))
    assert [each.room_index for each in await some(listener, 3)] == [0, 1, 2]
    problems = [each async for each in until_rejoined(events) if isinstance(each, Problem)]
    assert [each.reason for each in problems] == ["OUT_OF_ORDER"]
    await leave(listener, stream)


async def until_rejoined(events: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for each in events:
        yield each
        if isinstance(each, Rejoined):
            return


async def test_listeners_can_share_connections(peer: Peer) -> None:
    channels = Channels()
    room = room_at(peer, channels=channels)
    streams = []
    listeners = [room.listen(language=language) for language in ("es", "fr")]
    for each in listeners:
        streams.append(await entered(each, peer))
    for each, stream in zip(listeners, streams, strict=True):
        await leave(each, stream)
    await channels.close()


async def test_methods_need_a_listener_that_is_inside(peer: Peer) -> None:
    listener = listener_at(peer)
    for call in (listener.leave(), listener.change(language="fr")):
        with pytest.raises(RuntimeError, match="async with"):
            await call
    with pytest.raises(RuntimeError, match="async with"):
        _ = listener.room
    stream = await entered(listener, peer)
    with pytest.raises(RuntimeError, match=r"Room\.listen"):
        await listener.__aenter__()
    await leave(listener, stream)
    with contextlib.suppress(ListenerLostError):
        assert [each async for each in listener] == []
