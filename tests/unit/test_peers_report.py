"""What `bench/peers.py` makes of its rounds."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "bench"))

from peers_report import Answer, Round, add_ratios, entry, table


def _round(rate: float, p99: float = 10.0, cpu: float = 1.0) -> Round:
    took = [1.0] * 90 + [p99] * 10
    full = Answer(rate, {"server": cpu, "client": cpu / 2}, took)
    slow = Answer(200.0, {"server": cpu * 2, "client": cpu}, took)
    return Round(full, full, slow, 200.0)


def test_every_number_is_the_median_of_the_rounds() -> None:
    rounds = [_round(rate, cpu=cpu) for rate, cpu in ((900, 3.0), (1000, 1.0), (500, 2.0))]

    result = entry(rounds)

    assert result["jobs_per_s"] == 900
    assert result["cpu_ms_per_job"] == 3.0
    assert result["cpu_ms_per_job_by_process"] == {"server": 2.0, "client": 1.0}
    assert result["at_200_jobs_per_s"]["cpu_ms_per_job"] == 6.0
    assert result["spread"]["jobs_per_s"] == [500, 1000]
    assert result["rounds"] == 3


def test_one_disturbed_round_does_not_decide_a_percentile() -> None:
    result = entry([_round(100, p99=p99) for p99 in (5.0, 6.0, 400.0, 7.0, 8.0)])

    assert result["p99_ms"] == 7.0
    assert result["at_200_jobs_per_s"]["p99_ms"] == 7.0
    assert result["spread"]["p99_ms_at_200_jobs_per_s"] == [5.0, 400.0]


def test_ratios_are_to_the_best_of_the_given_peers() -> None:
    entries = {
        "path": entry([_round(800, p99=20.0)]),
        "fast": entry([_round(1000, p99=40.0)]),
        "even": entry([_round(500, p99=10.0)]),
        "other": entry([_round(4000, p99=1.0)]),
    }

    best = add_ratios(entries, ["fast", "even"])

    assert best == {
        "jobs_per_s": "fast",
        "p99_ms": "even",
        "p99_ms_at_200_jobs_per_s": "even",
    }
    assert entries["path"]["throughput_ratio"] == 0.8
    assert entries["path"]["p99_ratio"] == 2.0
    assert entries["path"]["at_200_jobs_per_s"]["p99_ratio"] == 2.0
    assert entries["other"]["throughput_ratio"] == 4.0


def test_the_table_fits_a_terminal_and_names_what_was_skipped() -> None:
    entries = {"nats_jetstream": entry([_round(12345, p99=1234.0)])}
    add_ratios(entries, ["nats_jetstream"])

    lines = table(entries | {"ray_serve": {"skipped": "no package\nmore"}}).splitlines()

    assert max(map(len, lines)) <= 100
    assert lines[-1] == "ray_serve was skipped: no package"


def test_without_peers_there_are_no_ratios() -> None:
    entries = {"path": entry([_round(800)])}

    assert add_ratios(entries, []) == {}
    assert "throughput_ratio" not in entries["path"]
    assert table(entries)
