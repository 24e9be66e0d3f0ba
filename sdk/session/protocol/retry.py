"""When a session tries the next gateway, and when it gives up. No I/O, no clock."""

import random

from lingua_scheduler.sdk._transport.backoff import Backoff

# A gateway that takes longer than this to answer Open is as good as none.
ANSWER_S = 10.0
# What it has at least, also at the last try before the time is over.
LAST_ANSWER_S = 1.0
# For the first connection, where no server has said yet what it allows.
OPEN_S = 10.0
# Of a server that does not say how long it waits.
RESUME_S = 30.0
# A connection that lived so long was a good one: the next backoff starts small.
STABLE_S = 1.0
# A server may ask for patience, but not for ever.
LONGEST_WAIT_S = 30.0


class Retries:
    """The time that a session is without a connection.

    Args:
        rng: spreads the waits.
        seconds: how long to try; None: for `OPEN_S` at first, later for what the server allows.
    """

    def __init__(self, *, rng: random.Random, seconds: float | None) -> None:
        self._backoff = Backoff(rng)
        self._seconds = seconds
        self._allowed = OPEN_S
        self._away_since: float | None = None
        self._opened_at = 0.0

    def away(self, now: float) -> None:
        """There is no connection. Only the first call after `opened` counts."""
        if self._away_since is None:
            self._away_since = now
            if now - self._opened_at >= STABLE_S:
                self._backoff.reset()

    def opened(self, now: float, resume_within: float) -> float:
        """A gateway has the session; for how many seconds none had it."""
        away = 0.0 if self._away_since is None else now - self._away_since
        self._away_since = None
        self._opened_at = now
        self._allowed = resume_within or RESUME_S
        return away

    @property
    def seconds(self) -> float:
        """How long it tries."""
        return self._allowed if self._seconds is None else self._seconds

    @property
    def give_up_at(self) -> float | None:
        """When it is enough; None while there is a connection."""
        return None if self._away_since is None else self._away_since + self.seconds

    def answer_by(self, now: float) -> float:
        """When a gateway that is asked now has to have answered."""
        give_up_at = self.give_up_at
        latest = now + ANSWER_S
        return latest if give_up_at is None else min(latest, max(give_up_at, now + LAST_ANSWER_S))

    def next_wait(
        self, now: float, *, asked: float = 0.0, moved: bool = False, strictly: bool = False
    ) -> float | None:
        """Seconds until the next try; None: it has been tried for long enough.

        Args:
            now: the time.
            asked: what the server asked for at least.
            moved: the server asked to connect elsewhere, so there is nothing to be careful about.
            strictly: before what was asked for, another try is in vain.
        """
        give_up_at = self.give_up_at
        wait = max(min(asked, LONGEST_WAIT_S), 0.0 if moved else self._backoff.next())
        if give_up_at is None:
            return wait
        if strictly and now + asked > give_up_at:
            return None
        # The last try is made in time.
        return None if now >= give_up_at else min(wait, max(0.0, give_up_at - now))
