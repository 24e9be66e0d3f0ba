"""Tables and charts of the measurements of `growth.py`."""

from pathlib import Path
from typing import Any

from plots import line_chart

PROCESSES = ("gateway", "dispatcher", "pool", "redis", "nodes", "clients")
STACK = ("all", "redis", "nodes", "clients")
OUTSIDE = ("nodes", "clients")
CHARTS = {
    "nodes": ("CPU per job by connected nodes", "nodes", True),
    "sessions": ("CPU per job by open sessions", "sessions", True),
    "replicas": ("CPU per job by replicas of every service", "replicas", False),
    "stacks": ("CPU per job by processes with all services", "stacks", False),
}


def table(result: dict[str, Any]) -> str:
    """The tables for terminals and docs/performance.md."""
    parts = [_series(series, result[series]) for series in CHARTS if series in result]
    if "hops" in result:
        parts.append(_hops(result["hops"]))
    for name, words in (
        ("chunk_us", "a chunk of 100 ms costs"),
        ("beat_us", "a node's heartbeat costs"),
    ):
        if name in result:
            each = ", ".join(f"{process} {us:.0f}" for process, us in result[name].items() if us)
            parts.append(f"{words}, in us of CPU: {each}")
    if "costs" in result:
        parts.append(
            "for capacity.py: " + ", ".join(f"{k} {v}" for k, v in result["costs"].items())
        )
    return "\n\n".join([*parts, f"{result['machine']}, {result['rounds']} rounds"])


def _series(series: str, rows: list[dict[str, Any]]) -> str:
    names = STACK if series == "stacks" else PROCESSES
    heads = ("jobs/s", "scheduler", "relative to the first", "relayed", *names, "idle")
    lines = [_row(series, *heads), "|" + "---|" * (1 + len(heads))]
    first = rows[0]["scheduler_cpu_ms_per_job"]
    for row in rows:
        ours = row["scheduler_cpu_ms_per_job"]
        lines.append(
            _row(
                f"{int(row['count']):,}",
                f"{row['jobs_per_s']:.0f}",
                f"{ours:.2f}",
                f"{ours / first:.2f}",
                f"{row['relayed']:.0%}",
                *(f"{row['cpu_ms_per_job'][name]:.2f}" for name in names),
                f"{sum(row['idle_cpu_ms_per_s'][name] for name in names[: -len(OUTSIDE)]):.0f}",
            )
        )
    return "\n".join(lines)


def _hops(hops: dict[str, Any]) -> str:
    cpu = hops["cpu_ms_per_job"]
    whole = sum(cpu.values())
    lines = [_row("hop", "CPU ms a job", "share"), "|---|---|---|"]
    lines += [_row(name, f"{cpu[name]:.2f}", f"{cpu[name] / whole:.0%}") for name in PROCESSES]
    lines += ["", _row("way", "p50 ms", "p99 ms"), "|---|---|---|"]
    lines += [
        _row(words, f"{hops[way]['p50_ms']:.1f}", f"{hops[way]['p99_ms']:.1f}")
        for way, words in (
            ("to_node", "client to node"),
            ("to_client", "node to client"),
            ("end_to_end", "all"),
        )
    ]
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def plots(result: dict[str, Any], folder: Path) -> None:
    """One chart per series, `growth-<series>.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    for series, (title, x_label, log_x) in CHARTS.items():
        if series not in result:
            continue
        rows = result[series]
        names = (STACK if series == "stacks" else PROCESSES)[: -len(OUTSIDE)]
        lines = {name: [row["cpu_ms_per_job"][name] for row in rows] for name in names}
        lines["the scheduler"] = [row["scheduler_cpu_ms_per_job"] for row in rows]
        chart = line_chart(
            title, x_label, "CPU ms per job", [row["count"] for row in rows], lines, log_x=log_x
        )
        (folder / f"growth-{series}.svg").write_text(chart, encoding="utf-8")
