"""Cuts of speech by example. See also test_gatherer_table and test_gatherer_properties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
)
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from tests.unit.gateway.rig import (
    AB,
    BA,
    RULES,
    Rig,
    ended,
    fragment,
    full,
    gathering,
    paused,
)

# ---- the hangover ----


def test_late_chunks_join_as_long_as_they_add_up_to_the_hangover() -> None:
    rig = Rig().say(500, final=True).say(90).say(90).say(20).say(1)

    assert rig.told() == ["final 0 1 2 3"]
    assert rig.close().told() == ["close 4"]


def test_an_end_in_the_hangover_neither_lengthens_nor_shortens_it() -> None:
    rig = ended().silence(150).end().silence(49)
    assert rig.told() == []

    assert rig.silence(1).told() == ["final 0"]


def test_the_speakers_own_end_makes_a_pause_final() -> None:
    rig = paused().silence(100).end().silence(50)

    assert rig.told() == ["final 0"]
    # The end is still when the pause was found.
    assert (rig.cuts[0].ended_ms, rig.cuts[0].cut_ms) == (4000, 4150)


def test_the_times_of_a_cut_tell_its_hangover() -> None:
    [final] = ended().silence(200).cuts
    [pause] = paused().silence(150).cuts
    [late] = full().silence(400).say(151).cuts

    assert (final.ended_ms, final.cut_ms) == (1000, 1200)
    assert (pause.ended_ms, pause.cut_ms) == (4000, 4150)
    assert (late.ended_ms, late.cut_ms) == (1000, 1400)


@given(
    st.sampled_from([30, 60, 70, 80, 90, 110, 130]),
    st.lists(st.sampled_from(["", "", "", "final", "other"]), max_size=60),
)
def test_what_is_sent_faster_than_it_was_spoken_is_cut_in_the_same_way(
    ms: int, chunks: list[str]
) -> None:
    spoken, sent = Rig(), Rig()

    for rig, wait in ((spoken, ms), (sent, 0)):
        for what in chunks:
            rig.silence(wait).say(ms, BA if what == "other" else AB, final=what == "final")
        rig.close()

    assert spoken.told() == sent.told()


# ---- long speech ----


def test_speech_of_exactly_the_longest_duration_is_not_cut_for_its_length() -> None:
    rig = Rig().say(600).say(400)

    assert rig.silence(3150).told() == ["pause 0 1"]


@pytest.mark.parametrize("max_length", [1000, 3])
def test_the_rest_of_speech_that_was_cut_is_sent_however_short_it_is(max_length: int) -> None:
    rig = Rig(replace(RULES, max_length_bytes=max_length)).say(500).say(500).say(150).say(50)
    cuts = rig.told()
    assert cuts in (["long 0 1 2"], ["large 0 1 2"])

    assert rig.silence(3150).told() == ["pause 3"]
    # That was the rest; later short speech is a fragment as usual.
    assert rig.say(50).silence(3150).told() == []


def test_the_rest_goes_at_once_where_the_other_side_speaks() -> None:
    rig = full().say(151)

    assert rig.told() == ["long 0"]
    assert rig.say(100, BA).told() == ["interrupted 1"]


def test_the_rest_of_what_another_gateway_cut_is_sent_however_short_it_is() -> None:
    rig = Rig(continues=[AB])

    assert rig.say(50).silence(3150).told() == ["pause 0"]
    assert rig.say(50, BA).silence(3150).told() == []


def test_long_speech_is_cut_again_and_again() -> None:
    rig = Rig()
    for _ in range(8):
        rig.say(500)

    assert rig.told() == ["long 0 1", "long 2 3", "long 4 5"]
    assert rig.end().silence(200).told() == ["final 6 7"]


def test_a_chunk_that_is_too_large_alone_is_an_utterance() -> None:
    rig = Rig().say(100, size=5000).say(100, size=5000)

    assert rig.told() == ["large 0"]


def test_a_long_fragment_has_its_whole_hangover_again() -> None:
    rules = replace(RULES, max_duration_ms=500.0, short_merge_ms=3000.0)
    rig = Rig(rules).say(500).say(100).silence(3000)

    assert rig.say(10).say(100).told() == []
    assert rig.say(100).told() == ["long 0 1 2 3"]


# ---- short fragments ----


def test_a_short_fragment_joins_the_next_of_its_direction() -> None:
    rig = fragment().silence(9999).say(100, BA).end(BA).silence(0.5)

    assert rig.say(300, AB).told() == ["final 1"]
    assert rig.silence(3150).told() == ["pause 0 3"]


def test_a_short_fragment_goes_alone_when_it_has_waited_long_enough() -> None:
    rig = fragment()

    assert rig.silence(9999).told() == []
    assert rig.silence(1).told() == ["pause 0"]


def test_each_direction_has_a_fragment_of_its_own() -> None:
    rig = Rig().say(100, AB).say(100, BA).silence(3000)
    assert rig.told() == []

    assert rig.silence(7000).told() == ["pause 0"]
    assert rig.silence(3000).told() == ["pause 1"]


def test_a_fragment_that_stays_short_waits_anew() -> None:
    rig = fragment().silence(9000).say(100).silence(3000)

    assert rig.silence(9999).told() == []
    assert rig.silence(1).told() == ["pause 0 1"]


def test_what_the_speaker_ends_is_never_too_short() -> None:
    assert Rig().say(1, final=True).silence(200).told() == ["final 0"]


# ---- pauses ----


def test_a_pause_is_seen_by_when_chunks_arrive() -> None:
    assert gathering().late(3000).say().told() == []
    assert gathering().late(3000.5).say().told() == ["pause 0"]


def test_a_pause_is_seen_in_the_clients_own_times() -> None:
    def told(client_ms: int) -> list[str]:
        return Rig().say(500, client_ms=50_000).say(100, client_ms=client_ms).told()

    # It had begun to record the chunk 100 ms before.
    assert told(53_100) == []
    assert told(53_101) == ["pause 0"]


def test_the_clients_times_count_more_than_the_network() -> None:
    rig = Rig().say(500, client_ms=50_000).late(8000).say(100, client_ms=50_100)

    assert rig.told() == []


def test_where_one_time_is_not_told_the_arrival_counts() -> None:
    assert Rig().say(500, client_ms=50_000).say(100).told() == []
    assert Rig().say(500, client_ms=50_000).late(3001).say(100).told() == ["pause 0"]
    assert Rig().say(500).say(100, client_ms=90_000).told() == []


def test_a_clock_that_goes_back_is_no_pause() -> None:
    assert Rig().say(500, client_ms=50_000).say(100, client_ms=10).told() == []


@pytest.mark.parametrize("turn", [Rig.playback, Rig.hold])
def test_chunks_that_come_while_nobody_listens_for_pauses_are_gathered(
    turn: Callable[[Rig, bool], Rig],
) -> None:
    rig = turn(Rig(), True).say(500).silence(5000).say(100).silence(5000)
    assert rig.told() == []

    assert turn(rig, False).silence(3150).told() == ["pause 0 1"]


def test_time_in_which_the_app_played_is_no_pause_by_the_clients_clock_either() -> None:
    rig = Rig().say(500, client_ms=50_000).playback(True).late(9000).playback(False)

    assert rig.say(100, client_ms=59_100).told() == []


def test_speech_that_waited_unread_is_cut_where_the_speaker_had_paused() -> None:
    rig = Rig().say(500, client_ms=50_000).hold(True).late(9000).hold(False)

    assert rig.say(100, client_ms=50_100).told() == []
    assert rig.say(100, client_ms=58_000).told() == ["pause 0 1"]


def test_playback_and_hold_must_both_be_over() -> None:
    rig = gathering().playback(True).hold(True).playback(False).silence(9000)
    assert rig.told() == []

    assert rig.hold(False).silence(3150).told() == ["pause 0"]


def test_an_app_can_end_speech_while_it_plays() -> None:
    assert gathering().playback(True).end().silence(200).told() == ["final 0"]


# ---- timers of an old generation ----


def test_a_timer_that_is_not_set_or_not_due_does_nothing() -> None:
    rig = gathering()
    for key in (PAUSE, HANGOVER, FRAGMENT):
        rig.fire(key)
    assert rig.told() == []
    assert rig.timers_set() == {"pause"}

    rig.end().fire(HANGOVER).late(3000).fire(PAUSE)
    assert rig.told() == []
    assert rig.late(-3000).silence(200).told() == ["final 0"]


def test_the_hangover_timer_of_the_utterance_before_does_not_cut_the_next() -> None:
    rig = ended().silence(150).say(300, BA, final=True)
    assert rig.told() == ["final 0"]

    rig.late(50).fire(HANGOVER)

    assert rig.told() == []
    assert rig.silence(150).told() == ["final 1"]


# ---- settings of zero ----


def test_without_a_hangover_an_end_cuts_at_once() -> None:
    rules = replace(RULES, hangover_manual_ms=0.0, hangover_auto_ms=0.0)

    assert Rig(rules).say(500, final=True).told() == ["final 0"]
    assert Rig(rules).say(500).end().told() == ["final 0"]
    assert Rig(rules).say(500).silence(3000).told() == ["pause 0"]
    assert Rig(rules).say(1000).say(1).told() == ["long 0"]


@pytest.mark.parametrize("name", ["short_merge_ms", "short_wait_ms"])
def test_without_merging_a_fragment_goes_alone_at_once(name: str) -> None:
    rules = SessionRules(**{**{f: getattr(RULES, f) for f in RULES.__slots__}, name: 0.0})

    assert Rig(rules).say(10).silence(3150).told() == ["pause 0"]
    assert Rig(rules).say(10).say(10, BA).told() == ["interrupted 0"]
