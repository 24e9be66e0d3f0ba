"""Tables and charts of the measurements of `cells.py`."""

from pathlib import Path
from typing import Any

from plots import line_chart

LOADS = {
    "steady": "400 jobs/s",
    "light": "50 jobs/s",
    "together": "64 at once, as fast as possible",
}

Tree = dict[str, Any]


def table(result: Tree) -> str:
    """The tables for terminals and docs/performance.md."""
    parts = [_own(result["own"], load) for load in LOADS]
    parts += [
        _idle(result["idle"]),
        _leaving(result["leaving"]),
        _point(result["point"]),
        _plans(result["plans"]),
        _by_nodes(result["by_nodes"]),
    ]
    return "\n\n".join([*parts, f"{result['machine']}, {result['rounds']} rounds"])


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _head(*cells: str) -> list[str]:
    return [_row(*cells), "|" + "---|" * len(cells)]


def _own(rows: list[Tree], load: str) -> str:
    lines = [f"**{LOADS[load]}**", ""]
    lines += _head(
        *("cells", "servers", "script calls", "commands", "us in scripts", "ratio"),
        *("Redis CPU us", "ratio", "pool service CPU us", "ratio"),
    )
    for row in rows:
        if row["case"] != load:
            continue
        ratio = row["ratio"]
        lines.append(
            _row(
                *(row["cells"], row["servers"], f"{row['calls']:.2f}", f"{row['commands']:.1f}"),
                *(f"{row['redis_us']:.0f}", f"{ratio['redis_us']:.2f}"),
                *(f"{row['redis_cpu_us']:.0f}", f"{ratio['redis_cpu_us']:.2f}"),
                *(f"{row['cpu_us']:.0f}", f"{ratio['cpu_us']:.2f}"),
            )
        )
    return "\n".join(lines)


def _idle(rows: list[Tree]) -> str:
    lines = _head("cells", "servers", "pool service, idle: CPU ms/s", "all servers, idle: CPU ms/s")
    lines += [
        _row(
            *(row["cells"], row["servers"]),
            *(f"{row['cpu_ms_per_s']:.1f}", f"{row['redis_cpu_ms_per_s']:.1f}"),
        )
        for row in rows
    ]
    return "\n".join(lines)


def _leaving(rows: list[Tree]) -> str:
    lines = _head(
        *("cells", "servers", "job", "script calls", "commands", "Redis CPU us", "ratio to own"),
        *("pool service CPU us", "ratio to own"),
    )
    for row in rows:
        lines.append(
            _row(
                *(row["cells"], row["servers"], row["case"]),
                *(f"{row['calls']:.2f}", f"{row['commands']:.1f}", f"{row['redis_cpu_us']:.0f}"),
                *(f"{row['ratio']['redis_cpu_us']:.2f}", f"{row['cpu_us']:.0f}"),
                f"{row['ratio']['cpu_us']:.2f}",
            )
        )
    return "\n".join(lines)


def _point(point: Tree) -> str:
    return (
        f"{point['nodes']} nodes in {point['cells']} cells, {point['jobs']} jobs: "
        f"{point['measured_spilled']:.1%} left their cell ({point['measured_waited']:.1%} waited); "
        f"simulated {point['simulated_spilled']:.1%} "
        f"({point['simulated_least']:.1%} to {point['simulated_most']:.1%})"
    )


def _plans(plans: Tree) -> str:
    extra = ", ".join(f"{name} {us:.0f}" for name, us in plans["extra_us"].items())
    lines = [f"extra Redis CPU in us: {extra}", ""]
    lines += _head(
        *("people", "jobs/s", "nodes", "cells", "nodes per direction and cell", "leave their cell"),
        *("asked in vain", "wait", "extra Redis time", "masters"),
    )
    for row in plans["rows"]:
        lines.append(
            _row(
                *(f"{row['people']:,}", f"{row['jobs_per_s']:,.0f}", f"{row['nodes']:,}"),
                *(row["cells"], f"{row['nodes_per_direction_and_cell']:.1f}"),
                *(f"{row['spilled']:.1%}", f"{row['full'] + row['without']:.2f}"),
                *(f"{row['waited']:.1%}", f"{row['extra_redis']:.1%}", row["masters"] or "-"),
            )
        )
    return "\n".join(lines)


def _by_nodes(by_nodes: Tree) -> str:
    lines = _head("nodes per direction and cell", *by_nodes["spilled"])
    for at, count in enumerate(by_nodes["nodes_a_cell"]):
        lines.append(_row(count, *(f"{line[at]:.1%}" for line in by_nodes["spilled"].values())))
    return "\n".join(lines)


def plots(result: Tree, folder: Path) -> None:
    """`cells-spilled.svg` by the number of cells, `cells-nodes.svg` by nodes in a cell."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = result["plans"]["rows"]
    cells = sorted({row["cells"] for row in rows})
    lines = {
        f"{people:,}": [100 * row["spilled"] for row in rows if row["people"] == people]
        for people in dict.fromkeys(row["people"] for row in rows)
    }
    chart = line_chart(
        "Jobs that leave their cell, by people and cells", "cells", "%", cells, lines, log_x=True
    )
    (folder / "cells-spilled.svg").write_text(chart, encoding="utf-8")
    by_nodes = result["by_nodes"]
    lines = {name: [100 * each for each in line] for name, line in by_nodes["spilled"].items()}
    title = f"Jobs that leave their cell, with {by_nodes['cells']} cells"
    x_label, xs = "nodes per direction and cell", by_nodes["nodes_a_cell"]
    chart = line_chart(title, x_label, "%", xs, lines, log_x=True)
    (folder / "cells-nodes.svg").write_text(chart, encoding="utf-8")
