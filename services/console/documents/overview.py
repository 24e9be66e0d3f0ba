"""The overview: totals, rates, room by direction."""

from typing import Any, cast

from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.instances import WINDOW_S, Rates, health_of
from lingua_scheduler.services.console.store.matrix import Kind, Matrix
from lingua_scheduler.services.console.store.node import GROUPS
from lingua_scheduler.services.console.store.series import INTERVAL_S

_KINDS = ("speech", "text")
_SHORTAGES = 12
_DOWN_LIST = 10


def overview(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `overview`."""
    kind = cast("Kind", query.choice("kind", _KINDS, "speech"))
    query.done()
    fleet, board = sources.fleet, sources.instances
    fleet.settle(sources.now_ms())
    matrix = sources.matrices.get(kind)
    return {
        "totals": {
            "nodes": {group: fleet.groups[group] for group in GROUPS},
            "slots": fleet.slots,
            "free": fleet.free,
            "sessions": board.total("sessions"),
            "jobs": board.total("jobs"),
            "queue": board.total("jobs_waiting"),
        },
        "rates": _rates(board.rates()),
        "series": {
            "interval_s": INTERVAL_S,
            "end_ms": sources.series.end_ms,
            **sources.series.values(),
        },
        "instances": _instances(sources),
        "matrix": {
            "kind": kind,
            "sources": list(matrix.sources),
            "targets": list(matrix.targets),
            "cells": {direction: list(cell) for direction, cell in matrix.cells.items()},
            "left_out_nodes": fleet.left_out_nodes,
        },
        "shortages": _shortages(matrix),
    }


def _rates(rates: Rates) -> dict[str, float]:
    """Rates that are not known yet are 0; percentiles are left out."""
    shown: dict[str, float] = {
        "window_s": WINDOW_S,
        "jobs_per_s": round(rates.jobs_per_s or 0.0, 2),
        "retries_per_s": round(rates.retries_per_s or 0.0, 2),
        "failed_per_s": round(rates.failed_per_s or 0.0, 2),
        "missing_per_s": round(rates.missing_per_s or 0.0, 2),
    }
    if rates.p50_ms is not None and rates.p99_ms is not None:
        shown.update(p50_ms=round(rates.p50_ms), p99_ms=round(rates.p99_ms))
    return shown


def _instances(sources: Sources) -> dict[str, Any]:
    by_health: dict[str, list[Any]] = {"serving": [], "draining": [], "down": []}
    for each in sources.instances.instances:
        by_health[health_of(each)].append(each)
    down = [
        {"id": each.instance_id, "service": each.service, "announced_ms": each.announced_ms}
        for each in by_health["down"][:_DOWN_LIST]
    ]
    return {**{health: len(found) for health, found in by_health.items()}, "down_list": down}


def _shortages(matrix: Matrix) -> list[dict[str, Any]]:
    shown = []
    for direction, cell in matrix.shortages(_SHORTAGES):
        src, _, tgt = direction.partition(":")
        shown.append({"src": src, "tgt": tgt, "free": cell.free, "slots": cell.slots})
    return shown
