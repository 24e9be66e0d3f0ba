"""Free slots by direction, for dashboards and autoscaling."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.cell_nodes import CellNodes, Fleet, Room
from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.pool_service.fleet.pools import Pools

# Pools that are read to find directions without labels. One node can be in 65,792 pools.
_POOLS_SEEN = 100_000
# Random pools from which all pools without labels are estimated.
_OTHERS_DRAWN = 1000


class Sample(NamedTuple):
    """The nodes at one time, and the slots in each direction that has a label.

    A node offers the same slots in all its directions, so the directions must not be added up:
    `whole` counts each node once.
    """

    fleet: Fleet
    whole: Room
    rooms: dict[Direction, Room]


class Capacity:
    """Takes samples.

    A sample reads all nodes, and then one pool after the other, so that other calls can run in
    between. A pool needs at most thirty commands, and one more for each owner in the sample that
    has several nodes in it. The result is exact for pools of up to three shards. However many pools
    exist, only those with labels and up to a thousand others are read.

    A direction whose last node has left is shown without slots for `keep_ms`, so that operators
    notice; then it is dropped.
    """

    def __init__(
        self, *, nodes: CellNodes, pools: Pools, directions: Directions, keep_ms: int
    ) -> None:
        self._nodes = nodes
        self._pools = pools
        self._directions = directions
        self._keep_s = keep_ms / 1000
        self._seen: dict[Direction, float] = {}

    async def sample(self, now: float) -> Sample:
        """Reads all nodes and pools.

        Args:
            now: seconds, from a monotonic clock.
        """
        await self._learn()
        fleet = await self._nodes.fleet()
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in (await self._pools.sizes_of(self._directions.pools())).items():
            sums[self._directions.of_pool(name)].append(await self._room(name, size, fleet))
        for direction, room in (await self._others(sum(map(len, sums.values())), fleet)).items():
            sums[direction].append(room)
        self._seen.update(dict.fromkeys(sums, now))
        self._seen = {each: at for each, at in self._seen.items() if now - at < self._keep_s}
        rooms = {direction: _sum(sums.get(direction, ())) for direction in self._seen}
        return Sample(fleet, _sum(fleet.rooms.values()), rooms)

    async def _learn(self) -> None:
        """Assigns labels to new directions, while labels are left."""
        if not self._directions.is_full:
            sizes = await self._pools.sizes(_POOLS_SEEN)
            # If there are too many, the largest get labels.
            self._directions.learn(sorted(sizes, key=lambda name: (-sizes[name], name)))

    async def _others(self, labelled: int, fleet: Fleet) -> dict[Direction, Room]:
        """Returns the slots of the pools without labels, estimated if there are over a thousand.

        Args:
            labelled: number of pools that have labels.
            fleet: the nodes.
        """
        if not self._directions.is_full:
            return {}
        drawn, count = await self._pools.some(_OTHERS_DRAWN)
        others = {name: size for name, size in drawn.items() if not self._directions.knows(name)}
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in others.items():
            sums[self._directions.of_pool(name)].append(await self._room(name, size, fleet))
        scale = max(1.0, (count - labelled) / max(1, len(others)))
        return {direction: _scaled(_sum(rooms), scale) for direction, rooms in sums.items()}

    async def _room(self, name: str, size: int, fleet: Fleet) -> Room:
        return (await self._pools.drawn(name, size)).room(fleet.rooms)


def _scaled(room: Room, scale: float) -> Room:
    return Room(round(room.slots * scale), round(room.free * scale))


def _sum(rooms: Iterable[Room]) -> Room:
    slots = free = 0
    for room in rooms:
        slots += room.slots
        free += room.free
    return Room(slots, free)
