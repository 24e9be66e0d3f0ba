"""The files of monitoring/, read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.monitoring.promql import Labels, labels_of

MONITORING = Path(__file__).parents[2] / "monitoring"
ALERTS_FILE = MONITORING / "alerts.yml"
ALERTS_TEST_FILE = MONITORING / "alerts_test.yml"

Rule = dict[str, Any]


def _rules() -> list[Rule]:
    groups = yaml.safe_load(ALERTS_FILE.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS: dict[str, Rule] = {rule["alert"]: rule for rule in _rules() if "alert" in rule}
RECORDING: dict[str, Rule] = {rule["record"]: rule for rule in _rules() if "record" in rule}
DASHBOARDS: dict[str, Any] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((MONITORING / "dashboards").glob("*.json"))
}


def recorded(series: Labels) -> Labels:
    """The labels of what is recorded; a rule may use those before it."""
    known: dict[str, frozenset[str]] = {}
    for name, rule in RECORDING.items():
        known[name] = labels_of(rule["expr"], {**series, **known})
    return known


def targets() -> Iterator[tuple[str, str, str]]:
    """Of every line of every dashboard: where it is, its expression, and its legend."""
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                where = f"{name}: {panel['title']} {target['refId']}"
                yield where, target["expr"], target["legendFormat"]
