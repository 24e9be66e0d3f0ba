"""The node's side of Connect, on a virtual clock."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved, Refused
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect, Start, Stop, Warn
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.stream import MAX_ANSWERS, WELCOME_WITHIN_S
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Timing, Translated
from lingua_scheduler.sdk.types import Stage
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import (
    DispatcherEvent,
    DispatcherMessage,
    Hello,
    JobAssign,
    JobCancel,
    JobReject,
    JobResult,
    JobSpec,
    NodeEvent,
    Reconnect,
    ResultReceived,
    Welcome,
)

BEAT_MS = 1000


def ref(job_id: str, attempt: int = 1) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id=job_id, attempt=attempt)


def assign(job_id: str, attempt: int = 1, *, left: int = 0, partial: int = 0) -> DispatcherEvent:
    job = JobSpec(
        session_id="s",
        utterance_index=7,
        pair=common_pb2.LanguagePair(src="en", tgt="zh"),
        partial_interval_ms=partial,
    )
    return DispatcherEvent(
        job_assign=JobAssign(attempt=ref(job_id, attempt), job=job, time_left_ms=left)
    )


def cancel(job_id: str) -> DispatcherEvent:
    return DispatcherEvent(job_cancel=JobCancel(attempt=ref(job_id), why="test"))


def received(job_id: str) -> DispatcherEvent:
    return DispatcherEvent(result_received=ResultReceived(attempt=ref(job_id)))


def error(reason: common_pb2.ErrorReason.ValueType) -> DispatcherEvent:
    return DispatcherEvent(error=common_pb2.Error(reason=reason, message="no"))


class Driver:
    """A protocol with a clock, and the dispatcher's ear."""

    def __init__(self, *, slots: int = 2, unconfirmed: UnconfirmedResults | None = None) -> None:
        self.now = 100.0
        hello = Hello(node_id="n", incarnation="i", max_concurrent_jobs=slots)
        self.protocol = NodeProtocol(hello=hello, rng=random.Random(1), unconfirmed=unconfirmed)
        self.runs: dict[str, int] = {}
        self.effects: list[NodeEffect] = []

    def connect(self, *cancelled: str, **fields: int) -> list[NodeEvent]:
        """A new stream that is welcomed; what is said on it, Hello first."""
        self.protocol.on_connected(self.now)
        heard = self.drain()
        welcome = Welcome(
            epoch=1,
            cancelled=[ref(job) for job in cancelled],
            **{"heartbeat_interval_ms": BEAT_MS, **fields},
        )
        self.say(DispatcherEvent(welcome=welcome))
        return heard + self.drain()

    def say(self, *events: DispatcherEvent) -> list[NodeEffect]:
        return self._note(self.protocol.on_message(self.now, DispatcherMessage(events=events)))

    def tick(self, seconds: float) -> list[NodeEffect]:
        """Time passes; timers are served when they are due."""
        end, effects = self.now + seconds, []
        while (due := self.protocol.next_deadline(self.now)) is not None and due <= end:
            self.now = max(self.now, due)
            effects += self._note(self.protocol.on_timer(self.now))
        self.now = end
        return effects

    def drain(self) -> list[NodeEvent]:
        """All that the protocol has to say now."""
        events: list[NodeEvent] = []
        while (message := self.protocol.take(self.now)) is not None:
            events += message.events
        return events

    def finish(self, job_id: str) -> None:
        run = self.runs[job_id]
        self._note(self.protocol.on_result(run, Translated(source=job_id)))
        self._note(self.protocol.on_ended(run))

    def _note(self, effects: list[NodeEffect]) -> list[NodeEffect]:
        for effect in effects:
            if isinstance(effect, Start):
                self.runs[effect.assign.attempt.job_id] = effect.run
        self.effects += effects
        return effects


@pytest.fixture
def node() -> Driver:
    driver = Driver()
    driver.connect()
    return driver


def kinds(events: list[NodeEvent], *without: str) -> list[str]:
    found = [event.WhichOneof("event") or "" for event in events]
    return [kind for kind in found if kind not in without]


def starts(effects: list[NodeEffect]) -> list[str]:
    return [each.assign.attempt.job_id for each in effects if isinstance(each, Start)]


# ---- assignments ----


def test_hello_comes_first_and_alone_until_welcome() -> None:
    driver = Driver()
    driver.protocol.on_connected(driver.now)
    assert kinds(driver.drain()) == ["hello"]
    driver.protocol.set_health(common_pb2.NODE_HEALTH_DEGRADED)
    assert driver.drain() == []
    assert not driver.protocol.welcomed


def test_a_job_is_acknowledged_at_once_and_started(node: Driver) -> None:
    assert starts(node.say(assign("a"))) == ["a"]
    assert kinds(node.drain()) == ["job_ack"]


def test_acknowledgements_that_are_ready_together_share_a_message(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    message = node.protocol.take(node.now)
    assert message is not None
    assert kinds(list(message.events)) == ["job_ack", "job_ack"]


def test_more_jobs_than_slots_are_rejected_as_full(node: Driver) -> None:
    assert starts(node.say(assign("a"), assign("b"), assign("c"))) == ["a", "b"]
    reject = node.drain()[-1].job_reject
    assert (reject.attempt.job_id, reject.cause) == ("c", JobReject.CAUSE_FULL)


def test_a_repeated_assignment_of_a_running_job_is_acknowledged_and_not_run_twice(
    node: Driver,
) -> None:
    node.say(assign("a"))
    node.drain()
    assert node.say(assign("a")) == []
    assert kinds(node.drain()) == ["job_ack"]
    assert node.protocol.executing == 1


def test_a_repeated_assignment_of_an_unconfirmed_job_gets_its_result_again(node: Driver) -> None:
    node.say(assign("a"))
    node.finish("a")
    assert kinds(node.drain()) == ["job_ack", "job_result"]
    assert node.say(assign("a")) == []
    assert kinds(node.drain()) == ["job_ack", "job_result"]


def test_a_confirmed_job_that_is_assigned_again_runs_again(node: Driver) -> None:
    node.say(assign("a"))
    node.finish("a")
    node.say(received("a"))
    assert starts(node.say(assign("a"))) == ["a"]


def test_of_a_job_that_is_done_only_the_result_is_given_and_nothing_is_begun(node: Driver) -> None:
    event = assign("a")
    event.job_assign.only_if_known = True
    event.job_assign.job.ClearField("audio")
    assert node.say(event) == []
    assert node.drain()[0].job_reject.cause == JobReject.CAUSE_NOT_KNOWN
    node.say(assign("a"))
    node.drain()
    assert node.say(event) == []
    assert kinds(node.drain()) == ["job_ack"]
    node.finish("a")
    node.drain()
    assert node.say(event) == []
    assert kinds(node.drain()) == ["job_ack", "job_result"]


def test_two_attempts_of_a_job_are_two_things(node: Driver) -> None:
    assert starts(node.say(assign("a", 1), assign("a", 2))) == ["a", "a"]


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda job: job.ClearField("job"), "job"),
        (lambda job: job.job.ClearField("pair"), "pair"),
        (lambda job: job.attempt.ClearField("attempt"), "attempt"),
        (lambda job: setattr(job.job.audio_format, "encoding", 99), "encoding"),
        (lambda job: setattr(job.job, "audio", b"12"), "audio_format"),
    ],
)
def test_a_job_that_cannot_be_understood_is_rejected(
    node: Driver, spoil: Callable[[JobAssign], None], word: str
) -> None:
    event = assign("a")
    spoil(event.job_assign)
    assert node.say(event) == []
    (said,) = node.drain()
    assert said.job_reject.cause == JobReject.CAUSE_BAD_JOB
    assert word in said.job_reject.detail


# ---- results ----


def test_the_slot_is_free_when_the_handler_ends_and_not_before(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    node.protocol.on_result(node.runs["a"], NoSpeech())
    assert starts(node.say(assign("c"))) == []
    node.protocol.on_ended(node.runs["a"])
    assert starts(node.say(assign("d"))) == ["d"]


def test_only_the_first_result_counts(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_result(node.runs["a"], Translated(source="first"))
    node.protocol.on_result(node.runs["a"], Translated(source="second"))
    node.protocol.on_failed(node.runs["a"], "LATE", "", worth_retry=True)
    node.protocol.on_ended(node.runs["a"])
    said = node.drain()
    assert kinds(said) == ["job_ack", "job_result"]
    assert said[1].job_result.texts.source == "first"


def test_a_handler_that_ends_without_a_result_has_failed(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_ended(node.runs["a"])
    failed = node.drain()[-1].job_failed
    assert (failed.cause, failed.worth_retry) == ("NO_RESULT", True)


def test_a_failure_keeps_its_cause_and_its_detail_is_cut(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_failed(node.runs["a"], "BAD_AUDIO", "x" * 500 + "\ud800", worth_retry=False)
    failed = node.drain()[-1].job_failed
    assert (failed.cause, len(failed.detail), failed.worth_retry) == ("BAD_AUDIO", 200, False)


def test_a_result_that_no_message_can_carry_leaves_the_job_running(node: Driver) -> None:
    node.say(assign("a"))
    bad = Translated(timings=[Timing(stage=Stage.ASR, started_ms=-1, took_ms=1)])
    with pytest.raises(ValueError, match="-1"):
        node.protocol.on_result(node.runs["a"], bad)
    assert node.protocol.running == 1


def speech_of(size: int) -> Translated:
    return Translated(speech=bytes(size), speech_format=AudioFormat())


def test_a_result_too_large_for_a_message_becomes_a_failure() -> None:
    node = Driver()
    node.connect(max_message_bytes=1_000_000)
    node.say(assign("a"))
    node.protocol.on_result(node.runs["a"], speech_of(1_000_000))
    assert node.drain()[-1].job_failed.cause == "RESULT_TOO_LARGE"
    assert node.protocol.unconfirmed == 1


def test_large_results_travel_in_messages_of_their_own(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    for job in "ab":
        node.protocol.on_result(node.runs[job], speech_of(3_000_000))
    sizes = []
    while (message := node.protocol.take(node.now)) is not None:
        sizes.append(message.ByteSize())
    assert len(sizes) == 2
    assert max(sizes) <= 4 * 1024 * 1024


def test_the_oldest_result_is_dropped_with_a_warning_when_too_many_wait() -> None:
    driver = Driver(slots=3, unconfirmed=UnconfirmedResults(max_results=2))
    driver.connect()
    driver.say(assign("a"), assign("b"), assign("c"))
    for job in "abc":
        driver.finish(job)
    fields = {"job_id": "a", "attempt": 1, "reason": "too many results are unconfirmed"}
    assert [each for each in driver.effects if isinstance(each, Warn)] == [
        Warn("result dropped", fields)
    ]
    assert driver.protocol.unconfirmed == 2


# ---- holding ----


def test_held_is_said_before_the_result_held_and_once_on_a_stream(node: Driver) -> None:
    node.say(assign("a"))
    node.drain()
    node.protocol.on_hold(node.runs["a"])
    held = node.drain()
    assert kinds(held) == ["audio_held"]
    assert held[0].audio_held.session_id == "s"
    assert held[0].audio_held.pair.tgt == "zh"
    assert held[0].audio_held.utterance_index == 7
    node.protocol.on_result(node.runs["a"], Held())
    said = node.drain()
    assert kinds(said) == ["job_result"]
    assert said[0].job_result.kind == JobResult.KIND_HELD


def test_a_handler_that_gives_held_at_once_says_both_in_order(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_result(node.runs["a"], Held())
    assert kinds(node.drain()) == ["job_ack", "audio_held", "job_result"]


def test_a_handler_that_holds_and_ends_has_the_result_held(node: Driver) -> None:
    node.say(assign("a"))
    node.protocol.on_hold(node.runs["a"])
    node.protocol.on_ended(node.runs["a"])
    assert node.drain()[-1].job_result.kind == JobResult.KIND_HELD


def test_what_is_held_is_said_again_on_a_new_stream(node: Driver) -> None:
    node.say(assign("a"), assign("b"))
    node.protocol.on_hold(node.runs["a"])
    node.protocol.on_result(node.runs["b"], Held())
    node.drain()
    node.protocol.on_disconnected()
    said = node.connect()
    assert kinds(said) == ["hello", "audio_held", "audio_held", "job_result"]


# ---- cancelling ----


def test_after_a_cancel_nothing_more_is_said_of_the_attempt(node: Driver) -> None:
    node.say(assign("a", partial=10))
    run = node.runs["a"]
    node.protocol.on_partial(run, Partial(source="x"))
    node.protocol.on_hold(run)
    assert node.say(cancel("a")) == [Stop(run, "test")]
    node.protocol.on_partial(run, Partial(source="y"))
    node.protocol.on_hold(run)
    node.protocol.on_result(run, Held())
    node.protocol.on_ended(run)
    assert node.drain() == []
    assert (node.protocol.running, node.protocol.executing, node.protocol.unconfirmed) == (0, 0, 0)


def test_a_cancelled_handler_keeps_its_slot_until_it_has_ended() -> None:
    driver = Driver(slots=1)
    driver.connect()
    driver.say(assign("a"))
    run = driver.runs["a"]
    driver.say(cancel("a"))
    driver.drain()
    assert starts(driver.say(assign("b"))) == []
    assert driver.drain()[0].job_reject.cause == JobReject.CAUSE_FULL
    driver.protocol.on_ended(run)
    assert starts(driver.say(assign("b"))) == ["b"]


def test_an_attempt_that_was_cancelled_and_comes_again_is_not_answered_by_its_old_run(
    node: Driver,
) -> None:
    node.say(assign("a"))
    old = node.runs["a"]
    node.say(cancel("a"))
    assert starts(node.say(assign("a"))) == ["a"]
    node.protocol.on_result(old, Translated(source="old"))
    node.protocol.on_ended(old)
    assert kinds(node.drain()) == ["job_ack"]
    node.finish("a")
    assert node.drain()[0].job_result.texts.source == "a"


def test_a_cancel_of_an_unconfirmed_result_drops_it(node: Driver) -> None:
    node.say(assign("a"))
    node.finish("a")
    assert node.say(cancel("a")) == []
    assert node.protocol.unconfirmed == 0
    assert node.drain() == []


def test_a_cancel_of_an_unknown_attempt_does_nothing(node: Driver) -> None:
    assert node.say(cancel("x"), received("x")) == []
    assert node.drain() == []


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
    """How long the node bears it; it says what it has to say whenever it has something."""
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
    # An idle node says no more than before.
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


# ---- partials ----


def test_partials_keep_their_distance_and_the_latest_wins(node: Driver) -> None:
    node.say(assign("a", partial=100))
    node.drain()
    run, said = node.runs["a"], []
    for at in range(30):
        node.protocol.on_partial(run, Partial(source=str(at)))
        said += node.drain()
        node.tick(0.01)
    partials = [event.job_partial for event in said if event.HasField("job_partial")]
    assert [each.seq for each in partials] == [1, 2, 3]
    assert partials[0].texts.source == "0"
    assert int(partials[1].texts.source) >= 9


def test_a_partial_that_had_to_wait_is_sent_when_its_time_has_come(node: Driver) -> None:
    node.say(assign("a", partial=100))
    node.protocol.on_partial(node.runs["a"], Partial(source="1"))
    node.drain()
    node.protocol.on_partial(node.runs["a"], Partial(source="2"))
    assert node.drain() == []
    assert node.protocol.next_deadline(node.now) == pytest.approx(node.now + 0.1)
    node.tick(0.1)
    assert [e.job_partial.texts.source for e in node.drain() if e.HasField("job_partial")] == ["2"]


def test_partials_that_are_not_wanted_are_dropped(node: Driver) -> None:
    node.say(assign("a", partial=0))
    node.protocol.on_partial(node.runs["a"], Partial(source="1"))
    assert kinds(node.drain()) == ["job_ack"]


def test_a_result_replaces_the_partial_that_waits(node: Driver) -> None:
    node.say(assign("a", partial=100))
    node.protocol.on_partial(node.runs["a"], Partial(source="1"))
    node.finish("a")
    assert kinds(node.drain()) == ["job_ack", "job_result"]


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


# ---- any order of events ----


class Interleaving:
    """One node and the two promises that no order of events may break."""

    def __init__(self) -> None:
        self.driver = Driver(slots=2, unconfirmed=UnconfirmedResults(max_results=3))
        self.driver.connect()
        self.connected = True
        self.live: set[int] = set()
        self.silent: set[str] = set()

    def dispatcher(self, action: str, job: str) -> None:
        if not self.connected:
            self.driver.connect()
            self.connected = True
        event = {"assign": assign(job, partial=10, left=5000), "received": received(job)}
        self.note(self.driver.say(event.get(action, cancel(job))))
        if action == "cancel":
            self.silent.add(job)

    def handler(self, action: str, job: str) -> None:
        protocol, run = self.driver.protocol, self.driver.runs.get(job, 0)
        match action:
            case "result":
                protocol.on_result(run, Translated(source=job))
            case "held":
                protocol.on_result(run, Held())
            case "hold":
                protocol.on_hold(run)
            case "partial":
                protocol.on_partial(run, Partial(source=job))
            case "end":
                protocol.on_ended(run)
                self.live.discard(run)

    def world(self, action: str) -> None:
        if action == "time":
            self.note(self.driver.tick(0.5))
        elif action == "break":
            self.driver.protocol.on_disconnected()
            self.connected = False
        else:
            self.hear(self.driver.drain())

    def note(self, effects: list[NodeEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Start):
                self.live.add(effect.run)
                self.silent.discard(effect.assign.attempt.job_id)

    def hear(self, events: list[NodeEvent]) -> None:
        for event in events:
            kind = event.WhichOneof("event") or ""
            if kind in ("job_ack", "job_partial", "job_result", "job_failed", "audio_held"):
                assert getattr(event, kind).attempt.job_id not in self.silent

    def check(self) -> None:
        protocol = self.driver.protocol
        assert protocol.executing == len(self.live) <= 2
        assert protocol.running <= 2
        assert protocol.unconfirmed <= 3
        # A deadline that stays in the past would have the timer spin.
        protocol.on_timer(self.driver.now)
        deadline = protocol.next_deadline(self.driver.now)
        assert deadline is None or deadline > self.driver.now


STEPS = st.one_of(
    st.tuples(
        st.just("dispatcher"),
        st.sampled_from(["assign", "assign", "cancel", "received"]),
        st.sampled_from("abcd"),
    ),
    st.tuples(
        st.just("handler"),
        st.sampled_from(["result", "held", "hold", "partial", "end"]),
        st.sampled_from("abcd"),
    ),
    st.tuples(st.just("world"), st.sampled_from(["time", "break", "read"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_in_any_order_of_events_slots_hold_and_cancelled_attempts_stay_silent(
    steps: list[tuple[str, ...]],
) -> None:
    world = Interleaving()
    for who, *what in steps:
        getattr(world, who)(*what)
        world.check()


def test_a_node_that_is_in_no_pool_warns_and_says_why() -> None:
    useless, useful, old = Driver(), Driver(), Driver()
    useless.connect(pools=0)
    useful.connect(pools=2)
    old.connect()
    (warning,) = [each for each in useless.effects if isinstance(each, Warn)]
    assert warning.event == "node is in no pool"
    assert "semantic" in str(warning.fields["reason"])
    assert not [each for each in useful.effects + old.effects if isinstance(each, Warn)]
