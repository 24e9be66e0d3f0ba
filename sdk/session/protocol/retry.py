"""When a session tries the next gateway, and when it gives up. No I/O, no clock."""

import random

from lingua_scheduler.sdk._transport.backoff import Backoff

# How long a gateway may take to answer Open.
ANSWER_S = 10.0
# The least time that it gets, even at the last attempt before the session gives up.
LAST_ANSWER_S = 1.0
# How long to try the first connection, before a server has said what it allows.
OPEN_S = 10.0
# How long to try to resume, if the server does not say how long it waits.
RESUME_S = 30.0
# A connection that lasted this long was good: the next backoff starts small.
STABLE_S = 1.0
# The longest wait that a server can ask for.
LONGEST_WAIT_S = 30.0


class Retries:
    """Times the attempts of a session to connect.

    A connection counts as good only if it lasted a while or brought the session forward. One that
    opens and ends right away resets neither the backoff nor the time after which to give up.

    Args:
        rng: randomizes the waits.
        seconds: how long to try; None: `OPEN_S` at first, and later as long as the server allows.
    """

    def __init__(self, *, rng: random.Random, seconds: float | None) -> None:
        self._backoff = Backoff(rng)
        self._seconds = seconds
        self._allowed = OPEN_S
        # Since when there is no connection; None while there is one.
        self._away_since: float | None = None
        # Since when there was no good connection; None if there is nothing to worry about.
        self._trouble_since: float | None = None
        self._opened_at: float | None = None
        self._is_good = False
        # A server that sends the client elsewhere is obeyed at once, but not again and again.
        self._may_move_at_once = True

    def away(self, now: float) -> None:
        """Notes that there is no connection. Only the first call after `opened` counts."""
        if self._away_since is not None:
            return
        self._away_since = now
        lasted = 0.0 if self._opened_at is None else now - self._opened_at
        if self._is_good or lasted >= STABLE_S:
            self._backoff.reset()
            self._trouble_since = None
            self._may_move_at_once = True
        if self._trouble_since is None:
            self._trouble_since = now

    def opened(self, now: float, resume_within: float) -> float:
        """Notes that the session is open. Returns how many seconds it was not."""
        away = 0.0 if self._away_since is None else now - self._away_since
        self._away_since = None
        self._opened_at = now
        self._is_good = False
        self._allowed = resume_within or RESUME_S
        return away

    def progress(self) -> None:
        """Notes that the current connection has brought the session forward."""
        self._is_good = True

    @property
    def seconds(self) -> float:
        """How long to try."""
        return self._allowed if self._seconds is None else self._seconds

    @property
    def give_up_at(self) -> float | None:
        """When to give up; None if there is nothing to worry about."""
        return None if self._trouble_since is None else self._trouble_since + self.seconds

    def answer_by(self, now: float) -> float:
        """Returns the deadline for the answer of a gateway that is asked now."""
        give_up_at = self.give_up_at
        latest = now + ANSWER_S
        return latest if give_up_at is None else min(latest, max(give_up_at, now + LAST_ANSWER_S))

    def next_wait(
        self, now: float, *, asked: float = 0.0, moved: bool = False, strictly: bool = False
    ) -> float | None:
        """Returns the seconds until the next attempt; None if it is time to give up.

        Args:
            now: the time.
            asked: the wait that the server asked for.
            moved: the server asked the client to connect elsewhere. No backoff is needed, unless
                it was asked before and has had no good connection since.
            strictly: an attempt before the time that the server asked for cannot succeed.
        """
        give_up_at = self.give_up_at
        at_once = moved and self._may_move_at_once
        self._may_move_at_once = self._may_move_at_once and not moved
        wait = max(min(asked, LONGEST_WAIT_S), 0.0 if at_once else self._backoff.next())
        if give_up_at is None:
            return wait
        if strictly and now + asked > give_up_at:
            return None
        # The last attempt is made before it is time to give up.
        return None if now >= give_up_at else min(wait, max(0.0, give_up_at - now))
