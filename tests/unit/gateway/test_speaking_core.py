"""A session that speaks to a room: a job in each wanted language, and outcomes for the room."""

from dataclasses import replace

import pytest

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionPhase
from lingua_scheduler.services.session_gateway.session.speaking.lane import (
    BELIEVE_MS,
    TRIES_TO_BELIEVE,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.gateway.desk import DOWN, FOR_GOOD, RULES, TAKEN_OVER
from tests.unit.gateway.room_desk import HELD, RoomDesk

NO_NODE = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
NOT_FOUND = common_pb2.ERROR_REASON_JOB_NOT_FOUND


# ---- jobs ----


def test_an_utterance_becomes_one_job_for_each_language_that_is_wanted() -> None:
    desk = RoomDesk().speak()

    assert desk.jobs == [(0, "fr"), (0, "de")]
    french, german = (each.utterance for each in desk.submitted)
    assert french.job_id == desk.job_id_in(0, "fr")
    assert german.job_id == desk.job_id_in(0, "de", text=True)
    assert french.chunks == german.chunks != []


def test_no_job_is_submitted_before_the_room_has_said_what_it_wants() -> None:
    desk = RoomDesk()
    desk.say(500, None, final=True).silence(200)

    assert (desk.jobs, len(desk.records)) == ([], 1)


def test_nobody_listens_so_there_is_no_job_and_the_audio_is_safe() -> None:
    desk = RoomDesk()
    desk.wanted = {}
    desk.speak()

    assert desk.jobs == []
    assert desk.acked() == [1]
    assert desk.receipts() == [(10, [], [])]


def test_a_language_begins_and_ends_with_the_next_utterance() -> None:
    desk = RoomDesk().speak()
    desk.wanted = {"fr": True, "ja": True}
    desk.speak()
    desk.wanted = {"ja": True}
    desk.speak()

    assert desk.jobs == [(0, "fr"), (0, "de"), (1, "fr"), (1, "ja"), (2, "ja")]


def test_audio_is_safe_when_all_languages_have_a_job_that_a_node_has() -> None:
    desk = RoomDesk().speak().accept(0, "fr")
    assert desk.acked() == []

    desk.accept(0, "de")
    assert desk.acked() == [1]


# ---- outcomes ----


def test_an_outcome_goes_to_the_room_at_once_however_slow_other_languages_are() -> None:
    desk = RoomDesk().speak().speak().accept(0, "fr", "de").accept(1, "fr", "de")
    desk.effects.clear()

    desk.deliver(1, "de", speech=b"spoken")

    [publication] = desk.publications()
    told = publication.event.result
    assert (told.room_index, told.language, told.spoken_language) == (11, "de", "en")
    assert (told.speaker, told.session_id) == ("Ann", "s")
    assert told.texts.translated == "1 in de"
    assert publication.speech == b"spoken"
    assert told.speech == b""


def test_the_speaker_gets_a_receipt_when_all_languages_have_an_outcome_and_in_order() -> None:
    desk = RoomDesk().speak().speak()
    desk.finish(1, "fr", "de").finish(0, "de")
    assert desk.receipts() == []

    desk.fail(0, "fr").published(0, "fr")

    assert desk.receipts() == [(10, ["de"], ["fr"]), (11, ["de", "fr"], [])]


def test_a_result_is_taken_from_its_dispatcher_only_when_the_room_has_it() -> None:
    desk = RoomDesk().speak().accept(0, "fr").deliver(0, "fr")
    assert not any(isinstance(each, fx.Taken) for each in desk.effects)

    desk.published(0, "fr")

    assert fx.Taken(desk.job_id_in(0, "fr")) in desk.effects


def test_an_outcome_that_the_room_did_not_take_is_put_again() -> None:
    desk = RoomDesk().speak().accept(0, "fr").deliver(0, "fr")
    desk.effects.clear()

    desk.do(desk.core.on_publish_failed(desk.now, "fr", 0)).silence(200)

    assert [each.result.room_index for each in desk.events()] == [10]


def test_a_room_that_never_takes_an_outcome_does_not_hold_the_speaker_up_for_ever() -> None:
    desk = RoomDesk(replace(RULES, redis_outage_max_ms=1000.0))
    desk.wanted = {"de": False}
    desk.speak().accept(0, "de").deliver(0, "de")
    for _ in range(6):
        desk.do(desk.core.on_publish_failed(desk.now, "de", 0)).silence(200)

    assert len(desk.receipts()) == 1


def test_a_language_without_a_result_by_its_deadline_is_missing_in_the_room() -> None:
    desk = RoomDesk().speak().finish(0, "de").accept(0, "fr")
    desk.effects.clear()

    desk.silence(30_000)

    [event] = desk.events()
    assert event.missing.why.reason == common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    assert (event.missing.room_index, event.missing.language) == (10, "fr")
    desk.published(0, "fr")
    assert desk.receipts() == [(10, ["de"], ["fr"])]


def test_retries_of_two_languages_do_not_disturb_each_other() -> None:
    desk = RoomDesk().speak().fail(0, "fr", DOWN)
    desk.silence(50)
    desk.fail(0, "de", DOWN)
    desk.submitted.clear()

    desk.silence(50)
    assert desk.jobs == [(0, "fr")]
    desk.silence(50)
    assert desk.jobs == [(0, "fr"), (0, "de")]


# ---- the speaker's own language ----


def test_the_own_language_gets_captions_by_a_text_job_whatever_is_wanted() -> None:
    desk = RoomDesk()
    desk.wanted = {"en": True}
    desk.speak()

    [submit] = desk.submitted
    assert submit.utterance.direction == ("en", "en")
    assert submit.utterance.job_id == desk.job_id_in(0, "en", text=True)


def test_without_a_node_for_captions_the_own_language_has_the_original_only() -> None:
    desk = RoomDesk()
    desk.wanted, desk.wants_original = {"en": True}, True
    desk.speak()
    for _ in range(TRIES_TO_BELIEVE):
        desk.fail(0, "en", NO_NODE).silence(1000)

    [publication] = desk.publications()
    assert publication.event.result.texts.source == ""
    assert publication.event.result.original_format == desk_format()
    assert len(publication.original) == 500 * 16
    desk.published(0, "en")
    assert desk.receipts() == [(10, ["en"], [])]


def test_captions_that_no_node_could_make_are_tried_again_only_after_a_while() -> None:
    desk = RoomDesk()
    desk.wanted = {"en": False}
    desk.speak()
    for _ in range(TRIES_TO_BELIEVE):
        desk.fail(0, "en", NO_NODE).silence(1000)
    desk.published(0, "en")
    desk.submitted.clear()

    desk.speak().published(1, "en")
    assert desk.jobs == []
    desk.silence(BELIEVE_MS)
    desk.speak()
    assert desk.jobs == [(2, "en")]


def test_the_original_is_put_once_whatever_the_number_of_languages() -> None:
    desk = RoomDesk()
    desk.wants_original = True
    desk.speak().finish(0, "fr").accept(0, "de").deliver(0, "de")

    first, second = desk.publications()
    assert (len(first.original), len(second.original)) == (500 * 16, 0)
    assert first.event.result.original_format == second.event.result.original_format
    assert second.event.result.HasField("original_format")


# ---- speech that no node makes ----


def test_a_language_that_no_node_speaks_gets_captions_at_least() -> None:
    desk = RoomDesk()
    desk.wanted = {"fr": True}
    desk.speak()
    desk.submitted.clear()
    for _ in range(TRIES_TO_BELIEVE):
        desk.fail(0, "fr", NO_NODE).silence(1000)

    assert desk.submitted[-1].utterance.job_id == desk.job_id_in(0, "fr", text=True)
    desk.finish(0, "fr")
    assert desk.receipts() == [(10, ["fr"], [])]


def test_one_refusal_is_not_believed_because_nodes_may_be_reconnecting() -> None:
    desk = RoomDesk()
    desk.wanted = {"fr": True}
    desk.speak().fail(0, "fr", NO_NODE).silence(1000)

    assert desk.submitted[-1].utterance.job_id == desk.job_id_in(0, "fr")


# ---- held audio ----


def test_held_audio_belongs_to_one_language_and_is_joined_there() -> None:
    desk = RoomDesk()
    desk.say(500, None).silence(3150)
    desk.placed().accept(0, "fr", "de")
    desk.deliver(0, "fr", kind=HELD).published(0, "fr").deliver(0, "de").published(0, "de")
    desk.placed()  # the hold is recorded
    desk.speak()

    french = next(each.utterance for each in desk.submitted if each.utterance.index == 1)
    assert (french.direction.tgt, french.held) == ("fr", (0,))
    german = desk.submitted[-1].utterance
    assert (german.direction.tgt, german.held) == ("de", ())
    desk.effects.clear()
    desk.accept(1, "fr").deliver(1, "fr", joined=(0,))
    assert list(desk.events()[0].result.joined_indexes) == [10]


def test_a_hold_is_recorded_with_its_language() -> None:
    desk = RoomDesk()
    desk.say(500, None).silence(3150)
    desk.placed().accept(0, "fr", "de").deliver(0, "fr", kind=HELD)

    [cut] = desk.records[-1].cuts
    assert not cut.is_held
    assert {each.language: each.is_held for each in cut.languages} == {"fr": True, "de": False}


def test_an_end_without_speech_flushes_only_the_languages_that_hold_audio() -> None:
    desk = RoomDesk()
    desk.say(500, None).silence(3150)
    desk.placed().accept(0, "fr", "de")
    desk.deliver(0, "fr", kind=HELD).published(0, "fr").deliver(0, "de").published(0, "de")
    desk.placed()
    desk.submitted.clear()

    desk.say(0, None, final=True).silence(200)
    assert [each.language for each in desk.records[-1].cuts[0].languages] == ["fr"]
    desk.placed()

    assert desk.jobs == [(1, "fr")]
    assert desk.submitted[0].utterance.is_flush


def test_a_close_flushes_and_ends_when_the_room_has_everything() -> None:
    desk = RoomDesk()
    desk.wanted = {"fr": True}
    desk.say(500, None).silence(3150)
    desk.placed().accept(0, "fr").deliver(0, "fr", kind=HELD).published(0, "fr").placed()
    desk.close()
    desk.placed()
    assert desk.jobs == [(0, "fr"), (1, "fr")]

    desk.finish(1, "fr")

    assert desk.core.phase is SessionPhase.CLOSED
    assert desk.sent[-1].closed.results == 2


def test_audio_that_a_node_holds_is_dropped_when_nobody_wants_its_language_any_more() -> None:
    desk = RoomDesk()
    desk.say(500, None).silence(3150)
    desk.placed().accept(0, "fr", "de")
    desk.deliver(0, "fr", kind=HELD).published(0, "fr").deliver(0, "de").published(0, "de")
    desk.placed()
    desk.wanted = {"de": False}
    desk.speak().finish(1, "de")
    desk.submitted.clear()

    desk.close()

    assert desk.jobs == []
    assert desk.core.phase is SessionPhase.CLOSED


# ---- the client leaves ----


def test_the_room_gets_what_was_said_before_the_client_left() -> None:
    desk = RoomDesk().speak()
    desk.left()
    assert desk.core.phase is SessionPhase.LEFT

    desk.accept(0, "fr", "de").deliver(0, "fr").deliver(0, "de").published(0, "fr")
    assert desk.core.phase is SessionPhase.LEFT
    desk.published(0, "de")

    assert desk.core.phase is SessionPhase.OVER
    assert desk.timers == {}


def test_a_cut_that_is_being_recorded_when_the_client_leaves_is_not_lost() -> None:
    desk = RoomDesk()
    desk.say(500, None, final=True).silence(200)
    desk.left()
    desk.record_failed().silence(200)

    desk.placed().finish(0, "fr", "de")

    assert desk.core.phase is SessionPhase.OVER


def test_speech_that_was_not_cut_waits_for_the_client_to_send_it_again() -> None:
    desk = RoomDesk().speak()
    desk.say(500, None)
    desk.left()
    desk.silence(10_000)

    assert len(desk.records) == 1


def test_a_client_that_leaves_with_nothing_open_ends_the_session_here() -> None:
    desk = RoomDesk().speak().finish(0, "fr", "de")
    desk.left()

    assert desk.core.phase is SessionPhase.OVER


@pytest.mark.parametrize("how", ["lost", "failed"])
def test_another_gateway_takes_over_what_the_room_waits_for(how: str) -> None:
    desk = RoomDesk().speak()
    desk.left()
    if how == "lost":
        desk.lost()
    else:
        desk.fail(0, "fr", TAKEN_OVER)

    assert desk.core.phase is SessionPhase.OVER
    [end] = [each for each in desk.effects if isinstance(each, fx.End)]
    assert end.why is not None
    assert end.why.reason == TAKEN_OVER


def test_nothing_that_the_client_could_say_matters_after_it_has_left() -> None:
    desk = RoomDesk().speak()
    desk.left()
    desk.effects.clear()
    desk.playback(True).close().left()

    assert desk.core.phase is SessionPhase.LEFT
    assert desk.effects == []


# ---- resume ----


def test_the_next_gateway_attaches_to_the_jobs_whose_outcome_the_room_does_not_have() -> None:
    before = RoomDesk().speak().accept(0, "fr", "de").deliver(0, "de").published(0, "de")
    after = before.taken_over(next_seq=1, left={(0, "fr")})

    assert [each.utterance.is_attached for each in after.submitted] == [True]
    assert after.submitted[0].utterance.job_id == after.job_id_in(0, "fr")
    after.deliver(0, "fr").published(0, "fr")
    assert after.receipts() == [(10, ["de", "fr"], [])]


def test_a_receipt_tells_what_is_missing_since_before_the_resume() -> None:
    before = RoomDesk().speak().fail(0, "de").published(0, "de").finish(0, "fr")
    after = before.taken_over(next_seq=1, left=set(), lost={(0, "de")})

    assert after.receipts() == [(10, ["fr"], ["de"])]


def test_the_next_gateway_submits_again_what_may_be_lost_when_it_has_the_audio() -> None:
    before = RoomDesk().speak().accept(0, "fr")
    after = before.taken_over(next_seq=0, left={(0, "fr"), (0, "de")})
    assert after.jobs == []

    after.seq = 0
    after.say(500, None, final=True)

    assert sorted(after.jobs) == [(0, "de"), (0, "fr")]
    assert len(after.records) == 0
    after.finish(0, "fr", "de")
    assert after.receipts() == [(10, ["de", "fr"], [])]


def test_chunks_of_an_utterance_that_nobody_wanted_are_not_new_speech() -> None:
    before = RoomDesk()
    before.wanted = {}
    before.speak()
    after = before.taken_over(next_seq=0, left=set())

    after.seq = 0
    after.say(500, None, final=True).silence(4000)

    assert after.records == []


def test_a_job_that_was_made_without_speech_is_found_by_the_next_gateway() -> None:
    before = RoomDesk()
    before.wanted = {"fr": True}
    before.speak().accept(0, "fr")
    after = before.taken_over(next_seq=1, left={(0, "fr")})

    after.fail(0, "fr", NOT_FOUND)

    assert after.submitted[-1].utterance.job_id == after.job_id_in(0, "fr", text=True)
    after.fail(0, "fr", NOT_FOUND)
    assert [each.missing.why.reason for each in after.events()] == [NOT_FOUND]


def test_what_a_node_holds_is_joined_after_a_resume() -> None:
    before = RoomDesk()
    before.wanted = {"fr": True}
    before.say(500, None).silence(3150)
    before.placed().accept(0, "fr").deliver(0, "fr", kind=HELD).published(0, "fr").placed()
    after = before.taken_over(seen=0, next_seq=0, left=set())
    after.seq = 0
    after.say(500, None)

    after.speak()

    assert after.submitted[-1].utterance.held == (0,)


def test_the_clock_of_deadlines_stops_in_a_language_while_redis_is_away() -> None:
    desk = RoomDesk()
    desk.wanted = {"de": False}
    desk.speak()
    for _ in range(40):
        desk.fail(0, "de", DOWN).silence(1000)
    assert desk.events() == []

    desk.accept(0, "de").silence(30_000)

    assert [each.missing.room_index for each in desk.events()] == [10]


def test_all_languages_wait_while_redis_is_away_whoever_notices_it() -> None:
    desk = RoomDesk().speak().accept(0, "fr")
    for _ in range(40):
        desk.fail(0, "de", DOWN).silence(1000)
    assert desk.events() == []

    desk.accept(0, "de").silence(30_000)

    assert sorted(each.missing.language for each in desk.events()) == ["de", "fr"]


def test_languages_also_wait_while_a_cut_cannot_be_recorded() -> None:
    desk = RoomDesk().speak().accept(0, "fr", "de")
    desk.say(500, None, final=True).silence(200)
    for _ in range(40):
        desk.record_failed().silence(1000)
    assert desk.events() == []

    desk.placed().silence(30_000)

    assert len(desk.events()) == 4


def test_a_job_that_fails_for_good_is_missing_in_its_language_only() -> None:
    desk = RoomDesk().speak().fail(0, "fr", FOR_GOOD)

    assert [each.missing.language for each in desk.events()] == ["fr"]
    assert desk.receipts() == []


def desk_format() -> common_pb2.AudioFormat:
    return common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=8000, channels=1
    )


def test_a_broken_turn_is_named_to_the_room() -> None:
    desk = RoomDesk().speak()
    result = dispatcher_pb2.JobResult(kind=dispatcher_pb2.JobResult.KIND_TRANSLATED)
    delivered = dispatcher_pb2.JobDelivered(result=result, turn_broken=True)
    desk.do(desk.core.on_delivered(desk.now, 0, "job", delivered, "fr"))

    assert desk.events()[0].result.turn_broken
