"""How much room there is in each direction: what people look at, and what may be scaled on."""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from lingua_scheduler.services.pool_service.directions import Direction, Directions
from lingua_scheduler.services.pool_service.views import Fleet, Room, Views

# A pool of so many shards is read as a whole. A larger one is estimated from some nodes of some
# shards, all drawn at random: 300 nodes tell how full 10,000 are, mostly to within a tenth. They
# are of many shards, because nodes that came together lie together, and may fail together.
_WHOLE_SHARDS = 3
_SHARDS_DRAWN = 30
_NODES_DRAWN = 300

_NONE = Room(0, 0)


class Sample(NamedTuple):
    """The fleet at one time, and the room in each direction that has a label.

    A node has one room for all its directions, so these do not add up: `whole` counts each node
    once.
    """

    fleet: Fleet
    whole: Room
    rooms: dict[Direction, Room]


class Capacity:
    """Takes samples.

    One sample is one walk over all nodes, and at most thirty commands a pool, pool after pool, so
    that other calls go in between. It is exact for pools of up to three shards.

    A direction whose last node has gone is shown with no slots for `keep_ms`, so that somebody
    notices; then it is dropped.
    """

    def __init__(self, *, views: Views, directions: Directions, keep_ms: int) -> None:
        self._views = views
        self._directions = directions
        self._keep_s = keep_ms / 1000
        self._seen: dict[Direction, float] = {}

    async def sample(self, now: float) -> Sample:
        """Looks at all nodes and pools.

        Args:
            now: seconds, by a clock that does not go back.
        """
        sizes = await self._views.pool_sizes()
        # Where there are too many, the largest get labels.
        self._directions.learn(sorted(sizes, key=lambda name: (-sizes[name], name)))
        fleet = await self._views.fleet()
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in sizes.items():
            sums[self._directions.of_pool(name)].append(await self._room(name, size, fleet))
        self._seen.update(dict.fromkeys(sums, now))
        self._seen = {each: at for each, at in self._seen.items() if now - at < self._keep_s}
        rooms = {direction: _sum(sums.get(direction, ())) for direction in self._seen}
        return Sample(fleet, _sum(fleet.rooms.values()), rooms)

    async def _room(self, name: str, size: int, fleet: Fleet) -> Room:
        shards = self._views.shards(size)
        if shards <= _WHOLE_SHARDS:
            members = await self._views.members(name, range(shards))
            return _sum(fleet.rooms.get(node_id, _NONE) for node_id in members)
        drawn = random.sample(range(shards), min(shards, _SHARDS_DRAWN))
        members = await self._views.some_members(name, drawn, -(-_NODES_DRAWN // len(drawn)))
        found = _sum(fleet.rooms.get(node_id, _NONE) for node_id in members)
        scale = size / max(1, len(members))
        return Room(round(found.slots * scale), round(found.free * scale))


def _sum(rooms: Iterable[Room]) -> Room:
    slots = free = 0
    for room in rooms:
        slots += room.slots
        free += room.free
    return Room(slots, free)
