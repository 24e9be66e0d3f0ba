"""Rooms: what the console reads of them, and the documents that it makes of that."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from lingua_scheduler.services.console.services import room_reads
from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.services.room_reads import RoomReads
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    LinguaError,
    RoomClosedError,
    RoomNotFoundError,
)
from lingua_scheduler.v1 import rooms_pb2
from tests.unit.console.messages import NOW, change, member, room
from tests.unit.console.test_documents import get


class Gateway(ServiceCalls):
    """Answers calls with these rooms and members, a few on each page, and counts the calls."""

    def __init__(self) -> None:
        super().__init__(addresses={}, dialer=cast(Any, None), token=None)
        self.rooms: list[rooms_pb2.Room] = []
        self.members: list[rooms_pb2.Member] = []
        self.error: LinguaError | None = None
        self.asked: list[str] = []

    async def call(
        self, service: str, method: str, request: Message, *, metadata: object = None
    ) -> Any:
        # As a call over the network, which others may make meanwhile.
        await asyncio.sleep(0)
        self.asked.append(method)
        if self.error is not None:
            raise self.error
        match request:
            case rooms_pb2.GetRoomRequest():
                found = [each for each in self.rooms if each.room_id == request.room_id]
                if not found:
                    raise RoomNotFoundError(f"there is no room {request.room_id!r}")
                return rooms_pb2.GetRoomResponse(room=found[0])
            case rooms_pb2.ListRoomsRequest():
                page, token = _page(self.rooms, request.page_token)
                return rooms_pb2.ListRoomsResponse(rooms=page, next_page_token=token)
            case rooms_pb2.ListMembersRequest():
                page, token = _page(self.members, request.page_token)
                return rooms_pb2.ListMembersResponse(members=page, next_page_token=token)
        raise RoomNotFoundError(f"{method} is not known")


def _page(items: list[Any], token: str) -> tuple[list[Any], str]:
    begin = int(token or 0)
    end = begin + 100
    return items[begin:end], str(end) if end < len(items) else ""


@pytest.fixture
async def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
async def sources(gateway: Gateway) -> AsyncIterator[Sources]:
    made = Sources(gateway, now_ms=lambda: NOW)
    yield made
    await made.close()


async def test_a_room_has_its_numbers_and_its_slowest_language(
    gateway: Gateway, sources: Sources
) -> None:
    options = rooms_pb2.RoomOptions(name="Town hall")
    gateway.rooms = [room("r1", "es de:1500 fr:800", "en en", options=options, next_index=7)]
    document = await get(sources, "rooms")
    assert document["rows"]["r1"] == {
        "id": "r1",
        "name": "Town hall",
        "tenant": "t1",
        "created_ms": NOW,
        "utterances": 7,
        "speakers": 2,
        "spoken": ["en"],
        "listeners": 6,
        "languages": ["es", "de", "fr"],
        "languages_total": 3,
        "waiting": 2,
        "lag_ms": 1500,
    }
    assert (document["total"], document["partial"]) == (1, False)


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ({}, ["r3", "r2", "r1"]),
        ({"desc": "0"}, ["r1", "r2", "r3"]),
        ({"sort": "lag"}, ["r2", "r3", "r1"]),
        ({"sort": "listeners"}, ["r3", "r2", "r1"]),
        ({"sort": "name", "desc": "0"}, ["r2", "r1", "r3"]),
        ({"search": "HALL"}, ["r2"]),
        ({"search": "r3"}, ["r3"]),
        ({"tenant": "t2"}, ["r3"]),
        ({"language": "DE"}, ["r3", "r2"]),
        ({"language": "en"}, ["r1"]),
        ({"limit": "1", "offset": "1"}, ["r2"]),
    ],
)
async def test_rooms_are_filtered_sorted_and_paged(
    gateway: Gateway, sources: Sources, query: dict[str, str], order: list[str]
) -> None:
    gateway.rooms = [
        room("r1", "es", "en", options=rooms_pb2.RoomOptions(name="Lecture")),
        room("r2", "es de:90", created_ms=NOW + 1, options=rooms_pb2.RoomOptions(name="a Hall")),
        room(
            *("r3", "es de fr:20"),
            created_ms=NOW + 2,
            tenant="t2",
            options=rooms_pb2.RoomOptions(name="Press"),
        ),
    ]
    assert (await get(sources, "rooms", **query))["order"] == order


async def test_one_room_has_its_speakers_languages_members_and_gateways(
    gateway: Gateway, sources: Sources
) -> None:
    options = rooms_pb2.RoomOptions(
        languages=["en", "es"],
        speak=rooms_pb2.SPEAK_POLICY_ANYONE,
        max_members=100,
        max_speakers=8,
        max_languages=4,
    )
    gateway.rooms = [room("r1", "es:40", "en", options=options, gateway_instances=["g2", "g1"])]
    speaker = {"role": rooms_pb2.ROOM_ROLE_SPEAKER, "language": "en", "listening": None}
    gateway.members = [
        member("Ana", 0, **speaker),
        member("Ben", 9),
        member("", 5, listening=rooms_pb2.Listening(language="es", captions=True, speech=True)),
    ]
    document = await get(sources, "rooms/r1")
    shown = document["room"]
    assert (shown["speak"], shown["allowed"], shown["gateways"]) == (
        "anyone",
        ["en", "es"],
        ["g1", "g2"],
    )
    assert (shown["max_members"], shown["max_speakers"], shown["max_languages"]) == (100, 8, 4)
    assert shown["speaker_list"] == [
        {"session": "r1-s0", "name": "Speaker 0", "language": "en", "joined_ms": NOW}
    ]
    assert shown["language_list"] == [
        {"language": "es", "listeners": 2, "speech_listeners": 1, "waiting": 2, "lag_ms": 40}
    ]
    members = document["members"]
    rows = [members["rows"][key] for key in members["order"]]
    assert [(row["name"], row["role"], row["gets"]) for row in rows] == [
        ("Ben", "listener", ["captions"]),
        ("", "listener", ["captions", "speech"]),
        ("Ana", "speaker", []),
    ]
    assert (members["total"], members["partial"]) == (3, False)


async def test_members_are_paged_even_if_all_came_at_the_same_time(
    gateway: Gateway, sources: Sources
) -> None:
    gateway.rooms = [room("r1")]
    gateway.members = [member(f"m{at:03}") for at in range(250)]
    names = []
    for offset in ("0", "100", "200"):
        members = (await get(sources, "rooms/r1", offset=offset, limit="100"))["members"]
        assert members["total"] == 250
        assert len(members["rows"]) == len(members["order"])
        names += [members["rows"][key]["name"] for key in members["order"]]
    assert sorted(names) == [each.name for each in gateway.members]
    # All of it was read once.
    assert gateway.asked.count("ListMembers") == 3


async def test_many_readers_cause_one_read(gateway: Gateway, sources: Sources) -> None:
    gateway.rooms = [room(f"r{at}") for at in range(150)]
    documents = await asyncio.gather(*(get(sources, "rooms") for _ in range(20)))
    assert {each["total"] for each in documents} == {150}
    assert gateway.asked == ["ListRooms"] * 2
    await asyncio.gather(*(get(sources, "rooms/r1") for _ in range(20)))
    assert gateway.asked[2:] == ["GetRoom", "ListMembers"]


async def test_what_is_read_of_rooms_and_members_has_a_limit(
    gateway: Gateway, sources: Sources
) -> None:
    gateway.rooms = [room(f"r{at}") for at in range(room_reads.MAX_ROOMS + 150)]
    gateway.members = [member(f"m{at}", at) for at in range(room_reads.MAX_MEMBERS + 150)]
    document = await get(sources, "rooms")
    assert (document["total"], document["partial"]) == (room_reads.MAX_ROOMS, True)
    members = (await get(sources, "rooms/r1"))["members"]
    assert (members["total"], members["partial"]) == (room_reads.MAX_MEMBERS, True)


async def test_a_room_that_was_closed_is_gone(gateway: Gateway, sources: Sources) -> None:
    with pytest.raises(RoomNotFoundError):
        await get(sources, "rooms/nowhere")
    gateway.error = RoomClosedError("the room was closed")
    with pytest.raises(RoomNotFoundError, match="closed"):
        await get(sources, "rooms/r1")


async def test_old_rooms_stay_while_gateways_do_not_answer(gateway: Gateway) -> None:
    now_ms = NOW
    problems = Problems(lambda: now_ms)
    reads = RoomReads(calls=gateway, problems=problems)
    gateway.rooms = [room("r1")]
    assert [each.room_id for each in (await reads.list()).rooms] == ["r1"]
    gateway.error = DependencyDownError("the session gateway does not answer")
    reads._listed_at = -room_reads.LIST_EVERY_S
    assert [each.room_id for each in (await reads.list()).rooms] == ["r1"]
    assert problems.document()["rooms"]["since_ms"] == NOW


async def test_search_finds_rooms_by_id(gateway: Gateway, sources: Sources) -> None:
    name = rooms_pb2.RoomOptions(name="Town hall")
    gateway.rooms = [room("r1"), room("room-of-one-hundred", options=name)]
    # Nobody has looked at the list yet, and a whole id is asked for.
    assert (await get(sources, "search", q="r1"))["matches"] == []
    assert (await get(sources, "search", q="room-of-one-hundred"))["matches"] == [
        {"kind": "room", "id": "room-of-one-hundred", "label": "Town hall"}
    ]
    await get(sources, "rooms")
    assert (await get(sources, "search", q="r1"))["matches"] == [
        {"kind": "room", "id": "r1", "label": ""}
    ]


async def test_a_job_and_a_room_may_have_the_same_beginning(
    gateway: Gateway, sources: Sources
) -> None:
    sources.jobs.apply(change("r1-job"))
    gateway.rooms = [room("r1-room")]
    await get(sources, "rooms")
    found = (await get(sources, "search", q="r1"))["matches"]
    assert [each["kind"] for each in found] == ["job", "room"]
