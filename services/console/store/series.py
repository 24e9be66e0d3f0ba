"""Rings of the last values, one per interval, for sparklines."""

from collections import deque
from collections.abc import Iterable, Mapping

INTERVAL_S = 5
# 15 minutes.
POINTS = 180
# Stands for a value that is not known: no number of a series is negative.
NO_VALUE = -1


class SeriesBoard:
    """Series that get one point each at the same times.

    Args:
        names: of the series.
        points: how many are kept.
    """

    def __init__(self, names: Iterable[str], points: int = POINTS) -> None:
        self._series: dict[str, deque[float]] = {name: deque(maxlen=points) for name in names}
        self.end_ms = 0
        """Time of the last point; 0: there is none."""

    def add(self, now_ms: int, values: Mapping[str, float | None]) -> None:
        """Adds a point to each series; a value that is None or not given is not known."""
        self.end_ms = now_ms
        for name, ring in self._series.items():
            value = values.get(name)
            ring.append(NO_VALUE if value is None else value)

    def values(self) -> dict[str, list[float]]:
        """The points of each series, the oldest first."""
        return {name: list(ring) for name, ring in self._series.items()}
