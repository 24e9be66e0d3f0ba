"""The node's protocol: deadlines, heartbeats, silence, reconnecting and draining."""

from collections.abc import Callable

import pytest

from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved, Refused
from lingua_scheduler.sdk.node.protocol.effects import Stop, Warn
from lingua_scheduler.sdk.node.protocol.stream import MAX_ANSWERS, WELCOME_WITHIN_S
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import (
    DispatcherEvent,
    JobReject,
    NodeEvent,
    Reconnect,
    Welcome,
)
from tests.unit.sdk.node_driver import Driver, assign, error, kinds, received, starts

# ---- time ----


def test_a_job_whose_time_is_over_is_stopped_and_reported(node: Driver) -> None:
    node.say(assign("a", left=500))
    node.drain()
    assert node.tick(0.4) == []
    assert node.tick(0.2) == [Stop(node.runs["a"], "the job was not done in time")]
    (failed,) = [each for each in node.drain() if each.HasField("job_failed")]
    assert failed.job_failed.cause == "TIMED_OUT"


def test_a_repeated_assignment_gives_more_time(node: Driver) -> None:
    node.say(assign("a", left=500))
    node.tick(0.4)
    node.say(assign("a", left=500))
    assert node.tick(0.4) == []
    assert len(node.tick(0.2)) == 1


def test_heartbeats_go_out_every_interval_and_count_up(node: Driver) -> None:
    beats = []
    for _ in range(40):
        node.tick(0.1)
        beats += [event.heartbeat for event in node.drain()]
        node.say()
    assert [beat.seq for beat in beats] == list(range(1, len(beats) + 1))
    assert len(beats) == 4
    assert all(beat.health == common_pb2.NODE_HEALTH_READY for beat in beats)


def test_a_heartbeat_lists_what_runs_and_what_was_not_said_to_be_over(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    node.drain()
    node.finish("a")
    node.tick(1.0)
    said = node.drain()
    assert kinds(said) == ["job_result", "heartbeat"]
    assert [each.job_id for each in said[1].heartbeat.running] == ["b"]


def test_silence_for_three_beats_ends_the_stream(node: Driver) -> None:
    assert node.tick(2.9) == []
    assert node.tick(0.2) == [Close(Lost("the dispatcher sent nothing for 3 s", silent=True))]


def test_any_message_counts_as_life(node: Driver) -> None:
    for _ in range(10):
        assert node.tick(2.5) == []
        node.say(received("x"))


def test_a_process_that_slept_listens_before_it_gives_the_stream_up(node: Driver) -> None:
    node.now += 60
    assert node.protocol.on_timer(node.now) == []
    assert [type(each) for each in node.tick(1.1)] == [Close]


SLOW_BEATS = {"heartbeat_interval_ms": 5000, "silence_ms": 3000}


def left_after(driver: Driver, *, answers: Callable[[list[NodeEvent]], bool]) -> float:
    """Returns how long the node stays. It sends everything as soon as it is ready."""
    began = driver.now
    while driver.now < began + 100:
        due = driver.protocol.next_deadline(driver.now)
        assert due is not None
        driver.now = max(driver.now, due)
        if any(isinstance(each, Close) for each in driver.protocol.on_timer(driver.now)):
            return driver.now - began
        if (said := driver.drain()) and answers(said):
            driver.say()
    return driver.now - began


def test_a_node_with_jobs_asks_a_silent_dispatcher_and_leaves_it_soon() -> None:
    driver = Driver()
    driver.connect(**SLOW_BEATS)
    driver.say(assign("a"))
    driver.drain()
    assert left_after(driver, answers=lambda _: False) == pytest.approx(3.0, abs=0.6)


def test_a_node_with_a_result_that_is_not_confirmed_does_the_same() -> None:
    driver = Driver()
    driver.connect(**SLOW_BEATS)
    driver.say(assign("a"))
    driver.drain()
    driver.finish("a")
    driver.drain()
    assert left_after(driver, answers=lambda _: False) == pytest.approx(3.0, abs=0.6)


def test_an_idle_node_leaves_a_silent_dispatcher_after_its_next_heartbeat() -> None:
    driver = Driver()
    driver.connect(**SLOW_BEATS)
    driver.drain()
    assert left_after(driver, answers=lambda _: False) <= 5.0 + 3.5


@pytest.mark.parametrize("busy", [True, False])
def test_a_dispatcher_that_answers_heartbeats_is_not_left(busy: bool) -> None:
    driver = Driver()
    driver.connect(**SLOW_BEATS)
    if busy:
        driver.say(assign("a"))
        driver.drain()
    beats = []

    def answers(said: list[NodeEvent]) -> bool:
        beats.append(kinds(said))
        return True

    assert left_after(driver, answers=answers) >= 100
    # An idle node sends no more than before.
    assert 45 <= len(beats) <= 70 if busy else 19 <= len(beats) <= 21


def test_a_node_that_slept_with_a_job_does_not_leave_its_dispatcher() -> None:
    driver = Driver()
    driver.connect(**SLOW_BEATS)
    driver.say(assign("a"))
    driver.drain()
    for _ in range(10):
        driver.now += 60
        assert driver.protocol.on_timer(driver.now) == []
        driver.drain()
        driver.say()


def test_a_dispatcher_that_does_not_answer_hello_is_left() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    driver.drain()
    assert driver.tick(WELCOME_WITHIN_S - 0.1) == []
    (close,) = driver.tick(0.2)
    assert isinstance(close, Close)
    assert "Hello was not answered" in str(close.ending)


def test_a_closed_stream_leaves_no_timer_that_is_over(node: Driver) -> None:
    node.tick(3.1)
    assert node.protocol.next_deadline(node.now) is None


# ---- reconnecting ----


def test_a_new_stream_tells_what_runs_and_sends_what_was_not_confirmed(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    node.finish("a")
    node.drain()
    node.protocol.on_disconnected()
    said = node.connect()
    assert kinds(said) == ["hello", "job_result"]
    assert [each.job_id for each in said[0].hello.running] == ["b"]
    assert [each.job_id for each in said[0].hello.unconfirmed] == ["a"]


def test_what_finishes_without_a_stream_is_kept_for_the_next(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_disconnected()
    node.finish("a")
    assert node.drain() == []
    assert kinds(node.connect()) == ["hello", "job_result"]


def test_what_welcome_cancels_is_stopped_and_not_sent(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    node.finish("a")
    node.drain()
    node.protocol.on_disconnected()
    assert kinds(node.connect("a", "b")) == ["hello"]
    assert [each.run for each in node.effects if isinstance(each, Stop)] == [node.runs["b"]]
    assert node.protocol.unconfirmed == 0


def test_answers_of_an_old_stream_are_not_given_on_the_new_one(node: Driver) -> None:
    node.say(assign("a"), assign("b"), assign("c"))
    node.protocol.on_disconnected()
    assert kinds(node.connect()) == ["hello"]


def test_a_repeated_assignment_on_the_new_stream_finds_the_result_once(node: Driver) -> None:
    node.say(assign("a"))
    node.finish("a")
    node.drain()
    node.protocol.on_disconnected()
    node.protocol.on_connected(node.now)
    node.drain()
    node.say(DispatcherEvent(welcome=Welcome(epoch=2)), assign("a"))
    assert kinds(node.drain()) == ["job_ack", "job_result"]


def test_a_dispatcher_that_goes_away_is_left_after_the_delay_it_asked_for(node: Driver) -> None:
    node.say(assign("a"))
    node.say(DispatcherEvent(reconnect=Reconnect(after_ms=300, why="drain")))
    assert node.tick(0.2) == []
    assert node.protocol.ending(node.now) == Moved(pytest.approx(0.1), "drain")
    assert node.tick(0.2) == [Close(Moved(0.0, "drain"), graceful=True)]
    assert node.protocol.running == 1


def test_an_error_before_welcome_ends_the_stream() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    (close,) = driver.say(error(common_pb2.ERROR_REASON_NODE_ID_CONFLICT))
    assert isinstance(close, Close)
    assert isinstance(close.ending, Refused)


def test_an_error_is_why_the_stream_ended_only_if_nothing_came_after_it(node: Driver) -> None:
    (warning,) = node.say(error(common_pb2.ERROR_REASON_INVALID_MESSAGE))
    assert isinstance(warning, Warn)
    assert isinstance(node.protocol.ending(node.now), Refused)
    node.say(received("x"))
    assert isinstance(node.protocol.ending(node.now), Lost)


def test_a_dispatcher_that_asks_and_never_reads_is_left(node: Driver) -> None:
    for at in range(MAX_ANSWERS + 10):
        node.say(assign(f"j{at}"))
    closes = [each for each in node.effects if isinstance(each, Close)]
    assert len(closes) == 1


# ---- draining ----


def test_a_draining_node_says_so_rejects_the_new_and_finishes_the_old(node: Driver) -> None:
    node.say(assign("a"))
    node.drain()
    node.protocol.drain()
    assert node.drain()[0].heartbeat.health == common_pb2.NODE_HEALTH_DRAINING
    assert starts(node.say(assign("b"), assign("a"))) == []
    said = node.drain()
    assert kinds(said) == ["job_reject", "job_ack"]
    assert said[0].job_reject.cause == JobReject.CAUSE_DRAINING
    node.finish("a")
    assert kinds(node.drain()) == ["job_result"]


def test_what_still_runs_at_the_end_fails_so_that_another_node_does_it(node: Driver) -> None:
    node.say(assign("a"))
    node.drain()
    node.protocol.drain()
    (stop,) = node.protocol.give_up()
    assert isinstance(stop, Stop)
    failed = node.drain()[0].job_failed
    assert (failed.cause, failed.worth_retry) == ("NODE_STOPPED", True)


def test_goodbye_is_the_last_thing_said(node: Driver) -> None:
    node.say(assign("a"))
    node.finish("a")
    assert node.protocol.leave("bye") == [Close(Left(), graceful=True)]
    assert kinds(node.drain()) == ["job_ack", "job_result", "bye"]


def test_a_node_that_drains_without_a_stream_says_so_on_the_next(node: Driver) -> None:
    node.protocol.on_disconnected()
    node.protocol.drain()
    said = node.connect()
    assert kinds(said) == ["hello", "heartbeat"]
    assert said[1].heartbeat.health == common_pb2.NODE_HEALTH_DRAINING


# ---- pools ----


def test_a_node_that_is_in_no_pool_warns_and_says_why() -> None:
    useless, useful, old = Driver(), Driver(), Driver()
    useless.connect(pools=0)
    useful.connect(pools=2)
    old.connect()
    (warning,) = [each for each in useless.effects if isinstance(each, Warn)]
    assert warning.event == "node is in no pool"
    assert "semantic" in str(warning.fields["reason"])
    assert not [each for each in useful.effects + old.effects if isinstance(each, Warn)]
