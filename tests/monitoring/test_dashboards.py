"""Dashboards show what exists, and are what their generator makes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.monitoring.exported import Exported
from tests.monitoring.promql import Labels, labels_of
from tests.monitoring.rules import ALERTS, DASHBOARDS, MONITORING, RECORDING, targets


def test_the_files_are_what_the_generator_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, MONITORING / "make_dashboards.py", tmp_path], check=True)

    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in (MONITORING / "dashboards").iterdir()}
    assert made == kept, "run 'python monitoring/make_dashboards.py' and commit the result"


@pytest.mark.parametrize(
    ("expr", "legend"), [pytest.param(expr, legend, id=at) for at, expr, legend in targets()]
)
def test_a_panel_names_only_metrics_and_labels_that_are_exported(
    expr: str, legend: str, series: Labels
) -> None:
    labels = labels_of(expr, series)

    assert set(re.findall(r"{{(\w+)}}", legend)) <= labels


def test_every_metric_of_the_services_is_on_a_dashboard_or_in_a_rule(
    exported: dict[str, Exported],
) -> None:
    queries = [expr for _, expr, _ in targets()]
    queries += [rule["expr"] for rule in (*ALERTS.values(), *RECORDING.values())]
    named = set(re.findall(r"\blingua_\w+", " ".join(queries)))
    for each in exported.values():
        for family in each.families:
            if family.startswith("lingua_"):
                shown = each.series_of(family).keys() & named
                assert shown, f"nobody looks at {family}"


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    for name, dashboard in DASHBOARDS.items():
        cells: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            covered = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not covered & cells, f"{name}: {panel['title']} lies on another panel"
            assert max(x for x, _ in covered) < 24
            cells |= covered
        numbers = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(numbers)) == len(numbers)
