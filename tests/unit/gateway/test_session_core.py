"""A session by example: chunks in, jobs out, results in order. See also test_session_core_table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lingua_scheduler.services.runtime.contract.audio import MAX_CHUNK_BYTES
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import (
    MAX_UNSEEN,
    SessionPhase,
)
from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    GOODBYE,
    HANGOVER,
    PAUSE,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2
from tests.unit.gateway.desk import (
    AB,
    BA,
    BYTES_PER_MS,
    DOWN,
    OPENED,
    RULES,
    TAKEN_OVER,
    Desk,
)

# ---- from speech to result ----


def test_an_utterance_is_written_down_then_submitted_then_safe_then_delivered_then_let_go() -> None:
    desk = Desk()

    assert desk.cut().told() == ["record 0"]
    assert desk.recorded().told() == ["send finalized 0", "submit 0"]
    assert desk.accepted().told() == ["send accepted 0", "send ack 1"]
    assert desk.delivered().told() == ["send result 0"]
    assert desk.seen(1).told() == ["taken 0"]


def test_what_is_written_down_says_how_it_was_cut() -> None:
    desk = Desk().say(300).say(0).say(200, final=True).silence(200)

    [cut] = desk.records[0].cuts

    assert cut == session_record_pb2.Cut(
        utterance_index=0,
        direction=common_pb2.LanguagePair(src="en", tgt="zh"),
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        chunks=[
            session_record_pb2.ChunkRange(first=0, end=1),
            session_record_pb2.ChunkRange(first=2, end=3),
        ],
        job_id=desk.job_id(0),
        audio_ms=500,
    )


@pytest.mark.parametrize(
    ("speak", "reason", "padding"),
    [
        (Desk.cut, common_pb2.FINALIZE_REASON_IS_FINAL, 200),
        (Desk.pause, common_pb2.FINALIZE_REASON_TIMEOUT, 150),
    ],
)
def test_the_job_of_an_utterance_has_its_audio_and_the_time_that_is_left(
    speak: Callable[[Desk], Desk], reason: int, padding: int
) -> None:
    desk = speak(Desk())
    cut_at = desk.now
    desk.silence(1000).recorded()

    [submit] = desk.submitted
    job = desk.specs.spec(submit.utterance, desk.now)

    assert job.audio == b"\0" * 500 * BYTES_PER_MS
    assert (job.reason, job.padding_ms) == (reason, padding)
    assert job.deadline_ms == 29_000
    assert (job.session_id, job.utterance_index, job.session_epoch) == ("s", 0, 1)
    assert submit.utterance.job_id == desk.job_id(0) == job_id(job_key(job), "s")
    assert submit.utterance.deadline_ms == cut_at + 30_000


def test_results_come_in_the_order_of_their_utterances() -> None:
    desk = Desk().submit().submit().submit()
    desk.told()

    assert desk.delivered(2).told() == []
    assert desk.delivered(1).told() == []
    # The last two chunks are safe as well, but are acknowledged in order.
    assert desk.delivered(0).told() == [
        "send result 0",
        "send result 1",
        "send result 2",
        "send ack 3",
    ]


def test_a_result_tells_where_the_time_went() -> None:
    desk = Desk().say(500).say(0, final=True).silence(200)
    desk.silence(30).recorded().silence(20).accepted().silence(700)
    desk.cut(BA).recorded().silence(11).delivered(1, BA).silence(5).delivered(0).silence(1000)

    first, second = desk.results()

    def timings(result: session_pb2.Result) -> list[int]:
        told = result.timings
        spans = [told.audio_ms, told.hangover_ms, told.dispatch_ms, told.node_ms, told.deliver_ms]
        return [round(span) for span in spans]

    assert timings(first) == [500, 200, 50, 700 + 200 + 16, 0]
    # Its acceptance was not seen: all of the time until the result counts as the node's.
    assert timings(second) == [500, 200, 0, 11, 5]
    assert (first.node_id, first.attempts, first.job_id) == ("n", 2, desk.job_id(0))
    assert (first.direction.src, second.direction.src) == ("en", "zh")


def test_cuts_are_written_down_one_call_at_a_time_and_in_order() -> None:
    desk = Desk().cut().cut().cut()
    assert desk.told() == ["record 0"]

    assert desk.recorded().told() == ["send finalized 0", "submit 0", "record 1 2"]


# ---- chunks that cannot be used ----


@pytest.mark.parametrize(
    ("wrong", "field", "reason"),
    [
        ({"seq": 7}, "audio.seq", "BAD_AUDIO"),
        ({"data": b"odd"}, "audio.data", "BAD_AUDIO"),
        ({"data": bytes(MAX_CHUNK_BYTES + 2)}, "audio.data", "INVALID_MESSAGE"),
        ({"direction": ("en", "fr")}, "audio.direction", "INVALID_MESSAGE"),
        ({"direction": ("en", "en")}, "audio.direction", "INVALID_MESSAGE"),
        ({"direction": None}, "audio.direction", "INVALID_MESSAGE"),
    ],
)
def test_a_chunk_that_cannot_be_used_is_refused_and_can_be_sent_again(
    wrong: dict[str, object], field: str, reason: str
) -> None:
    desk = Desk().say(300)
    sent: dict[str, object] = {"seq": 1, **wrong}
    desk.say(**sent)  # type: ignore[arg-type]

    assert desk.told() == [f"send error {reason}"]
    [refusal] = desk.errors()
    assert refusal.message.startswith(f"{field}: ")
    assert [each.field for each in refusal.field_violations] == [field]
    assert refusal.metadata["expected_seq"] == "1"
    assert refusal.metadata["seq"] == str(sent["seq"])
    assert desk.counts["refused_chunk"] == 1
    # Nothing is lost if the chunk is sent again correctly.
    desk.say(200, final=True).silence(200).recorded()
    assert desk.submitted[0].utterance.ranges == [(0, 2)]
    assert desk.submitted[0].utterance.audio_ms == 500


def test_a_broken_opus_packet_is_refused() -> None:
    opus = session_pb2.NewSession()
    opus.CopyFrom(OPENED)
    opus.audio_format.encoding = common_pb2.AUDIO_ENCODING_OPUS
    desk = Desk(opened=opus).say(data=b"\x0b")
    assert desk.told() == ["send error BAD_AUDIO"]

    desk.say(data=b"\x08one", seq=0).say(data=b"\x08three", seq=1, final=True).silence(200)

    job = desk.recorded().specs.spec(desk.submitted[0].utterance, desk.now)
    assert job.audio == b"\0\4\x08one\0\6\x08three"


def test_a_chunk_that_comes_again_is_ignored() -> None:
    desk = Desk().say(300).say(200, seq=0).say(0, seq=0, final=True)

    assert desk.told() == []
    assert desk.counts["repeated_chunk"] == 2
    desk.end().silence(200)
    assert desk.records[0].cuts[0].audio_ms == 300


def test_a_gap_is_told_once() -> None:
    desk = Desk().say(100).say(seq=2).say(seq=3).say(seq=4)
    assert desk.told() == ["send error BAD_AUDIO"]
    assert desk.counts["gap"] == 3

    desk.say(100, seq=1).say(seq=5)

    assert desk.told() == ["send error BAD_AUDIO"]
    assert [each.metadata["expected_seq"] for each in desk.errors()] == ["1", "2"]


def test_languages_are_compared_without_regard_to_case() -> None:
    opened = session_pb2.NewSession()
    opened.CopyFrom(OPENED)
    opened.conversation.a, opened.conversation.b = "EN", "zh-Hant"

    desk = Desk(opened=opened).say(500, ("En", "ZH-hant"), final=True).silence(200)

    assert desk.told() == ["record 0"]
    assert desk.records[0].cuts[0].direction == common_pb2.LanguagePair(src="en", tgt="zh-hant")


def test_where_the_direction_is_fixed_a_chunk_need_not_say_it() -> None:
    opened = session_pb2.NewSession()
    opened.CopyFrom(OPENED)
    opened.direction.src, opened.direction.tgt = "en", "zh"

    desk = Desk(opened=opened).say(300, None).say(200, AB)
    assert desk.told() == []
    assert desk.say(200, BA).told() == ["send error INVALID_MESSAGE"]


# ---- what the client has seen ----


def test_a_client_cannot_have_seen_what_was_not_delivered() -> None:
    desk = Desk().submit().delivered()
    desk.told()

    assert desk.seen(2).told() == ["send error INVALID_MESSAGE"]
    assert desk.errors()[0].field_violations[0].field == "results_seen"
    assert desk.seen(1).told() == ["taken 0"]


def test_a_client_that_confirms_nothing_is_sent_away_and_may_go_on_when_it_does() -> None:
    past = Past(next_index=MAX_UNSEEN - 1)
    desk = Desk(past=past).submit()
    assert [each.WhichOneof("event") for each in desk.sent].count("missing") == MAX_UNSEEN - 1

    desk.cut()
    assert desk.errors()[-1].reason == common_pb2.ERROR_REASON_BACKPRESSURE
    assert desk.core.phase is SessionPhase.OVER

    again = Desk(past=Past(next_index=MAX_UNSEEN))
    again.seen(1).submit()
    assert again.core.phase is SessionPhase.OPEN


def test_a_session_that_ends_while_its_client_closes_it_stays_over() -> None:
    desk = Desk(past=Past(next_index=MAX_UNSEEN)).say(500)
    desk.told()

    assert desk.close().told()[-1] == "end BACKPRESSURE"
    assert desk.core.phase is SessionPhase.OVER
    assert desk.left().told() == []


def test_what_was_seen_before_changes_nothing() -> None:
    desk = Desk().submit().submit().delivered(0).delivered(1)
    desk.told()

    assert desk.seen(2).told() == ["taken 0", "taken 1"]
    assert desk.seen(1).seen(0).seen(2).told() == []


def test_of_results_that_nobody_says_to_have_seen_the_oldest_are_left_to_their_home() -> None:
    desk = Desk(replace(RULES, result_queue_max=2, session_utterances_max=2))
    for index in range(4):
        desk.submit().delivered(index)
    assert [each for each in desk.told() if each.startswith("leave")] == ["leave 0", "leave 1"]

    # A repeated result must stay at the dispatcher: the client may not have it.
    assert desk.delivered(0).told() == []
    assert desk.counts["late_result"] == 1
    assert desk.seen(4).told() == ["taken 2", "taken 3"]


# ---- the end ----


def test_a_session_in_which_nothing_was_said_closes_at_once() -> None:
    assert Desk().close().told() == ["send closed 0 0", "end done"]


def test_a_close_cuts_what_is_gathered_and_waits_for_every_result() -> None:
    desk = Desk().submit().say(100)
    desk.told()

    assert desk.close().told() == ["record 1"]
    assert desk.records[1].cuts[0].reason == common_pb2.FINALIZE_REASON_SESSION_CLOSE
    assert desk.recorded().delivered(1).told() == ["send finalized 1", "submit 1"]
    assert desk.delivered(0).told() == [
        "send result 0", "send result 1", "send ack 2", "send closed 2 0"
    ]  # fmt: skip
    assert desk.seen(2).told() == ["taken 0", "taken 1", "end done"]
    assert desk.core.phase is SessionPhase.OVER


def test_a_close_sends_fragments_too() -> None:
    desk = Desk().say(100, AB).say(100, BA).silence(4000).say(500, AB)
    desk.told()

    assert desk.close().told() == ["record 0 1"]
    assert [cut.direction.src for cut in desk.records[0].cuts] == ["en", "zh"]


def test_a_close_in_the_hangover_keeps_the_reason() -> None:
    desk = Desk().say(500, final=True).close()

    assert desk.records[0].cuts[0].reason == common_pb2.FINALIZE_REASON_IS_FINAL


def test_a_closed_session_waits_a_little_for_the_client_to_say_what_it_has_seen() -> None:
    desk = Desk().submit().delivered().close()
    desk.told()

    assert desk.silence(1999).told() == []
    # Its record stays: the client may resume to get the result.
    assert desk.silence(1).told() == ["leave 0", "end left"]


def test_a_closed_session_tells_how_many_were_missing() -> None:
    desk = Desk().submit().submit().submit().failed(1).delivered(2).delivered(0).seen(2).close()

    assert desk.told()[-2:] == ["taken 0", "send closed 2 1"]


def test_a_client_that_stays_silent_is_closed() -> None:
    desk = Desk().submit().delivered().seen(1)
    desk.told()

    assert desk.silence(1_799_999).told() == []
    assert desk.silence(1).told() == ["send error DEADLINE_EXCEEDED", "send closed 1 0", "end done"]


@pytest.mark.parametrize(
    "sign",
    [
        lambda desk: desk.say(0),
        lambda desk: desk.playback(True),
        lambda desk: desk.seen(0),
        lambda desk: desk.say(0, seq=0),
    ],
)
def test_any_word_of_the_client_is_a_sign_of_life(sign: Callable[[Desk], Desk]) -> None:
    desk = Desk().say(0).silence(1_000_000)
    sign(desk).told()

    assert desk.silence(1_799_999).told() == []
    assert desk.silence(1).told()[0] == "send error DEADLINE_EXCEEDED"


def test_a_client_that_is_not_read_is_not_silent() -> None:
    desk = Desk(replace(RULES, session_utterances_max=1, session_idle_ms=20_000.0)).submit()
    assert "gate shut" in desk.told()

    desk.silence(25_000).delivered()
    assert desk.told() == ["send result 0", "send ack 1", "gate open"]

    assert desk.silence(19_999).told() == []
    assert desk.silence(1).told()[0] == "send error DEADLINE_EXCEEDED"


def test_a_session_that_leaves_says_so_of_its_jobs() -> None:
    desk = Desk().submit().submit().submit().delivered(0).delivered(2).cut()
    desk.told()

    # One is unconfirmed, one waits for an earlier one, which is open; the last has no job.
    assert desk.left().told() == ["leave 0 2 1", "end left"]


@pytest.mark.parametrize("how", [Desk.lost, lambda desk: desk.failed(0, TAKEN_OVER)])
def test_a_session_that_was_taken_over_ends_here(how: Callable[[Desk], Desk]) -> None:
    desk = Desk().submit().cut()
    desk.told()

    how(desk)

    assert desk.told() == [
        "send error SESSION_TAKEN_OVER", "leave 0", "end SESSION_TAKEN_OVER"
    ]  # fmt: skip
    assert desk.timers == {}


def test_the_word_of_a_take_over_counts_for_an_utterance_that_is_over_as_well() -> None:
    desk = Desk().submit().delivered()
    desk.told()

    assert desk.failed(0, TAKEN_OVER).told()[-1] == "end SESSION_TAKEN_OVER"


def test_a_record_that_is_answered_after_the_end_changes_nothing() -> None:
    desk = Desk().cut().left()
    desk.told()
    desk.counts.clear()

    desk.recorded().record_failed().silence(60_000)

    assert desk.told() == []
    assert not desk.counts


# ---- timers ----


@pytest.mark.parametrize("key", [PAUSE, HANGOVER, FRAGMENT, GOODBYE, ("retry", 0), ("record", 0)])
def test_a_timer_of_an_old_generation_does_nothing(key: TimerKey) -> None:
    desk = Desk().say(500)
    desk.told()

    assert desk.timer(key).told() == []


def test_nothing_is_left_to_do_after_the_end() -> None:
    desk = Desk().submit().say(100, BA).say(500).failed(0, DOWN).cut().left()

    assert desk.timers == {}
    assert isinstance(desk.effects[-1], fx.End)
