"""Cuts of speech: by example, and properties of random input. See also test_gatherer_table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
    SessionTimers,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.gatherer import Gatherer
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Chunk, Cut, Direction
from lingua_scheduler.v1 import common_pb2

AB, BA = Direction("en", "zh"), Direction("zh", "en")
LETTERS = {
    common_pb2.FINALIZE_REASON_IS_FINAL: "final",
    common_pb2.FINALIZE_REASON_TIMEOUT: "pause",
    common_pb2.FINALIZE_REASON_INTERRUPTED: "interrupted",
    common_pb2.FINALIZE_REASON_MAX_DURATION: "long",
    common_pb2.FINALIZE_REASON_MAX_LENGTH: "large",
    common_pb2.FINALIZE_REASON_SESSION_CLOSE: "close",
}
RULES = SessionRules(
    pause_ms=3000.0,
    voice_pause_ms=800.0,
    max_duration_ms=1000.0,
    max_length_bytes=1000,
    hangover_manual_ms=200.0,
    hangover_auto_ms=150.0,
    padding_manual_ms=200,
    padding_auto_ms=150,
    short_merge_ms=400.0,
    short_wait_ms=10_000.0,
    result_deadline_ms=30_000.0,
    redis_outage_max_ms=300_000.0,
    result_queue_max=200,
    session_utterances_max=16,
    session_idle_ms=1_800_000.0,
    held_audio_max_bytes=1_500_000,
)


class Rig:
    """A gatherer with a virtual clock and timers."""

    def __init__(self, rules: SessionRules = RULES, continues: Iterable[Direction] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.alarms = SessionTimers()
        self.gatherer = Gatherer(
            rules=rules, timers=self.alarms, counts=self.counts, continues=continues
        )
        self.now = 1000.0
        self.timers: dict[TimerKey, float] = {}
        self.cuts: list[Cut] = []
        self._seq = 0
        self._told = 0

    def say(
        self,
        ms: float = 100.0,
        direction: Direction = AB,
        *,
        final: bool = False,
        client_ms: int = 0,
        size: int = 1,
        data: bytes | None = None,
        quiet_ms: float | None = None,
    ) -> Rig:
        """Sends a chunk; 0 ms is one without data."""
        if data is None:
            data = bytes([self._seq % 256]) if ms else b""
        size = size if data else 0
        chunk = Chunk(self._seq, data, ms, size, final, direction, client_ms, quiet_ms)
        self._seq += 1
        return self._take(self.gatherer.on_chunk(self.now, chunk))

    def end(self, direction: Direction = AB) -> Rig:
        """Sends the end of an utterance without data."""
        return self.say(0, direction, final=True)

    def playback(self, on: bool) -> Rig:
        self.gatherer.on_playback(self.now, on=on)
        return self._take([])

    def hold(self, on: bool) -> Rig:
        self.gatherer.on_hold(self.now, on=on)
        return self._take([])

    def close(self) -> Rig:
        return self._take(self.gatherer.on_close(self.now))

    def silence(self, ms: float) -> Rig:
        """Advances the clock, and fires timers when they are due."""
        until = self.now + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now = max(self.now, at)
            self.fire(key)
        self.now = until
        return self

    def late(self, ms: float) -> Rig:
        """Advances the clock without firing timers: they are late."""
        self.now += ms
        return self

    def fire(self, key: TimerKey) -> Rig:
        """Fires a timer now, as a session's core does."""
        if self.alarms.take(self.now, key):
            self.timers.pop(key, None)
            self.call(key)
        return self

    def call(self, key: TimerKey) -> Rig:
        """Calls the handler of a timer, whether it is set or not."""
        call = {
            PAUSE: self.gatherer.on_pause_timer,
            HANGOVER: self.gatherer.on_hangover_timer,
            FRAGMENT: self.gatherer.on_fragment_timer,
        }[key]
        return self._take(call(self.now))

    def _take(self, cuts: list[Cut]) -> Rig:
        self.cuts += cuts
        for change in self.alarms.changes:
            if isinstance(change, SetTimer):
                self.timers[change.key] = change.at_ms
            else:
                self.timers.pop(change.key, None)
        self.alarms.changes = []
        return self

    def told(self) -> list[str]:
        """The cuts since the last call: their reasons and chunks."""
        new, self._told = self.cuts[self._told :], len(self.cuts)
        return [shown(cut) for cut in new]

    def timers_set(self) -> set[str]:
        assert all(at > self.now for at in self.timers.values())
        return {key[0] for key in self.timers}


def shown(cut: Cut) -> str:
    seqs = [seq for first, end in cut.speech.ranges for seq in range(first, end)]
    assert len(seqs) == len(cut.speech.chunks)
    return " ".join([LETTERS[cut.reason], *map(str, seqs)])


def idle() -> Rig:
    return Rig()


def fragment() -> Rig:
    """A gatherer that has kept chunk 0 as a fragment, and gathers nothing."""
    rig = Rig().say(100).silence(3000)
    assert rig.timers_set() == {"fragment"}
    return rig


def other_fragment() -> Rig:
    """The same as `fragment`, for the other direction."""
    return Rig().say(100, BA).silence(3000)


def gathering() -> Rig:
    return Rig().say(500)


def short() -> Rig:
    return Rig().say(100)


def full() -> Rig:
    return Rig().say(1000)


def ended() -> Rig:
    return Rig().say(500, final=True)


def paused() -> Rig:
    rig = Rig().say(500).silence(3000)
    assert rig.timers_set() == {"hangover"}
    return rig


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


# ---- whatever comes ----

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("say"),
            st.sampled_from([0.0, 20.0, 100.0, 160.0, 390.0, 400.0, 1000.0]),
            st.sampled_from([AB, BA]),
            st.booleans(),
            st.sampled_from([0, 0, 10, 400, 990, 2000]),
            # Without voice detection; with no voice, or with voice at its beginning or end.
            st.sampled_from([None, 1.0, 0.5, 0.0]),
        ),
        st.tuples(st.just("silence"), st.sampled_from([0.0, 50.0, 150.0, 200.0, 2999.0, 3000.0])),
        st.tuples(st.just("silence"), st.sampled_from([3200.0, 9000.0, 10_000.0, 20_000.0])),
        st.tuples(st.just("late"), st.sampled_from([10.0, 3000.0, 3001.0, 12_000.0])),
        st.tuples(st.sampled_from(["playback", "hold"]), st.booleans()),
        st.tuples(st.just("fire"), st.sampled_from([PAUSE, HANGOVER, FRAGMENT])),
        st.tuples(st.just("call"), st.sampled_from([PAUSE, HANGOVER, FRAGMENT])),
    ),
    max_size=40,
)
ODD_RULES = st.builds(
    lambda hangover, merge, wait, longest: replace(
        RULES,
        hangover_manual_ms=hangover,
        hangover_auto_ms=hangover * 0.75,
        short_merge_ms=merge,
        short_wait_ms=wait,
        max_duration_ms=longest,
    ),
    st.sampled_from([200.0, 0.0, 1000.0]),
    st.sampled_from([400.0, 0.0, 3000.0]),
    st.sampled_from([10_000.0, 0.0, 100.0]),
    st.sampled_from([1000.0, 500.0]),
)


class Watched(Rig):
    """Records the speech, and checks every cut."""

    def __init__(self, rules: SessionRules, *, with_client_ms: bool) -> None:
        super().__init__(rules)
        self.said: dict[Direction, list[int]] = {AB: [], BA: []}
        self.size: dict[int, int] = {}
        self._with_client_ms = with_client_ms

    def tell(
        self, ms: float, direction: Direction, final: bool, size: int, quiet: float | None
    ) -> None:
        if ms:
            self.said[direction].append(self._seq)
            self.size[self._seq] = size
        data = self._seq.to_bytes(2, "big") if ms else b""
        client_ms = int(self.now) if self._with_client_ms else 0
        quiet_ms = None if quiet is None or not ms else ms * quiet
        self.say(
            ms,
            direction,
            final=final,
            client_ms=client_ms,
            size=size,
            data=data,
            quiet_ms=quiet_ms,
        )

    def heard(self, direction: Direction) -> list[int]:
        """The chunks of a direction, in the order of its cuts."""
        cuts = [cut.speech for cut in self.cuts if cut.speech.direction == direction]
        seqs = [seq for each in cuts for first, end in each.ranges for seq in range(first, end)]
        assert [int.from_bytes(data, "big") for each in cuts for data in each.chunks] == seqs
        return seqs


@given(ODD_RULES, st.booleans(), STEPS)
def test_every_chunk_comes_out_once_and_in_order_whatever_happens(
    rules: SessionRules, with_client_ms: bool, steps: list[tuple[object, ...]]
) -> None:
    rig = Watched(rules, with_client_ms=with_client_ms)

    for name, *values in steps:
        if name == "say":
            rig.tell(*values)  # type: ignore[arg-type]
        else:
            getattr(rig, str(name))(*values)
        waiting = {seq for said in rig.said.values() for seq in said}
        waiting -= {*rig.heard(AB), *rig.heard(BA)}
        assert rig.gatherer.first_seq == min(waiting, default=None)
    rig.close()

    assert rig.gatherer.first_seq is None
    assert not rig.timers
    for direction, said in rig.said.items():
        assert rig.heard(direction) == said
    for cut in rig.cuts:
        speech = cut.speech
        assert speech.chunks
        assert speech.size == sum(rig.size[seq] for seq in _seqs(cut))
        assert cut.ended_ms <= cut.cut_ms
    _check_turns(rig)


def _check_turns(rig: Watched) -> None:
    for direction in rig.said:
        cuts = [cut for cut in rig.cuts if cut.speech.direction == direction]
        limits = (common_pb2.FINALIZE_REASON_MAX_DURATION, common_pb2.FINALIZE_REASON_MAX_LENGTH)
        assert not cuts or cuts[-1].reason not in limits, "no end of the turn follows"


def _seqs(cut: Cut) -> list[int]:
    return [seq for first, end in cut.speech.ranges for seq in range(first, end)]
