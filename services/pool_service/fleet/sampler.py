"""Reads samples of the fleet from Redis, in steps that do not block it."""

import asyncio
from collections.abc import Sequence

from lingua_scheduler.services.pool_service.fleet.capability_sets import (
    LANGUAGE_FIELDS,
    capabilities_of,
    set_id,
)
from lingua_scheduler.services.pool_service.fleet.cell_nodes import CellNodes
from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.fleet.sample import (
    Details,
    KnownFleet,
    Sample,
    Unsettled,
)
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.services.runtime.settings.settings import Settings

# Nodes whose leases and details are read at once: few enough that other calls do not wait long.
_NODES_AT_ONCE = 100
# The fields of a node's record that a sample needs of every new node.
_FIELDS = ("pools_hash", "node_owner", "drained_ms", "drained_used")


class FleetSampler:
    """Takes samples of all cells, one after the other. Changes nothing in Redis.

    The nodes of a cell that is away are left out, unless all are.

    A sample costs one HSCAN for every thousand nodes. Beyond that, only nodes that are new,
    connected again, drained or no longer drained, or that have leases which may have ended, are
    read one by one.
    """

    def __init__(self, *, cells: Cells, settings: Settings, nodes: Nodes) -> None:
        self._of_cell = [_CellSampler(cell, nodes.of_cell[cell.number]) for cell in cells.all]
        self._stale_ms = settings.heartbeat_stale_ms

    def new_fleet(self) -> KnownFleet:
        """A fleet of which nothing is known yet."""
        return KnownFleet(self._stale_ms)

    async def sample(self, fleet: KnownFleet) -> Sample:
        """Reads all nodes. The caller passes the sample to `fleet.end`.

        Raises:
            DependencyDownError: Redis cannot be used.
        """
        sample = fleet.begin()
        failure: DependencyDownError | None = None
        was_read = False
        for cell in self._of_cell:
            try:
                await cell.read(fleet, sample)
                was_read = True
            except DependencyDownError as error:
                sample.give_up()
                failure = error
        if failure is not None and not was_read:
            raise failure
        return sample


class _CellSampler:
    """Reads the nodes of one cell for samples."""

    def __init__(self, cell: Cell, nodes: CellNodes) -> None:
        self._link = cell.link
        self._prefix = cell.prefix
        self._nodes = nodes

    async def read(self, fleet: KnownFleet, sample: Sample) -> None:
        """Reads all nodes of the cell. Raises DependencyDownError."""
        sample.enter(self._nodes.number, await redis_now_ms(self._link))
        async for page in self._nodes.packed():
            sample.see(page)
        unsettled = list(sample.unsettled.items())
        for at in range(0, len(unsettled), _NODES_AT_ONCE):
            await self._settle(fleet, sample, unsettled[at : at + _NODES_AT_ONCE])

    async def _settle(
        self, fleet: KnownFleet, sample: Sample, some: Sequence[tuple[str, Unsettled]]
    ) -> None:
        counted = [node_id for node_id, each in some if each.needs_count]
        described = [(node_id, each.live) for node_id, each in some if each.needs_details]
        counts, details = await asyncio.gather(
            asyncio.gather(*(self._nodes.leases(each, sample.now_ms) for each in counted)),
            self._details(fleet, described),
        )
        used = {node_id: sum(count) for node_id, count in zip(counted, counts, strict=True)}
        for node_id, _ in some:
            sample.settle(node_id, used.get(node_id), details.get(node_id))

    async def _details(
        self, fleet: KnownFleet, nodes: Sequence[tuple[str, LiveNode]]
    ) -> dict[str, Details]:
        """Reads the details of nodes, which are given with their packed records."""
        found = await asyncio.gather(
            *(self._link.command("HMGET", self._key(node_id), *_FIELDS) for node_id, _ in nodes)
        )
        details = {}
        for (node_id, live), fields in zip(nodes, found, strict=True):
            pools_hash, owner, drained_ms, drained_used = fields
            if not live.drained:
                # An older pool service that ends a drain leaves them behind.
                drained_ms = drained_used = None
            details[node_id] = Details(
                node_owner=(owner or b"").decode(),
                drained_ms=int(drained_ms or 0),
                slots_used_at_drain=int(drained_used or 0),
                capabilities=await self._capabilities(fleet, node_id, live.stages, pools_hash),
            )
        return details

    async def _capabilities(
        self, fleet: KnownFleet, node_id: str, stages: int, pools_hash: bytes | None
    ) -> str:
        """Returns the id of a node's capability set, which is read if it is not known."""
        if pools_hash:
            # The digest of the languages, and the node's owner (cell_registry.py).
            known_id = set_id(pools_hash.decode().partition("@")[0], stages)
            if fleet.sets.get(known_id):
                return known_id
        if fleet.sets.is_full:
            return ""
        # One after the other, because a set may have 16,384 pairs.
        languages = await self._link.command("HMGET", self._key(node_id), *LANGUAGE_FIELDS)
        added = fleet.sets.add(capabilities_of(languages, stages))
        return added.id if added else ""

    def _key(self, node_id: str) -> str:
        return f"{self._prefix}:node:{node_id}"
