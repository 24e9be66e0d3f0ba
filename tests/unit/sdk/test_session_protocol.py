"""The client's side of Converse, on a virtual clock."""

import random

import pytest

from lingua_scheduler.sdk import (
    SessionError,
    SessionLostError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk._transport.endings import Close, Ending, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import FORGET_S
from lingua_scheduler.sdk._transport.stream_shell import is_going_away
from lingua_scheduler.sdk.session.events import Problem, Reconnecting, Result, Resumed
from lingua_scheduler.sdk.session.protocol.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.machine import LATE_RESUME_S, MAX_FAULTS, SessionProtocol
from lingua_scheduler.sdk.session.protocol.retry import ANSWER_S, OPEN_S
from lingua_scheduler.sdk.session.protocol.stream import CONFIRM_S
from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage, ServerEvent, ServerMessage
from tests.unit.sdk.test_session_peer import ack, closed, failed, finalized, go_away, opened, result

RESUME_S = 20.0
TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
NOT_FOUND = common_pb2.ERROR_REASON_SESSION_NOT_FOUND
DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE


class Driver:
    """A protocol with a clock, and the gateway's ear."""

    def __init__(self, reconnect_seconds: float | None = None) -> None:
        self.now = 100.0
        self.protocol = SessionProtocol(
            new=session_pb2.NewSession(tenant="t"),
            rng=random.Random(1),
            reconnect_seconds=reconnect_seconds,
        )

    def connect(self, **limits: int) -> list[str]:
        """A new stream that is opened; the kinds of what is said on it, Open first."""
        self.protocol.on_connected(self.now)
        heard = self.drain()
        self.say(opened(next_seq=heard[0].open.resume.next_seq, **limits))
        return [kind(each) for each in heard + self.drain()]

    def say(self, *events: ServerEvent) -> list[SessionEffect]:
        return self.protocol.on_message(self.now, ServerMessage(events=events))

    def lose(self, ending: Ending | None = None) -> list[SessionEffect]:
        return self.protocol.on_disconnected(self.now, ending or self.protocol.ending(self.now))

    def refuse(self, reason: common_pb2.ErrorReason.ValueType) -> list[SessionEffect]:
        """The next stream is answered with an error."""
        self.protocol.on_connected(self.now)
        self.drain()
        self.say(failed(reason))
        return self.lose()

    def tick(self, seconds: float) -> list[SessionEffect]:
        self.now += seconds
        due = self.protocol.next_deadline()
        return self.protocol.on_timer(self.now) if due is not None and due <= self.now else []

    def drain(self) -> list[ClientMessage]:
        messages = []
        while (message := self.protocol.take()) is not None:
            messages.append(message)
        return messages


def kind(message: ClientMessage) -> str:
    return message.WhichOneof("message") or "alone"


def error_in(effects: list[SessionEffect]) -> SessionError:
    (error,) = [effect.error for effect in effects if isinstance(effect, Fail)]
    return error


def given(effects: list[SessionEffect]) -> list[object]:
    return [effect.event for effect in effects if isinstance(effect, Give)]


def retries(effects: list[SessionEffect]) -> bool:
    return any(isinstance(effect, Retry) for effect in effects)


@pytest.fixture
def open_one() -> Driver:
    driver = Driver()
    assert driver.connect() == ["open"]
    return driver


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


# ---- streams that end ----


def test_an_outage_is_told_once_and_its_end(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00")
    open_one.drain()
    open_one.protocol.state.kept.add(b"11")
    assert [type(each) for each in given(open_one.lose(Lost("cut")))] == [Reconnecting]
    open_one.now += 1
    open_one.protocol.on_connected(open_one.now)
    assert given(open_one.lose(Lost("refused"))) == []
    open_one.now += 1
    open_one.protocol.on_connected(open_one.now)
    open_one.drain()
    (resumed,) = given(open_one.say(opened()))
    assert resumed == Resumed(away=2.0, chunks_again=1)
    assert [each.audio.data for each in open_one.drain()] == [b"00", b"11"]


def test_a_session_is_looked_for_as_long_as_the_server_keeps_it(open_one: Driver) -> None:
    assert retries(open_one.lose())
    open_one.now += RESUME_S - 0.1
    open_one.protocol.on_connected(open_one.now)
    (retry,) = open_one.lose()
    assert isinstance(retry, Retry)
    assert retry.after <= 0.1
    open_one.now += 0.2
    open_one.protocol.on_connected(open_one.now)
    error = error_in(open_one.lose(Lost("still gone")))
    assert (type(error), error.reason) == (SessionLostError, "UNREACHABLE")


@pytest.mark.parametrize("unreachable_last", [False, True])
@pytest.mark.parametrize("resumes", [False, True])
def test_the_reason_is_what_a_gateway_said_and_not_that_none_was_reached(
    resumes: bool, unreachable_last: bool
) -> None:
    driver = Driver(reconnect_seconds=5.0)
    if resumes:
        driver.connect()
        driver.lose()
    assert retries(driver.refuse(DOWN))
    driver.now += 6.0
    if unreachable_last:
        driver.protocol.on_connected(driver.now)
        error = error_in(driver.lose(Lost("no connection")))
    else:
        error = error_in(driver.refuse(DOWN))
    assert error.reason == "SCHEDULER_DEPENDENCY_DOWN"
    assert isinstance(error, SessionLostError if resumes else SessionUnavailableError)


def test_a_refusal_before_the_session_was_open_again_is_forgotten(open_one: Driver) -> None:
    open_one.lose()
    assert retries(open_one.refuse(DOWN))
    open_one.connect()
    open_one.lose()
    open_one.now += RESUME_S + 1
    open_one.protocol.on_connected(open_one.now)
    assert error_in(open_one.lose(Lost("no connection"))).reason == "UNREACHABLE"


def test_a_gateway_that_goes_away_is_left_when_it_asked_for_it(open_one: Driver) -> None:
    open_one.say(go_away(after_ms=500))
    open_one.protocol.state.kept.add(b"00")
    assert [kind(each) for each in open_one.drain()] == ["audio"]
    assert open_one.tick(0.4) == []
    assert open_one.tick(0.1) == [Close(Moved(0.0, "draining"))]
    assert Retry(0.0) in open_one.lose(Moved(0.0, "draining"))
    assert open_one.connect() == ["open", "audio"]


def test_a_stream_that_ends_after_go_away_is_resumed_when_the_time_has_come(
    open_one: Driver,
) -> None:
    open_one.say(go_away(after_ms=500))
    open_one.now += 0.1
    (retry,) = [each for each in open_one.lose() if isinstance(each, Retry)]
    assert retry.after == pytest.approx(0.4)


def test_an_error_that_ends_the_stream_for_good_loses_the_session(open_one: Driver) -> None:
    open_one.say(failed(TAKEN_OVER))
    error = error_in(open_one.lose())
    assert (type(error), error.reason) == (SessionLostError, "SESSION_TAKEN_OVER")


def test_a_session_that_was_taken_by_our_own_late_resume_is_taken_back_once(
    open_one: Driver,
) -> None:
    open_one.lose()
    open_one.protocol.on_connected(open_one.now)
    open_one.drain()
    open_one.lose(Lost("no answer"))
    open_one.connect()
    open_one.say(failed(TAKEN_OVER))
    assert retries(open_one.lose())
    open_one.connect()
    open_one.say(failed(TAKEN_OVER))
    assert error_in(open_one.lose()).reason == "SESSION_TAKEN_OVER"


def test_a_resume_of_long_ago_does_not_take_a_session_any_more(open_one: Driver) -> None:
    open_one.lose()
    open_one.protocol.on_connected(open_one.now)
    open_one.drain()
    open_one.lose(Lost("no answer"))
    open_one.connect()
    open_one.now += LATE_RESUME_S
    open_one.say(failed(TAKEN_OVER))
    assert error_in(open_one.lose()).reason == "SESSION_TAKEN_OVER"


def test_a_stream_that_ends_with_a_passing_error_is_resumed(open_one: Driver) -> None:
    effects = open_one.say(failed(common_pb2.ERROR_REASON_BACKPRESSURE))
    assert [type(each) for each in given(effects)] == [Problem]
    assert retries(open_one.lose())


def test_a_message_that_the_server_never_takes_ends_in_an_error_not_in_a_loop() -> None:
    driver = Driver()
    driver.protocol.state.kept.add(b"00")
    for _ in range(MAX_FAULTS):
        driver.connect()
        driver.say(failed(INVALID))
        effects = driver.lose()
    assert error_in(effects).reason == "BROKEN_PROMISE"


def test_a_server_that_wants_forgotten_chunks_is_not_believed(open_one: Driver) -> None:
    open_one.protocol.state.kept.add(b"00")
    open_one.drain()
    open_one.say(ack(1))
    open_one.lose()
    open_one.protocol.on_connected(open_one.now)
    assert open_one.drain()[0].open.resume.next_seq == 1
    (*_, close) = open_one.say(opened(next_seq=0))
    assert isinstance(close, Close)


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


# ---- a gateway that says nothing ----

SILENCE_MS = 3000


def pass_time(driver: Driver, seconds: float, *, answers: bool) -> tuple[list[str], float | None]:
    """Timers are served on time; what is said meanwhile, and after how long the stream is left."""
    began, said = driver.now, []
    while driver.now < began + seconds:
        driver.now = driver.protocol.next_deadline() or began + seconds
        effects = driver.protocol.on_timer(driver.now)
        if any(isinstance(each, Close) for each in effects):
            return said, driver.now - began
        heard = [kind(each) for each in driver.drain()]
        said += heard
        if heard and answers:
            driver.say()
    return said, None


def test_a_frozen_gateway_is_asked_and_left_for_another_one() -> None:
    driver = Driver()
    driver.connect(silence_ms=SILENCE_MS)
    said, left_after = pass_time(driver, 10, answers=False)
    assert said == ["alone"]
    assert left_after is not None
    assert left_after == pytest.approx(3.0, abs=0.5)
    # Its connection is not used again.
    assert is_going_away(Lost("the gateway sent nothing for 3 s", silent=True))
    assert retries(driver.lose(Lost("the gateway sent nothing for 3 s", silent=True)))
    assert driver.connect(silence_ms=SILENCE_MS) == ["open"]


def test_an_idle_session_at_a_gateway_that_answers_stays_and_asks_seldom() -> None:
    driver = Driver()
    driver.connect(silence_ms=SILENCE_MS)
    said, left_after = pass_time(driver, 60, answers=True)
    assert left_after is None
    assert 20 <= len(said) <= 40


def test_audio_that_is_sent_is_a_question_too() -> None:
    driver = Driver()
    driver.connect(silence_ms=SILENCE_MS)
    driver.tick(0.5)
    driver.tick(0.5)
    driver.now = driver.protocol.next_deadline() or 0.0
    driver.protocol.on_timer(driver.now)
    driver.protocol.state.kept.add(b"00")
    assert [kind(each) for each in driver.drain()] == ["audio"]


def test_a_gateway_that_does_not_promise_to_answer_is_not_asked() -> None:
    driver = Driver()
    driver.connect()
    assert driver.protocol.next_deadline() is None


def test_a_process_that_slept_does_not_leave_its_gateway() -> None:
    driver = Driver()
    driver.connect(silence_ms=SILENCE_MS)
    for _ in range(20):
        assert driver.tick(60) == []
        driver.say()


def test_after_a_silence_the_next_gateway_gets_more_time_and_later_no_more() -> None:
    """On a slow line a large result may take longer than a frozen gateway is given."""
    driver = Driver()
    times = []
    for _ in range(6):
        driver.connect(silence_ms=SILENCE_MS)
        left_after = pass_time(driver, 100, answers=False)[1]
        assert left_after is not None
        times.append(round(left_after))
        driver.lose(Lost("silent", silent=True))
    assert times == [3, 6, 12, 24, 24, 24]
    driver.connect(silence_ms=SILENCE_MS)
    pass_time(driver, FORGET_S + 1, answers=True)
    driver.lose(Lost("cut"))
    driver.connect(silence_ms=SILENCE_MS)
    assert round(pass_time(driver, 100, answers=False)[1] or 0) == 3
