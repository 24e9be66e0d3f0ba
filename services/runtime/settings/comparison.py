"""Compares the settings of instances. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.v1 import instances_pb2

# Each process has an id of its own, and listens somewhere else.
_OWN_ID = "instance_id"
_OWN_ENDS = ("_listen", "_advertise")
# The addresses of services of the same process (`lingua serve all`).
_IN_PROCESS = "in-process:"


class SettingValue(NamedTuple):
    """A value of a setting, where it is from, and the ids of the instances that have it."""

    value: str
    origin: str
    instances: list[str]


class ComparedSetting(NamedTuple):
    """A setting over all instances.

    Attributes:
        differs: whether instances have different values, although they could have the same, or
            some that use its group do not know it, because their version is another.
        values: each distinct pair of a value and its origin.
    """

    group: str
    name: str
    variable: str
    description: str
    differs: bool
    values: list[SettingValue]


def compare(instances: Iterable[instances_pb2.Instance]) -> list[ComparedSetting]:
    """The settings of all instances, in the order of `lingua config`, without their own ids."""
    by_name: dict[str, instances_pb2.InstanceSetting] = {}
    values: dict[str, dict[tuple[str, str], list[str]]] = {}
    users: dict[str, set[str]] = {}
    for instance in instances:
        for setting in instance.settings:
            by_name.setdefault(setting.name, setting)
            users.setdefault(setting.group, set()).add(instance.instance_id)
            pairs = values.setdefault(setting.name, {})
            pairs.setdefault((setting.value, setting.origin), []).append(instance.instance_id)
    return [
        ComparedSetting(
            group=setting.group,
            name=name,
            variable=variable_name(name),
            description=setting.description,
            differs=_differs(name, values[name], len(users[setting.group])),
            values=[SettingValue(*pair, sorted(ids)) for pair, ids in values[name].items()],
        )
        for name, setting in by_name.items()
        if name != _OWN_ID
    ]


def _differs(name: str, pairs: Mapping[tuple[str, str], list[str]], users: int) -> bool:
    if name.endswith(_OWN_ENDS):
        return False
    comparable = {value for value, _ in pairs if not value.startswith(_IN_PROCESS)}
    return len(comparable) > 1 or sum(map(len, pairs.values())) < users
