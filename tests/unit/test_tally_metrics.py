"""Counters and histograms that are worked out when somebody looks."""

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from lingua_scheduler.services.runtime.tallies import Durations, Tally

BUCKETS = (0.001, 0.5, 1.0)


def shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_a_tally_is_shown_as_a_counter_with_its_label() -> None:
    registry = CollectorRegistry()
    things = Tally("lingua_things", "Things.", "kind", values=["none yet"], registry=registry)
    things.counts["good"] += 1
    things.counts["good"] += 2
    assert shown(registry) == [
        "# HELP lingua_things_total Things.",
        "# TYPE lingua_things_total counter",
        'lingua_things_total{kind="none yet"} 0.0',
        'lingua_things_total{kind="good"} 3.0',
    ]


def test_durations_are_shown_as_the_histogram_of_the_client_library_shows_them() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("lingua_took_seconds", "Took.", buckets=BUCKETS, registry=ours)
    histogram = Histogram("lingua_took_seconds", "Took.", buckets=BUCKETS, registry=theirs)
    for seconds in (0.0, 0.001, 0.0011, 0.7, 1.0, 3.0):
        durations.observe(seconds)
        histogram.observe(seconds)
    assert shown(ours) == shown(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Tally("lingua_things", "Things.", "kind", values=(), registry=registry)
    with pytest.raises(ValueError, match="lingua_things"):
        Tally("lingua_things", "Things.", "kind", values=(), registry=registry)
