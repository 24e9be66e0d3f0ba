"""The reader of PromQL that the other tests rest on."""

import pytest

from tests.monitoring.promql import UnknownNameError, labels_of

SERIES = {
    "jobs_total": frozenset({"job", "instance", "outcome"}),
    "wait_seconds_bucket": frozenset({"job", "instance", "le"}),
    "up": frozenset({"job", "instance"}),
}


@pytest.mark.parametrize(
    ("expr", "labels"),
    [
        ("jobs_total", "instance job outcome"),
        ('sum by (outcome) (rate(jobs_total{job="a"}[5m])) > 1', "outcome"),
        ("sum without (job) (jobs_total)", "instance outcome"),
        ("sum(jobs_total) / sum(up)", ""),
        ("1 - up", "instance job"),
        ("jobs_total and on (job) up", "instance job outcome"),
        ("up == 0 or jobs_total", "instance job outcome"),
        ("histogram_quantile(0.9, sum by (le) (rate(wait_seconds_bucket[$__rate_interval])))", ""),
        ('label_replace(absent(up), "who", "a", "", "")', "who"),
        ("time() - up", "instance job"),
    ],
)
def test_the_labels_of_a_result_are_found(expr: str, labels: str) -> None:
    assert labels_of(expr, SERIES) == frozenset(labels.split())


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("sum(rate(jobs[5m]))", "no service exports jobs"),
        ('jobs_total{reason="x"}', "jobs_total has no label reason"),
        ("sum by (reason) (jobs_total)", "nothing has the label reason"),
        ("up / on (outcome) jobs_total", "one side lacks the label outcome"),
        ("histogram_quantile(0.9, sum(rate(wait_seconds_bucket[5m])))", "needs the label le"),
    ],
)
def test_what_nobody_exports_is_named(expr: str, problem: str) -> None:
    with pytest.raises(UnknownNameError, match=problem):
        labels_of(expr, SERIES)


def test_what_is_not_promql_is_refused() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        labels_of("sum(rate(jobs_total)", SERIES)
