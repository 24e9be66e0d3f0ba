"""The verdict of a soak: by kind of service, not by process."""

import pytest

from tests.robustness.growth import Growth, Sample, growth_by_kind

TIMES = 80


def steady(mb: float = 60.0, files: int = 20, tasks: int = 40) -> list[Sample]:
    """A process that stays as it is."""
    return [Sample(mb, files, tasks)] * TIMES


def changing(per_time: float) -> list[Sample]:
    """A process whose memory, files and tasks change by so much from sample to sample."""
    more = [round(per_time * at) for at in range(TIMES)]
    return [Sample(100.0 + each, 100 + each, 100 + each) for each in more]


def of_one_kind(**samples: list[Sample]) -> Growth:
    """The verdict on processes that are all of one kind."""
    (growth,) = growth_by_kind({name.replace("_", "-"): taken for name, taken in samples.items()})
    return growth


def test_work_that_moves_between_two_instances_is_no_growth() -> None:
    growth = of_one_kind(gateway_0=changing(-1.0), gateway_1=changing(1.0))
    assert growth.is_flat
    assert (growth.kind, growth.instances) == ("gateway", 2)
    assert growth.first == growth.last == Sample(200.0, 200, 200)


def test_a_leak_in_every_instance_is_growth() -> None:
    assert not of_one_kind(gateway_0=changing(0.5), gateway_1=changing(0.5)).is_flat


def test_a_large_leak_in_one_instance_is_growth() -> None:
    assert not of_one_kind(pool_0=steady(), pool_1=changing(1.0)).is_flat


def test_kinds_are_judged_apart() -> None:
    verdicts = growth_by_kind(
        {"gateway-0": changing(-1.0), "dispatcher-0": changing(1.0), "redis": steady()}
    )
    assert {each.kind: each.is_flat for each in verdicts} == {
        "gateway": True,
        "dispatcher": False,
        "redis": True,
    }


@pytest.mark.parametrize(
    ("kind", "last", "flat"),
    [
        ("pool", Sample(72.0, 28, 52), True),
        ("pool", Sample(72.1, 20, 40), False),
        ("pool", Sample(60.0, 29, 40), False),
        ("pool", Sample(60.0, 20, 53), False),
        ("gateway", Sample(60.0, 60, 40), True),
        ("gateway", Sample(60.0, 61, 40), False),
    ],
)
def test_each_instance_may_grow_by_so_much_on_average(kind: str, last: Sample, flat: bool) -> None:
    first = Sample(60.0, 20, 40)
    assert Growth(kind, 2, first, last, most_mb=last.mb).is_flat is flat


def test_the_warm_up_does_not_count() -> None:
    filling = [Sample(10.0 * at, at, at) for at in range(TIMES // 4)]
    growth = of_one_kind(pool_0=filling + steady()[: TIMES - len(filling)])
    assert growth.is_flat
    assert growth.most_mb == 10.0 * (TIMES // 4 - 1)


def test_processes_that_cannot_be_asked_for_tasks_have_none() -> None:
    growth = of_one_kind(node_0=steady(tasks=-1), node_1=steady(tasks=-1))
    assert growth.first.tasks == -1
    assert growth.is_flat
