"""The node's protocol: assignments, results, holding, cancelling and partial results."""

from collections.abc import Callable

import pytest

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.node.protocol.effects import Stop, Warn
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Timing, Translated
from lingua_scheduler.sdk.types import Stage
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import (
    JobAssign,
    JobReject,
    JobResult,
)
from tests.unit.sdk.node_driver import Driver, assign, cancel, kinds, received, starts

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
