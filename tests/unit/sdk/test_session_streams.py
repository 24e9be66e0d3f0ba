"""The session's protocol: streams that end, and gateways that are silent."""

import pytest

from lingua_scheduler.sdk import (
    SessionLostError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk._transport.endings import Close, Lost, Moved
from lingua_scheduler.sdk._transport.patience import FORGET_S
from lingua_scheduler.sdk._transport.stream_runner import is_going_away
from lingua_scheduler.sdk.session.events import Problem, Reconnecting, Resumed
from lingua_scheduler.sdk.session.protocol.effects import Retry
from lingua_scheduler.sdk.session.protocol.machine import LATE_RESUME_S, MAX_FAULTS
from lingua_scheduler.v1 import common_pb2
from tests.unit.sdk.session_driver import (
    DOWN,
    INVALID,
    RESUME_S,
    TAKEN_OVER,
    Driver,
    error_in,
    given,
    kind,
    retries,
)
from tests.unit.sdk.session_peer import ack, failed, go_away, opened

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


# ---- a gateway that says nothing ----

SILENCE_MS = 3000


def pass_time(driver: Driver, seconds: float, *, answers: bool) -> tuple[list[str], float | None]:
    """Serves timers on time. Returns what was sent, and after how long the stream was left."""
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
    # Its connection is not reused.
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
    """On a slow line, a large result may take longer than a gateway may be silent."""
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


# ---- gateways that open the session and send it away ----


def waits(driver: Driver, times: int, *, lasting: float = 0.0, acks: bool = False) -> list[float]:
    """The waits of a session that is sent away as soon as it is open, again and again."""
    found = []
    for at in range(times):
        driver.protocol.state.kept.add(b"00")
        driver.connect()
        driver.now += lasting
        driver.say(*([ack(at + 1)] if acks else []), go_away())
        driver.tick(0.0)
        (retry,) = [each for each in driver.lose(Moved(0.0, "draining")) if isinstance(each, Retry)]
        found.append(retry.after)
        driver.now += retry.after
    return found


def test_a_session_that_is_sent_away_at_once_again_and_again_waits_longer_each_time() -> None:
    first, *rest = waits(Driver(reconnect_seconds=1000.0), 40)
    assert first == 0.0
    assert all(wait > 0.0 for wait in rest)
    assert sum(rest) > 40.0
    assert max(rest) <= 5.0


@pytest.mark.parametrize("how", [{"lasting": 1.0}, {"acks": True}])
def test_a_session_that_comes_forward_is_moved_without_a_wait(how: dict[str, float | bool]) -> None:
    assert waits(Driver(), 40, **how) == [0.0] * 40  # type: ignore[arg-type]


def test_gateways_that_send_a_session_away_before_it_is_open_are_not_asked_without_a_wait(
    open_one: Driver,
) -> None:
    found = []
    open_one.now += 10.0
    for _ in range(10):
        open_one.say(go_away())
        open_one.tick(0.0)
        (retry,) = [
            each for each in open_one.lose(Moved(0.0, "draining")) if isinstance(each, Retry)
        ]
        found.append(retry.after)
        open_one.now += retry.after
        open_one.protocol.on_connected(open_one.now)
        open_one.drain()
    assert found[0] == 0.0
    assert all(wait > 0.0 for wait in found[1:])


@pytest.mark.parametrize("ending", [Moved(0.0, "draining"), Lost("cut")])
def test_a_session_that_opens_and_ends_again_and_again_is_given_up_in_the_end(
    open_one: Driver, ending: Moved | Lost
) -> None:
    began = open_one.now
    while retries(effects := open_one.lose(ending)):
        assert open_one.now - began <= RESUME_S
        open_one.now += max(0.01, *(each.after for each in effects if isinstance(each, Retry)))
        open_one.connect()
    assert open_one.now - began >= RESUME_S
    assert error_in(effects).reason == "UNREACHABLE"
