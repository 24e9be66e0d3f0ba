"""What every listener of a room is promised, in thousands of random rooms."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.services.session_gateway.rooms import lane_reads
from tests.unit.gateway.audience_world.world import World

RUNS = int(os.environ.get("LINGUA_ROOM_RUNS", "500"))

# What happens, more often what happens often.
MOVES = (
    *(World.say, World.say, World.say, World.publish, World.publish, World.publish),
    *(World.join, World.arrive, World.leave),
    *(World.change, World.change, World.change, World.change),
    *(World.execute, World.execute, World.answer, World.answer, World.answer, World.fail),
    *(World.poll, World.trim),
)
# Two bytes a step: drawing them one by one would take ten times as long.
STEPS = st.binary(min_size=200, max_size=600)


@pytest.fixture(autouse=True, scope="module")
def _small_reads() -> Iterator[None]:
    """Reads that soon have as much as they may have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_reads, "MOST_CAPTIONS", 3)
        patch.setattr(lane_reads, "MOST_WITH_AUDIO", 2)
        yield


@settings(max_examples=RUNS)
@given(STEPS, st.sampled_from([0, 1, 3]))
def test_each_listener_gets_each_index_of_its_language_once_in_order_or_as_one_gap(
    steps: bytes, replayed: int
) -> None:
    world = World(replayed)
    for choice in steps[:2]:
        world.join(choice)
    for move, choice in zip(steps[::2], steps[1::2], strict=False):
        MOVES[move % len(MOVES)](world, choice + (move << 8))
    world.finish()
    for person in world.people:
        world.check(person)
        if not person.has_left:
            world.check_all(person)
    assert len(world.audience) == sum(not each.has_left for each in world.people)
    assert world.audience.floor <= world.room.next_index
