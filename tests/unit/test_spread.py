"""A spread looks to Prometheus like any histogram."""

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from lingua_scheduler.services.session_gateway.spread import Spread

BOUNDS = (0.5, 1.0, 2.0)


def shown(registry: CollectorRegistry) -> list[str]:
    """All lines but the time at which it was made, which are two clocks."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("lingua_x_created ")]


@pytest.mark.parametrize(
    "values", [[], [0.0], [0.5, 0.50001], [1.0, 2.0, 2.1, 1e9], [0.1] * 5], ids=str
)
def test_a_scrape_sees_what_it_would_of_a_histogram(values: list[float]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = Spread("lingua_x", "Words.", buckets=BOUNDS, registry=ours)
    histogram = Histogram("lingua_x", "Words.", buckets=BOUNDS, registry=theirs)

    for value in values:
        spread.observe(value)
        histogram.observe(value)

    assert shown(ours) == shown(theirs)
    assert len(generate_latest(ours).splitlines()) == len(generate_latest(theirs).splitlines())


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    Spread("lingua_x", "Words.", buckets=BOUNDS, registry=registry)

    with pytest.raises(ValueError, match="Duplicated"):
        Spread("lingua_x", "Words.", buckets=BOUNDS, registry=registry)
