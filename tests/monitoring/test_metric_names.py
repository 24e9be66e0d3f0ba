"""The names of metrics follow Prometheus' conventions, and no label grows without bound."""

import subprocess

from tests.monitoring.exported import Exported
from tools.reference.metrics import OF_THE_PROCESS, by_service

# Each takes few values: words of the contract, or directions, which pool_service/directions limits.
LABELS = {
    "action",
    "cause",
    "cell",
    "code",
    "health",
    "how",
    "kind",
    "limit",
    "method",
    "outcome",
    "path",
    "peer",
    "reason",
    "source",
    "src",
    "status",
    "tgt",
    "transport",
    "where",
}


def test_every_metric_has_the_prefix_and_the_unit_in_its_name(
    exported: dict[str, Exported],
) -> None:
    for service, each in exported.items():
        for name, (kind, _) in each.families.items():
            if name.startswith(("python_", "process_")):
                continue
            shared = (
                "lingua_auth_",
                "lingua_grpc_",
                "lingua_quota_",
                "lingua_redis_",
                "lingua_tls_",
            )
            assert name.startswith((f"lingua_{service}_", *shared)), name
            assert not name.endswith(("_ms", "_millis", "_percent")), name
            assert kind != "histogram" or name.endswith("_seconds"), name


def test_labels_are_words_that_have_few_values(exported: dict[str, Exported]) -> None:
    for each in exported.values():
        for name, (_, labels) in each.families.items():
            if name.startswith("lingua_"):
                assert labels <= LABELS, name


def test_promtool_finds_nothing_wrong_with_what_is_shown(
    exported: dict[str, Exported], promtool: str
) -> None:
    for each in exported.values():
        done = subprocess.run(
            [promtool, "check", "metrics"],
            input=each.text,
            capture_output=True,
            text=True,
            check=False,
        )
        problems = (done.stdout + done.stderr).splitlines()
        assert [line for line in problems if line.startswith("lingua_")] == []


def test_the_reference_has_what_services_export(exported: dict[str, Exported]) -> None:
    for service, metrics in by_service().items():
        families = exported[service].families
        real = {
            name: (kind, labels)
            for name, (kind, labels) in families.items()
            if not name.startswith(OF_THE_PROCESS)
        }
        told = {
            each.series[0].removesuffix("_total").removesuffix("_bucket"): (
                each.kind,
                frozenset(each.labels),
            )
            for each in metrics
        }
        assert told == real
