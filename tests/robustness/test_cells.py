"""Short rounds in CI with cells on two servers, one of which fails while jobs are in both.

The long run is `make robustness TOPOLOGY=cells`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.robustness.faults.cells import CELL_FAULTS
from tests.robustness.faults.choice import possible
from tests.robustness.store import AOF
from tests.robustness.test_round import check_round
from tests.robustness.world import CELLS, SPLIT, World


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Two of each service, four nodes, and four cells on two servers that come back with data."""
    with World(AOF, topology=CELLS) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        "home cell away",
        "cut: slot in another cell not confirmed",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in (
                "other cell away",
                "answers lost: slot taken in another cell",
                "answers lost: slot in another cell confirmed",
            )
        ),
    ],
)
async def test_a_round_of_faults_breaks_no_promise(
    world: World, fault: str, tmp_path: Path
) -> None:
    await check_round(world, [fault], tmp_path)


def test_faults_of_cells_strike_only_cells() -> None:
    assert set(possible(AOF, SPLIT)) < set(possible(AOF, CELLS))
    assert set(possible(AOF, CELLS)) - set(possible(AOF, SPLIT)) == CELL_FAULTS.keys()


def test_each_server_has_several_cells(world: World) -> None:
    first, second = (set(world.prefixes(store)) for store in world.stores)
    assert len(first) == len(second) == 2
    assert not first & second
