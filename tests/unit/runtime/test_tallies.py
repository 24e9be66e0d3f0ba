"""Plain metrics are exported as those of prometheus_client would be."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from lingua_scheduler.services.runtime.telemetry.tallies import Durations, Tally

BUCKETS = (0.01, 0.5, 1.0, 60.0)


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_durations_are_shown_as_a_histogram() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("lingua_seconds", "How long.", buckets=BUCKETS, registry=ours)
    histogram = Histogram("lingua_seconds", "How long.", buckets=BUCKETS, registry=theirs)
    assert shown(ours) == shown(theirs)
    for seconds in (0.0, 0.01, 0.25, 0.5, 59.0, 60.5, 600.0):
        durations.observe(seconds)
        histogram.observe(seconds)
    assert shown(ours) == shown(theirs)


def test_a_tally_is_shown_as_a_counter_with_a_label() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = Tally("lingua_jobs", "Jobs.", "how", values=("done",), registry=ours)
    counter = Counter("lingua_jobs", "Jobs.", ["how"], registry=theirs)
    counter.labels("done")
    assert shown(ours) == shown(theirs)
    tally.counts["done"] += 2
    counter.labels("done").inc(2)
    tally.counts["failed"] += 1
    counter.labels("failed").inc()
    assert shown(ours) == shown(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Tally("lingua_things", "Things.", "kind", values=(), registry=registry)
    with pytest.raises(ValueError, match="lingua_things"):
        Tally("lingua_things", "Things.", "kind", values=(), registry=registry)
