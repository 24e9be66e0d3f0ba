"""`lingua instances`: requests to the pool service, and the output for its answers."""

import json
from typing import Any

from lingua_scheduler.v1 import instances_pb2
from tests.unit.cli.test_clients import Answer, run

NOW_MS = 1_800_000_000_000
SERVING, DRAINING, DOWN = (
    instances_pb2.INSTANCE_HEALTH_SERVING,
    instances_pb2.INSTANCE_HEALTH_DRAINING,
    instances_pb2.INSTANCE_HEALTH_DOWN,
)


def instance(
    instance_id: str = "d1",
    service: str = "dispatcher",
    health: instances_pb2.InstanceHealth.ValueType = SERVING,
    **fields: Any,
) -> instances_pb2.Instance:
    return instances_pb2.Instance(
        **{
            "instance_id": instance_id,
            "service": service,
            "health": health,
            "version": "0.2.0",
            "address": f"{instance_id}:7720",
            "started_ms": NOW_MS - 7_500_000,
            "announced_ms": NOW_MS - 1000,
            **fields,
        }
    )


def with_settings(name: str, /, **values: str) -> instances_pb2.Instance:
    settings = [
        instances_pb2.InstanceSetting(
            group="g", name=each, value=value, origin="environment", description=f"of {each}"
        )
        for each, value in values.items()
    ]
    return instance(name, settings=settings)


def listed(*instances: instances_pb2.Instance) -> Answer:
    response = instances_pb2.ListInstancesResponse(instances=instances, as_of_ms=NOW_MS)
    return Answer("ListInstances", response)


def test_each_instance_is_a_line_with_the_counters_of_its_service() -> None:
    jobs = instances_pb2.InstanceStats(jobs=3, jobs_done=90, nodes=2, retries=1)
    talk = instances_pb2.InstanceStats(sessions=5, results=70, missing=2)
    slots = instances_pb2.InstanceStats(allocations=9, allocations_refused=4)
    answer = listed(
        instance("d1", stats=jobs),
        instance("g1", "gateway", DRAINING, stats=talk),
        instance("p1", "pool", stats=slots),
    )
    result, requests = run("instances", answer)
    assert result.exit_code == 0, result.stderr
    assert not requests[0].with_settings
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["ID", "SERVICE", "VERSION", "HEALTH", "UP", "ADDRESS", "STATS"]
    assert lines[0].split()[:6] == ["d1", "dispatcher", "0.2.0", "serving", "2h", "d1:7720"]
    assert lines[0].endswith("3 jobs, 0 waiting, 90 done, 0 failed, 1 retries, 2 nodes")
    assert lines[1].split()[3] == "draining"
    assert lines[1].endswith("5 sessions, 70 results, 2 missing")
    assert lines[2].endswith("9 allocations, 4 refused")


def test_a_dead_instance_says_for_how_long_and_has_no_uptime() -> None:
    dead = instance(health=DOWN, announced_ms=NOW_MS - 200_000)
    result, _ = run("instances list", listed(dead))
    assert "down (for 3m)  -   d1:7720" in result.stdout


def test_an_instance_of_a_service_that_is_not_known_has_no_counters() -> None:
    result, _ = run("instances", listed(instance("x1", "newer")))
    assert result.stdout.splitlines()[1].endswith("x1:7720")


def test_without_instances_a_sentence_says_so() -> None:
    result, _ = run("instances", listed())
    assert result.stdout == "there are no instances\n"


def test_as_json_the_list_is_the_message_of_the_contract() -> None:
    for command in ("instances --json", "--json instances", "instances list --json"):
        result, _ = run(command, listed(instance()))
        document = json.loads(result.stdout)
        assert document["as_of_ms"] == NOW_MS
        (shown,) = document["instances"]
        assert (shown["instance_id"], shown["health"]) == ("d1", "SERVING")
        assert "settings" not in shown, "they were not asked for"


def test_settings_are_shown_once_with_who_has_which_value() -> None:
    result, requests = run(
        "instances settings",
        listed(
            with_settings("d1", instance_id="d1", log_level="info", max_retry="2"),
            with_settings("d2", instance_id="d2", log_level="info", max_retry="5"),
            with_settings("d3", instance_id="d3", log_level="info", max_retry="2"),
        ),
    )
    assert requests[0].with_settings
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["VARIABLE", "VALUE", "ORIGIN", "INSTANCES"],
        ["LINGUA_LOG_LEVEL", "info", "environment", "all"],
        ["LINGUA_MAX_RETRY", "2", "environment", "d1", "d3"],
        ["5", "environment", "d2"],
    ]


def test_only_settings_that_differ_are_shown_if_asked_for() -> None:
    answer = listed(
        with_settings("d1", instance_id="d1", log_level="info", max_retry="2"),
        with_settings("d2", instance_id="d2", log_level="info", max_retry="5", newer="x"),
    )
    result, _ = run("instances settings --differences --json", answer)
    document = json.loads(result.stdout)
    assert document["unknown_of"] == []
    retry, newer = document["settings"]
    assert retry == {
        "group": "g",
        "name": "max_retry",
        "variable": "LINGUA_MAX_RETRY",
        "description": "of max_retry",
        "differs": True,
        "values": [
            {"value": "2", "origin": "environment", "instances": ["d1"]},
            {"value": "5", "origin": "environment", "instances": ["d2"]},
        ],
    }
    assert newer["values"] == [{"value": "x", "origin": "environment", "instances": ["d2"]}]


def test_the_same_settings_are_no_difference() -> None:
    same = (with_settings(name, instance_id=name, max_retry="2") for name in ("d1", "d2"))
    result, _ = run("instances settings --differences", listed(*same))
    assert result.stdout == "all instances have the same settings\n"


def test_instances_without_settings_are_mentioned() -> None:
    answer = listed(with_settings("d1", max_retry="2"), instance("d2", health=DOWN))
    result, _ = run("instances settings", answer)
    assert result.stdout.splitlines()[1].endswith("all")
    assert "The settings of 1 instance are not known: d2" in result.stderr
