"""The timeline of a job, on a virtual clock."""

import random
from typing import Any

import pytest

from lingua_scheduler.services.dispatcher.job.timeline import MAX_STEPS, Timeline
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

WALL_US = 1_700_000_000_000_000
STEP = common_pb2.JobStep
ASR = common_pb2.STAGE_KIND_ASR

Row = tuple[str, int, float, float, str]


def timeline(*before: common_pb2.JobStep, **more: Any) -> Timeline:
    """A timeline that begins at 1000 ms of the event loop's clock."""
    return Timeline(before, now=1000.0, wall_us=WALL_US, **more)


def before(kind: STEP.Kind.ValueType, at_ms: float, took_ms: float = 0) -> common_pb2.JobStep:
    """A step that the gateway recorded, relative to the submission."""
    started_us = WALL_US + int(at_ms * 1000)
    return STEP(kind=kind, started_us=started_us, took_us=int(took_ms * 1000))


def rows(made: Timeline, now: float = 9000.0) -> list[Row]:
    """Each step: kind, attempt, start and end in ms from the submission, and detail."""
    return [
        (
            STEP.Kind.Name(each.kind).removeprefix("KIND_").lower(),
            each.attempt,
            (each.started_us - WALL_US) / 1000,
            (each.started_us + each.took_us - WALL_US) / 1000,
            each.detail,
        )
        for each in made.messages(now).steps
    ]


def placed(made: Timeline, at: float, number: int = 1, *, by_relay: bool = False) -> None:
    """Asks at a time, is answered 2 ms later, and sends at once."""
    made.asks(at, number)
    made.placed(at + 2, number, f"n{number}")
    made.sends(at + 2, number, f"n{number}", by_relay=by_relay)


def test_a_job_that_goes_well_has_every_step_one_after_the_other() -> None:
    made = timeline(
        before(STEP.KIND_GATHER, -300, 200),
        before(STEP.KIND_HANGOVER, -100, 50),
        before(STEP.KIND_SUBMIT, -50),
    )
    placed(made, 1001, by_relay=True)
    made.sent(1010, 1, WALL_US + 5000)
    made.acked(1010, 1)
    timings = [dispatcher_pb2.StageTiming(stage=ASR, started_ms=1, took_ms=20)]
    made.result(1100, 1, timings)
    made.over(1100)
    made.delivered(7000)
    assert rows(made) == [
        ("gather", 0, -300, -100, ""),
        ("hangover", 0, -100, -50, ""),
        ("submit", 0, -50, 0, ""),
        ("allocate", 1, 1, 3, ""),
        ("send", 1, 3, 5, "by relay"),
        ("ack", 1, 5, 10, ""),
        ("node", 1, 10, 100, ""),
        ("stage", 1, 11, 31, "asr"),
        ("deliver", 0, 100, 107, ""),
    ]
    assert made.messages(9000).steps[6].node_id == "n1"


def test_each_attempt_that_ended_badly_says_how_in_its_last_step() -> None:
    made = timeline()
    placed(made, 1000)
    made.ends(1500, 1, "ACK_TIMEOUT")
    placed(made, 1500, 2)
    made.acked(1510, 2)
    made.ends(1600, 2, "FAILED")
    placed(made, 1600, 3)
    made.ends(1700, 3, "SEND_FAILED")
    made.over(1700, "JOB_FAILED")
    told = [(kind, attempt, end, how) for kind, attempt, _, end, how in rows(made) if how]
    assert told == [
        ("ack", 1, 500, "ACK_TIMEOUT"),
        ("node", 2, 600, "FAILED"),
        ("send", 3, 700, "SEND_FAILED"),
    ]
    assert ("ack", 3) not in [row[:2] for row in rows(made)]


def test_a_wait_is_one_step_up_to_the_question_that_was_granted() -> None:
    made = timeline()
    made.asks(1000, 1)
    made.refused(1002, "ALL_CANDIDATES_FULL_OR_FAILED")
    made.waits(1002, 1)
    for at in (1100, 1200):
        made.asks(at, 1)
        made.refused(at + 2, "ALL_CANDIDATES_FULL_OR_FAILED")
        made.waits(at + 2, 1)
    placed(made, 1300)
    assert rows(made)[:3] == [
        ("allocate", 1, 0, 2, "ALL_CANDIDATES_FULL_OR_FAILED"),
        ("queue", 1, 2, 300, ""),
        ("allocate", 1, 300, 302, ""),
    ]


def test_a_wait_that_leads_nowhere_says_why_it_ended() -> None:
    made = timeline()
    made.waits(1000, 1)
    made.asks(1900, 1)
    made.over(3000, "JOB_CANCELLED")
    made.placed(3100, 1, "late")
    made.ends(3100, 1, "HEDGE_LOST")
    assert rows(made) == [("queue", 1, 0, 2000, "JOB_CANCELLED")]


def test_a_hedge_and_the_one_that_was_slower_are_told_apart() -> None:
    made = timeline()
    placed(made, 1000)
    made.asks(1250, 2, hedge=True)
    made.placed(1252, 2, "n2")
    made.sends(1252, 2, "n2", by_relay=False)
    made.acked(1260, 2)
    made.ends(1260, 1, "HEDGE_LOST")
    told = [(kind, attempt, how) for kind, attempt, _, _, how in rows(made) if how]
    assert told == [("ack", 1, "HEDGE_LOST"), ("allocate", 2, "hedge"), ("node", 2, "under way")]


def test_a_hedge_that_came_too_late_is_given_back_at_once() -> None:
    made = timeline()
    placed(made, 1000)
    made.asks(1250, 2, hedge=True)
    made.acked(1251, 1)
    made.placed(1252, 2, "n2")
    made.ends(1252, 2, "HEDGE_LOST")
    assert ("allocate", 2, 250, 252, "hedge, HEDGE_LOST") in rows(made)


def test_what_goes_on_lasts_until_now() -> None:
    made = timeline()
    made.asks(1000, 1)
    assert rows(made, 1040) == [("allocate", 1, 0, 40, "under way")]
    made.placed(1050, 1, "n1")
    made.sends(1050, 1, "n1", by_relay=False)
    assert rows(made, 1090)[-1] == ("ack", 1, 50, 90, "under way")


@pytest.mark.parametrize("sent_us", [0, WALL_US - 10**9, WALL_US + 10**12])
def test_the_clock_of_another_machine_makes_no_step_negative(sent_us: int) -> None:
    made = timeline(before(STEP.KIND_GATHER, +5000, 100), before(STEP.KIND_SUBMIT, +5000))
    placed(made, 1000, by_relay=True)
    made.sent(1010, 1, sent_us)
    made.acked(1010, 1)
    told = rows(made)
    assert all(start <= end for _, _, start, end, _ in told)
    assert [row[0] for row in told][-4:] == ["allocate", "send", "ack", "node"]
    assert told[-1][2] == 10


def test_a_node_cannot_tell_of_stages_beyond_its_time_nor_of_too_many() -> None:
    made = timeline()
    placed(made, 1000)
    made.acked(1010, 1)
    endless = dispatcher_pb2.StageTiming(stage=ASR, started_ms=5, took_ms=10**6)
    made.result(1100, 1, [endless] * 100)
    stages = [row for row in rows(made) if row[0] == "stage"]
    assert len(stages) == 8
    assert stages[0] == ("stage", 1, 15, 100, "asr")


def test_a_job_that_begins_anew_keeps_what_was_before() -> None:
    given = (before(STEP.KIND_GATHER, -300, 200), before(STEP.KIND_SUBMIT, -50))
    first = timeline(*given)
    first.asks(1000, 1)
    first.refused(1002, "NO_CAPABLE_NODE")
    first.over(1002, "NO_CAPABLE_NODE")
    again = Timeline(
        (given[0], before(STEP.KIND_SUBMIT, 2)), now=1100, wall_us=WALL_US + 100_000, earlier=first
    )
    assert [row[:1] + row[2:4] for row in rows(again)] == [
        ("gather", -300, -100),
        ("submit", -50, 0),
        ("allocate", 0, 2),
        ("submit", 2, 100),
    ]


def test_a_record_has_a_bounded_number_of_steps_and_the_first_and_last_are_among_them() -> None:
    made = timeline(before(STEP.KIND_GATHER, -300, 200), before(STEP.KIND_SUBMIT, -50))
    for number in range(1, 100):
        placed(made, 1000 + number, number)
        made.ends(1000 + number + 3, number, "REJECTED")
    told = rows(made)
    assert len(told) <= MAX_STEPS
    assert told[0][0] == "gather"
    assert told[-1][1] == 99


def happen(made: Timeline, chance: random.Random, now: float) -> None:
    """Any event, of any attempt."""
    number = chance.randrange(1, 4)
    match chance.randrange(9):
        case 0:
            made.asks(now, number)
        case 1:
            made.refused(now, "NO_CAPABLE_NODE")
        case 2:
            made.waits(now, number)
        case 3:
            made.placed(now, number, f"n{number}")
        case 4:
            made.sends(now, number, f"n{number}", by_relay=False)
        case 5:
            made.sent(now, number, WALL_US + chance.randrange(10**5))
        case 6:
            made.acked(now, number)
        case 7:
            made.result(now, number, ())
        case 8:
            made.ends(now, number, chance.choice(("FAILED", "SEND_FAILED")))


def test_whatever_happens_in_whatever_order_the_steps_make_sense() -> None:
    chance = random.Random(4)
    for _ in range(300):
        made, now = timeline(before(STEP.KIND_SUBMIT, -5)), 1000.0
        for _ in range(40):
            now += chance.random() * 3
            happen(made, chance, now)
        assert all(start <= end for _, _, start, end, _ in rows(made, now))
        made.over(now, "JOB_CANCELLED")
        over = rows(made, now + 1000)
        assert "under way" not in {row[4] for row in over}
        assert max(row[3] for row in over) <= now - 1000 + 0.002


def test_the_record_has_the_kind_of_the_result_and_nothing_that_was_said() -> None:
    made = timeline()
    result = dispatcher_pb2.JobResult(
        kind=dispatcher_pb2.JobResult.KIND_HELD, joined_utterances=range(5, 300)
    )
    result.texts.source = "private"
    made.won(result, turn_broken=True)
    record = common_pb2.JobSteps.FromString(made.record(2000))
    assert record.result_kind == dispatcher_pb2.JobResult.KIND_HELD
    assert list(record.joined_utterances) == list(range(5, 105))
    assert record.turn_broken
    assert b"private" not in made.record(2000)


def test_a_kind_of_result_that_is_not_known_is_recorded_as_unspecified() -> None:
    for kind in (-1, 99, 2**31 - 1):
        made = timeline()
        made.won(dispatcher_pb2.JobResult(kind=kind), turn_broken=False)  # type: ignore[arg-type]
        assert made.messages(2000).result_kind == 0
