"""How long a server may be silent before it counts as frozen. No I/O, no clock.

Silence is judged by whole messages. Over a slow line a large one may take longer than a frozen
server is given, and whoever then connects again has it sent from its beginning. So after each time
that a server was left for its silence, the next one gets twice as long.
"""

# What a server may ask for.
LEAST_S, MOST_S = 0.3, 600.0
# The longest is so many times what the server says.
MOST_TIMES = 8
# After so long without another silence, all is well again.
FORGET_S = 300.0


class Patience:
    """How long the next server gets."""

    def __init__(self) -> None:
        self._times = 1
        self._lost_at = 0.0

    def silence_s(self, now: float, said_ms: int) -> float:
        """How long a server that says `silence_ms` may be silent; 0: for ever."""
        if not said_ms:
            return 0.0
        if now - self._lost_at > FORGET_S:
            self._times = 1
        return min(MOST_S, max(LEAST_S, said_ms / 1000)) * self._times

    def ran_out(self, now: float) -> None:
        """A server was left because it was silent."""
        self._times = min(MOST_TIMES, 2 * self._times)
        self._lost_at = now
