"""A histogram that costs next to nothing to add to, and is put together only when it is read."""

import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily


class Spread:
    """How values spread over buckets, as a Prometheus histogram without labels.

    It has one writer: the event loop's thread. A scrape reads it from its own.

    Args:
        name: of the histogram.
        words: what it measures.
        buckets: their upper bounds, rising.
        registry: where it is shown.
    """

    def __init__(
        self, name: str, words: str, *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._words = words
        self._bounds = [*buckets, float("inf")]
        self._labels = [*map(str, buckets), "+Inf"]
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._created = time.time()
        registry.register(self)

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Its name, for the registry."""
        yield HistogramMetricFamily(self._name, self._words)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What a scrape sees."""
        buckets = list(zip(self._labels, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._words, buckets, self._sum)
        family.add_sample(f"{self._name}_created", {}, self._created)
        yield family
