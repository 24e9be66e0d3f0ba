"""Resumed sessions by example: what the next gateway continues, and what may be dropped."""

from dataclasses import replace

from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.v1 import common_pb2
from tests.unit.gateway.desk import AB, BA, RULES, Desk

# ---- resume ----


def test_what_a_dispatcher_has_is_attached_to_and_what_it_has_not_is_put_together_again() -> None:
    first = Desk().say(500).cut().recorded().cut().recorded().accepted(0)
    audio = first.specs.spec(first.submitted[1].utterance, first.now).audio

    desk = first.resumed(seen=0, next_seq=2, cuts=(0, 1), next_index=2)

    assert desk.told() == ["attach 0"]
    assert desk.say(500, final=True).told() == ["submit 1"]
    assert desk.specs.spec(desk.submitted[1].utterance, desk.now).audio == audio
    assert desk.submitted[1].utterance.job_id == first.submitted[1].utterance.job_id
    assert desk.silence(1000).cut().told() == ["record 2"]
    assert desk.delivered(1).told() == ["send ack 3"]
    assert desk.delivered(0).told() == ["send result 0", "send result 1"]


def test_a_resume_gives_every_unseen_index_its_full_deadline() -> None:
    first = Desk().submit().accepted().silence(25_000)

    desk = first.resumed(seen=0, next_seq=1, cuts=(0,), next_index=1)

    assert desk.told() == ["attach 0"]
    assert desk.silence(29_999).told() == []
    assert desk.silence(1).told() == ["cancel 0", "send missing 0"]


def test_a_job_that_another_gateway_may_have_submitted_is_cancelled_at_its_deadline() -> None:
    desk = Desk().submit().resumed(seen=0, next_seq=0, cuts=(0,), next_index=1)

    assert desk.silence(30_000).told() == ["cancel 0", "send missing 0"]


def test_an_index_whose_cut_is_forgotten_is_missing() -> None:
    desk = Desk().submit().resumed(seen=0, next_seq=1, cuts=(), next_index=1)

    assert desk.told() == ["send missing 0"]
    assert desk.sent[0].missing.why.reason == common_pb2.ERROR_REASON_JOB_NOT_FOUND
    assert desk.cut().told() == ["record 1"]


def test_chunks_of_a_result_that_was_seen_are_not_taken_for_new_speech() -> None:
    # A fragment of the other side held their acknowledgement back.
    first = Desk().say(100, BA).cut(AB).recorded().delivered(0).seen(1)

    desk = first.resumed(seen=1, next_seq=0, cuts=(0,), next_index=1)
    desk.say(100, BA).say(500, AB, final=True).silence(20_000)

    assert [cut.chunks[0].first for record in desk.records for cut in record.cuts] == [0]
    assert desk.records[0].cuts[0].utterance_index == 1
    assert desk.recorded().accepted(1).acked() == [2]


def test_a_chunk_is_never_acknowledged_before_it_has_come_again() -> None:
    first = Desk().say(100, BA).cut(AB).recorded()

    desk = first.resumed(seen=0, next_seq=0, cuts=(0,), next_index=1)

    # Chunk 0 is in no cut: only the client has it.
    assert desk.told() == []
    desk.delivered(0)
    assert desk.told() == ["send result 0"]


def test_a_result_may_come_before_the_chunks_come_again() -> None:
    first = Desk().say(250).cut().recorded()

    desk = first.resumed(seen=0, next_seq=0, cuts=(0,), next_index=1)
    desk.say(250).delivered(0).say(500, final=True).silence(1000).cut()

    assert [line for line in desk.told() if not line.startswith("send ack")] == [
        "send result 0", "record 1"
    ]  # fmt: skip
    assert desk.records[0].cuts[0].chunks[0].first == 2


def test_a_session_that_is_resumed_with_all_it_may_have_under_way_reads_what_it_lacks() -> None:
    rules = replace(RULES, session_utterances_max=1)
    first = Desk(rules).submit()

    desk = first.resumed(seen=0, next_seq=0, cuts=(0,), next_index=1)

    assert desk.told() == []
    assert desk.say(500, final=True).told() == ["submit 0", "gate shut"]


def test_the_rest_of_speech_that_was_cut_elsewhere_is_sent_however_short_it_is() -> None:
    rules = replace(RULES, max_duration_ms=1000.0)
    first = Desk(rules).say(1000).say(200).recorded().accepted()

    desk = first.resumed(seen=0, next_seq=1, cuts=(0,), next_index=1).say(200).silence(3150)

    assert desk.told() == ["attach 0", "record 1"]
    assert desk.recorded().told() == ["send finalized 1"]
    assert desk.delivered(0).told() == ["send result 0", "submit 1"]


def test_where_the_last_cut_is_forgotten_its_turn_may_go_on() -> None:
    first = Desk().pause().recorded().delivered().seen(1)

    desk = first.resumed(seen=1, next_seq=1, cuts=(), next_index=1).submit().submit()

    assert [each.utterance.index for each in desk.submitted] == [1]
    desk.accepted(1)
    assert [each.utterance.index for each in desk.submitted] == [1, 2]


def test_the_numbers_of_a_closed_session_hold_after_a_resume() -> None:
    first = Desk().submit().submit().failed(0).failed(1).cut()
    # The client has not seen that they are missing: they may still have results.
    assert (first.records[-1].results, first.records[-1].missing) == (0, 0)

    past = Past(next_index=2, seen=1, next_seq=2, missing=1, cuts=first.records[1].cuts)
    desk = Desk(past=past).delivered(1).close()

    assert desk.told()[-1] == "send closed 1 1"


def test_more_missing_than_seen_is_no_number_to_go_by() -> None:
    desk = Desk(past=Past(seen=1, missing=3, next_index=1)).close()

    assert desk.told() == ["send closed 0 1", "end done"]


# ---- what is forgotten ----


def test_a_cut_is_forgotten_only_when_its_result_was_seen_and_its_chunks_are_safe() -> None:
    desk = Desk().submit().submit().delivered(0).delivered(1).seen(1).cut().recorded()
    assert desk.records[-1].first_index == 1
    assert (desk.records[-1].acked_seq, desk.records[-1].seen) == (2, 1)

    desk.seen(2).say(100, BA).cut().recorded().delivered(2).delivered(3).seen(4).cut()

    # The fragment at 3 is not safe, so neither are the chunks after it.
    record = desk.records[-1]
    assert (record.first_index, record.acked_seq, record.seen) == (3, 3, 4)


def test_what_became_missing_before_it_was_written_down_is_written_where_it_may_come_again() -> (
    None
):
    desk = Desk(replace(RULES, redis_outage_max_ms=0.0)).say(100, BA).cut().record_failed()
    # The fragment is cut alone, and nothing can be recorded.
    while desk.now < 32_000:
        desk.silence(200).record_failed()
    assert desk.core.missing == 0
    assert "send missing 0" in desk.told()

    desk.silence(200).recorded()

    assert [cut.utterance_index for cut in desk.records[-1].cuts] == [0, 1]
    again = desk.resumed(seen=0, next_seq=0, cuts=(0, 1), next_index=2)
    assert again.say(100, BA).say(500, AB, final=True).told() == ["submit 1", "submit 0"]


def test_what_became_missing_and_is_known_to_be_is_not_written_down_any_more() -> None:
    desk = Desk(replace(RULES, redis_outage_max_ms=0.0)).cut().record_failed()
    while desk.now < 32_000:
        desk.silence(200).record_failed()
    desk.seen(1).cut()
    desk.silence(200)

    assert [cut.utterance_index for cut in desk.records[-1].cuts] == [1]
    assert desk.records[-1].first_index == 1
