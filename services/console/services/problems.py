"""What cannot be read now, and since when."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from lingua_scheduler.services.runtime.errors import LinguaError

Source = Literal["fleet", "jobs", "instances", "sessions", "rooms"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """A source that cannot be read."""

    message: str
    since_ms: int


class Problems:
    """The problem of each source, if it has one.

    Args:
        now_ms: the time.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._current: dict[Source, Problem] = {}
        self._began_ms = now_ms()
        self._read_ms: dict[Source, int] = {}
        self.on_error: list[Callable[[Source], None]] = []
        """Called for each read that failed; must not block."""

    def get(self, source: Source) -> Problem | None:
        """The problem of a source."""
        return self._current.get(source)

    def age_s(self, source: Source) -> float:
        """Seconds since a source was last read, or since the start if it never was."""
        return max(0, self._now_ms() - self._read_ms.get(source, self._began_ms)) / 1000

    def document(self) -> dict[str, dict[str, str | int]]:
        """All problems, as documents show them."""
        return {
            source: {"message": each.message, "since_ms": each.since_ms}
            for source, each in self._current.items()
        }

    def older_than(self, time_ms: int) -> list[Source]:
        """The sources that have had a problem since before this time."""
        return [source for source, each in self._current.items() if each.since_ms < time_ms]

    def found(self, source: Source, error: LinguaError) -> None:
        """A source cannot be read. A problem that lasts keeps its first time."""
        known = self._current.get(source)
        if known is None:
            _log.warning("source unavailable", extra={"source": source, "reason": str(error)})
        since_ms = known.since_ms if known is not None else self._now_ms()
        self._current[source] = Problem(error.message, since_ms)
        for each in self.on_error:
            each(source)

    def solved(self, source: Source) -> None:
        """A source was read."""
        self._read_ms[source] = self._now_ms()
        if self._current.pop(source, None) is not None:
            _log.info("source available", extra={"source": source})
