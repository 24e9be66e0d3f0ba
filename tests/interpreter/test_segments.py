"""Long speech is cut at its pauses, and a finished piece never changes."""

from hypothesis import given
from hypothesis import strategies as st
from interpreter_node.engines import FRAME
from interpreter_node.segments import LONG_PAUSE, MARGIN, MOST, PAUSE, USUAL, segments

# Runs of speech and silence, in frames.
RUNS = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 60)), max_size=12)


def frames(runs: list[tuple[int, int]]) -> list[bool]:
    return [each for loud, quiet in runs for each in [True] * loud + [False] * quiet]


def test_silence_has_no_segments() -> None:
    assert segments([], 0) == []
    assert segments([False] * 100, 100 * FRAME) == []


def test_a_short_pause_within_a_sentence_does_not_cut() -> None:
    voiced = frames([(USUAL, PAUSE - 1), (10, 0)])
    assert [each.closed for each in segments(voiced, len(voiced) * FRAME)] == [False]


def test_a_pause_after_a_sentence_of_usual_length_cuts() -> None:
    voiced = frames([(USUAL, PAUSE), (10, 0)])
    first, second = segments(voiced, len(voiced) * FRAME)
    assert (first.closed, second.closed) == (True, False)
    assert first.end == (USUAL + MARGIN) * FRAME


def test_a_long_pause_cuts_even_after_a_word() -> None:
    voiced = frames([(5, LONG_PAUSE), (5, 0)])
    assert len(segments(voiced, len(voiced) * FRAME)) == 2


def test_speech_without_a_pause_is_cut_at_its_best_place() -> None:
    voiced = frames([(MOST - 60, 3), (30, 6), (100, 0)])
    first, _ = segments(voiced, len(voiced) * FRAME)
    # In the longer of the two gaps.
    assert (MOST - 60 + 3 + 30) * FRAME <= first.end <= (MOST - 60 + 3 + 30 + 6) * FRAME


@given(RUNS)
def test_all_speech_is_in_one_segment_and_none_is_too_long(runs: list[tuple[int, int]]) -> None:
    voiced = frames(runs)
    found = segments(voiced, len(voiced) * FRAME)
    covered = [0] * len(voiced)
    for each in found:
        assert each.end - each.start <= (MOST + 2 * MARGIN + 1) * FRAME
        for frame in range(each.start // FRAME, -(-each.end // FRAME)):
            covered[frame] += 1
    assert all(count == 1 for count, loud in zip(covered, voiced, strict=True) if loud)
    assert all(each.closed for each in found[:-1])


@given(RUNS, RUNS)
def test_closed_segments_stay_when_more_is_said(
    runs: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    voiced = frames(runs)
    longer = voiced + frames(more)
    closed = [each for each in segments(voiced, len(voiced) * FRAME) if each.closed]
    assert segments(longer, len(longer) * FRAME)[: len(closed)] == closed
