"""The benchmarks of the path, of ingest, of rooms, of cells and of peers work: short forms.

Their numbers mean nothing.
"""

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SERVICES = {"gateway", "dispatcher", "pool"}


@pytest.fixture(autouse=True)
def _programs_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.long
def test_the_benchmark_of_the_path_measures_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = import_module("path")
    for name in ("WARM_S", "SATURATE_S", "STEADY_S"):
        monkeypatch.setattr(bench, name, 0.5)
    monkeypatch.setattr(bench, "SESSIONS", 4)
    monkeypatch.setattr(bench, "PEERS_RATE", 20.0)

    result = bench.run(with_memory=False)

    assert result["jobs_per_s"] > 0
    assert set(result["cpu_ms_per_job_by_process"]) >= {*SERVICES, "redis"}
    assert result["overhead_at_half"]["to_node"]["p50_ms"] > 0


@pytest.mark.long
# Each transport has processes of its own, which start one after the other.
@pytest.mark.timeout(300)
def test_the_benchmark_of_ingest_measures_every_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = import_module("ingest")
    for name in ("WARM_S", "WINDOW_S", "DELAYS_S"):
        monkeypatch.setattr(bench, name, 0.5)
    variants = bench.variants_of(list(bench.TRANSPORTS), against=None)

    result = bench.run(variants, speakers=[4], rounds=1)

    assert set(result["4"]) == set(bench.TRANSPORTS)
    for one in result["4"].values():
        assert one["chunks_per_s"] > 0
        assert one["gateway_us_per_chunk"] > 0
        assert one["of_grpc"] > 0
        assert one["clients_us_per_chunk"] > 0
        assert one["loop_delay_p99_ms"] >= one["loop_delay_p50_ms"] >= 0
    assert "saturated" in result["4"]["grpc"]
    assert bench.table(result)


@pytest.mark.long
# Each room has processes of its own, which start one after the other.
@pytest.mark.timeout(300)
def test_the_benchmark_of_rooms_measures_listeners_of_both_transports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = import_module("rooms")
    monkeypatch.setattr(bench, "EVERY_S", 0.1)
    monkeypatch.setattr(bench, "WARM", 1)
    monkeypatch.setattr(bench, "UTTERANCES", 4)
    monkeypatch.setattr(bench, "SILENCE_S", 0.5)

    result = bench.run(listeners=[10])

    assert result["nobody"]["gateways_ms_per_utterance"] > 0
    for transport in bench.TRANSPORTS:
        for kind in ("captions", "speech"):
            one = result[transport][kind]["10"]
            # Both gateways are woken up for each result.
            assert one["published_per_result"] >= 2
            assert one["last_ms"]["p99_ms"] >= one["first_ms"]["p50_ms"] > 0
            assert one["gateways_ms_per_utterance"] > 0
    assert bench.table(result)


@pytest.mark.long
def test_the_benchmark_of_cells_measures_jobs_in_their_own_cell_and_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench, plan = import_module("cells"), import_module("cells_plan")
    monkeypatch.setattr(bench, "SIDES", ((1, 1), (12, 1)))
    monkeypatch.setattr(bench, "LEAVING", ((12, 1),))
    for name in ("STEADY_S", "LIGHT_S", "LEAVING_S"):
        monkeypatch.setattr(bench, name, 0.5)
    # Long enough to fill the slots.
    for name in ("POINT_S", "POINT_WARM_S"):
        monkeypatch.setattr(bench, name, 3.0)
    monkeypatch.setattr(bench, "TOGETHER_JOBS", 100)
    monkeypatch.setattr(bench, "RARE_JOBS", 3)
    monkeypatch.setattr(plan, "PEOPLE", (10_000,))
    monkeypatch.setattr(plan, "CELLS", (1, 4))
    monkeypatch.setattr(plan, "NODES_A_CELL", (1, 4))

    result = bench.run(rounds=1)

    assert {row["spilled"] for row in result["own"]} == {0}
    # The other windows are too short for what happens only now and then.
    together = [row["calls"] for row in result["own"] if row["case"] == "together"]
    assert together == pytest.approx([3, 3], abs=0.5)
    leaving = {row["case"]: row for row in result["leaving"]}
    assert leaving["own"]["spilled"] == 0
    assert leaving["own is full"]["spilled"] == 1
    more = leaving["own is full"]["commands"] - leaving["own"]["commands"]
    assert more == pytest.approx(25, abs=10)
    assert result["point"]["measured_spilled"] > 0
    assert [row["cells"] for row in result["plans"]["rows"]] == [1, 4]
    assert bench.table(result)
    bench.plots(result, tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"cells-spilled.svg", "cells-nodes.svg"}


@pytest.mark.long
def test_the_comparison_has_both_topologies_and_says_which_peer_it_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = import_module("peers")
    for name in ("WARM_S", "SATURATE_S", "STEADY_S"):
        monkeypatch.setattr(bench, name, 0.3)
    monkeypatch.setattr(bench, "SESSIONS", 4)
    monkeypatch.setattr(bench, "PEERS_RATE", 20.0)

    def refuse(name: str) -> None:
        raise bench.PeerError(f"pip cannot install {name}")

    monkeypatch.setattr(bench, "install", refuse)
    compared = bench.Run(["celery"])
    compared.run(1)
    result = compared.result()

    assert list(result) == ["path", "all_in_one", "celery"]
    assert result["celery"] == {"skipped": "pip cannot install celery"}
    for name in ("path", "all_in_one"):
        assert result[name]["jobs_per_s"] > 0
        assert result[name]["p99_ms"] > 0
        assert result[name]["at_200_jobs_per_s"]["cpu_ms_per_job"] > 0
    assert set(result["path"]["cpu_ms_per_job_by_process"]) >= SERVICES
    assert "all" in result["all_in_one"]["cpu_ms_per_job_by_process"]
    assert "celery was skipped: pip cannot install celery" in bench.table(result)
