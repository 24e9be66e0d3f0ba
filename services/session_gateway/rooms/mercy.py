"""When utterances that are overdue may become missing. Pure."""

# By how much the clock of Redis and that of this process may differ more than before.
_TOLERANCE_S = 2.0


class Mercy:
    """Spares utterances that are overdue only because Redis was away, or its clock has jumped.

    Args:
        after_outage_s: for how long after Redis was away, so that outcomes which wait for it come
            first.
        after_jump_s: for how long after its clock has jumped.
    """

    def __init__(self, *, after_outage_s: float, after_jump_s: float) -> None:
        self._after_outage_s = after_outage_s
        self._after_jump_s = after_jump_s
        self._until_s = 0.0
        # How far the clock of Redis was ahead of the one here.
        self._ahead_s: float | None = None

    def on_redis_back(self, now_s: float) -> None:
        """Redis is available again."""
        self._until_s = max(self._until_s, now_s + self._after_outage_s)

    def is_over(self, now_s: float, ahead_s: float) -> bool:
        """Whether what is overdue now is missing.

        Args:
            now_s: by a clock that does not jump.
            ahead_s: how far the clock of Redis is ahead of that.
        """
        if self._ahead_s is not None and abs(ahead_s - self._ahead_s) > _TOLERANCE_S:
            self._until_s = now_s + self._after_jump_s
        self._ahead_s = ahead_s
        return now_s >= self._until_s
