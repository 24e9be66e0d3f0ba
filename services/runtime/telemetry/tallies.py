"""Cheap metrics for the hot path: plain numbers, converted only when they are scraped.

prometheus_client takes a lock and makes ten calls for each increment. Here only the event loop
writes, and the thread that serves /metrics only reads.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Tally(Collector):
    """A counter with one label. `tally.counts["done"] += 1` counts.

    Args:
        name: of the metric, without "_total".
        about: description of the metric.
        label: the label's name.
        values: values of the label that are exported from 0 on, so that the first count is an
            increase.
    """

    def __init__(
        self,
        name: str,
        about: str,
        label: str,
        *,
        values: Iterable[str],
        registry: CollectorRegistry,
    ) -> None:
        self.counts = defaultdict(int, dict.fromkeys(values, 0))
        self._name, self._about, self._label = name, about, label
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry."""
        return [CounterMetricFamily(self._name, self._about, labels=[self._label])]

    def collect(self) -> Iterable[Metric]:
        """The counts, for the registry."""
        family = CounterMetricFamily(self._name, self._about, labels=[self._label])
        for value, count in self.counts.copy().items():
            family.add_metric([value], count)
        return [family]


class Durations(Collector):
    """A histogram of seconds.

    Args:
        name: of the metric.
        about: description of the metric.
        buckets: upper bounds of the buckets, in order.
    """

    def __init__(
        self, name: str, about: str, *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._about = name, about
        self._bounds = buckets
        # The last one counts values above all bounds.
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds of the buckets, in order."""
        return self._bounds

    @property
    def counts(self) -> Sequence[int]:
        """Durations in each bucket; the last one counts those above all bounds."""
        return tuple(self._counts)

    def observe(self, seconds: float) -> None:
        """Adds a duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def describe(self) -> Iterable[Metric]:
        """Its name, for the registry."""
        return [HistogramMetricFamily(self._name, self._about)]

    def collect(self) -> Iterable[Metric]:
        """The histogram, for the registry."""
        buckets: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            seen += count
            buckets.append((bound, seen))
        return [HistogramMetricFamily(self._name, self._about, buckets, self._sum)]
