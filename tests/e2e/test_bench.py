"""`make bench` works: a short form of it, whose numbers mean nothing."""

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


def test_the_benchmark_of_the_path_measures_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    bench = import_module("path")
    for name in ("WARM_S", "SATURATE_S", "STEADY_S"):
        monkeypatch.setattr(bench, name, 0.5)
    monkeypatch.setattr(bench, "SESSIONS", 4)
    monkeypatch.setattr(bench, "PEERS_RATE", 20.0)

    result = bench.run(with_memory=False)

    assert result["jobs_per_s"] > 0
    assert set(result["cpu_ms_per_job_by_process"]) >= {"gateway", "dispatcher", "pool", "redis"}
    assert result["overhead_at_half"]["to_node"]["p50_ms"] > 0
