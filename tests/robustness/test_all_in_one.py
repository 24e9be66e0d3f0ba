"""Short rounds in CI with three processes that have all services, which die and are replaced.

The long run is `make robustness TOPOLOGY=all`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness.faults.choice import ALL as FAULTS
from tests.robustness.faults.choice import possible
from tests.robustness.store import AOF, EMPTY, SENTINEL
from tests.robustness.test_round import check_round
from tests.robustness.world import ALL, SPLIT, TOPOLOGIES, World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Three processes, four nodes, and a Redis that comes back with its data."""
    with World(AOF, topology=ALL) as made:
        yield made


@pytest.mark.parametrize(
    "faults",
    [
        ["kill -9 of an all-in-one process", "loss: node and dispatcher"],
        ["pause of an all-in-one process"],
        pytest.param(["rolling restart of all-in-one processes"], marks=pytest.mark.long),
        pytest.param(["all-in-one process restarted while Redis is away"], marks=pytest.mark.long),
    ],
    ids=" + ".join,
)
async def test_a_round_of_faults_breaks_no_promise(
    world: World, faults: list[str], tmp_path: Path
) -> None:
    await check_round(world, faults, tmp_path)


@pytest.mark.long
async def test_honest_people_see_nothing_of_hostile_ones_while_a_process_dies(
    world: World, tmp_path: Path
) -> None:
    await check_round(world, ["kill -9 of an all-in-one process"], tmp_path, hostile=True)


def test_every_fault_can_happen_in_some_world() -> None:
    worlds = [(store, kind) for store in (AOF, EMPTY, SENTINEL) for kind in TOPOLOGIES]
    assert {name for each in worlds for name in possible(*each)} == FAULTS.keys()


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_links_of_web_clients_are_struck_only_if_there_are_such_clients(topology: str) -> None:
    names = set(possible(AOF, topology)) - set(possible(AOF, topology, web=False))
    kinds = ("cut", "half open", "slow", "loss")
    assert names == {f"{kind}: web client and gateway" for kind in kinds}


def test_faults_strike_what_a_topology_has(world: World) -> None:
    assert world.of("all") == ["all-0", "all-1", "all-2"]
    assert list(world.hosts) == world.of("all")
    assert "kill -9 of a gateway" not in possible(AOF, ALL)
    assert "loss: gateway and dispatcher" not in possible(AOF, ALL)
    assert "kill -9 of an all-in-one process" not in possible(AOF, SPLIT)
    # The same in both: what is outside of the processes.
    for name in ("kill -9 of a node", "Redis pauses", "cut: dispatcher and dispatcher"):
        assert name in possible(AOF, ALL)
        assert name in possible(AOF, SPLIT)
