"""How long a server may be silent before it counts as frozen. No I/O, no clock.

Only whole messages count as signs of life. Over a slow line, a large message may take longer than
the limit, and after a reconnection it starts from its beginning. So the limit doubles each time
that a server was left because it was silent.
"""

# The range that a server may choose from.
LEAST_S, MOST_S = 0.3, 600.0
# The limit grows to at most this many times what the server says.
MOST_TIMES = 8
# After this long without another silence, the limit is reset.
FORGET_S = 300.0


class Patience:
    """The silence limit of the next server."""

    def __init__(self) -> None:
        self._times = 1
        self._lost_at = 0.0

    def silence_s(self, now: float, said_ms: int) -> float:
        """Returns how long a server that announced `said_ms` may be silent; 0: forever."""
        if not said_ms:
            return 0.0
        if now - self._lost_at > FORGET_S:
            self._times = 1
        return min(MOST_S, max(LEAST_S, said_ms / 1000)) * self._times

    def ran_out(self, now: float) -> None:
        """A server was left because it was silent."""
        self._times = min(MOST_TIMES, 2 * self._times)
        self._lost_at = now
