"""The session's protocol: opening, results, chunks and closing."""

import pytest

from lingua_scheduler.sdk import (
    SessionLostError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved, Refused
from lingua_scheduler.sdk.session.events import Problem, Result
from lingua_scheduler.sdk.session.protocol.effects import Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.machine import MAX_FAULTS
from lingua_scheduler.sdk.session.protocol.retry import ANSWER_S, OPEN_S
from lingua_scheduler.sdk.session.protocol.stream import CONFIRM_S
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage
from tests.unit.sdk.session_driver import INVALID, NOT_FOUND, Driver, error_in, given, kind, retries
from tests.unit.sdk.session_peer import ack, closed, failed, finalized, go_away, opened, result

# ---- opening ----


def test_nothing_is_said_before_opened_but_open() -> None:
    driver = Driver()
    driver.protocol.state.kept.add(b"00")
    driver.protocol.close()
    driver.protocol.on_connected(driver.now)
    (first,) = driver.drain()
    assert first.open.new.tenant == "t"
    driver.say(opened())
    assert [kind(each) for each in driver.drain()] == ["audio", "close"]


def test_an_open_that_was_never_answered_is_a_new_one_next_time() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    assert driver.tick(ANSWER_S) == [Close(Lost("Open was not answered in time", silent=True))]
    assert driver.protocol.next_deadline() is None
    driver.lose(Lost("Open was not answered in time"))
    driver.protocol.on_connected(driver.now)
    assert driver.drain()[0].open.HasField("new")


def test_the_first_connection_is_tried_for_a_while_and_then_given_up() -> None:
    driver = Driver()
    effects: list[SessionEffect] = []
    while not effects or retries(effects):
        driver.protocol.on_connected(driver.now)
        effects = driver.lose(Lost("nobody there"))
        driver.now += 1
    error = error_in(effects)
    assert isinstance(error, SessionUnavailableError)
    assert "last: nobody there" in str(error)
    assert OPEN_S < driver.now - 100 < OPEN_S + 3


@pytest.mark.parametrize(
    "reason",
    [
        INVALID,
        common_pb2.ERROR_REASON_UNAUTHENTICATED,
        common_pb2.ERROR_REASON_PERMISSION_DENIED,
    ],
)
def test_what_trying_again_would_not_change_is_refused_at_open_and_lost_at_resume(
    reason: common_pb2.ErrorReason.ValueType, open_one: Driver
) -> None:
    assert isinstance(error_in(Driver().refuse(reason)), SessionRefusedError)
    assert retries(open_one.lose())
    assert isinstance(error_in(open_one.refuse(reason)), SessionLostError)


def test_a_server_that_asks_for_patience_gets_it() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    driver.say(failed(common_pb2.ERROR_REASON_QUOTA_EXCEEDED, retry_after_ms=4000))
    (retry,) = driver.lose()
    assert isinstance(retry, Retry)
    assert retry.after >= 4


def test_a_quota_that_has_room_too_late_is_said_at_once() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    driver.say(failed(common_pb2.ERROR_REASON_QUOTA_EXCEEDED, retry_after_ms=60_000))
    error = error_in(driver.lose())
    assert isinstance(error, SessionUnavailableError)
    assert (error.reason, error.retry_after) == ("QUOTA_EXCEEDED", 60.0)
    assert "no" in error.message


def test_an_open_session_over_its_quota_hears_of_it_and_does_not_wait_after_a_break(
    open_one: Driver,
) -> None:
    told = open_one.say(failed(common_pb2.ERROR_REASON_QUOTA_EXCEEDED, retry_after_ms=60_000))
    (problem,) = given(told)
    assert isinstance(problem, Problem)
    assert problem.reason == "QUOTA_EXCEEDED"
    (after,) = [each.after for each in open_one.lose() if isinstance(each, Retry)]
    assert after < 1


# ---- results ----


def test_a_result_is_confirmed_with_what_is_said_next_and_only_once(open_one: Driver) -> None:
    open_one.say(result(0))
    open_one.protocol.state.kept.add(b"00")
    open_one.protocol.state.kept.add(b"11")
    assert [each.results_seen for each in open_one.drain()] == [1, 0]
    assert open_one.protocol.next_deadline() is None


def test_results_are_confirmed_alone_when_the_time_of_the_first_has_come(open_one: Driver) -> None:
    open_one.say(result(0))
    open_one.tick(CONFIRM_S / 2)
    open_one.say(result(1))
    assert open_one.drain() == []
    open_one.tick(CONFIRM_S * 0.6)
    assert open_one.drain() == [ClientMessage(results_seen=2)]
    assert open_one.protocol.next_deadline() is None


def test_a_hole_in_the_results_is_told_and_asked_for_again(open_one: Driver) -> None:
    effects = open_one.say(result(0), result(2), result(1))
    events = given(effects)
    assert [type(each) for each in events] == [Result, Problem]
    assert isinstance(effects[-1], Close)
    open_one.lose(effects[-1].ending)
    open_one.protocol.on_connected(open_one.now)
    assert open_one.drain()[0].open.resume.results_seen == 1


def test_a_server_that_never_keeps_its_promise_is_given_up() -> None:
    driver = Driver()
    for _ in range(MAX_FAULTS):
        driver.connect()
        (*_, close) = driver.say(result(1))
        assert isinstance(close, Close)
        effects = driver.lose(close.ending)
    assert error_in(effects).reason == "BROKEN_PROMISE"


def test_closed_too_early_is_asked_again(open_one: Driver) -> None:
    open_one.protocol.close()
    open_one.drain()
    (*_, close) = open_one.say(result(0), closed(2))
    assert isinstance(close, Close)
    assert isinstance(close.ending, Lost)
    open_one.lose(close.ending)
    assert open_one.connect() == ["open", "close"]
    assert Over() in open_one.say(result(1), closed(2))


# ---- chunks ----


def test_what_a_resumed_stream_does_not_want_is_safe(open_one: Driver) -> None:
    for data in (b"00", b"11"):
        open_one.protocol.state.kept.add(data)
    open_one.drain()
    open_one.lose()
    open_one.protocol.on_connected(open_one.now)
    assert open_one.drain()[0].open.resume.next_seq == 0
    open_one.say(opened(next_seq=1))
    assert [each.audio.data for each in open_one.drain()] == [b"11"]
    assert len(open_one.protocol.state.kept) == 1


def test_an_ack_of_what_was_never_sent_forgets_nothing(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00")
    open_one.drain()
    open_one.protocol.state.kept.add(b"11")
    open_one.say(ack(7))
    assert [each.audio.data for each in open_one.drain()] == [b"11"]
    assert len(open_one.protocol.state.kept) == 1


def test_a_gap_that_is_none_of_ours_is_filled_with_the_same_audio(open_one: Driver) -> None:
    for data in (b"00", b"11", b"22"):
        open_one.protocol.state.kept.add(data)
    open_one.drain()
    bad = common_pb2.ERROR_REASON_BAD_AUDIO
    open_one.say(failed(bad, seq="2", expected_seq="1"))
    assert [each.audio.data for each in open_one.drain()] == [b"11", b"22"]


def test_a_chunk_is_sent_again_empty_whatever_the_reason_of_its_refusal(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00", client_ms=2**60)
    open_one.protocol.state.kept.add(b"11")
    open_one.drain()
    refusal = failed(common_pb2.ERROR_REASON_INVALID_MESSAGE, seq="0", expected_seq="0")
    assert [type(effect) for effect in open_one.say(refusal)] == [Give]
    again = [each.audio for each in open_one.drain()]
    assert [(each.seq, each.data, each.client_ms) for each in again] == [(0, b"", 0), (1, b"11", 0)]
    # There is nothing left to change: the app is told, and nothing is sent for ever.
    assert [type(effect) for effect in open_one.say(refusal)] == [Give]
    assert open_one.drain() == []
    # The stream was kept, so the refusal is not why it ends later.
    assert isinstance(open_one.protocol.ending(open_one.now), Lost)


def test_a_chunk_that_was_sent_again_because_of_a_gap_may_be_refused(open_one: Driver) -> None:
    for data in (b"00", b"11"):
        open_one.protocol.state.kept.add(data)
    open_one.drain()
    bad = common_pb2.ERROR_REASON_BAD_AUDIO
    open_one.say(failed(bad, seq="1", expected_seq="0"))
    assert [each.audio.data for each in open_one.drain()] == [b"00", b"11"]
    open_one.say(failed(bad, seq="0", expected_seq="0"))
    assert [each.audio.data for each in open_one.drain()] == [b"", b"11"]


def test_a_refusal_with_an_absurd_sequence_number_is_only_told(open_one: Driver) -> None:
    refusal = failed(common_pb2.ERROR_REASON_BAD_AUDIO, seq="1", expected_seq="9" * 5000)
    assert [type(effect) for effect in open_one.say(refusal)] == [Give]


@pytest.mark.parametrize("field", ["session_id", "resume_token"])
def test_a_session_that_is_opened_without_its_keys_is_not_open(field: str) -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    event = opened()
    event.opened.ClearField(field)
    (problem, close) = driver.say(event)
    assert isinstance(problem, Give)
    assert isinstance(close, Close)
    assert not driver.protocol.opened
    assert driver.protocol.state.session_id == ""


def test_gateways_that_send_clients_away_unopened_get_a_backoff(open_one: Driver) -> None:
    waits: list[float] = []
    open_one.lose()
    for _ in range(8):
        open_one.protocol.on_connected(open_one.now)
        open_one.drain()
        open_one.say(go_away())
        (retry,) = open_one.lose(Moved(0.0, "draining"))
        assert isinstance(retry, Retry)
        waits.append(retry.after)
    assert max(waits) > 0.5


def test_playback_that_began_and_ended_unsaid_is_not_said(open_one: Driver) -> None:
    open_one.protocol.state.playing = True
    open_one.protocol.state.playing = False
    assert open_one.drain() == []


# ---- the end ----


def test_closed_is_answered_with_a_last_confirmation(open_one: Driver) -> None:
    open_one.protocol.close()
    assert [kind(each) for each in open_one.drain()] == ["close"]
    effects = open_one.say(result(0), closed(1))
    assert effects[-2:] == [Over(), Close(Left(), graceful=True)]
    assert open_one.drain() == [ClientMessage(results_seen=1)]
    assert open_one.lose(Left()) == []


def test_a_session_that_is_forgotten_after_all_was_done_is_closed(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00")
    open_one.protocol.close()
    open_one.drain()
    open_one.say(finalized(0), ack(1), result(0))
    open_one.lose()
    assert open_one.refuse(NOT_FOUND) == [Over()]


def test_a_session_that_is_forgotten_while_a_result_is_awaited_is_lost(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00")
    open_one.protocol.close()
    open_one.drain()
    open_one.say(finalized(0), ack(1))
    open_one.lose()
    assert error_in(open_one.refuse(NOT_FOUND)).reason == "SESSION_NOT_FOUND"


def test_audio_that_came_too_late_for_a_server_that_closes_is_named_as_lost(
    open_one: Driver,
) -> None:
    open_one.protocol.state.kept.add(b"0011")
    open_one.drain()
    error = error_in(open_one.say(closed()))
    assert isinstance(error, SessionLostError)
    assert (error.reason, error.unacknowledged_chunks, error.unacknowledged_bytes) == (
        "CLOSED",
        1,
        4,
    )


def test_the_last_word_of_a_gateway_says_why_the_stream_ended(open_one: Driver) -> None:
    open_one.say(failed(common_pb2.ERROR_REASON_DRAINING))
    ending = open_one.protocol.ending(open_one.now)
    assert isinstance(ending, Refused)
    open_one.say(ack(0))
    assert isinstance(open_one.protocol.ending(open_one.now), Lost)
