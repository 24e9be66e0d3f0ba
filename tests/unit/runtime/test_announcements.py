"""What instances announce of themselves: counters, settings without secrets, a version."""

from importlib import metadata
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.runtime.contract.announcements import unpacked
from lingua_scheduler.services.runtime.errors import NoCapableNodeError
from lingua_scheduler.services.runtime.instances import announced
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.runtime.version import version
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2, session_pb2


def test_a_gateway_counts_sessions_over_all_transports_results_and_missing_ones() -> None:
    metrics = GatewayMetrics(CollectorRegistry())
    for transport in ("grpc", "web", "web"):
        metrics.connected(transport)
    metrics.disconnected("web")
    metrics.counts["result"] += 3
    metrics.missing(common_pb2.ERROR_REASON_JOB_FAILED)
    metrics.missing(common_pb2.ERROR_REASON_DEADLINE_EXCEEDED)
    stats = metrics.stats()
    assert (stats.sessions, stats.results, stats.missing) == (2, 3, 2)


def test_a_gateway_announces_the_histogram_of_its_result_times() -> None:
    metrics = GatewayMetrics(CollectorRegistry())
    for dispatch, node, wait in ((1, 2, 3), (5, 400, 0), (5, 480, 15), (0, 60_000, 1)):
        timings = session_pb2.ResultTimings(dispatch_ms=dispatch, node_ms=node, deliver_ms=wait)
        metrics.timed(timings)
    stats = metrics.stats()
    assert list(stats.result_bounds_ms) == sorted(set(stats.result_bounds_ms))
    assert len(stats.result_counts) == len(stats.result_bounds_ms) + 1
    counts = dict(zip((*stats.result_bounds_ms, "more"), stats.result_counts, strict=True))
    assert {bound: count for bound, count in counts.items() if count} == {10: 1, 500: 2, "more": 1}


def test_the_series_of_a_gateway_are_those_that_dashboards_read() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    metrics.connected("web")
    metrics.missing(common_pb2.ERROR_REASON_JOB_FAILED)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("lingua_gateway_sessions", transport="web") == 1
    assert value("lingua_gateway_sessions", transport="grpc") == 0
    assert value("lingua_gateway_missing_total", reason="job_failed") == 1
    assert value("lingua_gateway_missing_total", reason="job_timeout") == 0, "exported from 0 on"


def test_a_dispatcher_counts_jobs_by_how_they_ended_and_retries_of_all_reasons() -> None:
    registry = CollectorRegistry()
    metrics = DispatcherMetrics(registry)
    metrics.done(0.1)
    metrics.done(0.2)
    for reason in ("job_failed", "job_timeout", "cancelled"):
        metrics.failed(reason)
    metrics.retried(common_pb2.ERROR_REASON_JOB_FAILED)
    metrics.retried(common_pb2.ERROR_REASON_JOB_TIMEOUT)
    assert metrics.stats(jobs=5, waiting=2, nodes=7) == instances_pb2.InstanceStats(
        jobs=5, jobs_waiting=2, nodes=7, jobs_done=2, jobs_failed=3, retries=2
    )
    labels = {"reason": "job_failed"}
    assert registry.get_sample_value("lingua_dispatcher_retries_total", labels) == 1


def test_a_pool_service_counts_allocations_with_and_without_a_node() -> None:
    metrics = PoolMetrics(CollectorRegistry())
    assert metrics.stats() == instances_pb2.InstanceStats()
    metrics.allocated(0, pool_pb2.PLACEMENT_PATH_POOL, 0, 0)
    metrics.allocated(1, 0, 0, 0)
    pair = common_pb2.LanguagePair(src="zh", tgt="en")
    metrics.refused(NoCapableNodeError("none"), pool_pb2.NodeCriteria(pair=pair))
    assert metrics.stats() == instances_pb2.InstanceStats(allocations=2, allocations_refused=1)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:pa55word@h:6379/0",
        "redis://:pa55word@h",
        "redis://pa55word@h",
        "rediss://h?password=pa55word",
        "redis+sentinel://me:pa55word@h1,h2/name/0",
        "redis+sentinel://h1,h2/name/0?sentinel_password=pa55word",
    ],
)
def test_a_password_is_never_announced(url: str) -> None:
    message = announced(load_settings({"LINGUA_REDIS_URL": url}))
    assert b"pa55word" not in message
    values = {each.name: each.value for each in instances_pb2.Instance.FromString(message).settings}
    assert "***" in values["redis_url"]


def test_the_content_of_a_secret_file_is_never_announced(tmp_path: Path) -> None:
    files = {}
    for name in ("auth_secret_file", "token_file", "tls_key_file", "tls_client_key_file"):
        files[name] = tmp_path / name
        files[name].write_text(f"hush, the content of {name}, which has many characters")
    settings = load_settings({f"LINGUA_{key.upper()}": str(path) for key, path in files.items()})
    message = announced(settings)
    assert b"hush" not in message
    values = {each.name: each.value for each in instances_pb2.Instance.FromString(message).settings}
    assert {name: values[name] for name in files} == {
        name: str(path) for name, path in files.items()
    }


def test_settings_are_announced_as_lingua_config_shows_them() -> None:
    settings = load_settings({"LINGUA_PROFILE": "efficient", "LINGUA_POOL_SIZE": "50"})
    shown = instances_pb2.Instance.FromString(announced(settings)).settings
    assert [
        (each.group, each.name, each.value, each.origin, each.description) for each in shown
    ] == [(row.group, row.name, row.value, row.origin, row.description) for row in settings.rows()]
    origins = {each.name: each.origin for each in shown}
    assert (origins["pool_size"], origins["sample_k"]) == ("environment", "profile efficient")


def test_an_announcement_is_read_with_its_time() -> None:
    instance = instances_pb2.Instance(instance_id="d1", service="dispatcher", started_ms=0x20)
    value = b"1800000000000 " + instance.SerializeToString()
    instance.announced_ms = 1_800_000_000_000
    assert unpacked(value) == instance


@pytest.mark.parametrize("value", [b"", b"x", b"soon ", b"1800000000000 \xff\xff", b"\xff \xff"])
def test_an_announcement_of_another_form_is_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        unpacked(value)


def test_the_version_is_that_of_the_package() -> None:
    assert version() == metadata.version("lingua-scheduler")
