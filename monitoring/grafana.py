"""Grafana dashboards from short panel descriptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Grafana's grid is 24 wide.
_WIDTH, _HEIGHT = 8, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """One graph.

    Attributes:
        title: what it shows.
        lines: pairs of a PromQL expression and the legend of its lines.
        unit: as Grafana calls it: short, s, ops, percentunit, bytes.
        about: how to read it.
    """

    title: str
    lines: Sequence[tuple[str, str]]
    unit: str = "short"
    about: str = ""


Rows = dict[str, list[Panel]]


def rate(metric: str, by: str = "") -> str:
    """Events a second, over all instances."""
    grouped = f"sum by ({by}) " if by else "sum"
    return f"{grouped}(rate({metric}[$__rate_interval]))"


def quantiles(histogram: str) -> list[tuple[str, str]]:
    """Median and tail of a histogram, over all instances."""
    bucket = f"sum by (le) (rate({histogram}_bucket[$__rate_interval]))"
    return [
        (f"histogram_quantile({quantile}, {bucket})", name)
        for quantile, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
    ]


def dashboard(name: str, title: str, rows: Rows) -> dict[str, Any]:
    """One dashboard in Grafana's import format: rows by title, each with its panels."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row, shown in rows.items():
        panels.append(_row(len(panels) + 1, row, top))
        top += 1
        for at, panel in enumerate(shown):
            place = {
                "h": _HEIGHT,
                "w": _WIDTH,
                "x": at * _WIDTH % 24,
                "y": top + at * _WIDTH // 24 * _HEIGHT,
            }
            panels.append(_graph(len(panels) + 1, panel, place))
        top += -(-len(shown) * _WIDTH // 24) * _HEIGHT
    return {
        "uid": f"lingua-{name}",
        "title": title,
        "tags": ["lingua"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"title": "Lingua", "type": "dashboards", "tags": ["lingua"], "asDropdown": True}
        ],
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": 24, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "panels": []}


def _graph(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + at), "expr": expr, "legendFormat": legend}
            for at, (expr, legend) in enumerate(panel.lines)
        ],
    }
