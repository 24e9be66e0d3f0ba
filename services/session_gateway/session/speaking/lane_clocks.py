"""The clocks of the lanes of a session in a room: what stops one stops all."""

from __future__ import annotations

from collections.abc import Hashable

from lingua_scheduler.services.session_gateway.session.delivery import ResultClock


class LaneClocks:
    """The clocks of all lanes. They wait for the same Redis, so they have the same causes."""

    def __init__(self) -> None:
        self._clocks: dict[str, ResultClock] = {}
        self._causes: set[Hashable] = set()

    def add(self, now: float, language: str, clock: ResultClock) -> None:
        """A lane has been made."""
        self._clocks[language] = clock
        for cause in self._causes:
            clock.stop(now, cause)

    def remove(self, language: str) -> None:
        """A lane is gone, with all its jobs."""
        del self._clocks[language]

    def stop(self, now: float, cause: Hashable) -> None:
        """Stops all clocks: a request shows that Redis is unavailable."""
        self._causes.add(cause)
        for clock in self._clocks.values():
            clock.stop(now, cause)

    def run(self, now: float, cause: Hashable) -> None:
        """Ends a cause for which the clocks were stopped, if it is one."""
        if cause in self._causes:
            self._causes.remove(cause)
            for clock in self._clocks.values():
                clock.run(now, cause)


class LaneClock:
    """The clock of one lane, as its jobs use it.

    Args:
        own: of the lane.
        all_lanes: those of all lanes.
        language: of the lane.
    """

    def __init__(self, own: ResultClock, all_lanes: LaneClocks, language: str) -> None:
        self._all = all_lanes
        self._language = language
        self.deadline_of = own.deadline_of
        self.overdue = own.overdue
        self.set_timer = own.set_timer
        self._own = own

    @property
    def is_stopped(self) -> bool:
        """Whether the deadlines wait for Redis."""
        return self._own.is_stopped

    def stop(self, now: float, cause: Hashable) -> None:
        """Stops the deadlines of all lanes."""
        self._all.stop(now, (self._language, cause))

    def run(self, now: float, cause: Hashable) -> None:
        """Ends a cause of this lane."""
        self._all.run(now, (self._language, cause))
