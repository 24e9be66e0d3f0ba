"""Turns that a node holds when the speaker has finished: a flush without speech ends them."""

from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.gateway.desk import AB, BA, Desk

IS_FINAL = common_pb2.FINALIZE_REASON_IS_FINAL
CLOSE = common_pb2.FINALIZE_REASON_SESSION_CLOSE


def held(desk: Desk, index: int = 0, direction: tuple[str, str] = AB) -> Desk:
    """The node holds the whole utterance, which is recorded."""
    return answered_held(desk, index, direction).recorded()


def answered_held(desk: Desk, index: int = 0, direction: tuple[str, str] = AB) -> Desk:
    result = dispatcher_pb2.JobResult(kind=dispatcher_pb2.JobResult.KIND_HELD)
    delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=1)
    job_id = desk.job_id(index, direction)
    return desk.do(desk.core.on_delivered(desk.now, index, job_id, delivered))


def paused(direction: tuple[str, str] = AB) -> Desk:
    """An utterance that a pause ended, accepted by a node."""
    return Desk().pause(direction).recorded().accepted()


def rest(desk: Desk) -> tuple[int, int, list[tuple[int, int]]]:
    """The last utterance that was submitted: index, reason, chunks."""
    utterance = desk.submitted[-1].utterance
    assert utterance.audio_ms == 0
    return utterance.index, utterance.reason, utterance.ranges


def test_closing_ends_what_is_held_and_its_text_comes_before_the_end() -> None:
    desk = held(paused())
    desk.told()

    assert desk.close().told() == ["record 1"]
    assert desk.recorded().told()[-1] == "submit 1"
    assert rest(desk) == (1, CLOSE, [(1, 1)])
    spec = desk.specs.spec(desk.submitted[-1].utterance, desk.now)
    assert (spec.is_flush, spec.audio, spec.audio_ms) == (True, b"", 0)

    told = desk.accepted(1).delivered(1).told()
    assert told == ["send accepted 1", "send result 1", "send closed 2 0"]


def test_what_is_held_only_after_the_close_is_ended_too() -> None:
    desk = paused().close()
    desk.told()

    assert answered_held(desk).told() == ["send result 0", "record 0 1"]
    assert rest(desk.recorded()) == (1, CLOSE, [(1, 1)])


def test_an_end_that_is_said_after_the_pause_ends_what_is_held() -> None:
    desk = held(paused())
    desk.told()

    desk.end()

    assert "record 1" in desk.told()
    # It is positioned after the chunk that ended it.
    assert rest(desk.recorded()) == (1, IS_FINAL, [(2, 2)])


def test_an_end_that_is_said_before_it_is_known_to_be_held_is_remembered() -> None:
    desk = paused().end()
    assert desk.told()[-1] == "send ack 2"

    assert answered_held(desk).told() == ["send result 0", "record 0 1"]


def test_where_the_sentence_was_whole_nothing_follows_its_end() -> None:
    desk = paused().end().delivered()
    desk.told()
    # Neither the earlier end nor a new one creates a flush.
    assert desk.end().silence(100).told() == ["send ack 3"]
    assert desk.close().told() == ["send closed 1 0"]


def test_more_speech_takes_what_is_held_along() -> None:
    desk = held(paused()).cut().recorded()
    assert desk.submitted[-1].utterance.audio_ms > 0
    assert not desk.specs.spec(desk.submitted[-1].utterance, desk.now).is_flush

    desk.accepted(1).delivered(1).told()

    assert desk.core.phase.name == "OPEN"
    desk.close()
    assert len(desk.submitted) == 2


def test_each_direction_is_ended_for_itself() -> None:
    desk = held(paused(AB))
    desk.pause(BA).recorded().accepted(1)
    held(desk, 1, BA)
    desk.told()

    desk.end(BA)
    assert rest(desk.recorded())[0] == 2
    assert desk.submitted[-1].utterance.direction == BA
    desk.accepted(2).delivered(2, BA)

    desk.close()
    assert rest(desk.recorded())[:2] == (3, CLOSE)
    assert desk.submitted[-1].utterance.direction == AB


def test_the_next_gateway_makes_it_again_without_any_chunk() -> None:
    desk = held(paused()).close()
    [cut] = desk.records[-1].cuts
    past = Past(next_index=2, seen=1, next_seq=1, cuts=(cut,))

    after = Desk(past=past)

    assert after.told()[-1] == "submit 1"
    assert rest(after) == (1, CLOSE, [(1, 1)])
    assert after.submitted[-1].utterance.job_id == desk.job_id(1)


def test_a_try_that_fails_is_made_again() -> None:
    desk = held(paused()).close().recorded().accepted(1)
    desk.failed(1, common_pb2.ERROR_REASON_NO_CAPABLE_NODE)
    desk.told()

    assert desk.silence(100).told() == ["submit 1"]
