"""The gateway and the client keep audio that a node holds, and give it to the next node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lingua_scheduler.services.session_gateway.session import core
from lingua_scheduler.services.session_gateway.session.core import SessionCore
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_record_pb2
from tests.unit.gateway.desk import (
    AB,
    BA,
    BYTES_PER_MS,
    FOR_GOOD,
    HELD_AUDIO_NEEDED,
    OPENED,
    RULES,
    Desk,
)

RESULT = dispatcher_pb2.JobResult


class Talk(Desk):
    """A desk whose utterances are spoken, held and joined in one call."""

    def ends(
        self,
        index: int,
        kind: RESULT.Kind.ValueType,
        *,
        joined: tuple[int, ...] = (),
        held_bytes: int = 0,
        direction: tuple[str, str] = AB,
    ) -> Talk:
        result = RESULT(kind=kind, joined_utterances=joined, held_audio_bytes=held_bytes)
        delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=1)
        job_id = self.job_id(index, direction)
        self.do(self.core.on_delivered(self.now, index, job_id, delivered))
        self.recorded()
        return self

    def holds(self, index: int, direction: tuple[str, str] = AB) -> Talk:
        """Speaks up to a pause, after which the node holds the audio."""
        self.pause(direction).recorded().accepted(index)
        return self.ends(index, RESULT.KIND_HELD, direction=direction)

    def says(self, index: int, direction: tuple[str, str] = AB) -> Talk:
        """Submits speech that ends a turn."""
        self.cut(direction).recorded()
        assert self.submitted[-1].utterance.index == index
        return self

    @property
    def spec(self) -> dispatcher_pb2.JobSpec:
        """The last job as it was submitted."""
        return self.specs.spec(self.submitted[-1].utterance, self.now)

    def lost(self) -> list[tuple[int, list[int]]]:  # type: ignore[override]
        """Outcomes that report lost utterances, and which ones."""
        told = [
            each.result if each.HasField("result") else each.missing
            for each in self.sent
            if each.WhichOneof("event") in ("result", "missing")
        ]
        return [(e.utterance_index, list(e.lost_utterances)) for e in told if e.lost_utterances]

    def cuts(self) -> tuple[session_record_pb2.Cut, ...]:
        """The recorded cuts."""
        known = {cut.utterance_index: cut for each in self.records for cut in each.cuts}
        return tuple(known[index] for index in sorted(known))

    def next_gateway(self, *, seen: int, kept_seq: int, next_seq: int) -> Talk:
        cuts = self.cuts()
        start = replay_from(cuts, most_cuts=200, seen=seen, kept_seq=kept_seq, next_seq=next_seq)
        past = Past(next_index=len(cuts), seen=seen, next_seq=start, cuts=cuts)
        return Talk(self.rules, past, now=self.now)


def said(*seqs: int, ms: int = 500) -> bytes:
    return b"".join(bytes([seq]) * (ms * BYTES_PER_MS) for seq in seqs)


def keeps(desk: Desk) -> tuple[int, int]:
    """The last acknowledgement: chunks that are safe, and chunks to keep nevertheless."""
    ack = [each.audio_ack for each in desk.sent if each.HasField("audio_ack")][-1]
    return ack.next_seq, ack.keep_seq if ack.HasField("keep_seq") else ack.next_seq


def test_a_job_says_what_its_node_holds_and_carries_only_its_own_audio() -> None:
    desk = Talk().holds(0).holds(1).says(2)

    assert list(desk.spec.held_utterances) == [0, 1]
    assert desk.spec.audio == said(2)
    desk.accepted(2).do([])
    desk.ends(2, RESULT.KIND_TRANSLATED, joined=(0, 1))
    assert desk.lost() == []
    # The turn is over: it does not affect the next sentence.
    assert list(desk.says(3).spec.held_utterances) == []


def test_where_the_node_is_lost_the_next_one_gets_the_whole_sentence() -> None:
    desk = Talk().holds(0).holds(1).says(2)
    desk.told()

    assert desk.failed(2, HELD_AUDIO_NEEDED).told() == ["send retrying 2", "submit 2"]

    assert list(desk.spec.included_utterances) == [0, 1]
    assert list(desk.spec.held_utterances) == []
    assert desk.spec.audio == said(0, 1, 2)
    # They were in the audio even if the node does not report them.
    desk.accepted(2)
    desk.ends(2, RESULT.KIND_TRANSLATED)
    assert list(desk.results()[-1].joined_utterances) == [0, 1]
    assert desk.lost() == []
    assert desk.counts["turn_moved"] == 1


def test_the_next_node_may_hold_it_all_in_turn_and_be_lost_as_well() -> None:
    desk = Talk().holds(0).pause().recorded()
    assert isinstance(desk, Talk)
    desk.failed(1, HELD_AUDIO_NEEDED).accepted(1)
    desk.ends(1, RESULT.KIND_HELD).says(2)
    assert list(desk.spec.held_utterances) == [0, 1]
    assert list(desk.results()[-1].joined_utterances) == []

    desk.failed(2, HELD_AUDIO_NEEDED)

    assert (list(desk.spec.included_utterances), desk.spec.audio) == ([0, 1], said(0, 1, 2))


def test_a_flush_brings_the_sentence_along_and_is_a_job_like_any_other_then() -> None:
    desk = Talk().holds(0)
    desk.close().recorded()
    assert desk.spec.is_flush
    assert list(desk.spec.held_utterances) == [0]

    desk.failed(1, HELD_AUDIO_NEEDED)

    assert not desk.spec.is_flush
    assert (list(desk.spec.included_utterances), desk.spec.audio) == ([0], said(0))


def test_a_flush_that_ends_the_session_acknowledges_nothing_that_no_node_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "MAX_UNSEEN", 2)
    desk = Talk().holds(0).says(1, BA)
    assert desk.acked() == [1]

    desk.end(AB)

    assert desk.told()[-1] == "end BACKPRESSURE"
    assert desk.acked() == [1]


def test_the_end_of_an_utterance_that_a_node_keeps_can_be_brought_along() -> None:
    kept = 100 * BYTES_PER_MS
    desk = Talk().holds(0).pause().recorded().accepted(1)
    assert isinstance(desk, Talk)
    desk.ends(1, RESULT.KIND_TRANSLATED, joined=(0,), held_bytes=kept).says(2)
    assert list(desk.spec.held_utterances) == [1]

    desk.failed(2, HELD_AUDIO_NEEDED)

    assert list(desk.spec.included_utterances) == [1]
    assert desk.spec.audio == said(1, ms=100) + said(2)


def test_the_end_that_a_node_keeps_may_reach_back_into_earlier_utterances() -> None:
    kept = 600 * BYTES_PER_MS
    desk = Talk().holds(0).holds(1).pause().recorded().accepted(2)
    assert isinstance(desk, Talk)
    desk.ends(2, RESULT.KIND_TRANSLATED, joined=(0, 1), held_bytes=kept).says(3)
    desk.failed(3, HELD_AUDIO_NEEDED)

    assert list(desk.spec.included_utterances) == [2]
    assert desk.spec.audio == said(1, ms=100) + said(2, 3)
    desk.accepted(3)
    desk.ends(3, RESULT.KIND_TRANSLATED)
    assert desk.lost() == []


def test_a_tail_that_is_cut_within_a_sample_is_not_brought_along() -> None:
    desk = Talk().pause().recorded().accepted(0)
    assert isinstance(desk, Talk)
    desk.ends(0, RESULT.KIND_TRANSLATED, held_bytes=101).says(1)
    desk.failed(1, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == said(1)


@pytest.mark.parametrize("kind", [RESULT.KIND_TRANSLATED, RESULT.KIND_NO_SPEECH])
def test_what_no_result_has_is_told_to_be_lost(kind: RESULT.Kind.ValueType) -> None:
    desk = Talk().holds(0).holds(1).says(2).accepted(2)
    assert isinstance(desk, Talk)
    desk.ends(2, kind, joined=(1,))

    assert desk.lost() == [(2, [0])]
    assert desk.counts["held_lost"] == 1


def test_an_utterance_that_fails_leaves_what_was_held_to_the_next() -> None:
    desk = Talk().holds(0).says(1).accepted(1)
    assert isinstance(desk, Talk)
    desk.failed(1, FOR_GOOD).recorded()
    assert desk.cuts()[1].is_missing

    assert list(desk.says(2).spec.held_utterances) == [0]
    assert desk.lost() == []


def test_what_waits_for_an_utterance_that_is_given_up_is_lost_with_it() -> None:
    # Its node may have a result, so its audio must not be part of a later one.
    desk = Talk().holds(0).says(1).accepted(1).silence(30_000)
    assert isinstance(desk, Talk)

    assert desk.lost() == [(1, [0])]
    assert list(desk.says(2).spec.held_utterances) == []


def test_a_flush_that_fails_says_what_is_lost_and_is_not_repeated() -> None:
    desk = Talk().holds(0)
    desk.close().recorded().accepted(1).failed(1, FOR_GOOD)

    assert desk.lost() == [(1, [0])]
    assert desk.told()[-1] == "send closed 1 1"


def test_what_follows_the_end_of_a_sentence_has_nothing_to_do_with_it() -> None:
    desk = Talk().holds(0).says(1).accepted(1)
    assert isinstance(desk, Talk)
    # The node has the end of the first sentence, and the next one begins.
    assert list(desk.says(2).spec.held_utterances) == []
    desk.accepted(2)
    desk.ends(2, RESULT.KIND_TRANSLATED)
    desk.ends(1, RESULT.KIND_TRANSLATED, joined=(0,))

    assert desk.lost() == []
    assert [list(each.joined_utterances) for each in desk.results()] == [[], [0], []]


def test_directions_hold_for_themselves() -> None:
    desk = Talk().holds(0, AB).holds(1, BA).says(2, AB)
    assert list(desk.spec.held_utterances) == [0]


# ---- bounds ----


def test_the_oldest_audio_of_a_long_sentence_is_dropped_and_named_if_it_is_lost() -> None:
    rules = replace(RULES, held_audio_max_bytes=2 * 500 * BYTES_PER_MS)
    desk = Talk(rules).holds(0).holds(1).holds(2).says(3)
    assert list(desk.spec.held_utterances) == [0, 1, 2]
    # The client does not need to keep it either.
    desk.accepted(3)
    assert keeps(desk) == (4, 1)

    desk.failed(3, HELD_AUDIO_NEEDED)

    assert (list(desk.spec.included_utterances), desk.spec.audio) == ([1, 2], said(1, 2, 3))
    desk.accepted(3)
    desk.ends(3, RESULT.KIND_TRANSLATED)
    assert desk.lost() == [(3, [0])]


def test_where_nothing_is_kept_the_job_is_not_bound_to_its_node() -> None:
    desk = Talk(replace(RULES, held_audio_max_bytes=0)).holds(0).says(1)
    assert list(desk.spec.held_utterances) == []
    desk.accepted(1)
    assert keeps(desk) == (2, 2)
    desk.ends(1, RESULT.KIND_TRANSLATED)
    assert desk.lost() == [(1, [0])]


def test_all_sessions_share_a_budget_which_is_given_back() -> None:
    budget = HeldBudget(600 * BYTES_PER_MS)

    def session() -> Talk:
        desk = Talk()
        desk.core = SessionCore(
            rules=RULES,
            opened=OPENED,
            specs=desk.specs,
            past=Past(),
            counts=desk.counts,
            now=desk.now,
            held_budget=budget,
        )
        desk.timers.clear()
        desk.do(desk.core.start(desk.now))
        return desk

    first, second = session().holds(0), session().holds(0)
    assert budget.used == 500 * BYTES_PER_MS
    assert list(first.says(1).spec.held_utterances) == [0]
    assert list(second.says(1).spec.held_utterances) == []

    first.left()
    assert budget.used == 0
    second.accepted(1)
    second.ends(1, RESULT.KIND_TRANSLATED, joined=(0,)).holds(2).close()
    assert budget.used == 500 * BYTES_PER_MS
    second.left()
    assert budget.used == 0


# ---- the client, and the next gateway ----


def test_the_client_is_asked_to_keep_what_a_node_holds_or_may_hold() -> None:
    desk = Talk().pause().recorded().accepted(0)
    assert keeps(desk) == (1, 0)
    assert isinstance(desk, Talk)
    desk.ends(0, RESULT.KIND_HELD).says(1).accepted(1)
    assert keeps(desk) == (2, 0)
    assert isinstance(desk, Talk)
    desk.ends(1, RESULT.KIND_TRANSLATED, joined=(0,))
    # The next acknowledgement allows the client to drop it.
    desk.says(2).accepted(2)
    assert keeps(desk) == (3, 3)


def test_what_nobody_can_hold_need_not_be_kept() -> None:
    desk = Talk().says(0).accepted(0)
    assert keeps(desk) == (1, 1)


def test_the_next_gateway_gets_held_audio_from_the_client_and_gives_it_to_the_next_node() -> None:
    first = Talk().holds(0).holds(1)
    assert [cut.is_held for cut in first.cuts()] == [True, True]

    desk = first.next_gateway(seen=2, kept_seq=0, next_seq=2)
    assert desk.core._intake.expected_seq == 0
    desk.say(500).say(500).says(2)

    assert list(desk.spec.held_utterances) == [0, 1]
    desk.failed(2, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == said(0, 1, 2)


def test_a_job_of_the_last_gateway_is_made_again_with_what_was_held_before_it() -> None:
    first = Talk().holds(0).says(1).accepted(1)
    assert isinstance(first, Talk)

    desk = first.next_gateway(seen=1, kept_seq=0, next_seq=2)
    desk.told()

    assert desk.say(500).told() == ["send ack 1"]
    assert desk.say(500).told() == ["submit 1"]
    assert list(desk.spec.held_utterances) == [0]
    desk.failed(1, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == said(0, 1)


def test_a_flush_waits_for_the_audio_that_it_has_to_bring_along() -> None:
    first = Talk().holds(0)
    first.close().recorded().accepted(1)

    desk = first.next_gateway(seen=1, kept_seq=0, next_seq=1)
    assert desk.told() == ["submit 1"]
    assert desk.failed(1, HELD_AUDIO_NEEDED).told() == ["send retrying 1"]
    assert desk.say(500).told() == ["submit 1", "send ack 1"]
    assert desk.spec.audio == said(0)


def test_held_audio_that_the_client_has_forgotten_is_named_if_it_is_lost() -> None:
    desk = Talk().holds(0).next_gateway(seen=1, kept_seq=1, next_seq=1)
    desk.says(1).accepted(1)
    assert list(desk.spec.held_utterances) == []
    desk.ends(1, RESULT.KIND_TRANSLATED)
    assert desk.lost() == [(1, [0])]


def test_what_a_later_result_has_is_not_held_any_more_at_the_next_gateway() -> None:
    first = Talk().holds(0).says(1).accepted(1)
    assert isinstance(first, Talk)
    first.ends(1, RESULT.KIND_TRANSLATED, joined=(0,))

    desk = first.next_gateway(seen=2, kept_seq=0, next_seq=2)
    assert desk.core._intake.expected_seq == 2
    assert list(desk.says(2).spec.held_utterances) == []


def test_what_is_still_held_after_a_missing_one_is_known_to_the_next_gateway() -> None:
    first = Talk().holds(0).says(1).accepted(1)
    assert isinstance(first, Talk)
    first.failed(1, FOR_GOOD).recorded()

    desk = first.next_gateway(seen=2, kept_seq=0, next_seq=2)
    desk.say(500).say(500).says(2)
    assert list(desk.spec.held_utterances) == [0]
    desk.failed(2, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == said(0, 2)


def test_a_tail_is_made_again_from_the_chunks_that_come_again() -> None:
    kept = 600 * BYTES_PER_MS
    first = Talk().holds(0).pause().recorded().accepted(1)
    assert isinstance(first, Talk)
    first.ends(1, RESULT.KIND_TRANSLATED, joined=(0,), held_bytes=kept)

    desk = first.next_gateway(seen=2, kept_seq=0, next_seq=2)
    desk.say(500).say(500).says(2)
    assert list(desk.spec.held_utterances) == [1]
    desk.failed(2, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == said(0, ms=100) + said(1, 2)


def test_a_record_that_is_full_may_have_forgotten_cuts_so_nothing_comes_again() -> None:
    cuts = Talk().holds(0).holds(1).cuts()
    assert replay_from(cuts, most_cuts=2, seen=2, kept_seq=0, next_seq=2) == 2
    assert replay_from(cuts, most_cuts=3, seen=2, kept_seq=0, next_seq=2) == 0
    assert replay_from(cuts, most_cuts=3, seen=2, kept_seq=1, next_seq=2) == 1


def test_opus_is_brought_along_in_whole_packets() -> None:
    opened = session_pb2.NewSession()
    opened.CopyFrom(OPENED)
    opened.audio_format.encoding = common_pb2.AUDIO_ENCODING_OPUS
    opened.audio_format.sample_rate_hz = 48_000
    desk = Talk(replace(RULES, short_merge_ms=0.0), opened=opened)
    # CELT, 20 ms, one frame.
    packets = [bytes([31 << 3, each]) for each in range(3)]
    for packet in packets[:2]:
        desk.say(data=packet)
    desk.silence(3150).recorded().accepted(0)
    desk.ends(0, RESULT.KIND_TRANSLATED, held_bytes=4)
    desk.say(data=packets[2], final=True).silence(200).recorded()
    desk.failed(1, HELD_AUDIO_NEEDED)
    assert desk.spec.audio == b"".join(b"\0\x02" + packet for packet in packets[1:])


def test_chunks_whose_cuts_may_be_forgotten_are_not_asked_for_again() -> None:
    desk = Talk().holds(0)
    # The client was told to drop all chunks before the third, but has not received that.
    for cut in (cuts := desk.cuts()):
        cut.kept_seq = 2
    assert replay_from(cuts, most_cuts=200, seen=1, kept_seq=0, next_seq=2) == 2


def test_a_cut_says_what_the_client_may_have_forgotten_when_it_was_written() -> None:
    desk = Talk().says(0).accepted(0).cut()
    assert [cut.kept_seq for cut in desk.records[-1].cuts] == [1]
