"""Single calls about rooms, a speaker's session, and the arguments of all of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.sdk import (
    Channels,
    LanguageMissing,
    Listening,
    Missing,
    Receipt,
    Room,
    RoomRefusedError,
    RoomRole,
    RoomUnavailableError,
    Session,
    SessionLostError,
    SessionRefusedError,
    SpeakPolicy,
    Tls,
)
from lingua_scheduler.sdk.session.options import RoomSpeaker
from lingua_scheduler.sdk.session.protocol.wire import result_from
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ServerEvent
from tests.unit.sdk import session_peer
from tests.unit.sdk.room_peer import Peer, peers, room_at
from tests.unit.sdk.session_driver import Driver, error_in, retries

HOST = "room.r-1.h.1.n.mac"


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    async with peers() as (made,):
        yield made


def created(**fields: Any) -> rooms_pb2.CreateRoomResponse:
    return rooms_pb2.CreateRoomResponse(
        room=rooms_pb2.Room(room_id="r-1", **fields), host_token=HOST
    )


async def test_creating_a_room_gives_its_id_and_the_token_of_its_host(peer: Peer) -> None:
    peer.answers = [created(), rooms_pb2.CreateJoinTokenResponse(join_token="room.r-1.l")]
    room = await Room.create(
        peer.address,
        name="All hands",
        languages=["en", "es"],
        speak="anyone",
        max_members=50,
        max_speakers=2,
        max_languages=4,
        tenant="acme",
        token="of-the-app",
    )
    assert peer.asked == [
        rooms_pb2.CreateRoomRequest(
            options=rooms_pb2.RoomOptions(
                name="All hands",
                languages=["en", "es"],
                speak=rooms_pb2.SPEAK_POLICY_ANYONE,
                max_members=50,
                max_speakers=2,
                max_languages=4,
            ),
            tenant="acme",
        )
    ]
    assert peer.metadata["authorization"] == "Bearer of-the-app"
    assert (room.room_id, room.host_token) == ("r-1", HOST)
    assert await room.join_token("listener", lifetime_s=60) == "room.r-1.l"
    assert peer.asked[1] == rooms_pb2.CreateJoinTokenRequest(
        room_id="r-1", host_token=HOST, role=rooms_pb2.ROOM_ROLE_LISTENER, lifetime_s=60
    )
    assert peer.metadata["authorization"] == "Bearer of-the-app"


async def test_a_member_without_a_token_of_its_own_presents_that_of_the_room(peer: Peer) -> None:
    peer.answers = [rooms_pb2.GetRoomResponse(room=rooms_pb2.Room(room_id="r-1"))]
    room = room_at(peer, token="room.r-1.s.1")
    assert room.host_token == ""
    await room.get()
    assert peer.metadata["authorization"] == "Bearer room.r-1.s.1"
    assert peer.asked == [rooms_pb2.GetRoomRequest(room_id="r-1", token="room.r-1.s.1")]


async def test_a_room_has_all_that_the_server_said_of_it(peer: Peer) -> None:
    found = rooms_pb2.Room(
        room_id="r-1",
        tenant="acme",
        options=rooms_pb2.RoomOptions(
            name="All hands", languages=["en"], speak=rooms_pb2.SPEAK_POLICY_ANYONE, max_members=9
        ),
        created_ms=5,
        next_index=7,
        listeners=3,
        speakers=[rooms_pb2.RoomSpeakerInfo(session_id="s", name="Ana", language="en")],
        languages=[
            rooms_pb2.RoomLanguage(
                language="es", listeners=3, speech_listeners=1, waiting=2, oldest_waiting_ms=900
            )
        ],
        gateway_instances=["g-1"],
    )
    peer.answers = [rooms_pb2.GetRoomResponse(room=found)]
    info = await room_at(peer).get()
    assert (info.room_id, info.tenant, info.name) == ("r-1", "acme", "All hands")
    assert (info.allowed_languages, info.speak) == (("en",), SpeakPolicy.ANYONE)
    assert (info.created_ms, info.next_index, info.listeners) == (5, 7, 3)
    assert info.speakers[0].name == "Ana"
    assert (info.languages[0].waiting, info.languages[0].oldest_waiting_ms) == (2, 900)
    assert info.gateway_instances == ("g-1",)


async def test_members_are_read_page_by_page_up_to_a_limit(peer: Peer) -> None:
    speaker = rooms_pb2.Member(name="Ana", role=rooms_pb2.ROOM_ROLE_SPEAKER, language="en")
    listener = rooms_pb2.Member(
        name="Ben",
        role=rooms_pb2.ROOM_ROLE_LISTENER,
        language="es",
        listening=rooms_pb2.Listening(language="es", speech=True),
    )
    pages = [
        rooms_pb2.ListMembersResponse(members=[speaker], next_page_token="2"),
        rooms_pb2.ListMembersResponse(next_page_token="3"),
        rooms_pb2.ListMembersResponse(members=[listener, listener]),
    ]
    peer.answers = [*pages]
    members = await room_at(peer).members()
    assert [(each.name, each.role) for each in members] == [
        ("Ana", RoomRole.SPEAKER),
        ("Ben", RoomRole.LISTENER),
        ("Ben", RoomRole.LISTENER),
    ]
    assert members[1].listening == Listening(language="es", captions=False, speech=True)
    assert [each.page_token for each in peer.asked] == ["", "2", "3"]
    peer.answers = [pages[0], pages[2]]
    assert len(await room_at(peer).members(limit=2)) == 2


async def test_closing_a_room_needs_the_token_of_the_host(peer: Peer) -> None:
    peer.answers = [
        rooms_pb2.CloseRoomResponse(),
        errors.PermissionDeniedError("this is not the host's token"),
    ]
    await room_at(peer, token=HOST).close()
    assert peer.asked == [rooms_pb2.CloseRoomRequest(room_id="r-1", host_token=HOST)]
    with pytest.raises(RoomRefusedError) as error:
        await room_at(peer).close()
    assert error.value.reason == "PERMISSION_DENIED"


async def test_a_gateway_that_cannot_answer_now_is_asked_again(peer: Peer) -> None:
    peer.answers = [
        errors.DependencyDownError("no Redis"),
        errors.DrainingError("shutting down"),
        grpc.StatusCode.UNAVAILABLE,
        rooms_pb2.CloseRoomResponse(),
    ]
    await room_at(peer).close()
    assert len(peer.asked) == 4


async def test_another_gateway_is_asked_if_one_is_away() -> None:
    async with peers() as (gone,):
        pass
    async with peers() as (here,):
        for _ in range(4):
            here.answers = [rooms_pb2.CloseRoomResponse()]
            await room_at(gone, here).close()


async def test_no_answer_in_time_names_the_last_reason(peer: Peer) -> None:
    peer.answers = [errors.DependencyDownError("no Redis")] * 100
    with pytest.raises(RoomUnavailableError) as error:
        await room_at(peer, timeout=0.3).get()
    assert error.value.reason == "SCHEDULER_DEPENDENCY_DOWN"
    async with peers() as (gone,):
        pass
    with pytest.raises(RoomUnavailableError) as error:
        await room_at(gone, timeout=0.3).get()
    assert error.value.reason == "UNREACHABLE"


async def test_an_invalid_field_is_named_once(peer: Peer) -> None:
    fields = [("options.name", "is too long")]
    peer.answers = [
        errors.InvalidMessageError("options.name: is too long", fields=fields),
        errors.InvalidMessageError("the request is invalid", fields=fields),
    ]
    for message in (
        "options.name: is too long",
        "the request is invalid; options.name: is too long",
    ):
        with pytest.raises(RoomRefusedError) as error:
            await Room.create(peer.address)
        assert error.value.message == message
        assert error.value.fields == tuple(fields)


async def test_a_quota_that_is_used_up_is_said_at_once(peer: Peer) -> None:
    peer.answers = [errors.QuotaExceededError("the tenant has reached its limit of 3 rooms")]
    with pytest.raises(RoomUnavailableError) as error:
        await Room.create(peer.address)
    assert error.value.reason == "QUOTA_EXCEEDED"


async def test_a_token_that_was_renewed_is_tried(peer: Peer) -> None:
    peer.answers = [
        errors.UnauthenticatedError("expired"),
        rooms_pb2.GetRoomResponse(),
        errors.UnauthenticatedError("expired"),
        rooms_pb2.GetRoomResponse(),
    ]
    tokens = iter(["old", "new", "new", "newer"])
    room = room_at(peer, caller_token=lambda: next(tokens))
    await room.get()
    assert peer.metadata["authorization"] == "Bearer new"
    await room.get()
    assert peer.metadata["authorization"] == "Bearer newer"


async def test_calls_in_a_block_share_a_connection(peer: Peer) -> None:
    peer.answers = [rooms_pb2.GetRoomResponse(), rooms_pb2.GetRoomResponse()]
    async with room_at(peer) as room:
        await room.get()
        await room.get()
    assert len(peer.asked) == 2


# ---- speakers ----


def receipt(index: int, **fields: Any) -> ServerEvent:
    return ServerEvent(
        result=session_pb2.Result(
            utterance_index=index,
            direction=common_pb2.LanguagePair(src="en"),
            timings=session_pb2.ResultTimings(audio_ms=900),
            room=session_pb2.RoomReceipt(room_index=40 + index, **fields),
        )
    )


async def test_a_speaker_is_a_session_whose_results_are_receipts() -> None:
    late = common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_TIMEOUT, message="too late")
    async with session_peer.peers("a") as (peer,):
        room = Room(peer.address, room_id="r-1", token="room.r-1.s.1")
        session = room.speak(language="en", name="Ana")
        assert isinstance(session, Session)
        entering = asyncio.create_task(session.__aenter__())
        stream = await peer.stream()
        asked = await stream.opens()
        await entering
        assert asked.new.room == session_pb2.RoomSpeaker(
            room_id="r-1", join_token="room.r-1.s.1", language="en", name="Ana"
        )
        assert asked.new.WhichOneof("languages") == "room"
        assert peer.metadata["authorization"] == "Bearer room.r-1.s.1"
        await session.send(bytes(3200))
        await session.finish()
        assert not (await stream.hear_kind("audio")).HasField("direction")
        missing = session_pb2.RoomLanguageMissing(language="de", why=late)
        stream.say(
            receipt(0, delivered=["es", "fr"], missing=[missing]),
            session_peer.missing(1),
            session_peer.ack(2),
        )
        results = session.results()
        first = await anext(results)
        assert isinstance(first, Receipt)
        assert (first.index, first.room_index, first.delivered) == (0, 40, ("es", "fr"))
        assert first.missing == (
            LanguageMissing(language="de", reason="JOB_TIMEOUT", message="too late"),
        )
        assert (first.src, first.tgt, first.timings.audio_ms) == ("en", "", 900)
        assert isinstance(await anext(results), Missing)
        stream.say(session_peer.failed(common_pb2.ERROR_REASON_ROOM_CLOSED))
        stream.end()
        with pytest.raises(SessionLostError) as error:
            await anext(results)
        assert error.value.reason == "ROOM_CLOSED"
        await session_peer.leave(session)


@pytest.mark.parametrize(
    "reason",
    [
        common_pb2.ERROR_REASON_ROOM_NOT_FOUND,
        common_pb2.ERROR_REASON_ROOM_CLOSED,
        common_pb2.ERROR_REASON_ROOM_FULL,
    ],
)
def test_a_speaker_that_is_not_let_in_is_refused(reason: common_pb2.ErrorReason.ValueType) -> None:
    assert isinstance(error_in(Driver().refuse(reason)), SessionRefusedError)


def test_a_speaker_that_comes_back_to_a_full_room_keeps_trying(open_one: Driver) -> None:
    open_one.lose()
    assert retries(open_one.refuse(common_pb2.ERROR_REASON_ROOM_FULL))
    error = error_in(open_one.refuse(common_pb2.ERROR_REASON_ROOM_CLOSED))
    assert isinstance(error, SessionLostError)


def test_a_result_without_a_room_is_no_receipt() -> None:
    assert not isinstance(result_from(session_pb2.Result(utterance_index=1)), Receipt)


# ---- arguments ----


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("room_id", "not an id"),
        ("room_id", ""),
        ("token", ""),
        ("token", "x" * 513),
        ("token", None),
        ("timeout", 0),
        ("addresses", ""),
    ],
)
def test_a_wrong_argument_of_a_room_is_named(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"addresses": "h:1", "room_id": "r", "token": "t", name: value}
    with pytest.raises(ValueError, match=name):
        Room(arguments.pop("addresses"), **arguments)


def test_a_token_with_spaces_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="token") as error:
        Room("h:1", room_id="r", token="se cret")
    assert "cret" not in str(error.value)


def test_tls_belongs_to_the_channels_if_they_are_shared() -> None:
    with pytest.raises(ValueError, match="tls"):
        Room("h:1", room_id="r", token="t", channels=Channels(), tls=Tls())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "x" * 101),
        ("languages", "en"),
        ("languages", ["en"] * 65),
        ("languages", ["english"] * 2 + ["not a code"]),
        ("speak", "nobody"),
        ("max_members", -1),
        ("max_speakers", 10_001),
        ("max_languages", "4"),
        ("tenant", "a b"),
        ("timeout", -1),
    ],
)
async def test_a_wrong_argument_of_a_new_room_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        await Room.create("127.0.0.1:1", **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("language", "not a code"), ("name", "x" * 65), ("reconnect_seconds", -1)],
)
def test_a_wrong_argument_of_a_member_is_named(name: str, value: Any) -> None:
    room = Room("h:1", room_id="r", token="t")
    for member in (room.listen, room.speak):
        with pytest.raises(ValueError, match=name):
            member(**{"language": "en", name: value})
    with pytest.raises(ValueError, match="captions"):
        room.listen(language="en", captions=False)


def test_a_session_speaks_to_a_room_or_in_a_direction() -> None:
    speaker = RoomSpeaker(room_id="r", join_token="t", language="en")
    assert "join_token" not in repr(speaker)
    with pytest.raises(ValueError, match="room"):
        Session("h:1", src="en", tgt="es", room=speaker)


async def test_a_wrong_role_or_lifetime_is_named() -> None:
    room = Room("h:1", room_id="r", token="t")
    with pytest.raises(ValueError, match="role: 'host' must be 'listener' or 'speaker'"):
        await room.join_token("host")
    with pytest.raises(ValueError, match="lifetime_s"):
        await room.join_token("speaker", lifetime_s=-1)
    with pytest.raises(ValueError, match="limit"):
        await room.members(limit=0)
