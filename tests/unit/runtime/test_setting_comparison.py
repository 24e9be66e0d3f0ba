"""Which settings of instances count as different."""

from lingua_scheduler.services.runtime.settings.comparison import ComparedSetting, compare
from lingua_scheduler.v1 import instances_pb2


def with_settings(name: str, group: str = "g", /, **values: str) -> instances_pb2.Instance:
    made = instances_pb2.Instance(instance_id=name)
    for setting, value in values.items():
        made.settings.add(group=group, name=setting, value=value, origin="default")
    return made


def compared(*instances: instances_pb2.Instance) -> dict[str, ComparedSetting]:
    return {each.name: each for each in compare(instances)}


def test_settings_that_differ_are_marked_but_not_those_that_always_do() -> None:
    shown = compared(
        with_settings("d1", log_level="info", instance_id="d1", pool_listen="a:1", auth="on"),
        with_settings("d2", log_level="debug", instance_id="d2", pool_listen="b:1", auth="on"),
    )
    assert {name: each.differs for name, each in shown.items()} == {
        "log_level": True,
        "pool_listen": False,
        "auth": False,
    }
    assert shown["log_level"].variable == "LINGUA_LOG_LEVEL"
    assert shown["log_level"].values == [("info", "default", ["d1"]), ("debug", "default", ["d2"])]
    assert shown["auth"].values == [("on", "default", ["d1", "d2"])]


def test_addresses_within_a_process_are_no_difference() -> None:
    shown = compared(
        with_settings("d1", pool_address="in-process:pool"),
        with_settings("c1", pool_address="127.0.0.1:7710"),
    )
    assert not shown["pool_address"].differs


def test_a_setting_that_only_a_newer_version_knows_is_a_difference() -> None:
    shown = compared(with_settings("d1", old="1"), with_settings("d2", old="1", new="1"))
    assert shown["new"].differs
    assert not shown["old"].differs


def test_groups_that_an_instance_does_not_use_are_no_difference() -> None:
    shown = compared(with_settings("d1", "redis", redis_url="r"), with_settings("c1", old="1"))
    assert not shown["redis_url"].differs
