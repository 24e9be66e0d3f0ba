"""Instances of the services, and their settings."""

from collections.abc import Callable, Sequence
from typing import Any

from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.instances import health_of
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.v1 import instances_pb2

# Settings that differ by nature: each process has its own name and listens somewhere else.
_OWN = ("instance_id",)
_OWN_ENDS = ("_listen", "_advertise")
# Numbers that a service fills in; others would be 0.
_STATS = {
    "gateway": ("sessions", "results", "missing"),
    "dispatcher": ("nodes", "jobs", "jobs_waiting", "jobs_done", "jobs_failed", "retries"),
    "pool": ("allocations", "allocations_refused"),
}

OwnInstance = Callable[[], instances_pb2.Instance]


async def instances(
    sources: Sources, query: Query, own: OwnInstance | None = None
) -> dict[str, Any]:
    """The document `instances`. `own` makes the instance of the console itself."""
    query.done()
    try:
        with_settings = list(await sources.instance_poll.with_settings())
    except LinguaError:
        # The poller reports it as a problem.
        with_settings = []
    listed = list(sources.instances.instances)
    if own is not None:
        listed.append(own())
        with_settings.append(listed[-1])
    listed.sort(key=lambda each: (each.service, each.instance_id))
    return {
        "rows": {each.instance_id: _row(each) for each in listed},
        "order": [each.instance_id for each in listed],
        "total": len(listed),
        "settings": settings_of(with_settings),
    }


def settings_of(instances: Sequence[instances_pb2.Instance]) -> list[dict[str, Any]]:
    """Each setting with all its values, and which instances have them, in their order."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    values: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for instance in instances:
        for setting in instance.settings:
            key = setting.group, setting.name
            found.setdefault(
                key,
                {
                    "group": setting.group,
                    "name": setting.name,
                    "variable": variable_name(setting.name),
                    "description": setting.description,
                },
            )
            holders = values.setdefault(key, {})
            holders.setdefault((setting.value, setting.origin), []).append(instance.instance_id)
    return [
        {
            **setting,
            "differs": _differs(setting["name"], {value for value, _ in values[key]}),
            "values": [
                {"value": value, "origin": origin, "instances": sorted(ids)}
                for (value, origin), ids in sorted(values[key].items())
            ],
        }
        for key, setting in found.items()
    ]


def _differs(name: str, values: set[str]) -> bool:
    return len(values) > 1 and name not in _OWN and not name.endswith(_OWN_ENDS)


def _row(instance: instances_pb2.Instance) -> dict[str, Any]:
    names = _STATS.get(instance.service, ())
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
