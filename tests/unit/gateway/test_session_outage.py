"""Time without Redis does not count against an utterance's deadline, up to a bound."""

from dataclasses import replace

from lingua_scheduler.v1 import common_pb2
from tests.unit.gateway.desk import DOWN, FOR_GOOD, RULES, Desk

FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
EXCEEDED = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
BRIEF = replace(RULES, redis_outage_max_ms=60_000.0)


def without_records(desk: Desk, ms: float) -> Desk:
    """For this time no cut can be recorded."""
    until = desk.now + ms
    while desk.now < until:
        desk.silence(min(200.0, until - desk.now)).record_failed()
    return desk


def without_jobs(desk: Desk, ms: float, index: int = 0) -> Desk:
    """For this time no job can be created."""
    until = desk.now + ms
    while desk.now < until:
        desk.failed(index, DOWN).silence(min(1000.0, until - desk.now))
    return desk


def missing(desk: Desk) -> list[tuple[int, int]]:
    told = [each.missing for each in desk.sent if each.HasField("missing")]
    return [(each.utterance_index, each.why.reason) for each in told]


def test_what_was_said_without_redis_goes_through_when_it_is_back() -> None:
    desk = Desk().cut().record_failed()
    without_records(desk, 45_000).cut()
    without_records(desk, 45_000)
    assert missing(desk) == []

    desk.silence(200).recorded()

    assert [each.utterance.index for each in desk.submitted] == [0, 1]
    # The time before the outage counts, and the time after it.
    assert 29_000 < desk.submitted[0].utterance.deadline_ms - desk.now <= 30_000
    desk.accepted(0).delivered(0).accepted(1).delivered(1)
    assert [each.utterance_index for each in desk.results()] == [0, 1]


def test_a_job_that_cannot_be_made_without_redis_is_made_when_it_is_back() -> None:
    desk = without_jobs(Desk().submit(), 90_000)

    assert missing(desk) == []
    left_ms = desk.submitted[-1].utterance.deadline_ms - desk.now
    assert 28_000 < left_ms <= 30_000
    assert desk.accepted().delivered().results()


def test_one_that_waits_for_another_of_its_turn_waits_without_losing_time() -> None:
    desk = Desk().pause().recorded().cut().recorded()
    assert len(desk.submitted) == 1

    without_jobs(desk, 90_000).accepted().delivered()

    assert missing(desk) == []
    assert [each.utterance.index for each in desk.submitted][-1] == 1


def test_beyond_the_bound_it_is_missing_for_the_true_reason() -> None:
    desk = without_records(Desk(BRIEF).cut().record_failed(), 89_000)
    assert missing(desk) == []

    without_records(desk, 1500)

    assert missing(desk) == [(0, DOWN)]
    why = next(each.missing.why for each in desk.sent if each.HasField("missing"))
    assert why.message == "no result within 30 s, and 60 s more without Redis; last: why"


def test_the_deadline_goes_on_where_it_stood_when_redis_is_back() -> None:
    desk = Desk().submit().silence(20_000)
    without_jobs(desk, 60_000).failed(0, FULL)

    desk.silence(8_000)
    assert missing(desk) == []
    desk.silence(3_000)

    assert missing(desk) == [(0, EXCEEDED)]


def test_a_result_of_another_utterance_does_not_say_that_redis_is_back() -> None:
    desk = Desk().submit().accepted(0).submit()
    desk.failed(1, DOWN).delivered(0)

    without_jobs(desk, 45_000, index=1)

    assert missing(desk) == []


def test_what_is_over_for_good_stops_no_clock() -> None:
    desk = Desk().submit().submit().failed(0, DOWN)
    desk.silence(100).failed(0, FOR_GOOD).silence(30_000)

    assert missing(desk) == [(0, FOR_GOOD), (1, EXCEEDED)]
