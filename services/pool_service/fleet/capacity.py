"""Free slots by direction, for dashboards and autoscaling."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.cell_nodes import Fleet, Room
from lingua_scheduler.services.pool_service.fleet.cell_pools import CellPools
from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.fleet.pools import Pools
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells

# Pools that are read to find directions without labels. One node can be in 65,792 pools.
_POOLS_SEEN = 100_000
# Random pools from which all pools without labels are estimated.
_OTHERS_DRAWN = 1000


class CellSample(NamedTuple):
    """The nodes of a cell at one time.

    Attributes:
        fleet: the nodes.
        whole: their slots, each node counted once.
        rooms: the slots of its pools, by direction.
    """

    fleet: Fleet
    whole: Room
    rooms: dict[Direction, list[Room]]


class Sample(NamedTuple):
    """The nodes at one time, and the slots in each direction that has a label.

    A node offers the same slots in all its directions, so the directions must not be added up:
    `whole` counts each node once.
    """

    fleet: Fleet
    whole: Room
    rooms: dict[Direction, Room]
    cells: dict[int, CellSample]
    """What each cell that is not away has of it."""


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
        self, *, cells: Cells, nodes: Nodes, pools: Pools, directions: Directions, keep_ms: int
    ) -> None:
        self._cells = cells
        self._nodes = nodes
        self._pools = pools
        self._directions = directions
        self._keep_s = keep_ms / 1000
        self._seen: dict[Direction, float] = {}

    async def sample(self, now: float) -> Sample:
        """Reads all nodes and pools of the cells that are not away.

        Args:
            now: seconds, from a monotonic clock.

        Raises:
            DependencyDownError: all cells are away.
        """
        await self._learn()
        cells: dict[int, CellSample] = dict(await self._cells.each(self._sample_cell))
        if not cells:
            raise DependencyDownError("no cell can be read")
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for cell in cells.values():
            for direction, rooms in cell.rooms.items():
                sums[direction] += rooms
        self._seen.update(dict.fromkeys(sums, now))
        self._seen = {each: at for each, at in self._seen.items() if now - at < self._keep_s}
        rooms_shown = {direction: _sum(sums.get(direction, ())) for direction in self._seen}
        fleet = Fleet()
        for cell in cells.values():
            fleet.add(cell.fleet)
        return Sample(fleet, _sum(cell.whole for cell in cells.values()), rooms_shown, cells)

    async def _learn(self) -> None:
        """Assigns labels to new directions, while labels are left."""
        if not self._directions.is_full:
            sizes: Counter[str] = Counter()
            for found in await self._cells.each(
                lambda cell: self._pools.of_cell[cell.number].sizes(_POOLS_SEEN)
            ):
                sizes.update(found)
            # If there are too many, the largest get labels.
            self._directions.learn(sorted(sizes, key=lambda name: (-sizes[name], name)))

    async def _sample_cell(self, cell: Cell) -> tuple[int, CellSample]:
        nodes, pools = self._nodes.of_cell[cell.number], self._pools.of_cell[cell.number]
        fleet = await nodes.fleet()
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in (await pools.sizes_of(self._directions.pools())).items():
            sums[self._directions.of_pool(name)].append(await _room(pools, name, size, fleet))
        others = await self._others(pools, sum(map(len, sums.values())), fleet)
        for direction, room in others.items():
            sums[direction].append(room)
        return cell.number, CellSample(fleet, _sum(fleet.rooms.values()), sums)

    async def _others(self, pools: CellPools, labelled: int, fleet: Fleet) -> dict[Direction, Room]:
        """Returns the slots of the pools without labels, estimated if there are over a thousand.

        Args:
            pools: of a cell.
            labelled: number of its pools that have labels.
            fleet: its nodes.
        """
        if not self._directions.is_full:
            return {}
        drawn, count = await pools.some(_OTHERS_DRAWN)
        others = {name: size for name, size in drawn.items() if not self._directions.knows(name)}
        sums: dict[Direction, list[Room]] = defaultdict(list)
        for name, size in others.items():
            sums[self._directions.of_pool(name)].append(await _room(pools, name, size, fleet))
        scale = max(1.0, (count - labelled) / max(1, len(others)))
        return {direction: _scaled(_sum(rooms), scale) for direction, rooms in sums.items()}


async def _room(pools: CellPools, name: str, size: int, fleet: Fleet) -> Room:
    return (await pools.drawn(name, size)).room(fleet.rooms)


def _scaled(room: Room, scale: float) -> Room:
    return Room(round(room.slots * scale), round(room.free * scale))


def _sum(rooms: Iterable[Room]) -> Room:
    slots = free = 0
    for room in rooms:
        slots += room.slots
        free += room.free
    return Room(slots, free)
