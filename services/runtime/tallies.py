"""Plain numbers that become metrics when somebody looks.

A counter of prometheus_client takes a lock and half a dozen calls each time it counts. What happens
with every job is added up in a dict instead, by one thread, and read by that of a scrape.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import HistogramMetricFamily, Metric


class Times:
    """A histogram of times in whole ms, which shows them in seconds.

    Args:
        name: of the metric.
        words: what it is.
        buckets: their upper bounds, in seconds.
        registry: where it is shown.
    """

    def __init__(
        self, name: str, words: str, *, buckets: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._words = words
        self._bounds = (*buckets, math.inf)
        self.times: defaultdict[int, int] = defaultdict(int)
        """By a number of ms: how many took so long. As many numbers as a time-out has ms."""
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """What is shown."""
        # A copy in one step: the thread that counts goes on.
        times = sorted(self.times.copy().items())
        buckets: list[tuple[str, float]] = []
        at = below = 0
        for bound in self._bounds:
            while at < len(times) and times[at][0] <= bound * 1000:
                below += times[at][1]
                at += 1
            buckets.append(("+Inf" if bound == math.inf else str(bound), below))
        total_s = sum(ms * often for ms, often in times) / 1000
        yield HistogramMetricFamily(self._name, self._words, buckets=buckets, sum_value=total_s)
