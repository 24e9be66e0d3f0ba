"""Instances of the services, and their settings."""

from collections.abc import Callable, Iterable
from typing import Any

from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.instances import health_of
from lingua_scheduler.services.runtime.contract.announcements import STATS
from lingua_scheduler.services.runtime.settings.comparison import ComparedSetting, compare
from lingua_scheduler.v1 import instances_pb2, pool_pb2

_STATES = {
    pool_pb2.CELL_STATE_NEW: "new",
    pool_pb2.CELL_STATE_READY: "ready",
    pool_pb2.CELL_STATE_DRAINING: "draining",
}

OwnInstance = Callable[[], instances_pb2.Instance]


async def instances(
    sources: Sources, query: Query, own: OwnInstance | None = None
) -> dict[str, Any]:
    """The document `instances`. `own` makes the instance of the console itself."""
    query.done()
    with_settings = list(await sources.instance_poll.with_settings())
    listed = list(sources.instances.instances)
    if own is not None:
        listed.append(own())
        with_settings.append(listed[-1])
    cells = await sources.cell_reads.list() if _in_cells(with_settings) else ()
    listed.sort(key=lambda each: (each.service, each.instance_id))
    return {
        "rows": {each.instance_id: _row(each) for each in listed},
        "order": [each.instance_id for each in listed],
        "total": len(listed),
        "settings": [_setting(each) for each in compare(with_settings)],
        "cells": [_cell(each) for each in cells],
    }


def _in_cells(instances: Iterable[instances_pb2.Instance]) -> bool:
    """Whether any instance knows of several cells."""
    return any(
        setting.name == "cells" and setting.value != "1"
        for each in instances
        for setting in each.settings
    )


def _cell(cell: pool_pb2.Cell) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "number": cell.number,
        "state": _STATES.get(cell.state, ""),
        "address": cell.address,
        "up": cell.is_up,
    }
    if not cell.is_up:
        return {**shown, "reason": cell.down_reason}
    return {
        **shown,
        "nodes": cell.nodes,
        "slots": cell.slots,
        "used": cell.used_slots,
        "sessions": cell.sessions,
        "rooms": cell.rooms,
    }


def _row(instance: instances_pb2.Instance) -> dict[str, Any]:
    names = STATS.get(instance.service, ())
    return {
        "id": instance.instance_id,
        "service": instance.service,
        "version": instance.version,
        "address": instance.address,
        "health": health_of(instance),
        "started_ms": instance.started_ms,
        "announced_ms": instance.announced_ms,
        "stats": {name: getattr(instance.stats, name) for name in names},
    }


def _setting(setting: ComparedSetting) -> dict[str, Any]:
    return {**setting._asdict(), "values": [each._asdict() for each in setting.values]}
