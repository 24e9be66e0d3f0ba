"""How many of a node's partial results are passed on."""


class PartialLimiter:
    """Lets at most one partial result through in each interval. Time is the caller's.

    One that comes up to half an interval early passes too, because the one before it may have been
    delayed on its way; the next one then has to wait for longer. So in the time of n intervals at
    most n + 1 pass.

    Args:
        interval_ms: 0: no partial results are wanted, and none passes.
    """

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._due_ms = float("-inf")

    def passes(self, now_ms: float) -> bool:
        """Whether a partial result that comes now is passed on."""
        if not self._interval_ms or now_ms < self._due_ms - self._interval_ms / 2:
            return False
        self._due_ms = max(now_ms, self._due_ms) + self._interval_ms
        return True
