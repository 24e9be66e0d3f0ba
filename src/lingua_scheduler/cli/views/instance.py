"""Text output for instances and their settings."""

from collections.abc import Sequence

from lingua_scheduler.cli.views.output import enum_name, span
from lingua_scheduler.cli.views.states import state
from lingua_scheduler.cli.views.table import Column, table
from lingua_scheduler.services.runtime.contract.announcements import STATS
from lingua_scheduler.services.runtime.settings.comparison import ComparedSetting
from lingua_scheduler.v1 import instances_pb2

_HEALTH = instances_pb2.DESCRIPTOR.enum_types_by_name["InstanceHealth"]
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
    return table(
        (
            *(Column("ID"), Column("SERVICE"), Column("VERSION", 1), Column("HEALTH")),
            *(Column("UP", 3), Column("ADDRESS", 2), Column("STATS", 4, folds=True)),
        ),
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
    shown = state(enum_name(_HEALTH, instance.health).lower())
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
    return table(
        (
            *(Column("VARIABLE"), Column("VALUE", folds=True), Column("ORIGIN", 1)),
            Column("INSTANCES", folds=True),
        ),
        rows,
    )
