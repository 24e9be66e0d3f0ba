"""The jobs of a session by example: failures, deadlines, turns, and safe audio."""

from dataclasses import replace

import pytest

from lingua_scheduler.v1 import common_pb2, session_record_pb2
from tests.unit.gateway.desk import (
    AB,
    BA,
    BYTES_PER_MS,
    DOWN,
    HELD_AUDIO_NEEDED,
    OVER_QUOTA,
    RETRYABLE,
    RULES,
    TAKEN_OVER,
    Desk,
)

_REASON = common_pb2.ErrorReason


# ---- failures ----


def test_a_record_that_fails_is_tried_again_and_told_once() -> None:
    desk = Desk().cut().record_failed()
    assert desk.told() == ["record 0", "send error SCHEDULER_DEPENDENCY_DOWN"]

    assert desk.silence(199).told() == []
    assert desk.silence(1).record_failed().told() == ["record 0"]
    # Cuts made meanwhile are recorded together.
    assert desk.cut().told() == ["record 0 1"]
    assert desk.recorded().told()[-1] == "submit 1"
    # The next outage is reported again.
    assert desk.cut().record_failed().told() == ["record 2", "send error SCHEDULER_DEPENDENCY_DOWN"]


def test_what_cannot_be_written_down_until_its_deadline_is_missing_and_the_session_goes_on() -> (
    None
):
    # Deadlines stop without Redis up to a bound, which is 0 here.
    desk = Desk(replace(RULES, redis_outage_max_ms=0.0)).cut().record_failed()
    for _ in range(40):
        desk.silence(100)
    desk.cut()
    while desk.now < 31_300:
        desk.silence(200).record_failed()
    missing = [line for line in desk.told() if "missing" in line or "ack" in line]
    assert missing == ["send missing 0", "send ack 1"]

    desk.silence(200).recorded()

    assert desk.submitted[-1].utterance.index == 1
    [missed] = [each.missing for each in desk.sent if each.HasField("missing")]
    assert missed.why.reason == DOWN
    assert missed.why.message == "no result within 30 s, and 0 s more without Redis; last: why"
    assert desk.delivered(1).told()[-1] == "send ack 2"


@pytest.mark.parametrize("reason", RETRYABLE)
def test_a_job_that_could_not_be_made_is_tried_again_a_little_later_each_time(
    reason: _REASON.ValueType,
) -> None:
    desk = Desk().submit()
    desk.told()

    for wait in (100, 200, 400, 800, 1000, 1000):
        # Reported once while the reason is the same.
        assert desk.failed(0, reason).told() == (["send retrying 0"] if wait == 100 else [])
        assert desk.silence(wait - 1).told() == []
        assert desk.silence(1).told() == ["submit 0"]
    assert desk.accepted().delivered().told()[-1] == "send result 0"


def test_the_word_of_a_try_that_has_failed_does_not_stop_the_next() -> None:
    desk = Desk().submit().failed(0, DOWN)
    desk.told()

    assert desk.accepted().told() == []
    assert desk.silence(100).told() == ["submit 0"]


def test_a_retry_waits_as_long_as_it_was_asked_to() -> None:
    desk = Desk().submit().failed(0, DOWN, after_ms=5000)
    desk.told()

    assert desk.silence(4999).told() == []
    assert desk.silence(1).told() == ["submit 0"]


@pytest.mark.parametrize(
    "reason",
    [
        each
        for each in _REASON.values()
        if each not in (*RETRYABLE, OVER_QUOTA, TAKEN_OVER, HELD_AUDIO_NEEDED)
    ],
)
def test_a_job_that_failed_for_good_is_missing(reason: _REASON.ValueType) -> None:
    desk = Desk().submit()
    desk.told()

    assert desk.failed(0, reason).told() == ["send missing 0", "send ack 1"]
    assert desk.sent[-2].missing.why.reason == reason


def test_a_client_is_told_once_that_it_is_over_its_quota_and_those_behind_wait() -> None:
    desk = Desk().submit().submit()
    desk.told()

    assert desk.failed(0, OVER_QUOTA).told() == ["send error QUOTA_EXCEEDED", "send retrying 0"]
    assert desk.failed(1, OVER_QUOTA, after_ms=150).told() == ["send retrying 1"]
    assert desk.silence(100).told() == ["submit 0"]
    assert desk.failed(0, OVER_QUOTA).told() == []
    # The second is due first, and waits for the first.
    assert desk.silence(50).told() == []
    assert desk.silence(150).told() == ["submit 0"]
    assert desk.accepted(0).told() == ["send accepted 0", "send ack 1", "submit 1"]
    # The client knows already that the second is over the quota.
    assert desk.failed(1, OVER_QUOTA).told() == []
    assert desk.silence(400).accepted(1).told() == ["submit 1", "send accepted 1", "send ack 2"]
    assert desk.submit().failed(2, OVER_QUOTA).told()[-2:] == [
        "send error QUOTA_EXCEEDED",
        "send retrying 2",
    ]


def test_what_the_quota_does_not_let_through_until_its_deadline_is_missing_for_that() -> None:
    desk = Desk().submit().failed(0, OVER_QUOTA, after_ms=60_000)
    desk.told()

    assert desk.silence(30_000).told() == ["cancel 0", "send missing 0", "send ack 1"]
    why = desk.sent[-2].missing.why
    assert why.reason == OVER_QUOTA
    assert why.message == "no result within 30 s; last: why"


def test_the_audio_of_an_accepted_job_is_kept_until_it_is_over() -> None:
    desk = Desk().submit().accepted()

    desk.failed(0, DOWN).silence(100)

    again = desk.submitted[-1].utterance
    assert not again.is_attached
    assert desk.specs.spec(again, desk.now).audio == b"\0" * 500 * BYTES_PER_MS


def test_an_utterance_without_a_result_at_its_deadline_is_cancelled_and_missing() -> None:
    desk = Desk().submit().accepted()
    desk.told()

    assert desk.silence(29_999).told() == []
    assert desk.silence(1).told() == ["cancel 0", "send missing 0"]
    assert desk.counts["deadline_missed"] == 1
    # Its result arrives too late.
    assert desk.delivered().told() == ["taken 0"]
    assert desk.counts["late_result"] == 1
    assert desk.failed().accepted().retrying().partial().told() == []
    assert desk.seen(1).told() == []


def test_one_lost_result_does_not_hold_up_those_after_it_longer_than_its_deadline() -> None:
    desk = Desk().submit().silence(10_000).submit().delivered(1)
    desk.told()

    assert desk.silence(20_000).told() == [
        "cancel 0",
        "send missing 0",
        "send result 1",
        "send ack 2",
    ]


def test_a_repeated_result_is_counted_and_kept_for_a_resume() -> None:
    desk = Desk().submit().submit().delivered(1).delivered(1)
    assert desk.counts["late_result"] == 1
    desk.delivered(0).delivered(0)
    assert desk.counts["late_result"] == 2
    assert [line for line in desk.told() if "taken" in line or "result" in line] == [
        "send result 0", "send result 1"
    ]  # fmt: skip

    desk.seen(2).told()

    # A dispatcher that delivers it now has not heard that it was taken.
    assert desk.delivered(0).told() == ["taken 0"]


def test_a_result_of_what_is_missing_behind_another_is_let_go() -> None:
    desk = Desk().submit().submit().failed(1)
    desk.told()

    assert desk.delivered(1).told() == ["taken 1"]
    assert desk.delivered(0).told() == ["send result 0", "send missing 1", "send ack 2"]


# ---- backpressure ----


def test_while_too_many_utterances_are_under_way_the_client_is_not_read() -> None:
    desk = Desk(replace(RULES, session_utterances_max=2)).submit()
    assert "gate shut" not in desk.told()

    assert desk.cut().told() == ["record 1", "gate shut"]
    assert desk.recorded().delivered(1).told() == ["send finalized 1", "submit 1"]
    assert desk.delivered(0).told() == [
        "send result 0", "send result 1", "send ack 2", "gate open"
    ]  # fmt: skip


def test_audio_that_waits_unread_is_no_pause() -> None:
    desk = Desk(replace(RULES, session_utterances_max=1)).say(500, final=True).say(250)
    desk.say(250, final=False)
    assert desk.told() == ["record 0", "gate shut"]
    desk.recorded().silence(20_000)
    assert [line for line in desk.told() if line.startswith("record")] == []

    desk.delivered(0)
    assert desk.told()[-1] == "gate open"
    desk.silence(2900).say(250).silence(100)

    assert desk.told() == []
    desk.silence(2900 + 150)
    assert desk.records[-1].cuts[0].chunks[0] == session_record_pb2.ChunkRange(first=1, end=4)


def test_a_close_reads_the_client_again() -> None:
    desk = Desk(replace(RULES, session_utterances_max=1)).submit()
    desk.told()

    assert desk.close().told() == ["gate open"]


# ---- turns: decision 12 ----


def test_after_a_pause_the_next_job_of_the_direction_waits_until_the_first_is_over() -> None:
    desk = Desk().pause().recorded().cut().recorded()
    assert desk.told() == [
        "record 0",
        "send finalized 0",
        "submit 0",
        "record 1",
        "send finalized 1",
    ]

    assert desk.accepted(0).told() == ["send accepted 0", "send ack 1"]
    assert desk.delivered(0).told() == ["send result 0", "submit 1"]


@pytest.mark.parametrize("rules", [{"max_duration_ms": 1000.0}, {"max_length_bytes": 20_000}])
def test_long_speech_goes_one_job_after_the_other(rules: dict[str, int]) -> None:
    desk = Desk(replace(RULES, **rules))  # type: ignore[arg-type]
    for _ in range(6):
        desk.say(500)
    desk.end().silence(200).recorded()
    desk.recorded()
    assert [line for line in desk.told() if line.startswith("submit")] == ["submit 0"]

    assert desk.failed(0).told() == ["send missing 0", "send ack 2", "submit 1"]
    assert desk.delivered(1).told() == ["send result 1", "send ack 4", "submit 2"]


def test_after_a_manual_end_all_is_free() -> None:
    desk = Desk().submit().submit()

    assert [each.utterance.index for each in desk.submitted] == [0, 1]


def test_directions_do_not_wait_for_each_other() -> None:
    desk = Desk().pause().recorded().submit(BA)

    assert [each.utterance.index for each in desk.submitted] == [0, 1]


def test_the_end_of_a_turn_is_accepted_before_the_next_turn_begins() -> None:
    desk = Desk().pause().recorded().submit().submit()
    assert [each.utterance.index for each in desk.submitted] == [0]

    desk.delivered(0)
    # It goes to the node of its turn and ends the turn: later ones must not overtake it.
    assert [each.utterance.index for each in desk.submitted] == [0, 1]
    desk.accepted(1)
    assert [each.utterance.index for each in desk.submitted] == [0, 1, 2]


def test_nothing_that_follows_a_turn_overtakes_its_end() -> None:
    desk = Desk().pause().recorded().submit().submit().submit()
    assert [each.utterance.index for each in desk.submitted] == [0]

    desk.delivered(0).accepted(1)

    assert [each.utterance.index for each in desk.submitted] == [0, 1, 2, 3]


def test_a_change_of_direction_ends_an_utterance_that_may_go_on() -> None:
    desk = Desk().say(500, AB).say(500, BA).recorded().end(BA).silence(200).recorded()
    desk.cut(AB).recorded()
    assert [each.utterance.index for each in desk.submitted] == [0, 1]

    desk.delivered(0)

    assert [each.utterance.index for each in desk.submitted] == [0, 1, 2]


def test_a_retry_keeps_its_turn() -> None:
    desk = Desk().pause().recorded().submit().failed(0, DOWN)
    desk.told()

    assert desk.silence(100).told() == ["submit 0"]
    assert desk.delivered(0).told() == ["send result 0", "send ack 1", "submit 1"]


# ---- acknowledgements ----


def test_audio_is_acknowledged_only_as_far_as_everything_before_is_safe() -> None:
    desk = Desk().submit().submit().submit().say(500)

    assert desk.accepted(1).acked() == []
    assert desk.accepted(0).acked() == [2]
    assert desk.failed(2).acked() == [2, 3]
    desk.end().silence(200).recorded().accepted(3)
    assert desk.acked() == [2, 3, 5]


def test_chunks_that_hold_nothing_are_safe_at_once() -> None:
    assert Desk().say(0).end().acked() == [1, 2]


def test_a_fragment_of_the_other_side_holds_the_acknowledgement_back() -> None:
    desk = Desk().say(100, BA).cut(AB).recorded().accepted(0).delivered(0)
    assert desk.acked() == []

    desk.silence(10_000).recorded()
    assert desk.acked() == []
    assert desk.accepted(1).acked() == [2]
