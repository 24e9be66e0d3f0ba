"""Limits how many frames a client may send in a second, with a burst. Pure."""

import math


class Pace:
    """A token bucket.

    A client that sends faster is not refused: its frames are read later, so that it has to wait for
    the network. A client that resumes after a long interruption sends all that it has kept, and
    should not have to know the limit.

    Args:
        per_s: frames per second.
        burst: frames that may come at once after a quiet time.
    """

    __slots__ = ("_every_s", "_full_s", "_next_s")

    def __init__(self, *, per_s: int, burst: int) -> None:
        self._every_s = 1 / per_s
        self._full_s = (burst - 1) * self._every_s
        # When the next frame would be due if frames came exactly at this rate.
        self._next_s = -math.inf

    def wait_s(self, now: float) -> float:
        """Counts one frame; returns how long to wait before it is read.

        Args:
            now: the time, in seconds of a monotonic clock.
        """
        self._next_s = max(self._next_s, now - self._full_s) + self._every_s
        return max(0.0, self._next_s - self._every_s - now)
