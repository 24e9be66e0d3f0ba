"""Rooms: who is in, what is wanted, and outcomes in order."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    Entry,
    KeptRoom,
    MemberRole,
    StoredMember,
)
from lingua_scheduler.services.session_gateway.store.session_store import Spoken
from tests.support.room_state import RoomRules

from .room_scripts import SECRET, RoomScripts, listener, said, speaker
from .scripts import START_MS
from .session_scripts import cut
from .test_sessions import forget

RULES = RoomRules()


@pytest.fixture
def rooms(client: redis.Redis, prefix: str) -> Iterator[RoomScripts]:
    """Room r of tenant t1, in which s speaks English from gateway g1. Nobody listens."""
    scripts = RoomScripts(client, prefix)
    scripts.create()
    scripts.join_room(speaker("s"))
    scripts.open_session()
    scripts.take_news()
    yield scripts
    forget(client, prefix)


def entry(index: int, previous: int | None, event: bytes | None = None) -> Entry:
    """An outcome without audio."""
    return Entry(index, previous, said(index) if event is None else event, b"", b"")


# Creating and closing.


def test_a_new_room_has_a_record_with_nothing_said_in_it(client: redis.Redis, prefix: str) -> None:
    rooms = RoomScripts(client, prefix)
    assert rooms.create(max_members=3, max_speakers=2, max_languages=1) == START_MS
    assert rooms.record_of() == {
        "tenant": b"t1",
        "options": b"\x00options\xff",
        "secret": SECRET,
        "created_ms": str(START_MS).encode(),
        "next": b"0",
        "version": b"0",
        "max_members": b"3",
        "max_speakers": b"2",
        "max_languages": b"1",
    }
    expires = {"r": START_MS + RULES.idle_ms}
    assert rooms.scores("rooms") == rooms.scores("tenant", "t1", "rooms") == expires
    assert rooms.keep_rooms() == [KeptRoom("ok", 0, 0, 0)]


def test_a_repeated_creation_changes_nothing(rooms: RoomScripts) -> None:
    rooms.record_spoken(0, 1)
    before = rooms.record_of()
    rooms.advance(1000)
    assert rooms.create() == START_MS
    assert rooms.record_of() == before


def test_a_room_that_redis_lost_goes_on_with_the_index_that_its_gateways_remember(
    rooms: RoomScripts,
) -> None:
    assert rooms.create("lost", created_ms=7, next_index=41) == 7
    # Another gateway knew more.
    assert rooms.create("lost", created_ms=7, next_index=43) == 7
    assert rooms.create("lost", created_ms=7, next_index=42) == 7
    assert rooms.record_spoken(0, room_id="lost") == [Spoken(43, (), False)]


def test_a_room_of_somebody_else_is_not_overwritten(rooms: RoomScripts) -> None:
    before = rooms.record_of()
    with pytest.raises(errors.RoomClosedError):
        rooms.create(secret=b"another", next_index=9)
    assert rooms.record_of() == before


def test_a_tenant_has_no_more_rooms_than_its_limit(rooms: RoomScripts) -> None:
    rooms.create("r2", most_rooms=2)
    with pytest.raises(errors.QuotaExceededError) as caught:
        rooms.create("r3", most_rooms=2)
    assert caught.value.metadata == {"limit": "rooms", "used": "2", "allowed": "2"}
    assert rooms.create("r2", most_rooms=2) == START_MS
    rooms.create("r3", tenant="t2", most_rooms=2)
    rooms.close("r2")
    with pytest.raises(errors.QuotaExceededError) as caught:
        rooms.create("r4", most_rooms=3, elsewhere=2)
    assert caught.value.metadata == {"limit": "rooms", "used": "3", "allowed": "3"}
    rooms.create("r4", most_rooms=2)


def test_a_closed_room_is_gone_except_that_it_is_known_to_be_closed(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", flags="cso"), gateway="g2")
    rooms.record_spoken(0, 1, 2)
    rooms.put(0)
    rooms.put(2, speech=b"x", original=b"y")
    rooms.take_news()
    assert [rooms.close(), rooms.close()] == [3, 3]
    assert sorted(rooms.take_news()) == [("g1", "r"), ("g2", "r")]
    assert rooms.keys("room") == {"room:r"}
    assert (rooms.scores("rooms"), rooms.scores("tenant", "t1", "rooms")) == ({}, {})
    record = rooms.record_of()
    assert set(record) == {"tenant", "closed", "next", "version", "secret"}
    assert rooms.keep_rooms() == [KeptRoom("ROOM_CLOSED", 3, int(record["version"]), 0)]
    rooms.advance(RULES.idle_ms)
    assert rooms.keys("room") == set()
    with pytest.raises(errors.RoomNotFoundError):
        rooms.close()


def test_nothing_can_be_done_in_a_closed_room_and_no_gateway_brings_it_back(
    rooms: RoomScripts,
) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0)
    rooms.close()
    calls: list[Any] = [
        lambda: rooms.create(next_index=1),
        lambda: rooms.join_room(listener("a")),
        lambda: rooms.join_room(listener("a"), rejoin=True),
        lambda: rooms.record_spoken(1),
        lambda: rooms.left((0, "de")),
    ]
    for call in calls:
        with pytest.raises(errors.RoomClosedError):
            call()
    assert rooms.put(0) == rooms.put(7) == "ROOM_CLOSED"
    rooms.leave_room("a")
    assert rooms.read() == []
    assert rooms.keys("room") == {"room:r"}


def test_what_is_gone_is_said_to_be_gone(rooms: RoomScripts) -> None:
    calls: list[Any] = [
        lambda: rooms.join_room(listener("a"), room_id="none"),
        lambda: rooms.record_spoken(0, room_id="none"),
        lambda: rooms.left((0, "de"), room_id="none"),
        lambda: rooms.close("none"),
    ]
    for call in calls:
        with pytest.raises(errors.RoomNotFoundError):
            call()
    assert rooms.put(0, room_id="none") == "ROOM_NOT_FOUND"
    assert rooms.keep_rooms(("none", 5)) == [KeptRoom("ROOM_NOT_FOUND", 0, 0, 0)]
    rooms.leave_room("a", room_id="none")
    assert rooms.keys("room:none") == set()


# Members.


def test_a_member_is_known_with_all_that_it_wants(rooms: RoomScripts) -> None:
    assert rooms.join_room(listener("a", "de", "cs", "Ann\nLee"), gateway="g2") == Admission(0, -1)
    assert rooms.members()["a"] == StoredMember(
        "g2", MemberRole.LISTENER, "de", "cs", START_MS, "Ann\nLee"
    )
    assert rooms.wants() == {
        "@g1": 1,
        "@g2": 1,
        "#speakers": 1,
        "#listeners": 1,
        "de": 1,
        "de+": 1,
    }
    assert rooms.scores("room", "r", "speakers") == {"s": START_MS}
    assert sorted(rooms.take_news()) == [("g1", "r"), ("g2", "r")]


def test_the_last_member_that_leaves_leaves_nothing_behind(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", flags="cso"), gateway="g2")
    rooms.leave_room("a", gateway="g2")
    rooms.leave_room("s")
    assert (rooms.wants(), rooms.members()) == ({}, {})
    assert rooms.keys("room:") == {"room:r"}


def test_a_repeated_join_is_answered_as_the_first_was(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"))
    rooms.record_spoken(0, 1)
    change = listener("a", "fr")
    assert rooms.join_room(change) == Admission(2, 1)
    rooms.record_spoken(2)
    rooms.put(0)
    rooms.put(1)
    version = rooms.record_of()["version"]
    rooms.take_news()
    assert rooms.join_room(change) == Admission(2, 1)
    assert (rooms.record_of()["version"], rooms.take_news()) == (version, [])


def test_a_join_that_gets_through_late_undoes_no_later_change(rooms: RoomScripts) -> None:
    first, second = listener("a", "de"), listener("a", "fr", "cs")
    rooms.join_room(second)
    before = rooms.members(), rooms.wants()
    rooms.join_room(first)
    rooms.leave_room("a", change=first.change)
    assert (rooms.members(), rooms.wants()) == before


def test_a_listener_that_changes_its_language_learns_what_is_still_open(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"))
    rooms.record_spoken(0, 1, 2)
    rooms.put(0)
    assert rooms.join_room(listener("a", "fr")) == Admission(3, 2)
    rooms.put(1)
    rooms.put(2)
    assert rooms.join_room(listener("a", "de")) == Admission(3, -1)
    assert rooms.join_room(listener("a", "de", "cs")) == Admission(3, -1)
    assert rooms.wants()["de+"] == 1


def test_a_member_moves_to_the_gateway_that_it_joins_at(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"), gateway="g2")
    rooms.advance(1000)
    rooms.take_news()
    rooms.join_room(listener("a"), gateway="g3")
    # Also the gateway that has lost its last member is told.
    assert sorted(rooms.take_news()) == [("g1", "r"), ("g2", "r"), ("g3", "r")]
    assert set(rooms.scores("room", "r", "gateways")) == {"g1", "g3"}
    assert (rooms.members()["a"].gateway, rooms.members()["a"].joined_ms) == ("g3", START_MS)
    rooms.leave_room("a", gateway="g2")
    assert "a" in rooms.members()


def test_a_gateway_gets_no_member_back_that_has_moved(rooms: RoomScripts) -> None:
    record = listener("a")
    rooms.join_room(record, gateway="g2")
    assert rooms.join_room(record, gateway="g2", rejoin=True) == Admission(0, -1)
    rooms.join_room(listener("a"), gateway="g3")
    assert rooms.join_room(record, gateway="g2", rejoin=True) is None
    assert rooms.members()["a"].gateway == "g3"
    rooms.leave_room("a", gateway="g3")
    assert rooms.join_room(record, gateway="g2", rejoin=True) == Admission(0, -1)


@pytest.mark.parametrize(
    ("limits", "what", "joins"),
    [
        ({"max_members": 2}, "members", [listener("a"), listener("b")]),
        ({"max_members": 2}, "members", [listener("a"), speaker("t")]),
        ({"max_speakers": 1}, "speakers", [speaker("t")]),
        ({"max_languages": 1}, "languages", [listener("a", "de"), listener("b", "fr")]),
        (
            {"max_languages": 1},
            "languages",
            [listener("a", "de"), listener("b", "de"), listener("a", "fr")],
        ),
    ],
)
def test_a_room_that_is_full_says_what_it_is_full_of(
    rooms: RoomScripts, limits: dict[str, Any], what: str, joins: list[Any]
) -> None:
    rooms.create("full", **limits)
    rooms.join_room(speaker("s"), room_id="full")
    for each in joins[:-1]:
        rooms.join_room(each, room_id="full")
    before = rooms.members("full"), rooms.wants("full")
    with pytest.raises(errors.RoomFullError, match=what) as caught:
        rooms.join_room(joins[-1], room_id="full")
    (allowed,) = limits.values()
    assert caught.value.metadata == {"room_id": "full", "limit": what, "allowed": str(allowed)}
    assert (rooms.members("full"), rooms.wants("full")) == before


def test_who_is_in_a_full_room_can_move_and_change(rooms: RoomScripts) -> None:
    rooms.create("full", max_members=2, max_speakers=1, max_languages=1)
    rooms.join_room(speaker("s"), room_id="full")
    rooms.join_room(listener("a", "de"), room_id="full")
    for gateway in ("g1", "g2"):
        rooms.join_room(speaker("s"), room_id="full", gateway=gateway)
        # The only listener takes its language with it.
        rooms.join_room(listener("a", "fr", "cs"), room_id="full", gateway=gateway)
        rooms.join_room(listener("a", "de"), room_id="full", gateway=gateway)
    assert rooms.wants("full") == {"@g2": 2, "#speakers": 1, "#listeners": 1, "de": 1}


# Leases.


def test_members_of_a_gateway_that_is_gone_are_gone(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"), gateway="g2")
    rooms.join_room(listener("b", "de", "cs"), gateway="g3")
    rooms.advance(RULES.lease_ms - 1)
    rooms.keep_rooms(gateway="g1")
    rooms.keep_rooms(gateway="g3")
    rooms.advance(1)
    rooms.take_news()
    assert rooms.record_spoken(0) == [Spoken(0, (("de", True),), False)]
    assert rooms.wants() == {"@g1": 1, "#speakers": 1, "@g3": 1, "#listeners": 1, "de": 1, "de+": 1}
    assert sorted(rooms.take_news()) == [("g1", "r"), ("g3", "r")]
    # It learns that it has lost them.
    assert rooms.keep_rooms(gateway="g2") == [KeptRoom("ok", 1, 4, 0)]


@pytest.mark.parametrize("touch", ["join", "keep", "record"])
def test_whoever_touches_the_room_first_removes_them(rooms: RoomScripts, touch: str) -> None:
    rooms.join_room(listener("a"), gateway="g2")
    rooms.advance(RULES.lease_ms // 2)
    rooms.keep_rooms()
    rooms.advance(RULES.lease_ms // 2)
    match touch:
        case "join":
            rooms.join_room(speaker("t"))
        case "keep":
            rooms.keep_rooms()
        case "record":
            rooms.record_spoken(0)
    assert "a" not in rooms.members()
    assert rooms.keys("room:r:wants") != set()
    assert "de" not in rooms.wants()


def test_a_gateway_that_is_late_but_alive_keeps_its_members(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"), gateway="g2")
    rooms.advance(RULES.lease_ms // 2)
    rooms.keep_rooms()
    rooms.advance(RULES.lease_ms // 2)
    assert rooms.keep_rooms(gateway="g2") == [KeptRoom("ok", 0, 2, 1)]
    assert "a" in rooms.members()


def test_after_a_long_outage_of_redis_all_members_are_still_translated_for(
    rooms: RoomScripts,
) -> None:
    rooms.join_room(listener("a", "de"), gateway="g2")
    rooms.join_room(listener("b", "fr"), gateway="g3")
    rooms.advance(10 * RULES.lease_ms)
    assert rooms.record_spoken(0) == [Spoken(0, (("de", False), ("fr", False)), False)]
    rooms.advance(RULES.lease_ms // 2)
    rooms.keep_rooms(gateway="g1")
    rooms.keep_rooms(gateway="g2")
    rooms.advance(RULES.lease_ms // 2)
    # Who does not come back is gone then.
    assert rooms.record_spoken(1) == [Spoken(1, (("de", False),), False)]


def test_a_room_that_nobody_is_in_is_forgotten(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    for _ in range(3):
        rooms.advance(RULES.idle_ms - 1)
        assert rooms.keep_rooms()[0].word == "ok"
    rooms.open_session()
    rooms.record_spoken(0)
    rooms.put(0)
    rooms.leave_room("a")
    rooms.leave_room("s")
    rooms.advance(RULES.idle_ms - 1)
    assert rooms.keep_rooms() == [KeptRoom("ok", 1, 4, 0)]
    rooms.advance(1)
    assert rooms.keep_rooms() == [KeptRoom("ROOM_NOT_FOUND", 0, 0, 0)]
    assert rooms.keys("room:") == set()


def test_every_key_of_a_room_expires(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de", "cso"))
    rooms.record_spoken(0, 1, 2)
    rooms.put(0, speech=b"x", original=b"y")
    rooms.put(2, speech=b"x", original=b"y")
    keys = rooms.keys("room:")
    assert len(keys) == 13
    expiring = rooms.scores("test", "expires")
    for key in keys:
        assert START_MS < expiring[rooms.key(key)] <= START_MS + RULES.idle_ms


# What is said.


def test_an_utterance_gets_the_next_room_index_and_the_languages_that_are_wanted(
    rooms: RoomScripts,
) -> None:
    rooms.join_room(listener("a", "fr", "cs"))
    rooms.join_room(listener("b", "de", "c"))
    rooms.join_room(listener("c", "de", "o"))
    rooms.open_session("t")
    assert rooms.record_spoken(0) == [Spoken(0, (("de", False), ("fr", True)), True)]
    rooms.leave_room("c")
    assert rooms.record_spoken(0, session_id="t") == [
        Spoken(1, (("de", False), ("fr", True)), False)
    ]
    rooms.leave_room("b")
    rooms.join_room(listener("d", "es"))
    assert rooms.record_spoken(1) == [Spoken(2, (("es", False), ("fr", True)), False)]


def test_an_utterance_that_nobody_listens_to_only_gets_a_room_index(rooms: RoomScripts) -> None:
    assert rooms.record_spoken(0, 1) == [Spoken(0, (), False), Spoken(1, (), False)]
    assert rooms.keys("room:r:lane") == set()
    assert rooms.keep_rooms() == [KeptRoom("ok", 2, 1, 1)]


def test_who_wants_speech_in_the_speakers_own_language_hears_the_speaker(
    rooms: RoomScripts,
) -> None:
    rooms.join_room(listener("a", "en", "cs"))
    assert rooms.record_spoken(0, language="en") == [Spoken(0, (("en", True),), True)]
    assert rooms.record_spoken(1, language="fr") == [Spoken(1, (("en", True),), False)]


def test_a_flush_concerns_only_the_languages_that_it_is_for(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de", "cso"))
    rooms.join_room(listener("b", "fr", "c"))
    only = {1: ["fr", "es"]}
    assert rooms.record_spoken(0, 1, only=only) == [
        Spoken(0, (("de", True), ("fr", False)), True),
        Spoken(1, (("fr", False),), False),
    ]
    assert rooms.put(0, language="fr") == rooms.put(1, language="fr") == "published"
    assert rooms.read("fr") == [entry(0, None), entry(1, 0)]


def test_a_repeated_cut_keeps_its_room_index_and_its_languages(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de", "cs"))
    first = rooms.record_spoken(0, 1)
    rooms.join_room(listener("b", "fr"))
    third = Spoken(2, (("de", True), ("fr", False)), False)
    assert rooms.record_spoken(0, 1, 2) == [*first, third]
    assert rooms.record_spoken(2, 2, 0) == [third, third, first[0]]
    assert list(rooms.scores("room", "r", "lane:fr").values()) == [2]
    assert len(rooms.scores("room", "r", "lane:de")) == 3
    rooms.close()
    # The room is not needed to answer a repeat.
    assert rooms.record_spoken(1) == first[1:]


def test_a_later_gateway_gets_the_same_answers(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    first = rooms.record_spoken(0, 1)
    epoch = rooms.taken().epoch
    assert rooms.record_spoken(0, 1, epoch=epoch) == first
    with pytest.raises(errors.SessionTakenOverError):
        rooms.record_spoken(2, epoch=1)
    assert rooms.record_spoken(2, epoch=epoch)[0].room_index == 2


def test_a_late_repeat_of_a_cut_that_is_not_needed_enters_nothing(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0, 1)
    rooms.record_spoken(2, first_index=2)
    assert rooms.record_spoken(0, 1) == [Spoken(-1, (), False)] * 2
    assert rooms.keep_rooms()[0].next_index == 3
    assert rooms.cuts() == {2: cut(2)}


def test_a_room_that_refuses_leaves_the_session_as_it_was(rooms: RoomScripts) -> None:
    rooms.record_spoken(0)
    before = rooms.fields(), rooms.cuts()
    rooms.close()
    with pytest.raises(errors.RoomClosedError):
        rooms.record_spoken(1, first_index=1)
    with pytest.raises(errors.RoomNotFoundError):
        rooms.record_spoken(1, room_id="none", first_index=1)
    assert (rooms.fields(), rooms.cuts()) == before
    # What is no cut concerns only the session.
    assert rooms.record_spoken(first_index=1) == []
    assert rooms.cuts() == {}


def test_what_a_room_said_of_a_cut_goes_together_with_the_cut(rooms: RoomScripts) -> None:
    def kept() -> set[str]:
        return {name.decode() for name in rooms.client.hkeys(rooms.key("session", "s"))}

    rooms.record_spoken(0, 1, 2)
    rooms.record_spoken(3, first_index=2)
    assert {each for each in kept() if ":" in each} == {"cut:2", "cut:3", "said:2", "said:3"}
    # Whichever script it is, and however many there are.
    assert rooms.record(first=3) == "ok"
    assert {each for each in kept() if ":" in each} == {"cut:3", "said:3"}
    rooms.record_spoken(*range(4, 150))
    assert rooms.record(5_000, first=5_000) == "ok"
    assert {each for each in kept() if ":" in each} == {"cut:5000"}


# Outcomes.


def test_outcomes_come_out_in_the_order_in_which_they_were_said(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"), gateway="g2")
    rooms.record_spoken(0, 1, 2, 3)
    rooms.take_news()
    assert [rooms.put(index) for index in (2, 1)] == ["waiting"] * 2
    assert (rooms.read(), rooms.take_news()) == ([], [])
    assert rooms.put(0) == "published"
    assert rooms.read() == [entry(0, None), entry(1, 0), entry(2, 1)]
    assert sorted(rooms.take_news()) == [("g1", "r de"), ("g2", "r de")]
    assert rooms.put(3) == "published"
    assert rooms.read(start=3) == [entry(3, 2)]
    assert rooms.keys("room:r:lane:") == rooms.keys("room:r:waiting") == set()


def test_a_slow_language_delays_only_itself(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"))
    rooms.join_room(listener("b", "fr"))
    rooms.record_spoken(0, 1)
    assert [rooms.put(index, language="fr") for index in (0, 1)] == ["published"] * 2
    assert rooms.put(1, language="de") == "waiting"
    assert rooms.read("fr") == [entry(0, None), entry(1, 0)]


def test_the_first_outcome_counts_and_its_repeat_is_recognized(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0, 1)
    assert [rooms.put(1, b"one"), rooms.put(1, b"one"), rooms.put(1, b"two")] == [
        *("waiting", "waiting", "late"),
    ]
    assert [rooms.put(0, b"one"), rooms.put(0, b"one"), rooms.put(0, b"two")] == [
        *("published", "published", "late"),
    ]
    assert rooms.put(1, b"one") == "published"
    assert rooms.read() == [entry(0, None, b"one"), entry(1, 0, b"one")]


def test_the_chain_of_a_language_leaves_out_what_was_not_said_in_it(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"))
    rooms.record_spoken(0)
    rooms.leave_room("a")
    rooms.record_spoken(1, 2)
    rooms.join_room(listener("a", "de"))
    rooms.record_spoken(3)
    rooms.put(0)
    rooms.put(3)
    assert rooms.read() == [entry(0, None), entry(3, 0)]


def test_only_so_many_captions_are_kept_and_the_chain_does_not_break(
    client: redis.Redis, prefix: str
) -> None:
    rooms = RoomScripts(client, prefix, rules=RoomRules(captions_max=2))
    rooms.create()
    rooms.open_session()
    rooms.join_room(listener("a"))
    rooms.record_spoken(*range(5))
    for index in range(5):
        rooms.put(index)
    assert rooms.read() == [entry(3, 2), entry(4, 3)]
    # What is no longer kept cannot be recognized as a repeat, but comes out no more.
    assert rooms.put(1) == "late"
    forget(client, prefix)


def test_outcomes_are_read_from_any_index_on_or_only_the_newest(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(*range(6))
    for index in range(6):
        rooms.put(index, speech=b"x", original=b"y")

    def read(**how: Any) -> list[int]:
        return [each.index for each in rooms.read(**how)]

    assert read(start=2, count=2) == [2, 3]
    assert read(newest=True, count=2) == [4, 5]
    assert read(newest=True, start=5, count=4) == [5]
    assert read(start=6) == read(language="fr") == []
    assert rooms.read(start=5) == [Entry(5, 4, said(5), b"x", b"y")]
    assert rooms.read(start=5, with_speech=False) == [entry(5, 4)]


def test_speech_is_kept_for_a_while_after_its_outcome_is_out(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0, 1)
    rooms.put(1, speech=b"x", original=b"y")
    # However long it has to wait.
    rooms.advance(3 * RULES.speech_ms)
    rooms.put(0, speech=b"x")
    rooms.advance(RULES.speech_ms - 1)
    assert [(each.speech, each.original) for each in rooms.read()] == [(b"x", b""), (b"x", b"y")]
    rooms.advance(1)
    assert rooms.read() == [entry(0, None), entry(1, 0)]
    assert rooms.keys("room:r:speech") == rooms.keys("room:r:original") == set()


def test_it_is_known_which_outcomes_are_left_to_put(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a", "de"))
    rooms.join_room(listener("b", "fr"))
    rooms.record_spoken(0, 1, 2)
    rooms.put(0, language="de")
    rooms.put(2, language="de")
    wanted = [(index, language) for index in range(3) for language in ("de", "fr")]
    assert rooms.left(*wanted) == {(1, "de"), (0, "fr"), (1, "fr"), (2, "fr")}


def test_an_utterance_that_nobody_answers_for_becomes_missing(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"), gateway="g2")
    rooms.record_spoken(0, 1)
    rooms.advance(1000)
    rooms.record_spoken(2)
    rooms.put(2)
    for _ in range(RULES.due_ms // 5000 - 1):
        rooms.advance(5000)
        rooms.keep_rooms(gateway="g1")
        rooms.keep_rooms(gateway="g2")
    rooms.advance(3999)
    assert rooms.read() == []
    rooms.advance(1)
    rooms.take_news()
    rooms.keep_rooms(gateway="g2", expire=False)
    assert (rooms.read(), rooms.take_news()) == ([], [])
    rooms.keep_rooms(gateway="g2")
    assert rooms.read() == [entry(0, None, b""), entry(1, 0, b""), entry(2, 1)]
    assert sorted(rooms.take_news()) == [("g1", "r de"), ("g2", "r de")]
    assert rooms.put(0) == "late"


def test_no_call_makes_more_than_a_hundred_utterances_missing(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(*range(150))
    rooms.advance(RULES.due_ms)
    rooms.keep_rooms()
    assert len(rooms.read()) == 100
    rooms.keep_rooms()
    assert len(rooms.read()) == 150


# After a failover that lost the last calls.


def test_an_outcome_of_an_utterance_that_redis_has_forgotten_is_accepted(
    rooms: RoomScripts,
) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0)
    assert rooms.put(3) == "waiting"
    assert rooms.put(0) == "published"
    assert rooms.put(5) == "published"
    assert rooms.put(4) == "late"
    assert rooms.read() == [entry(0, None), entry(3, 0), entry(5, 3)]
    # The room indexes of what it had forgotten are not given again.
    assert rooms.record_spoken(1)[0].room_index == 6


def test_the_next_room_index_is_at_least_what_a_gateway_remembers(rooms: RoomScripts) -> None:
    assert rooms.keep_rooms(("r", 7)) == [KeptRoom("ok", 7, 1, 1)]
    assert rooms.keep_rooms(("r", 3)) == [KeptRoom("ok", 7, 1, 1)]
    assert rooms.record_spoken(0, floor=5)[0].room_index == 7
    assert rooms.record_spoken(1, floor=12)[0].room_index == 12


def test_a_room_that_was_restored_too_low_breaks_nothing(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0)
    rooms.put(8)
    rooms.put(0)
    rooms.client.hset(rooms.key("room", "r"), "next", 5)
    rooms.record_spoken(1, 2)
    rooms.record_spoken(3, floor=9)
    assert [rooms.put(5), rooms.put(9)] == ["late", "waiting"]
    rooms.advance(RULES.due_ms)
    rooms.keep_rooms()
    assert rooms.read() == [entry(0, None), entry(8, 0), entry(9, 8)]
    assert rooms.keys("room:r:lane:") == set()


def test_a_restored_room_has_no_outcomes_from_before(rooms: RoomScripts) -> None:
    rooms.join_room(listener("a"))
    rooms.record_spoken(0, 1)
    rooms.put(0)
    rooms.client.delete(rooms.key("room", "r"))
    rooms.create(next_index=1)
    assert (rooms.read(), rooms.keys("room:r:lane")) == ([], set())


def test_indexes_of_any_size_are_kept_exactly(rooms: RoomScripts) -> None:
    large = 2**53 - 5
    rooms.join_room(listener("a"))
    assert rooms.record_spoken(0, 1, floor=large) == [
        Spoken(large, (("de", False),), False),
        Spoken(large + 1, (("de", False),), False),
    ]
    assert [rooms.put(large + 1), rooms.put(large)] == ["waiting", "published"]
    assert rooms.read(start=large) == [entry(large, None), entry(large + 1, large)]
    assert rooms.record_spoken(1)[0].room_index == large + 1


# Cost.


def test_what_is_said_costs_the_same_however_many_listen(client: redis.Redis, prefix: str) -> None:
    rooms = RoomScripts(client, prefix, real_clock=True)
    costs = []
    for room_id, listeners in (("few", 2), ("many", 1500)):
        rooms.create(room_id)
        session = f"s-{room_id}"
        rooms.open_session(session)
        rooms.join_room(speaker(session), room_id=room_id)
        for number in range(listeners):
            member = listener(f"m{number}", ("de", "fr")[number % 2], "cs")
            rooms.join_room(member, room_id=room_id, gateway=("g1", "g2")[number % 2])
        spent = []
        for index in range(3):
            rooms.commands()
            rooms.record_spoken(index, session_id=session, room_id=room_id)
            spent.append(rooms.commands())
            for language in ("de", "fr"):
                assert (
                    rooms.put(index, language=language, room_id=room_id, speech=b"x") == "published"
                )
                spent.append(rooms.commands())
            rooms.read(room_id=room_id, start=index)
            spent.append(rooms.commands())
        costs.append(spent)
    assert costs[0] == costs[1]
    # The first outcome of a language also sets the lifetime of its stream.
    record, put, _, read = costs[0][4:8]
    assert record <= 16
    # ZRANGE, XREVRANGE, ZREM, SET, XADD, ZRANGE, and one PUBLISH for each of two gateways.
    assert put == 8
    assert read == 2
    forget(client, prefix)


def test_a_session_without_a_room_pays_nothing_for_rooms(client: redis.Redis, prefix: str) -> None:
    rooms = RoomScripts(client, prefix, real_clock=True)
    rooms.open_session()
    rooms.record(0, 1, 2)
    rooms.commands()
    rooms.record(3, seen=2)
    # HMGET, HDEL, HSET, PEXPIRE.
    assert rooms.commands() == 4
    rooms.record(4, seen=2)
    assert rooms.commands() == 3
    forget(client, prefix)
