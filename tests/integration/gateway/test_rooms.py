"""Listeners of rooms at two gateways: each gets what is said in its language, once and in order."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import rooms_pb2, session_pb2_grpc
from tests.support.process import SOON_S
from tests.support.raw_listener import RawListener, listening, raw_listener
from tests.support.room_voice import RoomVoice, room_voice
from tests.support.rpc_errors import failure
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, all_running

Eventually = Callable[..., Awaitable[None]]

RESUME_MS = 1500
KEPT = 5
REPLAYED = 2


@pytest.fixture(scope="module")
def gateways(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[list[GatewayProcess]]:
    """Two gateways that the tests of this file share."""
    made = [
        GatewayProcess(
            pool=pool_process,
            redis_url=redis_url,
            dispatchers=patient_process.address,
            room_resume_ms=RESUME_MS,
            room_captions_max=KEPT,
            room_replay_captions=REPLAYED,
            peer_silence_ms=1000,
        )
        for _ in range(2)
    ]
    with all_running(made):
        yield made
        for each in made:
            assert not each.faults(), each.log()


class Place:
    """A room, somebody who speaks there, and ways to come in."""

    def __init__(
        self, gateways: list[GatewayProcess], stub: Any, made: rooms_pb2.CreateRoomResponse
    ) -> None:
        self.gateways = gateways
        self.stub = stub
        self.room_id = made.room.room_id
        self.host = made.host_token
        self.voice: RoomVoice
        self._open = contextlib.AsyncExitStack()

    async def listener(
        self, language: str = "de", *, at: int = 0, **fields: Any
    ) -> tuple[RawListener, rooms_pb2.Joined]:
        """A listener that has joined at one of the gateways."""
        stream = raw_listener(self.gateways[at].address)
        listener = await self._open.enter_async_context(stream)
        wanted = fields.pop("wanted", listening(language))
        return listener, await listener.join(self.room_id, self.host, wanted, **fields)

    async def stranger(self, at: int = 0) -> RawListener:
        """A listener that has not joined."""
        return await self._open.enter_async_context(raw_listener(self.gateways[at].address))

    async def languages(self) -> dict[str, int]:
        """How many listen to each language."""
        asked = rooms_pb2.GetRoomRequest(room_id=self.room_id)
        found = (await self.stub.GetRoom(asked)).room
        return {each.language: each.listeners for each in found.languages}

    async def until_wanted(self, **languages: int) -> None:
        """Waits until so many listen to each language."""
        deadline = time.monotonic() + SOON_S
        while (now := await self.languages()) != languages:
            assert time.monotonic() < deadline, now
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """All listeners leave."""
        await self._open.aclose()


@pytest.fixture
async def place(
    gateways: list[GatewayProcess], redis_url: str, pool_process: PoolProcess
) -> AsyncIterator[Place]:
    """A room of the test's own."""
    async with grpc.aio.insecure_channel(gateways[0].address) as channel:
        stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
        options = rooms_pb2.RoomOptions(name="Hall", languages=["de", "en", "ES", "fr"])
        made = Place(
            gateways, stub, await stub.CreateRoom(rooms_pb2.CreateRoomRequest(options=options))
        )
        async with room_voice(
            redis_url, pool_process.prefix, made.room_id, room_captions_max=KEPT
        ) as made.voice:
            yield made
            await made.close()


async def test_listeners_at_all_gateways_get_what_is_said_in_their_language(place: Place) -> None:
    german, joined = await place.listener("de")
    assert joined.position == 0
    assert joined.resume_within_ms == RESUME_MS
    assert joined.room.options.name == "Hall"
    spanish, _ = await place.listener("ES", at=1)
    also_german, _ = await place.listener("de", at=1)
    for _ in range(3):
        await place.voice.say()
    for listener, language in ((german, "de"), (also_german, "de"), (spanish, "es")):
        await listener.result(2)
        assert listener.texts() == [f"{language} {index}" for index in range(3)]
        told = listener.of("result")
        assert [each.previous_index for each in told] == [0, 0, 1]
        assert [each.HasField("previous_index") for each in told] == [False, True, True]
        assert not any(each.replayed for each in told)


async def test_a_slow_language_delays_only_itself(place: Place) -> None:
    german, _ = await place.listener("de")
    spanish, _ = await place.listener("es")
    first, second = (await place.voice.cut()).room_index, (await place.voice.cut()).room_index
    for index in (first, second):
        await place.voice.put(index, "es")
    await place.voice.put(second, "de")
    await spanish.result(second)
    assert german.texts() == []
    await place.voice.put(first, "de")
    await german.result(second)
    assert german.texts() == ["de 0", "de 1"]


@pytest.mark.parametrize("speech", [True, False])
@pytest.mark.parametrize("original", [True, False])
@pytest.mark.parametrize("captions", [True, False])
async def test_a_listener_gets_what_it_asked_for_and_nothing_else(
    place: Place, captions: bool, speech: bool, original: bool
) -> None:
    if not (captions or speech or original):
        return
    wanted = listening("de", captions=captions, speech=speech, original_audio=original)
    listener, _ = await place.listener(wanted=wanted)
    # Somebody wants everything.
    await place.listener(wanted=listening("de", speech=True, original_audio=True))
    spoken = await place.voice.cut()
    await place.voice.put(spoken.room_index, "de", speech=b"ss", original=b"oooo")
    result = await listener.result(spoken.room_index)
    assert bool(result.texts.translated) == captions
    assert result.speech == (b"ss" if speech else b"")
    assert result.HasField("speech_format") == speech
    assert result.original_audio == (b"oooo" if original else b"")
    assert result.HasField("original_format") == original


async def test_who_wants_the_spoken_language_hears_the_speaker(place: Place) -> None:
    listener, _ = await place.listener(wanted=listening("en", speech=True))
    spoken = await place.voice.cut()
    assert spoken.original
    await place.voice.put(spoken.room_index, "en", original=b"oooo")
    assert (await listener.result(spoken.room_index)).original_audio == b"oooo"


async def test_a_late_comer_gets_the_last_captions_and_then_everything(place: Place) -> None:
    await place.listener("de")
    for _ in range(3):
        await place.voice.say(audio=b"loud")
    pending = (await place.voice.cut()).room_index
    late, joined = await place.listener(wanted=listening("de", speech=True), at=1)
    assert joined.position == pending + 1
    await late.result(pending - 1)
    # What was said before it came is replayed, without speech, also if its outcome comes later.
    await place.voice.put(pending, "de", speech=b"loud")
    await place.voice.say(audio=b"loud")
    await late.result(pending + 1)
    told = [(each.room_index, each.replayed, each.speech) for each in late.of("result")]
    assert told == [(1, True, b""), (2, True, b""), (3, True, b""), (4, False, b"loud")]


async def test_a_listener_resumes_at_another_gateway_and_misses_nothing(place: Place) -> None:
    listener, joined = await place.listener("de")
    await place.voice.say()
    await listener.result(0)
    await listener.close()
    await place.voice.say(audio=b"loud")
    again, _ = await place.listener(
        wanted=listening("de", speech=True), at=1, member_id=joined.member_id, position=1
    )
    await place.voice.say(audio=b"loud")
    await again.result(2)
    assert again.texts() == ["de 1", "de 2"]
    assert [each.replayed for each in again.of("result")] == [False, False]
    assert await place.languages() == {"de": 1}


async def test_what_is_no_longer_kept_is_named_once(place: Place) -> None:
    listener, joined = await place.listener("de")
    await place.voice.say()
    await listener.result(0)
    await listener.close()
    for _ in range(KEPT + 2):
        await place.voice.say()
    again, _ = await place.listener("de", member_id=joined.member_id, position=1)
    await again.result(KEPT + 2)
    (missing,) = again.of("missing")
    assert (missing.room_index, missing.until_index, missing.language) == (1, 3, "de")
    assert again.texts() == [f"de {index}" for index in range(3, KEPT + 3)]


async def test_a_change_of_language_comes_between_two_utterances(place: Place) -> None:
    listener, _ = await place.listener("de")
    await place.listener("fr")
    before = (await place.voice.cut()).room_index
    changed = await listener.change(listening("FR"))
    assert (changed.position, changed.listening.language) == (before + 1, "fr")
    after = await place.voice.say()
    # The new language is ready first, and waits for the old one.
    await place.voice.put(before, "fr")
    await place.voice.put(before, "de")
    await listener.result(after)
    assert listener.texts() == ["de 0", "fr 1"]


async def test_many_changes_at_once_lose_and_repeat_nothing(place: Place) -> None:
    listener, _ = await place.listener("de")
    for language in ("de", "es", "fr"):
        await place.listener(language)
    expected = []
    for language in ("fr", "es", "de", "fr"):
        spoken = await place.voice.cut()
        expected.append((spoken.room_index, listener_language(listener)))
        await listener.change(listening(language))
    for index, _ in expected:
        for language in ("de", "es", "fr"):
            await place.voice.put(index, language)
    last = await place.voice.say()
    await listener.result(last)
    got = [(each.room_index, each.language) for each in listener.of("result")]
    assert got == [*expected, (last, "fr")]


def listener_language(listener: RawListener) -> str:
    """What a listener of German listens to by now."""
    changes = listener.of("changed")
    return str(changes[-1].listening.language) if changes else "de"


async def test_a_listener_that_leaves_is_gone_at_once(place: Place) -> None:
    listener, _ = await place.listener("de")
    await place.until_wanted(de=1)
    await listener.say(leave=rooms_pb2.LeaveRoom())
    assert await listener.status() is grpc.StatusCode.OK
    await place.until_wanted()


async def test_a_language_stays_wanted_for_a_while_after_a_stream_broke(place: Place) -> None:
    listener, _ = await place.listener("de")
    await listener.close()
    began = time.monotonic()
    assert await place.languages() == {"de": 1}
    await place.until_wanted()
    assert time.monotonic() - began > RESUME_MS / 1000 * 0.5


async def test_a_listener_that_moved_is_not_removed_by_the_gateway_that_it_left(
    place: Place,
) -> None:
    listener, joined = await place.listener("de")
    await listener.close()
    moved, _ = await place.listener("de", at=1, member_id=joined.member_id)
    back, _ = await place.listener("de", at=0, member_id=joined.member_id)
    await asyncio.sleep(RESUME_MS / 1000 * 1.5)
    assert await place.languages() == {"de": 1}
    await place.voice.say()
    await back.result(0)
    await moved.close()


async def test_a_listener_that_joins_twice_at_a_gateway_has_one_stream(place: Place) -> None:
    first, joined = await place.listener("de")
    second, _ = await place.listener("de", member_id=joined.member_id)
    await first.refused("SESSION_TAKEN_OVER")
    await place.voice.say()
    await second.result(0)
    assert await place.languages() == {"de": 1}


async def test_a_slow_listener_is_cut_off_and_delays_nobody(place: Place) -> None:
    slow, joined = await place.listener(wanted=listening("de", speech=True))
    other, _ = await place.listener("de")
    slow.stop_reading()
    # More than the buffers of the kernel take, which differ from machine to machine.
    times, large = 60, bytes(1_000_000)
    for said in range(times):
        await place.voice.say(audio=large)
        await other.result(said)
    slow.read_on()
    assert await slow.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(slow.of("result")) < times - KEPT
    # It comes back where it was; what is no longer kept is named.
    seen = max((each.room_index for each in slow.of("result")), default=-1) + 1
    again, _ = await place.listener("de", member_id=joined.member_id, position=seen)
    await again.result(times - 1)
    (gap,) = again.of("missing")
    assert gap.room_index == seen
    got = [each.room_index for each in again.of("result")]
    assert got == list(range(gap.until_index, times))


async def test_closing_a_room_tells_all_members_and_nobody_comes_back(place: Place) -> None:
    listeners = [(await place.listener("de", at=at))[0] for at in (0, 1)]
    await place.voice.say()
    close = rooms_pb2.CloseRoomRequest(room_id=place.room_id, host_token=place.host)
    await place.stub.CloseRoom(close)
    await place.stub.CloseRoom(close)
    for listener in listeners:
        assert await listener.status() is grpc.StatusCode.OK
        assert listener.told()[-1] == "closed"
        assert listener.of("closed")[0].utterances == 1
    late = await place.stranger()
    join = rooms_pb2.JoinRoom(
        room_id=place.room_id, join_token=place.host, listening=listening("de")
    )
    await late.say(join=join)
    await late.refused("ROOM_CLOSED")


async def test_those_who_ask_are_told_who_is_there_about_once_a_second(place: Place) -> None:
    curious, _ = await place.listener("de", status=True)
    incurious, _ = await place.listener("de")
    await curious.event("status", lambda event: event.status.listeners == 2)
    began, told = time.monotonic(), len(curious.of("status"))
    for _ in range(5):
        await place.listener("fr", at=1)
    await curious.event("status", lambda event: event.status.listeners == 7)
    assert len(curious.of("status")) - told <= 2 + time.monotonic() - began
    languages = {each.language: each.listeners for each in curious.of("status")[-1].languages}
    assert languages == {"de": 2, "fr": 5}
    assert incurious.of("status") == []


async def test_a_silent_room_shows_signs_of_life(place: Place) -> None:
    listener, joined = await place.listener("de")
    assert joined.silence_ms == 1000
    before, began = listener.messages, time.monotonic()
    await listener.until(lambda: listener.messages >= before + 6)
    # At least one in half of the time.
    assert time.monotonic() - began < 6 * 0.5 + 2.0


@pytest.mark.parametrize(
    ("join", "field"),
    [
        ({"listening": rooms_pb2.Listening(language="de")}, "join.listening.captions"),
        ({"listening": listening("ja")}, "join.listening.language"),
        ({"listening": None}, "join.listening.language"),
        ({"name": "x" * 65}, "join.name"),
        ({"position": 1 << 54}, "join.position"),
        ({"member_id": "has a space"}, "join.member_id"),
    ],
)
async def test_a_bad_join_is_refused_by_the_name_of_its_field(
    place: Place, join: dict[str, Any], field: str
) -> None:
    fields = {"listening": listening("de"), **join}
    asked = rooms_pb2.JoinRoom(room_id=place.room_id, join_token=place.host, **fields)
    listener = await place.stranger()
    await listener.say(join=asked)
    error = await listener.refused("INVALID_MESSAGE")
    assert [each.field for each in error.field_violations] == [field]


async def test_the_first_message_has_to_be_a_join_and_only_the_first(place: Place) -> None:
    stranger = await place.stranger()
    await stranger.say(leave=rooms_pb2.LeaveRoom())
    await stranger.refused("INVALID_MESSAGE")
    listener, _ = await place.listener("de")
    again = rooms_pb2.JoinRoom(
        room_id=place.room_id, join_token=place.host, listening=listening("de")
    )
    await listener.say(join=again)
    await listener.event("error")
    await place.voice.say()
    await listener.result(0)


async def test_a_change_that_is_refused_changes_nothing(place: Place) -> None:
    listener, _ = await place.listener("de")
    for wrong in (listening("ja"), rooms_pb2.Listening(language="fr")):
        await listener.say(change=rooms_pb2.ChangeListening(listening=wrong))
    await listener.until(lambda: len(listener.of("error")) == 2)
    await place.voice.say()
    assert (await listener.result(0)).language == "de"


async def test_a_listener_that_sends_nothing_more_still_listens(place: Place) -> None:
    listener, _ = await place.listener("de")
    await listener.call.done_writing()
    await asyncio.sleep(0.5)
    await place.voice.say()
    await listener.result(0)


async def test_a_full_room_says_which_limit_it_has_reached(place: Place) -> None:
    options = rooms_pb2.RoomOptions(max_members=2, max_languages=1)
    made = await place.stub.CreateRoom(rooms_pb2.CreateRoomRequest(options=options))

    async def join(language: str) -> RawListener:
        listener = await place.stranger()
        asked = rooms_pb2.JoinRoom(
            room_id=made.room.room_id, join_token=made.host_token, listening=listening(language)
        )
        await listener.say(join=asked)
        return listener

    await (await join("de")).event("joined")
    error = await (await join("fr")).refused("ROOM_FULL")
    assert (error.metadata["limit"], error.metadata["allowed"]) == ("languages", "1")
    await (await join("de")).event("joined")
    error = await (await join("de")).refused("ROOM_FULL")
    assert error.metadata["limit"] == "members"


async def test_operators_see_rooms_and_who_is_in_them(place: Place) -> None:
    await place.listener("de", name="Bo")
    await place.listener("es", at=1, name="Cy")
    asked = rooms_pb2.ListMembersRequest(room_id=place.room_id)
    members = {each.name: each for each in (await place.stub.ListMembers(asked)).members}
    assert {name: each.language for name, each in members.items()} == {"Bo": "de", "Cy": "es"}
    assert all(each.gateway_instance for each in members.values())
    listed = (await place.stub.ListRooms(rooms_pb2.ListRoomsRequest(page_size=1000))).rooms
    assert place.room_id in {each.room_id for each in listed}


async def test_a_room_that_is_not_there_is_not_found_by_operators(place: Place) -> None:
    for call in (
        place.stub.GetRoom(rooms_pb2.GetRoomRequest(room_id="none")),
        place.stub.CloseRoom(rooms_pb2.CloseRoomRequest(room_id="none")),
        place.stub.ListMembers(rooms_pb2.ListMembersRequest(room_id="none")),
    ):
        assert (await failure(call))[1] == "ROOM_NOT_FOUND"
