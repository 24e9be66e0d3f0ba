"""Alerts and recording rules name what exists, and tell people what to do."""

import re
import subprocess

import pytest
import yaml

from tests.monitoring.conftest import ROOT
from tests.monitoring.promql import Labels, labels_of
from tests.monitoring.rules import ALERTS, ALERTS_FILE, ALERTS_TEST_FILE, MONITORING, RECORDING

OPERATIONS = "docs/operations.md"


def anchors() -> set[str]:
    """The headings of the operations guide, as links call them."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / OPERATIONS).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def run(promtool: str, *args: str) -> None:
    done = subprocess.run(
        [promtool, *args], capture_output=True, text=True, check=False, cwd=MONITORING
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*RECORDING, *ALERTS])
def test_a_rule_names_only_metrics_and_labels_that_are_exported(name: str, series: Labels) -> None:
    rule = RECORDING.get(name) or ALERTS[name]

    labels_of(rule["expr"], series)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_tells_what_is_wrong_and_how_bad_it_is(name: str, series: Labels) -> None:
    rule = ALERTS[name]
    assert rule["labels"] in ({"severity": "critical"}, {"severity": "warning"})
    assert "for" in rule
    annotations = rule["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook_url"}
    named = set(re.findall(r"\$labels\.(\w+)", annotations["summary"] + annotations["description"]))
    assert named <= labels_of(rule["expr"], series)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_an_entry_in_the_runbook(name: str) -> None:
    page, _, anchor = ALERTS[name]["annotations"]["runbook_url"].partition("#")
    assert (page, anchor) == (OPERATIONS, name.lower())
    assert anchor in anchors()


def test_the_runbook_has_no_entry_without_an_alert() -> None:
    headings = re.findall(r"^#+ (Lingua\w+)$", (ROOT / OPERATIONS).read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(ALERTS)


def test_the_runbook_names_only_metrics_that_are_exported(series: Labels) -> None:
    text = (ROOT / OPERATIONS).read_text()
    named = set(re.findall(r"\b(?:[a-z]+:)?lingua[_:][a-z0-9_:]+", text)) - {"lingua_scheduler"}
    families = {name.removesuffix("_count").removesuffix("_bucket") for name in series}
    unknown = {name for name in named if name not in series and name not in families}
    assert not unknown


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_seen_to_fire_in_the_unit_tests(name: str) -> None:
    fires = False
    for test in yaml.safe_load(ALERTS_TEST_FILE.read_text())["tests"]:
        for case in test.get("alert_rule_test", ()):
            fires |= case["alertname"] == name and bool(case["exp_alerts"])
        for case in test.get("promql_expr_test", ()):
            told = case["expr"] + str(case["exp_samples"])
            fires |= name in told and bool(case["exp_samples"])
    assert fires


def test_promtool_accepts_the_rules_and_the_sample_configuration(promtool: str) -> None:
    run(promtool, "check", "rules", ALERTS_FILE.name)
    run(promtool, "check", "config", "prometheus.yml")


def test_the_unit_tests_of_the_rules_pass(promtool: str) -> None:
    run(promtool, "test", "rules", ALERTS_TEST_FILE.name)
