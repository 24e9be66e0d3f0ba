"""Plain numbers as metrics."""

from prometheus_client import CollectorRegistry, Histogram, generate_latest

from lingua_scheduler.services.runtime.tallies import Times

BUCKETS = (0.001, 0.005, 0.05, 1.0, 60.0)


def test_times_are_shown_as_a_histogram_shows_them() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    times = Times("t_seconds", "Times.", buckets=BUCKETS, registry=ours)
    histogram = Histogram("t_seconds", "Times.", buckets=BUCKETS, registry=theirs)
    for ms in (0, 1, 1, 5, 6, 50, 999, 1000, 1001, 60_000, 60_001):
        times.times[ms] += 1
        histogram.observe(ms / 1000)
    assert _shown(ours) == _shown(theirs)


def test_where_nothing_was_timed_every_bucket_is_empty() -> None:
    registry = CollectorRegistry()
    Times("t_seconds", "Times.", buckets=BUCKETS, registry=registry)
    assert registry.get_sample_value("t_seconds_count") == 0
    assert registry.get_sample_value("t_seconds_bucket", {"le": "0.005"}) == 0


def _shown(registry: CollectorRegistry) -> list[str]:
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]
