"""Rooms in a real Redis: joined, spoken to, read by several gateways, and shown to people."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    Entry,
    KeptRoom,
    MemberRecord,
    RoomFacts,
    next_change,
    speaker_id,
)
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore, news_channel
from lingua_scheduler.services.session_gateway.rooms.views import RoomViews
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore, Spoken
from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2, session_record_pb2
from tests.support.cells import cell_settings, open_cells

Eventually = Callable[..., Awaitable[None]]

SECRET = b"\x00a secret that nobody guesses\xff"
OPTIONS = rooms_pb2.RoomOptions(name="Plenary", languages=["de", "en", "fr"], max_members=50)
APPLIED = rooms_pb2.RoomOptions(
    name="Plenary",
    languages=["de", "en", "fr"],
    max_members=50,
    max_speakers=8,
    max_languages=16,
)


class Gateway:
    """The stores and views of one gateway."""

    def __init__(self, cells: Cells, settings: Settings) -> None:
        self.cell = cells.first
        self.settings = settings
        self.rooms = RoomStore(cells=cells, settings=settings)
        self.sessions = SessionStore(cells=cells, settings=settings)
        self.views = RoomViews(cells=cells)

    async def create(self, room_id: str = "r", **fields: Any) -> RoomFacts:
        """Creates a room of tenant acme."""
        values: dict[str, Any] = {"tenant": "acme", "options": OPTIONS, "secret": SECRET, **fields}
        return await self.rooms.create(room_id=room_id, **values)

    async def listen(
        self, member_id: str, language: str, *, room_id: str = "r", name: str = "", **wants: bool
    ) -> Admission:
        """Adds a listener."""
        listening = rooms_pb2.Listening(language=language, captions=True, **wants)
        member = MemberRecord.listener(member_id, listening, name=name)
        return await self.rooms.join(room_id=room_id, member=member)

    async def speak(
        self, session_id: str = "s", *, room_id: str = "r", name: str = ""
    ) -> Admission:
        """Opens the session of somebody who speaks English."""
        asked = session_pb2.RoomSpeaker(room_id=room_id, language="en", name=name)
        opened = session_pb2.NewSession(room=asked, tenant="acme")
        await self.sessions.open(session_id=session_id, token="token", opened=opened)
        member = MemberRecord.speaker(session_id, language="en", name=name)
        return await self.rooms.join(room_id=room_id, member=member)

    async def say(
        self, *indexes: int, session_id: str = "s", room_id: str = "r", **fields: Any
    ) -> list[Spoken]:
        """Records the cuts of these indexes."""
        values = {"epoch": 1, "first_index": 0, "acked_seq": 0, "seen": 0, "results": 0}
        reply = await self.sessions.record_spoken(
            session_id=session_id,
            room_id=room_id,
            language="en",
            cuts=[cut(index) for index in indexes],
            **{**values, "missing": 0, "last_chunk_ms": 0, **fields},
        )
        return self.sessions.spoken(session_id, room_id, reply)

    async def put(self, index: int, language: str = "de", **audio: bytes) -> bytes:
        """Puts an outcome into room r."""
        return await self.rooms.put(
            room_id="r", language=language, index=index, event=b"said %d" % index, **audio
        )


@asynccontextmanager
async def gateway(
    url: str, prefix: str, name: str = "g1", **options: Any
) -> AsyncIterator[Gateway]:
    settings = cell_settings(url, prefix, instance_id=name, **options)
    async with open_cells(settings) as cells:
        yield Gateway(cells, settings)


@pytest.fixture
async def g1(redis_url: str, prefix: str) -> AsyncIterator[Gateway]:
    """A gateway."""
    async with gateway(redis_url, prefix) as made:
        yield made


@pytest.fixture
async def g2(redis_url: str, prefix: str) -> AsyncIterator[Gateway]:
    """Another gateway on the same Redis."""
    async with gateway(redis_url, prefix, "g2") as made:
        yield made


def cut(index: int) -> session_record_pb2.Cut:
    """An utterance of one chunk."""
    return session_record_pb2.Cut(
        utterance_index=index,
        direction=common_pb2.LanguagePair(src="en"),
        chunks=[session_record_pb2.ChunkRange(first=index, end=index + 1)],
    )


# The store.


async def test_a_room_is_the_same_at_every_gateway(g1: Gateway, g2: Gateway) -> None:
    before = int(time.time() * 1000)
    created = await g1.create()
    assert abs(created.created_ms - before) < 60_000
    assert created == RoomFacts(
        room_id="r",
        tenant="acme",
        options=APPLIED,
        secret=SECRET,
        created_ms=created.created_ms,
        next_index=0,
    )
    assert await g2.rooms.facts("r") == created
    assert "nobody guesses" not in repr(created)


async def test_a_room_has_no_higher_limits_than_the_gateway(redis_url: str, prefix: str) -> None:
    limits = {"room_members_max": 3, "room_speakers_max": 2, "room_languages_max": 1}
    async with gateway(redis_url, prefix, **limits) as small:
        facts = await small.create(options=rooms_pb2.RoomOptions(max_members=9, max_speakers=1))
        options = facts.options
        assert (options.max_members, options.max_speakers, options.max_languages) == (3, 1, 1)
        await small.listen("a", "de")
        with pytest.raises(errors.RoomFullError, match="its limit of 1 languages"):
            await small.listen("b", "fr")
        await small.listen("b", "de")
        await small.speak()
        with pytest.raises(errors.RoomFullError, match="its limit of 3 members"):
            await small.listen("c", "de")
        with pytest.raises(errors.RoomFullError):
            await small.speak("s2")


async def test_a_tenant_that_has_its_rooms_gets_no_more(g1: Gateway) -> None:
    await g1.create("r1", most_rooms=1)
    with pytest.raises(errors.QuotaExceededError, match="its limit of 1 rooms"):
        await g1.create("r2", most_rooms=1)
    await g1.create("r2", tenant="other", most_rooms=1)


async def test_what_is_said_at_one_gateway_is_read_at_all_of_them(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    assert await g1.speak() == Admission(0, -1)
    assert await g2.listen("a", "de", speech=True) == Admission(0, -1)
    assert await g1.listen("b", "fr", original_audio=True) == Admission(0, -1)
    wanted = (("de", True), ("fr", False))
    assert await g1.say(0, 1) == [Spoken(0, wanted, True), Spoken(1, wanted, True)]
    assert await g1.put(1, speech=b"one") == b"waiting"
    assert await g1.put(0, speech=b"\x00zero", original=b"\xffspoken") == b"published"
    expected = [
        Entry(0, None, b"said 0", b"\x00zero", b"\xffspoken"),
        Entry(1, 0, b"said 1", b"one", b""),
    ]
    for each in (g1, g2):
        found = await each.rooms.read(room_id="r", language="de", start=0, count=10)
        assert found == expected
    assert await g1.rooms.left("r", [(1, "de"), (1, "fr")]) == {(1, "fr")}
    assert await g1.rooms.left("r", []) == set()
    newest = await g2.rooms.read(
        room_id="r", language="de", start=0, count=1, newest=True, with_speech=False
    )
    assert newest == [Entry(1, 0, b"said 1", b"", b"")]


async def test_gateways_are_woken_up_by_what_concerns_them(
    g1: Gateway, g2: Gateway, redis_url: str, eventually: Eventually
) -> None:
    await g1.create()
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        news, heard = client.pubsub(ignore_subscribe_messages=True), list[str]()
        news.subscribe(news_channel(g2.cell, "g2"))
        news.get_message(timeout=5)

        def came(*expected: str) -> Callable[[], bool]:
            def have_come() -> bool:
                while message := news.get_message():
                    heard.append(message["data"].decode())
                return heard == list(expected)

            return have_come

        await g1.speak()
        await g2.listen("a", "de")
        await eventually(came("r"))
        await g1.say(0)
        await g1.put(0)
        await eventually(came("r", "r de"))
        await g1.rooms.close("r")
        await eventually(came("r", "r de", "r"))
        news.close()


async def test_a_member_that_moves_is_not_taken_back(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    listening = rooms_pb2.Listening(language="de", captions=True)
    record = MemberRecord.listener("a", listening)
    await g1.rooms.join(room_id="r", member=record)
    await g2.listen("a", "de")
    assert await g1.rooms.keep(g1.cell, [("r", 0)], expire=True) == [KeptRoom("ok", 0, 2, 0)]
    assert await g1.rooms.rejoin(room_id="r", member=record) is False
    await g1.rooms.leave(room_id="r", member_id="a")
    assert await g1.rooms.whereabouts("r") == {"a": "g2"}
    await g2.rooms.leave(room_id="r", member_id="a")
    assert await g1.rooms.rejoin(room_id="r", member=record) is True
    assert await g2.rooms.whereabouts("r") == {"a": "g1"}


async def test_a_change_that_comes_late_does_not_take_a_member_back(
    g1: Gateway, g2: Gateway
) -> None:
    await g1.create()
    await g1.speak()
    record = MemberRecord.listener("a", rooms_pb2.Listening(language="de", captions=True))
    await g1.rooms.join(room_id="r", member=record)
    await g2.listen("a", "es")

    with pytest.raises(errors.SessionTakenOverError):
        await g1.rooms.change(room_id="r", member=record.changed(language="fr"))

    assert await g1.rooms.whereabouts("r") == {"a": "g2", speaker_id("s"): "g1"}
    assert (await g1.say(0))[0].languages == (("es", False),)


async def test_members_that_a_gateway_does_not_have_are_removed(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    await g1.listen("here", "de")
    await g1.listen("ghost", "fr")
    await g2.listen("elsewhere", "fr")
    change = next_change()
    await g1.listen("coming", "de")
    await g1.rooms.leave_others("r", {"here"}, change=change)
    assert await g1.rooms.whereabouts("r") == {"here": "g1", "coming": "g1", "elsewhere": "g2"}


async def test_a_listener_cannot_take_the_place_of_a_speaker(g1: Gateway) -> None:
    await g1.create()
    await g1.speak("s", name="Ann")
    await g1.listen("s", "de")
    room = await g1.views.get("r")
    assert [each.session_id for each in room.speakers] == ["s"]
    assert room.listeners == 1
    await g1.rooms.leave(room_id="r", member_id="s")
    assert [each.name for each in (await g1.views.get("r")).speakers] == ["Ann"]
    await g1.rooms.leave(room_id="r", member_id=speaker_id("s"))
    assert await g1.rooms.whereabouts("r") == {}


async def test_a_change_of_language_is_a_change_and_a_repeat_is_none(g1: Gateway) -> None:
    await g1.create()
    await g1.speak()
    listening = rooms_pb2.Listening(language="de", captions=True)
    record = MemberRecord.listener("a", listening)
    await g1.rooms.join(room_id="r", member=record)
    await g1.say(0)
    changed = record.changed(language="fr")
    first = await g1.rooms.join(room_id="r", member=changed)
    await g1.say(1)
    assert first == await g1.rooms.join(room_id="r", member=changed) == Admission(1, 0)
    # What was sent before it changes nothing any more.
    await g1.rooms.join(room_id="r", member=record)
    await g1.rooms.leave(room_id="r", member_id="a", change=record.change)
    assert (await g1.say(2))[0].languages == (("fr", False),)
    await g1.rooms.leave(room_id="r", member_id="a", change=next_change())
    assert (await g1.say(3))[0].languages == ()


async def test_a_gateway_that_is_gone_takes_its_members_along(redis_url: str, prefix: str) -> None:
    limits = {"room_lease_ms": 1000}
    async with (
        gateway(redis_url, prefix, "g1", **limits) as alive,
        gateway(redis_url, prefix, "g2", **limits) as dead,
    ):
        await alive.create()
        await alive.speak()
        await dead.listen("a", "de")
        joined = time.monotonic()
        while "a" in await alive.rooms.whereabouts("r"):
            assert time.monotonic() - joined < 20
            (kept,) = await alive.rooms.keep(alive.cell, [("r", 0)], expire=True)
            assert (kept.word, kept.members) == ("ok", 1)
            await asyncio.sleep(0.05)
        assert time.monotonic() - joined > 0.9
        assert await alive.say(0) == [Spoken(0, (), False)]
        # It learns that it has to announce them again.
        assert (await dead.rooms.keep(dead.cell, [("r", 0)], expire=True))[0].members == 0


async def test_many_rooms_are_kept_and_each_is_answered_in_its_place(g1: Gateway) -> None:
    named = [f"r{number}" for number in range(45)]
    for room_id in named:
        await g1.create(room_id)
        await g1.listen("a", "de", room_id=room_id)
    await g1.rooms.close("r7")
    answers = await g1.rooms.keep(
        g1.cell, [(room_id, 5) for room_id in ("none", *named)], expire=True
    )
    expected = [KeptRoom("ok", 5, 1, 1)] * 45
    expected[7] = KeptRoom("ROOM_CLOSED", 0, 2, 0)
    assert answers == [KeptRoom("ROOM_NOT_FOUND", 0, 0, 0), *expected]
    assert await g1.rooms.keep(g1.cell, [], expire=True) == []


async def test_a_closed_room_is_closed_for_all(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    await g1.speak()
    await g1.say(0, 1)
    assert [await g2.rooms.close("r"), await g1.rooms.close("r")] == [2, 2]
    for call in (
        g1.rooms.facts("r"),
        g1.create(next_index=2),
        g1.listen("a", "de"),
        g1.say(2),
        g1.rooms.left("r", [(0, "de")]),
        g1.views.get("r"),
        g1.views.members("r", 0, ""),
    ):
        with pytest.raises(errors.RoomClosedError, match="room 'r' was closed"):
            await call
    assert await g1.put(0) == b"ROOM_CLOSED"


async def test_a_room_that_is_gone_is_told_as_such(g1: Gateway) -> None:
    await g1.create("other")
    await g1.speak(room_id="other")
    for call in (
        g1.rooms.facts("r"),
        g1.listen("a", "de"),
        g1.say(0),
        g1.rooms.close("r"),
        g1.rooms.left("r", [(0, "de")]),
        g1.views.get("r"),
        g1.views.members("r", 0, ""),
    ):
        with pytest.raises(errors.RoomNotFoundError, match="there is no room 'r'"):
            await call
    assert await g1.put(0) == b"ROOM_NOT_FOUND"
    assert await g1.rooms.read(room_id="r", language="de", start=0, count=9) == []


async def test_a_room_that_redis_lost_goes_on(g1: Gateway, redis_url: str, prefix: str) -> None:
    facts = await g1.create()
    await g1.speak()
    await g1.listen("a", "de")
    await g1.say(0, 1)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.delete(*client.keys(f"{prefix}:room:r*"))
    assert (await g1.rooms.keep(g1.cell, [("r", 2)], expire=True))[0].word == "ROOM_NOT_FOUND"
    restored = await g1.create(created_ms=facts.created_ms, next_index=2)
    assert restored.created_ms == facts.created_ms
    await g1.listen("a", "de")
    # An outcome of an utterance that Redis has forgotten.
    assert await g1.put(1) == b"published"
    assert await g1.say(2) == [Spoken(2, (("de", False),), False)]
    assert await g1.put(2) == b"published"


async def test_only_the_gateway_that_has_the_session_speaks(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    await g1.speak()
    await g1.listen("a", "de")
    first = await g1.say(0)
    taken = await g2.sessions.take_over(session_id="s", token="token")
    assert [each.utterance_index for each in taken.cuts] == [0]
    with pytest.raises(errors.SessionTakenOverError):
        await g1.say(1)
    assert await g2.say(0, epoch=taken.epoch) == first
    with pytest.raises(errors.SessionNotFoundError):
        await g2.say(0, session_id="none")


async def test_a_room_outlives_the_renewals_of_its_gateways(redis_url: str, prefix: str) -> None:
    limits = {"room_idle_ms": 1000, "room_lease_ms": 60_000}
    async with gateway(redis_url, prefix, **limits) as made:
        await made.create()
        left = await made.cell.link.command("PTTL", f"{prefix}:room:r")
        assert left > 100_000


async def test_without_redis_every_call_says_that_redis_is_down(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with gateway(own_redis.url, prefix) as lone:
        await lone.create()
        await lone.speak()
        own_redis.kill()
        member = MemberRecord.speaker("s", language="en")
        for call in (
            lone.create("other"),
            lone.rooms.facts("r"),
            lone.rooms.close("r"),
            lone.rooms.join(room_id="r", member=member),
            lone.rooms.rejoin(room_id="r", member=member),
            lone.rooms.leave(room_id="r", member_id="s"),
            lone.rooms.keep(lone.cell, [("r", 0)], expire=True),
            lone.rooms.whereabouts("r"),
            lone.rooms.left("r", [(0, "de")]),
            lone.rooms.read(room_id="r", language="de", start=0, count=1),
            lone.put(0),
            lone.say(0),
            lone.views.get("r"),
            lone.views.list("", 0, ""),
            lone.views.members("r", 0, ""),
        ):
            with pytest.raises(errors.DependencyDownError):
                await call


# What people see.


async def test_a_room_is_shown_with_who_speaks_and_what_is_listened_to(
    g1: Gateway, g2: Gateway
) -> None:
    created = await g1.create()
    await g1.speak("s2", name="Bea")
    await asyncio.sleep(0.002)
    await g2.speak("s1", name="Ann")
    await g1.listen("a", "fr", speech=True)
    await g2.listen("b", "de")
    await g2.listen("c", "fr")
    await g1.say(0, 1, 2, session_id="s2")
    await g1.put(0, "fr")
    await g1.put(2, "fr")
    room = await g2.views.get("r")
    first, second = room.speakers
    assert created.created_ms <= first.joined_ms < second.joined_ms
    (fr, de) = room.languages
    assert de.oldest_waiting_ms < 60_000
    assert room == rooms_pb2.Room(
        room_id="r",
        tenant="acme",
        options=APPLIED,
        created_ms=created.created_ms,
        next_index=3,
        listeners=3,
        speakers=[
            rooms_pb2.RoomSpeakerInfo(
                session_id=session_id, name=name, language="en", joined_ms=joined_ms
            )
            for session_id, name, joined_ms in (
                ("s2", "Bea", first.joined_ms),
                ("s1", "Ann", second.joined_ms),
            )
        ],
        languages=[
            rooms_pb2.RoomLanguage(
                language="fr",
                listeners=2,
                speech_listeners=1,
                waiting=1,
                oldest_waiting_ms=fr.oldest_waiting_ms,
            ),
            rooms_pb2.RoomLanguage(
                language="de", listeners=1, waiting=3, oldest_waiting_ms=de.oldest_waiting_ms
            ),
        ],
        gateway_instances=["g1", "g2"],
    )


async def test_members_are_shown_with_what_they_receive(g1: Gateway, g2: Gateway) -> None:
    await g1.create()
    await g1.speak(name="Ann\nLee")
    await asyncio.sleep(0.002)
    await g2.listen("a", "fr", speech=True, name="Zoë")
    members, following = await g2.views.members("r", 0, "")
    speaks, listens = members
    assert following == ""
    assert speaks == rooms_pb2.Member(
        name="Ann\nLee",
        role=rooms_pb2.ROOM_ROLE_SPEAKER,
        language="en",
        joined_ms=speaks.joined_ms,
        gateway_instance="g1",
    )
    assert listens == rooms_pb2.Member(
        name="Zoë",
        role=rooms_pb2.ROOM_ROLE_LISTENER,
        language="fr",
        listening=rooms_pb2.Listening(language="fr", captions=True, speech=True),
        joined_ms=listens.joined_ms,
        gateway_instance="g2",
    )


async def test_nobody_is_shown_in_a_room_whose_gateways_are_gone(
    redis_url: str, prefix: str
) -> None:
    async with gateway(redis_url, prefix, room_lease_ms=1000) as made:
        await made.create()
        await made.listen("a", "de")
        assert (await made.views.get("r")).listeners == 1
        assert len((await made.views.members("r", 0, ""))[0]) == 1
        deadline = time.monotonic() + 20
        while (room := await made.views.get("r")).listeners:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert (room.languages, room.gateway_instances) == ([], [])
        assert await made.views.members("r", 0, "") == ([], "")


async def test_no_view_has_the_secret_of_a_room(g1: Gateway) -> None:
    await g1.create()
    await g1.speak()
    shown = [await g1.views.get("r"), *(await g1.views.list("", 0, ""))[0]]
    shown += (await g1.views.members("r", 0, ""))[0]
    assert len(shown) == 3
    assert not any(SECRET in each.SerializeToString() for each in shown)


async def test_rooms_are_listed_by_tenant_the_newest_first(g1: Gateway) -> None:
    for at, (room_id, tenant) in enumerate([("a", "acme"), ("b", "other"), ("c", "acme")]):
        await g1.create(room_id, tenant=tenant, created_ms=at + 1)
    await g1.create("d")
    await g1.rooms.close("d")

    async def listed(tenant: str) -> list[str]:
        rooms, following = await g1.views.list(tenant, 0, "")
        assert following == ""
        return [room.room_id for room in rooms]

    assert await listed("acme") == ["c", "a"]
    assert await listed("other") == ["b"]
    assert await listed("") == ["c", "b", "a"]
    assert await listed("nobody") == []


async def test_all_pages_together_have_every_room_and_every_member(g1: Gateway) -> None:
    named = {f"r{number}" for number in range(1500)}
    await asyncio.gather(*(g1.create(room_id) for room_id in named))
    found, token = set(), ""
    while True:
        rooms, token = await g1.views.list("acme", 100, token)
        assert len(rooms) < 400
        found |= {room.room_id for room in rooms}
        if not token:
            break
    assert found == named

    await g1.create("full", options=rooms_pb2.RoomOptions())
    await asyncio.gather(
        *(g1.listen(f"m{at}", "de", room_id="full", name=f"n{at}") for at in range(1500))
    )
    names = set[str]()
    while True:
        members, token = await g1.views.members("full", 100, token)
        assert len(members) < 400
        names |= {member.name for member in members}
        if not token:
            break
    assert names == {f"n{at}" for at in range(1500)}
    assert (await g1.views.get("full")).listeners == 1500
