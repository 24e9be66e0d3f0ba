"""The record of a session: who may change it, what is kept of it, and for how long."""

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import batched
from .scripts import START_MS, Placed, Refused
from .session_scripts import (
    KEEP,
    NOT_FOUND,
    OK,
    TAKEN_OVER,
    TOKEN,
    TTL_MS,
    SessionScripts,
    Taken,
    counting_scripts,
    cut,
)


@pytest.fixture
def sessions(client: redis.Redis, prefix: str) -> Iterator[SessionScripts]:
    """The scripts on a prefix of the test's own, which is empty again afterwards."""
    yield SessionScripts(client, prefix)
    forget(client, prefix)


@pytest.fixture
def counted(client: redis.Redis, prefix: str) -> Iterator[SessionScripts]:
    """The same, with every word that they exchange with Redis counted."""
    yield counting_scripts(client, prefix)
    forget(client, prefix)


def forget(client: redis.Redis, prefix: str) -> None:
    for keys in batched(client.scan_iter(f"{prefix}:*", count=10_000), 1_000):
        client.unlink(*keys)


def kept(*indexes: int) -> dict[int, bytes]:
    return {index: cut(index) for index in indexes}


# Opening.


def test_a_new_session_has_a_record_with_nothing_in_it_yet(sessions: SessionScripts) -> None:
    assert sessions.open_session() == OK
    assert sessions.fields() == {
        "epoch": b"1",
        "gateway": b"g1",
        "token": TOKEN.encode(),
        "tenant": b"t1",
        "opened": b"\x00opened\xff",
        "opened_ms": str(START_MS).encode(),
        "last_chunk_ms": b"0",
        "next": b"0",
        "seen": b"0",
        "acked": b"0",
        "results": b"0",
        "missing": b"0",
        "low": b"0",
    }
    assert sessions.cuts() == {}


def test_a_lost_session_is_written_again_as_it_was(sessions: SessionScripts) -> None:
    cuts = kept(41, 42, 43)
    lost: dict[str, Any] = {"epoch": 3, "opened_ms": 7, "next_index": 44, "acked": 900}
    assert sessions.open_session(**lost, cuts=cuts) == OK
    assert sessions.taken() == Taken(4, b"\x00opened\xff", 7, 44, 0, 0, 0, 900, cuts)


def test_a_cut_at_or_over_the_next_index_moves_it(sessions: SessionScripts) -> None:
    sessions.open_session(epoch=2, next_index=5, cuts=kept(4, 5, 6))
    assert sessions.taken().next_index == 7


def test_a_repeated_opening_changes_nothing(sessions: SessionScripts) -> None:
    sessions.open_session(epoch=2, next_index=4, cuts=kept(2, 3))
    before = sessions.fields()
    sessions.advance(1000)
    assert sessions.open_session(epoch=2, next_index=4, cuts=kept(2, 3)) == OK
    assert (sessions.fields(), sessions.cuts()) == (before, kept(2, 3))
    assert sessions.expires_ms() == TTL_MS


def test_a_late_repeat_of_the_opening_takes_back_nothing(sessions: SessionScripts) -> None:
    sessions.open_session(epoch=2, next_index=4, acked=10, cuts=kept(2, 3))
    sessions.record(4, 5, epoch=2, seen=4, results=3, missing=1, last_chunk_ms=9, acked=20)
    before = sessions.fields()
    assert sessions.open_session(epoch=2, next_index=4, acked=10, cuts=kept(2, 3)) == OK
    assert (sessions.fields(), sessions.cuts()) == (before, kept(4, 5))


def test_a_repeated_opening_adds_what_was_cut_since_its_first_try(
    sessions: SessionScripts,
) -> None:
    sessions.open_session(epoch=2, next_index=4, cuts=kept(2, 3))
    assert sessions.open_session(epoch=2, next_index=5, acked=8, cuts=kept(2, 3, 4)) == OK
    assert sessions.taken()[3:] == (5, 0, 0, 0, 8, kept(2, 3, 4))


@pytest.mark.parametrize(
    "other",
    [{"epoch": 1}, *({"epoch": epoch, "token": "another"} for epoch in (1, 2, 3))],
)
def test_a_record_of_a_later_epoch_or_another_owner_is_never_written_over(
    sessions: SessionScripts, other: dict[str, Any]
) -> None:
    sessions.open_session(epoch=2, next_index=3, cuts=kept(2))
    before = sessions.fields()
    assert sessions.open_session(**{"epoch": 2, **other}, next_index=9, cuts=kept(8)) == TAKEN_OVER
    assert (sessions.fields(), sessions.cuts()) == (before, kept(2))


def test_more_cuts_than_one_command_can_take_are_written_and_taken(
    sessions: SessionScripts,
) -> None:
    many = kept(*range(20_000))
    sessions.open_session(epoch=2, next_index=20_000, cuts=many)
    assert sessions.taken().cuts == many
    assert sessions.record(epoch=3, seen=20_000) == OK
    assert sessions.cuts() == {}


# Taking over.


def test_a_session_is_taken_with_all_that_its_last_gateway_wrote(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.advance(5000)
    sessions.record(0, 1, 2, results=1, missing=1, last_chunk_ms=77)
    sessions.record(3, seen=2, results=2, missing=1, first=1, acked=300)
    assert sessions.taken(gateway="g2") == Taken(
        2, b"\x00opened\xff", START_MS, 4, 2, 2, 1, 300, kept(1, 2, 3)
    )
    assert sessions.fields()["gateway"] == b"g2"
    assert sessions.fields()["last_chunk_ms"] == b"77"


def test_cuts_come_in_rising_order_of_their_numbers_not_their_digits(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    sessions.record(*range(12))
    assert list(sessions.taken().cuts) == list(range(12))


def test_every_take_over_raises_the_epoch_also_a_repeated_one(sessions: SessionScripts) -> None:
    sessions.open_session()
    assert [sessions.taken(gateway="g2").epoch for _ in range(3)] == [2, 3, 4]


def test_a_session_of_another_tenant_is_not_taken_and_not_touched(
    sessions: SessionScripts,
) -> None:
    sessions.open_session(tenant="t1")
    before = sessions.fields()
    for tenant in ("t2", "t", "T1"):
        assert sessions.take(tenant=tenant) == NOT_FOUND
    assert sessions.fields() == before
    assert isinstance(sessions.take(tenant="t1"), Taken)


def test_a_wrong_token_is_answered_as_if_there_were_no_session(sessions: SessionScripts) -> None:
    sessions.open_session()
    before, expires = sessions.fields(), sessions.expires_ms()
    for token in ("wrong", "", TOKEN[:-1], TOKEN.upper()):
        assert sessions.take(token=token) == sessions.take("none", token=token) == NOT_FOUND
    assert (sessions.fields(), sessions.expires_ms()) == (before, expires)
    assert sessions.fields("none") == {}


def test_the_turn_of_a_session_cannot_be_taken_for_one(sessions: SessionScripts) -> None:
    sessions.join("n1")
    sessions.place("j1", session="s", utterance=1, reason=3)
    assert sessions.turn("s") != {}
    assert [sessions.take("s:zh:en", token=token) for token in ("", TOKEN)] == [NOT_FOUND] * 2


# Who may change it.


def test_a_gateway_that_lost_the_session_can_change_nothing(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0)
    sessions.taken()
    before, expires = sessions.fields(), sessions.expires_ms()
    sessions.advance(1000)
    assert sessions.record(0, 1, seen=1, results=1) == TAKEN_OVER
    assert sessions.leave(seen=1) == TAKEN_OVER
    assert sessions.keep(("s", 1)) == [TAKEN_OVER]
    assert sessions.end() == TAKEN_OVER
    assert sessions.open_session() == TAKEN_OVER
    assert (sessions.fields(), sessions.cuts()) == (before, kept(0))
    assert sessions.expires_ms() == expires - 1000


def test_the_same_gateway_is_fenced_off_by_its_own_take_over(sessions: SessionScripts) -> None:
    sessions.open_session(gateway="g1")
    sessions.taken(gateway="g1")
    assert [sessions.record(0, epoch=epoch) for epoch in (1, 2)] == [TAKEN_OVER, OK]


def test_what_is_gone_is_said_to_be_gone(sessions: SessionScripts) -> None:
    assert sessions.record(0) == sessions.leave() == NOT_FOUND
    assert sessions.keep(("s", 1)) == [NOT_FOUND]
    assert sessions.client.exists(sessions.key("session", "s")) == 0
    assert sessions.end() == OK


def test_after_a_take_over_the_old_gateway_can_create_no_job(sessions: SessionScripts) -> None:
    sessions.join("n1")
    sessions.open_session()
    first = sessions.allocate("j1", session="s", session_epoch=1)
    epoch = sessions.taken().epoch
    refused = sessions.allocate("j2", session="s", session_epoch=1)
    second = sessions.allocate("j2", session="s", session_epoch=epoch)
    assert isinstance(first, Placed)
    assert refused == Refused(TAKEN_OVER, {})
    assert isinstance(second, Placed)


def test_a_try_that_gets_through_late_takes_nothing_from_a_later_one(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    later = sessions.take(gateway="g2", tries=2)
    assert isinstance(later, Taken)
    assert sessions.take(gateway="g3", tries=1) == TAKEN_OVER
    assert sessions.record(0, epoch=later.epoch) == "ok"
    # The same once more, the next one, and one of a client that does not count.
    for tries in (2, 3, 0, 1):
        assert isinstance(sessions.take(gateway="g3", tries=tries), Taken)


# What a failover has left: a record from before the last take-over.


def fail_over(sessions: SessionScripts, *, to_epoch: int) -> None:
    """Takes the session over up to this epoch; then Redis is as it was before."""
    key = sessions.key("session", "s")
    before = sessions.client.dump(key)
    assert before is not None
    while sessions.taken().epoch < to_epoch:
        pass
    sessions.client.restore(key, 0, before, replace=True)


def write_down(sessions: SessionScripts, *indexes: int, epoch: int) -> str:
    """Records as a gateway does: what is gone is written anew, and then recorded."""
    answer = sessions.record(*indexes, epoch=epoch)
    if answer == NOT_FOUND:
        answer = sessions.open_session(epoch=epoch, gateway=f"g{epoch}")
    return sessions.record(*indexes, epoch=epoch) if answer == OK else answer


def test_to_who_has_the_session_an_older_record_is_none(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0)
    fail_over(sessions, to_epoch=2)
    before, expires = sessions.fields(), sessions.expires_ms()
    sessions.advance(1000)
    assert sessions.record(0, 1, epoch=2, seen=1, results=1, acked=9) == NOT_FOUND
    assert sessions.leave(epoch=2, seen=1) == NOT_FOUND
    assert sessions.keep(("s", 2)) == [NOT_FOUND]
    assert (sessions.fields(), sessions.cuts()) == (before, kept(0))
    assert sessions.expires_ms() == expires - 1000


def test_an_older_record_is_replaced_and_nothing_of_it_is_left(sessions: SessionScripts) -> None:
    sessions.open_session(gateway="g1")
    sessions.record(0, 1, 2, 3, 4, seen=2, results=1, missing=1, last_chunk_ms=9, acked=400)
    fail_over(sessions, to_epoch=2)
    sessions.advance(1000)
    anew: dict[str, Any] = {"epoch": 2, "opened_ms": 7, "next_index": 4, "acked": 300}
    assert sessions.open_session(gateway="g2", **anew, cuts=kept(3)) == OK
    assert (sessions.cuts(), sessions.expires_ms()) == (kept(3), TTL_MS)
    assert sessions.fields()["gateway"] == b"g2"
    assert sessions.fields()["last_chunk_ms"] == b"0"
    assert sessions.taken() == Taken(3, b"\x00opened\xff", 7, 4, 0, 0, 0, 300, kept(3))


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_in_whatever_order_gateways_write_after_a_failover_the_last_to_take_keeps_the_session(
    sessions: SessionScripts, order: Sequence[int]
) -> None:
    sessions.open_session()
    fail_over(sessions, to_epoch=3)
    latest = 0
    for epoch in order:
        expected = OK if epoch > latest else TAKEN_OVER
        latest = max(latest, epoch)
        assert write_down(sessions, 10 * epoch, epoch=epoch) == expected
        assert sessions.fields()["epoch"] == str(latest).encode()
    assert [write_down(sessions, 40, epoch=epoch) for epoch in (1, 2)] == [TAKEN_OVER] * 2
    assert sessions.fields()["gateway"] == b"g3"
    assert sessions.taken().cuts == kept(30)


def test_an_older_record_goes_when_who_has_the_session_ends_it(sessions: SessionScripts) -> None:
    sessions.open_session()
    fail_over(sessions, to_epoch=2)
    assert [sessions.end(epoch=2), sessions.end(epoch=2)] == [OK, OK]
    assert (sessions.fields(), sessions.take()) == ({"epoch": b"3"}, NOT_FOUND)


# Cuts.


def test_cuts_stay_until_nobody_needs_them(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0)
    sessions.record(1, 2)
    assert sessions.cuts() == kept(0, 1, 2)
    sessions.record(3, first=2)
    assert sessions.cuts() == kept(2, 3)
    sessions.record(first=4)
    assert sessions.cuts() == {}
    assert sessions.taken()[3:5] == (4, 0)


def test_a_cut_whose_result_was_seen_stays_while_it_is_needed(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0, 1)
    sessions.record(2, seen=3, first=1)
    assert sessions.taken()[3:] == (3, 3, 0, 0, 0, kept(1, 2))


def test_forgetting_more_than_there_is_stops_no_later_cut(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    sessions.record(0, 1, first=9)
    assert sessions.cuts() == {}
    sessions.record(2)
    assert sessions.taken().cuts == kept(2)


def test_what_is_safe_only_rises(sessions: SessionScripts) -> None:
    sessions.open_session()
    told = [0, 250, 100, 0, 4_000_000_000_000]
    found = []
    for acked in told:
        assert sessions.record(acked=acked) == OK
        found.append(int(sessions.fields()["acked"]))
    assert found == [0, 250, 250, 250, 4_000_000_000_000]
    assert sessions.taken().acked == 4_000_000_000_000


def test_of_too_many_cuts_the_lowest_go(sessions: SessionScripts) -> None:
    sessions.open_session()
    for index in range(8):
        sessions.record(index, keep=3)
    assert sessions.cuts() == kept(5, 6, 7)
    sessions.record(*range(8, 20), keep=3)
    assert sessions.cuts() == kept(17, 18, 19)


def test_a_repeated_record_changes_nothing(sessions: SessionScripts) -> None:
    sessions.open_session()
    arguments: dict[str, Any] = {"seen": 1, "results": 1, "last_chunk_ms": 5, "acked": 7}
    sessions.record(0, 1, 2, **arguments)
    before = sessions.fields()
    assert sessions.record(0, 1, 2, **arguments) == OK
    assert (sessions.fields(), sessions.cuts()) == (before, kept(1, 2))


def test_a_late_repeat_brings_back_no_cut_and_lowers_nothing(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0, 1)
    sessions.record(2, 3, seen=3, first=2, acked=400)
    assert sessions.record(0, 1, acked=100) == OK
    assert sessions.taken()[3:] == (4, 3, 0, 0, 400, kept(2, 3))


def test_cuts_that_arrive_out_of_order_are_all_kept(sessions: SessionScripts) -> None:
    sessions.open_session()
    for index in (2, 0, 3, 1):
        sessions.record(index)
    assert sessions.taken().cuts == kept(0, 1, 2, 3)


def test_a_client_that_claims_to_have_seen_more_than_there_is_stops_no_cut(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    sessions.record(0, 1, seen=4_000_000_000)
    assert sessions.cuts() == {}
    sessions.record(2)
    assert sessions.taken()[3:] == (3, 2, 0, 0, 0, kept(2))


def test_a_renewal_and_the_end_of_a_stream_say_when_audio_last_came(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    assert sessions.keep(("s", 1), last_chunk_ms=START_MS) == [OK]
    assert sessions.fields()["last_chunk_ms"] == str(START_MS).encode()
    assert sessions.leave(last_chunk_ms=START_MS + 1) == OK
    assert sessions.fields()["last_chunk_ms"] == str(START_MS + 1).encode()
    assert sessions.keep(("s", 1)) == [OK]
    assert sessions.leave() == OK
    assert sessions.fields()["last_chunk_ms"] == str(START_MS + 1).encode()


def test_a_time_of_nought_leaves_the_last_chunk_as_it_was(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0, last_chunk_ms=START_MS)
    sessions.record(1)
    assert sessions.fields()["last_chunk_ms"] == str(START_MS).encode()


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 4),
            st.integers(0, 30),
            st.integers(0, 30),
            st.integers(0, 9),
            st.booleans(),
        ),
        min_size=1,
        max_size=12,
    ),
    keep=st.integers(1, 6),
)
@settings(max_examples=60, deadline=None)
def test_the_cuts_that_are_kept_are_the_needed_ones_up_to_the_limit(
    client: redis.Redis, steps: list[tuple[int, int, int, int, bool]], keep: int
) -> None:
    """Each step cuts so many, says what is seen, needed and safe, and may be called twice."""
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    sessions = SessionScripts(client, prefix)
    sessions.open_session()
    following, seen, low, safe = 0, 0, 0, 0
    for count, sees, first, acked, twice in steps:
        indexes = range(following, following + count)
        following += count
        seen = max(seen, min(sees, following))
        low = max(low, min(first, following), following - keep)
        safe = max(safe, acked)
        for _ in range(1 + twice):
            assert sessions.record(*indexes, seen=sees, first=first, acked=acked, keep=keep) == OK
        assert sessions.cuts() == kept(*range(low, following))
    taken = sessions.taken()
    assert (taken.next_index, taken.seen, taken.acked) == (following, seen, safe)
    forget(client, prefix)


# Cost.


def test_a_record_costs_the_same_whatever_the_age_of_the_session(counted: SessionScripts) -> None:
    costs, sizes = [], []
    for session, age in (("young", 500), ("old", 100_000)):
        counted.open_session(session)
        for start in range(0, age, 500):
            counted.record(*range(start, start + 500), session=session, seen=start + 490)
        counted.words()
        counted.record(age, session=session, seen=age - 9, results=age)
        costs.append(counted.words())
        sizes.append(counted.client.hlen(counted.key("session", session)))
    assert costs[0] == costs[1] < 60
    assert sizes == [23, 23]


def test_a_leap_of_the_index_costs_no_more_than_a_step(counted: SessionScripts) -> None:
    counted.open_session()
    counted.record(0, 1, 2)
    counted.words()
    counted.record(3_000_000_000, seen=4_000_000_000)
    assert counted.words() < 60


def test_an_old_session_that_was_written_again_costs_no_more(counted: SessionScripts) -> None:
    counted.open_session(epoch=2, next_index=100_000, cuts=kept(99_998, 99_999))
    counted.words()
    counted.record(100_000, epoch=2, seen=99_999)
    assert counted.words() < 60
    assert counted.cuts() == kept(99_999, 100_000)


def test_a_leap_in_what_was_written_again_costs_no_more(counted: SessionScripts) -> None:
    counted.open_session(epoch=2, next_index=3_000_000_000, cuts=kept(0, 1, 2))
    counted.words()
    counted.record(3_000_000_000, epoch=2)
    assert counted.words() < 80
    assert counted.taken()[3:] == (3_000_000_001, 0, 0, 0, 0, kept(3_000_000_000))


def test_a_client_that_says_nothing_of_its_results_costs_no_more_and_keeps_no_more(
    counted: SessionScripts,
) -> None:
    counted.open_session()
    for start in range(0, 100_000, 500):
        counted.record(*range(start, start + 500))
    counted.words()
    counted.record(100_000)
    assert counted.words() < 60
    assert len(counted.cuts()) == KEEP


# Time.


def test_a_session_that_nobody_speaks_of_is_forgotten(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.advance(TTL_MS - 1)
    assert sessions.record(0) == OK
    sessions.advance(TTL_MS)
    assert (sessions.record(1), sessions.take()) == (NOT_FOUND, NOT_FOUND)


def test_whoever_has_the_session_renews_its_time(sessions: SessionScripts) -> None:
    sessions.open_session()
    renewals = (
        lambda: sessions.record(0),
        lambda: sessions.record(),
        lambda: sessions.keep(("s", 1)),
        lambda: sessions.leave(),
        lambda: sessions.take(),
    )
    for renew in renewals:
        sessions.advance(TTL_MS - 1)
        renew()
        assert sessions.expires_ms() == TTL_MS


def test_many_sessions_are_renewed_at_once_and_each_is_answered_in_order(
    sessions: SessionScripts,
) -> None:
    named = [f"s{number}" for number in range(300)]
    for session in named:
        sessions.open_session(session)
    sessions.taken("s7")
    sessions.end("s9")
    sessions.advance(1000)
    answers = sessions.keep(*((session, 1) for session in named))
    expected = [OK] * 300
    expected[7] = expected[9] = TAKEN_OVER
    assert answers == expected
    assert {sessions.expires_ms(s) for s in named if s not in ("s7", "s9")} == {TTL_MS}
    assert sessions.expires_ms("s7") == sessions.expires_ms("s9") == TTL_MS - 1000
    assert sessions.keep() == []


# Leaving and ending.


def test_a_session_that_was_left_waits_with_all_its_cuts_and_what_its_client_has_seen(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    sessions.record(0, 1, 2, acked=50)
    for _ in range(2):
        assert sessions.leave(seen=2, results=1, missing=1) == OK
        assert sessions.fields()["gateway"] == b""
        assert sessions.cuts() == kept(0, 1, 2)
    assert sessions.taken(gateway="g2")[3:] == (3, 2, 1, 1, 50, kept(0, 1, 2))
    assert sessions.fields()["gateway"] == b"g2"


def test_a_session_that_was_left_is_still_its_gateways_until_it_is_taken(
    sessions: SessionScripts,
) -> None:
    sessions.open_session()
    sessions.leave()
    assert sessions.record(0) == OK
    assert sessions.fields()["gateway"] == b""


def test_an_ended_session_is_gone_and_ending_it_again_is_no_error(sessions: SessionScripts) -> None:
    sessions.open_session()
    sessions.record(0)
    assert [sessions.end(), sessions.end()] == [OK, OK]
    assert sessions.take() == NOT_FOUND
    assert (sessions.fields(), sessions.cuts()) == ({"epoch": b"2"}, {})
    assert sessions.expires_ms() == TTL_MS


def test_a_gateway_that_lost_a_session_before_its_end_cannot_bring_it_back(
    sessions: SessionScripts,
) -> None:
    sessions.join("n1")
    sessions.open_session()
    epoch = sessions.taken().epoch
    assert sessions.end(epoch=epoch) == OK
    assert sessions.record(0) == sessions.leave() == sessions.open_session() == TAKEN_OVER
    assert sessions.open_session(epoch=epoch) == TAKEN_OVER
    assert sessions.end() == OK
    assert sessions.allocate("j1", session="s", session_epoch=epoch) == Refused(TAKEN_OVER, {})
    assert sessions.take() == NOT_FOUND


def test_sessions_have_nothing_to_do_with_each_other(sessions: SessionScripts) -> None:
    sessions.open_session("a")
    sessions.open_session("b", token="another")
    sessions.record(0, session="a")
    before = sessions.fields("b")
    sessions.taken("a")
    sessions.end("a", epoch=2)
    assert (sessions.fields("b"), sessions.cuts("b")) == (before, {})


# The set of all sessions.


def test_a_session_of_any_tenant_is_listed_until_it_ends(sessions: SessionScripts) -> None:
    sessions.open_session("a", tenant="t1")
    sessions.open_session("b", tenant="t2")
    sessions.open_session("c", tenant="")
    assert set(sessions.listed()) == {"a", "b", "c"}
    sessions.taken("b")
    assert sessions.end("b") == TAKEN_OVER
    assert set(sessions.listed()) == {"a", "b", "c"}
    sessions.end("b", epoch=2)
    sessions.end("c")
    assert set(sessions.listed()) == {"a"}
    sessions.end("a")
    assert not sessions.client.exists(sessions.key("sessions"))


def test_whoever_renews_a_session_renews_its_entry(sessions: SessionScripts) -> None:
    sessions.open_session()
    for renew in (
        lambda: sessions.keep(("s", 1)),
        lambda: sessions.leave(),
        lambda: sessions.take(),
        lambda: sessions.open_session(epoch=2),
    ):
        sessions.advance(1000)
        renew()
        assert sessions.listed() == {"s": sessions.now + TTL_MS}


def test_one_command_renews_the_entries_of_many_sessions(sessions: SessionScripts) -> None:
    named = [(f"s{number}", 1) for number in range(200)]
    for session, _ in named:
        sessions.open_session(session)
    sessions.client.delete(sessions.key("sessions"))

    def added(*kept: tuple[str, int]) -> int:
        before = _calls(sessions.client, "zadd")
        assert set(sessions.keep(*kept)) == {OK}
        return _calls(sessions.client, "zadd") - before

    # A lifetime on the tests' clock is a ZADD: each further session has only that of its record.
    assert added(*named) - added(named[0]) == len(named) - 1
    assert len(sessions.listed()) == len(named)


def _calls(client: redis.Redis, command: str) -> int:
    facts: Any = client.info("commandstats")
    return int(facts[f"cmdstat_{command}"]["calls"])


def test_only_sessions_that_were_kept_are_listed_again(sessions: SessionScripts) -> None:
    sessions.open_session("mine")
    sessions.open_session("taken")
    sessions.taken("taken")
    sessions.client.delete(sessions.key("sessions"))
    assert sessions.keep(("mine", 1), ("taken", 1), ("gone", 1)) == [OK, TAKEN_OVER, NOT_FOUND]
    assert set(sessions.listed()) == {"mine"}


def test_expired_entries_go_faster_than_new_ones_come(sessions: SessionScripts) -> None:
    for number in range(250):
        sessions.open_session(f"old-{number}")
    sessions.advance(TTL_MS)
    left = []
    for number in range(3):
        sessions.open_session(f"new-{number}")
        left.append(len(sessions.listed()))
    assert left == [151, 52, 3]
