"""Instances of the services, and rates and percentiles from what they count."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from lingua_scheduler.v1 import instances_pb2

WINDOW_S = 60
# Of the points of a series. Shorter windows would see two announcements at one time, three at
# another.
POINT_WINDOW_S = 10
MAX_INSTANCES = 1000
# Buckets of a histogram.
_MAX_BOUNDS = 64

HEALTHS: Final = {
    instances_pb2.INSTANCE_HEALTH_SERVING: "serving",
    instances_pb2.INSTANCE_HEALTH_DRAINING: "draining",
    instances_pb2.INSTANCE_HEALTH_DOWN: "down",
}
_DOWN = "down"
# Counters of InstanceStats: they only grow, until the process ends.
_COUNTERS: Final = ("results", "missing", "jobs_done", "jobs_failed", "retries")


def health_of(instance: instances_pb2.Instance) -> str:
    """The health of an instance, as the console names it."""
    return HEALTHS.get(instance.health, _DOWN)


@dataclass(frozen=True, slots=True)
class Rates:
    """What happened per second in a window, and the percentiles of the times to a result in ms.

    A percentile is None if there were no results, all are None if less than two samples are known.
    """

    jobs_per_s: float | None = None
    failed_per_s: float | None = None
    retries_per_s: float | None = None
    missing_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None


@dataclass(slots=True)
class _Sample:
    """All that was counted until a time, since the console began."""

    at_ms: int
    counters: Counter[str] = field(default_factory=Counter)
    # Times to a result, by the upper bound of their bucket.
    times: Counter[float] = field(default_factory=Counter)


class InstanceBoard:
    """The last list of instances, and sums of what they have counted.

    Counters of a process start at 0 and are lost with it. So the differences between two lists are
    summed up, for processes that are in both: an instance that restarts or vanishes makes no
    negative rate, and one that was counting long before it was first seen makes no huge one.
    """

    def __init__(self) -> None:
        self.instances: Sequence[instances_pb2.Instance] = ()
        self.as_of_ms = 0
        self._last: dict[tuple[str, int], instances_pb2.InstanceStats] = {}
        self._samples: deque[_Sample] = deque()

    def apply(self, response: instances_pb2.ListInstancesResponse) -> None:
        """Takes in a new list. One that is a little older than the last is ignored."""
        if response.as_of_ms <= self.as_of_ms - WINDOW_S * 1000:
            # The clock of the services was set back.
            self._samples.clear()
            self._last = {}
        elif response.as_of_ms <= self.as_of_ms:
            return
        self.as_of_ms = response.as_of_ms
        self.instances = list(response.instances[:MAX_INSTANCES])
        sample = _Sample(response.as_of_ms)
        if self._samples:
            sample.counters.update(self._samples[-1].counters)
            sample.times.update(self._samples[-1].times)
        seen = {}
        for instance in self.instances:
            process = instance.instance_id, instance.started_ms
            seen[process] = instance.stats
            if (before := self._last.get(process)) is not None:
                _add_difference(sample, before, instance.stats)
        self._last = seen
        self._samples.append(sample)
        # One sample at the beginning of the window or before it is needed, and no other.
        while len(self._samples) > 2 and self._samples[1].at_ms <= sample.at_ms - WINDOW_S * 1000:
            self._samples.popleft()

    def total(self, name: str) -> int:
        """The sum of a number that instances have now, such as "sessions"; not of those down."""
        return sum(getattr(each.stats, name) for each in self.instances if health_of(each) != _DOWN)

    def rates(self, window_s: int = WINDOW_S) -> Rates:
        """Rates over the last seconds; over a longer time if no list came for as long."""
        if len(self._samples) < 2:
            return Rates()
        last = self._samples[-1]
        first = self._samples[0]
        for each in self._samples:
            if each.at_ms > last.at_ms - window_s * 1000:
                break
            first = each
        seconds = (last.at_ms - first.at_ms) / 1000
        per_s = {name: (last.counters[name] - first.counters[name]) / seconds for name in _COUNTERS}
        times = {bound: last.times[bound] - first.times[bound] for bound in last.times}
        return Rates(
            jobs_per_s=per_s["jobs_done"] + per_s["jobs_failed"],
            failed_per_s=per_s["jobs_failed"],
            retries_per_s=per_s["retries"],
            missing_per_s=per_s["missing"],
            p50_ms=percentile(times, 0.5),
            p99_ms=percentile(times, 0.99),
        )


def percentile(buckets: Mapping[float, int], share: float) -> float | None:
    """The value below which this share of all values lies; None if there are none.

    Args:
        buckets: number of values by the upper bound of their bucket; infinity for those above all
            bounds, whose values are not known: they count as the highest bound.
        share: such as 0.99.
    """
    rank = share * sum(buckets.values())
    if not rank:
        return None
    below, lower = 0, 0.0
    for bound in sorted(buckets):
        count = buckets[bound]
        if below + count >= rank and count:
            if bound == inf:
                return lower
            return lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return lower


def _add_difference(
    sample: _Sample, before: instances_pb2.InstanceStats, after: instances_pb2.InstanceStats
) -> None:
    for name in _COUNTERS:
        sample.counters[name] += max(0, getattr(after, name) - getattr(before, name))
    bounds = (*after.result_bounds_ms[:_MAX_BOUNDS], inf)
    is_same = list(before.result_bounds_ms) == list(after.result_bounds_ms)
    is_whole = len(bounds) == len(after.result_counts) == len(before.result_counts)
    if is_same and is_whole:
        for bound, old, new in zip(bounds, before.result_counts, after.result_counts, strict=True):
            sample.times[bound] += max(0, new - old)
