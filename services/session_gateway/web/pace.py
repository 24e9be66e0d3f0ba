"""Limits how many frames a client may send in a second, with a burst. Pure."""

from collections.abc import Callable


class Pace:
    """A token bucket that asks for the time only when it is empty, which for most is never.

    A client that sends faster is not refused: its frames are read later, so that it has to wait for
    the network. A client that resumes after a long interruption sends all that it has kept, and
    should not have to know the limit.

    Args:
        per_s: frames per second.
        burst: frames that may come at once after a quiet time.
        clock: the time, in seconds of a monotonic clock.
    """

    __slots__ = ("_clock", "_filled_at", "_full", "_left", "_per_s")

    def __init__(self, *, per_s: int, burst: int, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        # Half of the burst, because what is left may be used just before it is filled again.
        self._full = self._left = max(1.0, burst / 2)
        self._filled_at = clock()

    def passes(self) -> bool:
        """Counts one frame if it surely need not wait."""
        if self._left >= 1:
            self._left -= 1
            return True
        return False

    def wait_s(self) -> float:
        """Counts one frame; returns how long to wait before it is read."""
        if self._left < 1:
            now = self._clock()
            earned = (now - self._filled_at) * self._per_s
            self._left, self._filled_at = min(self._full, self._left + earned), now
        self._left -= 1
        return max(0.0, -self._left / self._per_s)
