"""What tests of alerts and dashboards may ask for."""

import uuid
from pathlib import Path

import pytest

from tests.monitoring.exported import SERVICES, Exported, exported_by
from tests.monitoring.promql import Labels
from tests.monitoring.rules import recorded

ROOT = Path(__file__).parents[2]

# Made by Prometheus itself at each scrape.
_OF_THE_SCRAPE = {"up": frozenset({"job", "instance"})}


@pytest.fixture(scope="session")
def exported(redis_url: str) -> dict[str, Exported]:
    """What each service exports."""
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    return {service: exported_by(service, redis_url, prefix) for service in SERVICES}


@pytest.fixture(scope="session")
def series(exported: dict[str, Exported]) -> Labels:
    """The labels of every series that a query may name, recorded ones included."""
    found: dict[str, frozenset[str]] = dict(_OF_THE_SCRAPE)
    for each in exported.values():
        for name, labels in each.series().items():
            found[name] = found.get(name, frozenset()) | labels | {"job", "instance"}
    return {**found, **recorded(found)}
