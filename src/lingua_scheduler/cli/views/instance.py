"""Text output for instances, and the comparison of their settings."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from lingua_scheduler.cli.views.output import columns, enum_name, span
from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.v1 import instances_pb2

_HEALTH = instances_pb2.DESCRIPTOR.enum_types_by_name["InstanceHealth"]
_COLOURS = {
    instances_pb2.INSTANCE_HEALTH_SERVING: "green",
    instances_pb2.INSTANCE_HEALTH_DRAINING: "yellow",
    instances_pb2.INSTANCE_HEALTH_DOWN: "red",
}
# By service: fields of InstanceStats, and their words.
_STATS = {
    "pool": (("allocations", "allocations"), ("allocations_refused", "refused")),
    "dispatcher": (
        ("jobs", "jobs"),
        ("jobs_waiting", "waiting"),
        ("jobs_done", "done"),
        ("jobs_failed", "failed"),
        ("retries", "retries"),
        ("nodes", "nodes"),
    ),
    "gateway": (("sessions", "sessions"), ("results", "results"), ("missing", "missing")),
}
# Names the instance itself, so it always differs.
_ID = "instance_id"
_ALL = "all"


class SettingValue(NamedTuple):
    """A value of a setting, and the ids of the instances that have it."""

    value: str
    origin: str
    instances: list[str]


class ComparedSetting(NamedTuple):
    """A setting over all instances.

    Attributes:
        differs: whether two instances have different values, or some do not know the setting.
        values: each distinct pair of a value and its origin.
    """

    group: str
    name: str
    variable: str
    description: str
    differs: bool
    values: list[SettingValue]


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
    fields = _STATS.get(instance.service, ())
    return ", ".join(f"{getattr(instance.stats, field)} {word}" for field, word in fields)


def compare(instances: Iterable[instances_pb2.Instance]) -> list[ComparedSetting]:
    """The settings of instances, in the order of `lingua config`, without their own ids.

    Instances whose settings are unknown are left out.
    """
    known = [each for each in instances if each.settings]
    by_name: dict[str, instances_pb2.InstanceSetting] = {}
    values: dict[str, dict[tuple[str, str], list[str]]] = {}
    for instance in known:
        for setting in instance.settings:
            by_name.setdefault(setting.name, setting)
            pairs = values.setdefault(setting.name, {})
            pairs.setdefault((setting.value, setting.origin), []).append(instance.instance_id)
    return [
        ComparedSetting(
            group=setting.group,
            name=name,
            variable=variable_name(name),
            description=setting.description,
            differs=_differs(values[name], len(known)),
            values=[SettingValue(*pair, ids) for pair, ids in values[name].items()],
        )
        for name, setting in by_name.items()
        if name != _ID
    ]


def _differs(pairs: dict[tuple[str, str], list[str]], instances: int) -> bool:
    is_known_to_all = sum(map(len, pairs.values())) == instances
    return len({value for value, _ in pairs}) > 1 or not is_known_to_all


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
