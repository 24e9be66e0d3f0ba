"""Cuts long speech at the speaker's pauses.

Recognisers work best with a few seconds at a time, and worst with half a word. A closed segment
does not change when more of the turn arrives, so it need not be recognised again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from interpreter_node.engines import FRAME, RATE


def _frames(seconds: float) -> int:
    return round(seconds * RATE / FRAME)


# The pause that ends a segment of usual length, and the pause that ends any segment.
PAUSE = _frames(0.5)
LONG_PAUSE = _frames(1.0)
USUAL = _frames(5.0)
# The longest segment, and how far back to look for a better cut.
MOST = _frames(14.0)
LOOK_BACK = _frames(6.0)
# Margin around speech, since words begin and end softly.
MARGIN = _frames(0.13)


class Segment(NamedTuple):
    """Samples from `start` to before `end`; `closed`: nothing that follows belongs to it."""

    start: int
    end: int
    closed: bool


def segments(voiced: Sequence[bool], samples: int) -> list[Segment]:
    """The segments of speech in the samples; none if nobody speaks."""
    spans = list(_spans(voiced))
    found: list[Segment] = []
    for first, last, closed in spans:
        start = max(0, first - MARGIN) * FRAME
        end = min(samples, (last + 1 + MARGIN) * FRAME)
        # Margins must not overlap if a cut was made without a pause.
        start = max(start, found[-1].end) if found else start
        found.append(Segment(start, max(start, end), closed))
    return found


def _spans(voiced: Sequence[bool]) -> Iterator[tuple[int, int, bool]]:
    """First and last voiced frame of each segment."""
    first, last, gap_at, gap = -1, -1, -1, 0
    for at, speaks in enumerate(voiced):
        if speaks:
            if first < 0:
                first, gap_at, gap = at, -1, 0
            elif at - last - 1 >= gap and at - last > 1 and at - first > MOST - LOOK_BACK:
                # The longest pause near the limit, in case it is needed.
                gap_at, gap = last, at - last - 1
            last = at
        if first < 0:
            continue
        quiet, length = at - last, last - first + 1
        if quiet >= LONG_PAUSE or (quiet >= PAUSE and length >= USUAL):
            yield first, last, True
            first = -1
        elif length >= MOST:
            cut = gap_at if gap_at >= 0 else last
            yield first, cut, True
            # Speech after the cut begins the next segment.
            first = next((each for each in range(cut + 1, at + 1) if voiced[each]), -1)
            gap_at, gap = -1, 0
    if first >= 0:
        yield first, last, False
