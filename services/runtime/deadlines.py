"""A timer for deadlines that does not blame a peer for a stall of this process."""

import asyncio
import math
from collections.abc import Callable

# Deadlines this close together are served together.
SLACK_S = 0.005
# If the event loop itself was this late, answers may lie unread in the socket: they are read
# before the peer is called slow.
STALL_S, STALL_GRACE_S = 0.05, 0.02


class DeadlineTimer:
    """One timer for many deadlines.

    If the timer fires late, the event loop was stalled. Whatever expired during the stall is
    spared once, and the timer fires again after `STALL_GRACE_S`.

    Args:
        expire: called with a time; has to expire everything whose deadline is not after that
            time, and to return the next deadline, or infinity if there is none.
    """

    def __init__(self, expire: Callable[[float], float]) -> None:
        self._expire = expire
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_armed(self) -> bool:
        """Whether the timer will fire."""
        return self._handle is not None

    def arm(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """Sets the timer for the first deadline; later ones are found when it fires."""
        if self._handle is None:
            self._handle = loop.call_at(due, self._fire, loop, due)

    def disarm(self) -> None:
        """Stops the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self, loop: asyncio.AbstractEventLoop, due: float, spared: float = -math.inf) -> None:
        now = loop.time()
        stalled = now - due > STALL_S
        # Deadlines up to `spared` have already had their grace.
        next_due = self._expire(spared if stalled else now + SLACK_S)
        self._handle = None
        if stalled:
            due = now + STALL_GRACE_S
            self._handle = loop.call_at(due, self._fire, loop, due, now)
        elif next_due < math.inf:
            self.arm(loop, next_due)
