"""The nodes of one cell and their leases. Reads only, in steps that do not block Redis."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.fleet.capability_sets import (
    LANGUAGE_FIELDS,
    capabilities_of,
    declared,
)
from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.runtime.contract.capabilities import (
    ANY,
    normal,
    speech_pool,
    text_pool,
)
from lingua_scheduler.services.runtime.errors import NodeNotFoundError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

PAGE = 100
# Records that one command reads: about a millisecond of Redis.
_SCAN = 1000


class Room(NamedTuple):
    """Number of slots, and how many of them are free."""

    slots: int
    free: int


@dataclass(slots=True)
class Fleet:
    """Statistics of nodes at one time.

    Attributes:
        by_health: number of nodes by health.
        late: number of live nodes whose last heartbeat is older than half of `heartbeat_stale_ms`.
        ejected: number of ready nodes that get no jobs for a while because they failed too often.
        rooms: the slots of every node that may be chosen.
    """

    by_health: Counter[common_pb2.NodeHealth.ValueType] = field(default_factory=Counter)
    late: int = 0
    ejected: int = 0
    rooms: dict[str, Room] = field(default_factory=dict)

    def add(self, other: "Fleet") -> None:
        """Adds other nodes."""
        self.by_health += other.by_health
        self.late += other.late
        self.ejected += other.ejected
        self.rooms.update(other.rooms)


class CellNodes:
    """Reads the records of the nodes of a cell. Changes nothing."""

    def __init__(self, *, cell: Cell, settings: Settings) -> None:
        self.number = cell.number
        self._link = cell.link
        self._prefix = cell.prefix
        self._stale_ms = settings.heartbeat_stale_ms

    async def node(self, node_id: str) -> pool_pb2.Node:
        """Returns one node, with its capabilities.

        Raises:
            NodeNotFoundError: there is no node with this id.
        """
        packed = await self._link.command("HGET", f"{self._prefix}:nodes:live", node_id)
        if packed is None:
            raise NodeNotFoundError(f"there is no node {node_id!r}")
        now = await redis_now_ms(self._link)
        live = LiveNode.unpack(packed)
        node = await self._shown(node_id, live, now)
        *languages, owner, drained_ms, drained_used = await self._link.command(
            "HMGET",
            f"{self._prefix}:node:{node_id}",
            *LANGUAGE_FIELDS,
            "node_owner",
            "drained_ms",
            "drained_used",
        )
        node.node_owner = (owner or b"").decode()
        # An older pool service that ends a drain leaves them behind.
        if live.drained:
            node.drained_ms = int(drained_ms or 0)
            node.slots_used_at_drain = int(drained_used or 0)
        node.capabilities.CopyFrom(declared(capabilities_of(languages, live.stages)))
        return node

    async def get_node(self, request: pool_pb2.GetNodeRequest) -> pool_pb2.GetNodeResponse:
        """Returns one node and the attempts that hold its slots."""
        node = await self.node(request.node_id)
        now = await redis_now_ms(self._link)
        key = f"{self._prefix}:node:{request.node_id}"
        leases = []
        for running in (False, True):
            kept = f"{key}:running" if running else f"{key}:reserved"
            listed = await self._link.command("ZRANGE", kept, 0, -1, "WITHSCORES")
            for member, ends in zip(listed[::2], listed[1::2], strict=True):
                if float(ends) > now:
                    leases.append(
                        pool_pb2.Lease(
                            attempt=codes.attempt_of(member),
                            running=running,
                            ends_ms=int(float(ends)),
                        )
                    )
        return pool_pb2.GetNodeResponse(node=node, leases=leases)

    async def list_nodes(
        self, request: pool_pb2.ListNodesRequest, cursor: str
    ) -> tuple[list[pool_pb2.Node], str]:
        """Returns a page of nodes, and the cursor of the next page; "0" at the end."""
        now = await redis_now_ms(self._link)
        cursor, packed = await self._scan(cursor, request.page_size or PAGE)
        page = [(node_id, LiveNode.unpack(record)) for node_id, record in packed]
        if request.health:
            page = [
                (node_id, live)
                for node_id, live in page
                if live.effective_health(now, self._stale_ms) == request.health
            ]
        if request.HasField("pair"):
            src, tgt = normal(request.pair.src), normal(request.pair.tgt)
            pools = (speech_pool(src, tgt), text_pool(src, tgt), text_pool(src, ANY))
            shards = await asyncio.gather(
                *(
                    self._link.command("HMGET", f"{self._prefix}:node:{node_id}:pools", *pools)
                    for node_id, _ in page
                )
            )
            page = [entry for entry, found in zip(page, shards, strict=True) if any(found)]
        nodes = await asyncio.gather(*(self._shown(node_id, live, now) for node_id, live in page))
        return nodes, cursor

    async def fleet(self) -> Fleet:
        """Reads all nodes, in pages of about a millisecond of Redis."""
        now = await redis_now_ms(self._link)
        fleet = Fleet()
        ready = []
        async for node_id, live in self._all():
            health = live.effective_health(now, self._stale_ms)
            fleet.by_health[health] += 1
            if health != common_pb2.NODE_HEALTH_OFFLINE:
                fleet.late += now - live.beat_ms > self._stale_ms / 2
            if health == common_pb2.NODE_HEALTH_READY:
                fleet.ejected += live.ejected_until_ms > now
                ready.append((node_id, live))
        fleet.rooms = await self._rooms_of(ready, now)
        return fleet

    async def totals(self, now: int) -> tuple[int, int, int]:
        """Returns the number of nodes, of their slots, and of those that are in use."""
        nodes = slots = used = 0
        async for node_id, live in self._all():
            nodes, slots = nodes + 1, slots + live.max_concurrent_jobs
            used += await self._used(node_id, live, now)
        return nodes, slots, used

    async def rooms(self, node_ids: Iterable[str]) -> dict[str, Room]:
        """Returns the slots of those of these nodes that may be chosen."""
        now, rest = await redis_now_ms(self._link), iter(node_ids)
        ready = []
        while some := list(islice(rest, _SCAN)):
            found = await self._link.command("HMGET", f"{self._prefix}:nodes:live", *some)
            for node_id, packed in zip(some, found, strict=True):
                if packed is not None:
                    live = LiveNode.unpack(packed)
                    health = live.effective_health(now, self._stale_ms)
                    if health == common_pb2.NODE_HEALTH_READY:
                        ready.append((node_id, live))
        return await self._rooms_of(ready, now)

    async def _rooms_of(self, ready: list[tuple[str, LiveNode]], now: int) -> dict[str, Room]:
        """Returns the slots of each of these ready nodes that is not ejected."""
        rooms = {}
        for node_id, live in ready:
            if live.ejected_until_ms <= now:
                used = await self._used(node_id, live, now)
                rooms[node_id] = _room(live.max_concurrent_jobs, used)
        return rooms

    async def _used(self, node_id: str, live: LiveNode, now: int) -> int:
        """How many of a node's slots are in use."""
        if live.used and live.next_end_ms <= now:
            return sum(await self.leases(node_id, now))
        return live.used

    async def _all(self) -> AsyncIterator[tuple[str, LiveNode]]:
        async for page in self.packed():
            for node_id, packed in page:
                yield node_id, LiveNode.unpack(packed)

    async def packed(self) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Reads the packed records of all nodes, in pages of about a millisecond of Redis."""
        cursor = "0"
        while True:
            cursor, page = await self._scan(cursor, _SCAN)
            yield page
            if cursor == "0":
                return

    async def _scan(self, cursor: str, count: int) -> tuple[str, list[tuple[str, bytes]]]:
        key = f"{self._prefix}:nodes:live"
        following, flat = await self._link.command("HSCAN", key, cursor, "COUNT", count)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return following.decode(), [(key.decode(), value) for key, value in pairs]

    async def leases(self, node_id: str, now: int) -> tuple[int, int]:
        """Counts the reserved and the running leases of a node that have not ended."""
        key = f"{self._prefix}:node:{node_id}"
        reserved, running = await asyncio.gather(
            self._link.command("ZCOUNT", f"{key}:reserved", f"({now}", "+inf"),
            self._link.command("ZCOUNT", f"{key}:running", f"({now}", "+inf"),
        )
        return reserved, running

    async def _shown(self, node_id: str, live: LiveNode, now: int) -> pool_pb2.Node:
        key = f"{self._prefix}:node:{node_id}"
        (reserved, running), pools = await asyncio.gather(
            self.leases(node_id, now), self._link.command("HLEN", f"{key}:pools")
        )
        return pool_pb2.Node(
            node_id=node_id,
            cell=self.number,
            health=live.effective_health(now, self._stale_ms),
            max_concurrent_jobs=live.max_concurrent_jobs,
            reserved=reserved,
            running=running,
            load=live.load,
            last_heartbeat_ms=live.beat_ms,
            owner_instance=live.owner_instance,
            owner_address=live.owner_address,
            epoch=live.epoch,
            failures_in_row=live.failures,
            ejected_until_ms=live.ejected_until_ms if live.ejected_until_ms > now else 0,
            pools=pools,
            drained_by_operator=live.drained,
            used_slots=reserved + running,
        )


def _room(slots: int, used: int) -> Room:
    # A node that has reconnected with fewer slots may have more leases than slots for a while.
    return Room(slots, max(0, slots - used))
