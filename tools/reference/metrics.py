"""docs/reference/metrics.md, from the registries of the services.

The services are put together as their processes do, but not started: that needs no Redis.
tests/monitoring checks that real processes export the same.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.console.metrics import ConsoleMetrics
from lingua_scheduler.services.dispatcher.main import DISPATCHER
from lingua_scheduler.services.pool_service.main import POOL
from lingua_scheduler.services.runtime import hosted_service
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.tls import export_expiry
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.metrics import new_registry
from lingua_scheduler.services.session_gateway.main import GATEWAY
from tools.reference.markdown import escaped, sentence, slug

MONITORING = Path(__file__).parents[2] / "monitoring"
# The series that queries name, by the type of a metric.
SUFFIXES = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
SHARED = "Several services"
# Of prometheus_client, not of the services; they depend on the platform.
OF_THE_PROCESS = ("process_", "python_")
TITLES = {
    "gateway": "Session gateway",
    "dispatcher": "Dispatcher",
    "pool": "Pool service",
    "console": "Console",
}

HEAD = """\
# Metrics

<!-- Made by `make reference` from the code of the services and from monitoring/: edit those. -->

Each service exports its metrics at `/metrics`, in the format of Prometheus: gateways on port 9730,
dispatchers on 9720, pool services on 9710, the console on 9750 ([settings](settings.md#addresses)).
[Operations](../operations.md#what-to-watch) says which to watch and how to read them, and what to
do [at each alert](../operations.md#at-each-alert). No label contains the id of a node, a job or a
session.

Names are those that queries use. A histogram `name` has the series `name_bucket`, `name_count` and
`name_sum`. Besides these, every service has the usual metrics of a process (`process_*`) and of
Python (`python_*`).
"""


class Metric(NamedTuple):
    """One metric, as a query names it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    about: str
    series: tuple[str, ...]
    users: tuple[str, ...] = ()


def text() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def by_service() -> dict[str, list[Metric]]:
    """The metrics of each service in the order of the code."""
    found = asyncio.run(_registries())
    return {service: list(_metrics(registry)) for service, registry in found.items()}


async def _registries() -> dict[str, CollectorRegistry]:
    made: list[CollectorRegistry] = []

    def kept() -> CollectorRegistry:
        made.append(new_registry())
        return made[-1]

    # A service does not show its registry.
    original, hosted_service.new_registry = hosted_service.new_registry, kept
    try:
        settings = Settings(redis_url="redis://127.0.0.1:1")
        cells = Cells(settings, load_scripts())
        for kind in (GATEWAY, DISPATCHER, POOL):
            hosted_service.HostedService(kind, settings, cells, {})
    finally:
        hosted_service.new_registry = original
    console = new_registry()
    export_expiry(console, None, None)
    ConsoleMetrics(console)
    return dict(zip(TITLES, (*made, console), strict=True))


def _metrics(registry: CollectorRegistry) -> Iterator[Metric]:
    # As in tests/monitoring/exported.py: the registry has no public list of its collectors.
    for collector in registry._collector_to_names:
        for family in collector.collect():
            if family.name.startswith(OF_THE_PROCESS):
                continue
            labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            if not family.documentation:
                raise ValueError(f"the metric {family.name} has no description")
            series = tuple(family.name + suffix for suffix in SUFFIXES[family.type])
            name = family.name if family.type == "histogram" else series[0]
            yield Metric(name, family.type, tuple(labels), family.documentation, series)


def _lines() -> Iterator[str]:
    yield HEAD
    sections = dict(_sections(by_service()))
    for title, metrics in sections.items():
        yield f"- [{title}](#{slug(title)}): {len(metrics)} metrics"
    usage = Usage()
    for title, metrics in sections.items():
        yield from ("", f"## {title}")
        for metric in metrics:
            yield from ("", f"### {metric.name}", "", sentence(escaped(metric.about)), "")
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"- {metric.kind.capitalize()}" + (f", by {labels}" if labels else "")
            if metric.users:
                yield f"- Services: {', '.join(TITLES[user].lower() for user in metric.users)}"
            yield from usage.of(metric)


def _sections(found: dict[str, list[Metric]]) -> Iterator[tuple[str, list[Metric]]]:
    """The metrics of each service alone, then those that several have."""
    users: dict[str, list[str]] = {}
    metrics: dict[str, Metric] = {}
    for service, exported in found.items():
        for metric in exported:
            users.setdefault(metric.name, []).append(service)
            metrics[metric.name] = metric
    for service, title in TITLES.items():
        yield title, [metrics[name] for name in users if users[name] == [service]]
    shared = [
        metrics[name]._replace(users=tuple(users[name])) for name in users if len(users[name]) > 1
    ]
    yield SHARED, shared


class Usage:
    """Which alerts and dashboards use a metric, also by way of recorded series."""

    def __init__(self) -> None:
        groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        self._recorded = {r["record"]: _names(r["expr"]) for r in rules if "record" in r}
        self._alerts = {
            r["alert"]: self._resolved(_names(r["expr"])) for r in rules if "alert" in r
        }
        self._boards = {
            path.stem: self._resolved(_names(" ".join(_expressions(json.loads(path.read_text())))))
            for path in sorted((MONITORING / "dashboards").glob("*.json"))
        }

    def of(self, metric: Metric) -> Iterator[str]:
        """The lines of a metric."""
        names = {metric.name, *metric.series}
        alerts = [name for name, used in self._alerts.items() if used & names]
        boards = [name for name, used in self._boards.items() if used & names]
        if alerts:
            links = (f"[{name}](../operations.md#{slug(name)})" for name in alerts)
            yield f"- Alerts: {', '.join(links)}"
        if boards:
            yield f"- Dashboards: {', '.join(boards)}"

    def _resolved(self, names: set[str]) -> set[str]:
        found, left = set[str](), names
        while left:
            found |= left
            left = {inner for name in left for inner in self._recorded.get(name, ())} - found
        return found


def _names(expression: str) -> set[str]:
    return set(re.findall(r"[a-zA-Z_:][\w:]*", expression))


def _expressions(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        for key, value in document.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from _expressions(value)
    elif isinstance(document, list):
        for value in document:
            yield from _expressions(value)
