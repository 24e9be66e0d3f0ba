"""How much room there is in each direction: what people look at, and what may be scaled on."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.pool_service.fleet.views import Fleet, Room, Views

# Pools looked at for directions that have no labels yet. One node can be in 65,792.
_POOLS_SEEN = 100_000
# Pools drawn at random that stand for all those without labels.
_OTHERS_DRAWN = 1000


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
    that other calls go in between; and one more for each owner that was drawn and has several nodes
    there. It is exact for pools of up to three shards. However many pools there are, those with
    labels and up to a thousand others are read.

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
        await self._learn()
        fleet = await self._views.fleet()
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in (await self._views.pool_sizes(self._directions.pools())).items():
            sums[self._directions.of_pool(name)].append(await self._room(name, size, fleet))
        for direction, room in (await self._others(sum(map(len, sums.values())), fleet)).items():
            sums[direction].append(room)
        self._seen.update(dict.fromkeys(sums, now))
        self._seen = {each: at for each, at in self._seen.items() if now - at < self._keep_s}
        rooms = {direction: _sum(sums.get(direction, ())) for direction in self._seen}
        return Sample(fleet, _sum(fleet.rooms.values()), rooms)

    async def _learn(self) -> None:
        """Gives labels to new directions, while there are labels left."""
        if not self._directions.is_full:
            sizes = await self._views.pools(_POOLS_SEEN)
            # Where there are too many, the largest get labels.
            self._directions.learn(sorted(sizes, key=lambda name: (-sizes[name], name)))

    async def _others(self, labelled: int, fleet: Fleet) -> dict[Direction, Room]:
        """The room of the pools without labels, beside so many that have some.

        It is estimated if there are more than a thousand pools.
        """
        if not self._directions.is_full:
            return {}
        drawn, count = await self._views.some_pools(_OTHERS_DRAWN)
        others = {name: size for name, size in drawn.items() if not self._directions.knows(name)}
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in others.items():
            sums[self._directions.of_pool(name)].append(await self._room(name, size, fleet))
        scale = max(1.0, (count - labelled) / max(1, len(others)))
        return {direction: _scaled(_sum(rooms), scale) for direction, rooms in sums.items()}

    async def _room(self, name: str, size: int, fleet: Fleet) -> Room:
        return (await self._views.drawn(name, size)).room(fleet.rooms)


def _scaled(room: Room, scale: float) -> Room:
    return Room(round(room.slots * scale), round(room.free * scale))


def _sum(rooms: Iterable[Room]) -> Room:
    slots = free = 0
    for room in rooms:
        slots += room.slots
        free += room.free
    return Room(slots, free)
