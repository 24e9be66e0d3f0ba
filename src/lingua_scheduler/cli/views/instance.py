"""Text output for instances and their settings."""

from collections.abc import Sequence

import click

from lingua_scheduler.cli.views.output import columns, enum_name, span
from lingua_scheduler.services.runtime.contract.announcements import STATS
from lingua_scheduler.services.runtime.settings.comparison import ComparedSetting
from lingua_scheduler.v1 import instances_pb2

_HEALTH = instances_pb2.DESCRIPTOR.enum_types_by_name["InstanceHealth"]
_COLOURS = {
    instances_pb2.INSTANCE_HEALTH_SERVING: "green",
    instances_pb2.INSTANCE_HEALTH_DRAINING: "yellow",
    instances_pb2.INSTANCE_HEALTH_DOWN: "red",
}
# Fields of InstanceStats whose word is not their name.
_WORDS = {
    "allocations_refused": "refused",
    "jobs_waiting": "waiting",
    "jobs_done": "done",
    "jobs_failed": "failed",
}
_ALL = "all"


def instance_list(response: instances_pb2.ListInstancesResponse) -> str:
    """One instance per line."""
    return columns(
        ("ID", "SERVICE", "VERSION", "HEALTH", "UP", "ADDRESS", "STATS"),
        [
            (
                each.instance_id,
                each.service,
                each.version,
                _health(each, response.as_of_ms),
                _up(each, response.as_of_ms),
                each.address,
                _stats(each),
            )
            for each in response.instances
        ],
    )


def _health(instance: instances_pb2.Instance, now_ms: int) -> str:
    word = enum_name(_HEALTH, instance.health).lower()
    shown = click.style(word, fg=_COLOURS.get(instance.health))
    if instance.health == instances_pb2.INSTANCE_HEALTH_DOWN:
        shown += f" (for {span(now_ms - instance.announced_ms)})"
    return shown


def _up(instance: instances_pb2.Instance, now_ms: int) -> str:
    if instance.health == instances_pb2.INSTANCE_HEALTH_DOWN:
        return "-"
    return span(now_ms - instance.started_ms)


def _stats(instance: instances_pb2.Instance) -> str:
    fields = STATS.get(instance.service, ())
    return ", ".join(f"{getattr(instance.stats, each)} {_WORDS.get(each, each)}" for each in fields)


def setting_list(settings: Sequence[ComparedSetting]) -> str:
    """A line for each value of each setting."""
    rows: list[tuple[str, ...]] = []
    for setting in settings:
        is_same = len(setting.values) == 1 and not setting.differs
        for at, each in enumerate(setting.values):
            rows.append(
                (
                    setting.variable if at == 0 else "",
                    each.value or '""',
                    each.origin,
                    _ALL if is_same else " ".join(each.instances),
                )
            )
    return columns(("VARIABLE", "VALUE", "ORIGIN", "INSTANCES"), rows)
