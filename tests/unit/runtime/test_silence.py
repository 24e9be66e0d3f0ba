"""When a peer counts as frozen, on a virtual clock."""

import random

import pytest

from lingua_scheduler.silence import Silence, Verdict

SILENCE_S = 3.0
BEAT_S = SILENCE_S / 6


class Watched:
    """A watch whose beats come on time unless a test is late."""

    def __init__(self, ask_beats: int = 2) -> None:
        self.now = 100.0
        self.silence = Silence(self.now, SILENCE_S, ask_beats=ask_beats)

    def beat(self, *, late: float = 0.0, ask: bool = True) -> Verdict:
        self.now = self.silence.due + late
        return self.silence.beat(self.now, ask=ask)

    def until(self, verdict: Verdict, *, late: float = 0.0, ask: bool = True) -> float:
        """Beats until that is said; how long it took."""
        began = self.now
        for _ in range(1000):
            if self.beat(late=late, ask=ask) is verdict:
                return self.now - began
        raise AssertionError(f"{verdict} never came")

    def hear(self) -> None:
        self.silence.heard = True


@pytest.mark.parametrize("ask_beats", [1, 2, 3])
def test_a_silent_peer_is_asked_and_then_found_frozen(ask_beats: int) -> None:
    watched = Watched(ask_beats)
    asked_after = watched.until(Verdict.ASK)
    assert asked_after == pytest.approx(ask_beats * BEAT_S)
    assert asked_after + watched.until(Verdict.SILENT) == pytest.approx(SILENCE_S)


def test_it_is_found_within_the_silence_and_a_sixth_more_whenever_it_last_spoke() -> None:
    rng = random.Random(1)
    for _ in range(100):
        watched = Watched()
        # It speaks between two beats, and never again.
        spoke_at = watched.now + rng.uniform(0, BEAT_S)
        watched.hear()
        watched.until(Verdict.SILENT)
        assert SILENCE_S <= watched.now - spoke_at <= SILENCE_S + BEAT_S + 1e-9


def test_a_peer_that_says_anything_is_not_asked() -> None:
    watched = Watched()
    for _ in range(100):
        watched.hear()
        assert watched.beat() is Verdict.WAIT
        assert watched.beat() is Verdict.WAIT


def test_an_answer_ends_the_count_and_it_is_asked_again_only_after_another_silence() -> None:
    watched = Watched()
    watched.until(Verdict.ASK)
    for _ in range(3):
        assert watched.beat() is Verdict.WAIT
    watched.hear()
    assert watched.beat() is Verdict.WAIT
    assert watched.until(Verdict.ASK) == pytest.approx(2 * BEAT_S)


def test_it_is_asked_once_in_a_silence() -> None:
    watched = Watched()
    said = [watched.beat() for _ in range(6)]
    assert said.count(Verdict.ASK) == 1
    assert said[-1] is Verdict.SILENT


def test_a_stall_of_this_side_is_never_the_silence_of_the_other() -> None:
    """What the peer said meanwhile lies in the socket, and is read only after the late beat."""
    for before in range(5):
        watched = Watched()
        for _ in range(before):
            watched.beat()
        assert watched.beat(late=3600) is Verdict.WAIT
        watched.hear()
        assert watched.beat() is Verdict.WAIT


def test_a_process_that_stalls_again_and_again_never_gives_a_peer_up() -> None:
    watched = Watched()
    said = {watched.beat(late=1.1 * BEAT_S) for _ in range(1000)}
    assert said == {Verdict.WAIT}


def test_a_stall_only_puts_off_what_it_hides() -> None:
    watched = Watched()
    watched.until(Verdict.ASK)
    watched.beat(late=10)
    assert watched.until(Verdict.SILENT) == pytest.approx(4 * BEAT_S)


def test_a_busy_process_that_is_a_little_late_still_finds_a_frozen_peer() -> None:
    watched = Watched()
    assert watched.until(Verdict.SILENT, late=0.9 * BEAT_S) <= 2 * SILENCE_S


def test_a_peer_that_may_not_be_asked_is_not_missed() -> None:
    watched = Watched()
    assert {watched.beat(ask=False) for _ in range(100)} == {Verdict.WAIT}


def test_a_question_of_another_kind_counts_and_leaves_time_for_the_answer() -> None:
    watched = Watched()
    for _ in range(100):
        watched.beat(ask=False)
    # It has said something, and before that nobody looked for an hour.
    watched.now += 3600
    watched.hear()
    watched.silence.asked(watched.now)
    watched.silence.asked(watched.now)
    assert watched.silence.awaits_answer
    assert watched.until(Verdict.SILENT, ask=False) == pytest.approx(SILENCE_S)


def test_a_question_while_the_peer_speaks_costs_nothing() -> None:
    watched = Watched()
    for _ in range(100):
        watched.silence.asked(watched.now)
        watched.hear()
        assert watched.beat() is Verdict.WAIT
        assert not watched.silence.awaits_answer
