"""What operators see: nodes, leases, pools. Reads only, in pieces too small to hold Redis up."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.live import LiveNode
from lingua_scheduler.services.runtime.capabilities import (
    ANY,
    normal,
    speech_pool,
    stages_of,
    text_pool,
)
from lingua_scheduler.services.runtime.errors import NodeNotFoundError
from lingua_scheduler.services.runtime.redis_link import RedisLink
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

_PAGE = 100
# Records that one command reads: about a millisecond of Redis.
_SCAN = 1000


class Room(NamedTuple):
    """Slots, and how many of them are free."""

    slots: int
    free: int


@dataclass(slots=True)
class Fleet:
    """All nodes at one time.

    Attributes:
        by_health: how many there are of each health.
        late: how many are heard, but later than half of `heartbeat_stale_ms` ago.
        ejected: how many are ready, but left alone for a while because they failed too often.
        rooms: of every node that may be chosen.
    """

    by_health: Counter[common_pb2.NodeHealth.ValueType] = field(default_factory=Counter)
    late: int = 0
    ejected: int = 0
    rooms: dict[str, Room] = field(default_factory=dict)


class Views:
    """Reads the shared state for people and tools."""

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._prefix = settings.redis_prefix
        self._stale_ms = settings.heartbeat_stale_ms
        self._pool_size = settings.pool_size

    async def node(self, node_id: str) -> pool_pb2.Node:
        """One node, with its capabilities.

        Raises:
            NodeNotFoundError: there is none of this id.
        """
        packed = await self._link.command("HGET", f"{self._prefix}:nodes:live", node_id)
        if packed is None:
            raise NodeNotFoundError(f"there is no node {node_id!r}")
        now = await self._now_ms()
        live = LiveNode.unpack(packed)
        node = await self._shown(node_id, live, now)
        languages = await self._link.command(
            "HMGET",
            f"{self._prefix}:node:{node_id}",
            "asr_langs",
            "semantic_langs",
            "tts_langs",
            "nmt_pairs",
        )
        asr, semantic, tts, nmt = (json.loads(listed or b"[]") for listed in languages)
        node.capabilities.CopyFrom(
            common_pb2.NodeCapabilities(
                asr_langs=asr,
                semantic_langs=semantic,
                tts_langs=tts,
                nmt_pairs=[
                    common_pb2.LanguagePair(src=src, tgt=tgt)
                    for src, tgt in (pair.split(":") for pair in nmt)
                ],
                stages=stages_of(live.stages),
            )
        )
        return node

    async def get_node(self, request: pool_pb2.GetNodeRequest) -> pool_pb2.GetNodeResponse:
        """One node and the attempts that hold its slots."""
        node = await self.node(request.node_id)
        now = await self._now_ms()
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

    async def list_nodes(self, request: pool_pb2.ListNodesRequest) -> pool_pb2.ListNodesResponse:
        """A page of nodes."""
        now = await self._now_ms()
        cursor, page = await self._scan(request.page_token or "0", request.page_size or _PAGE)
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
        return pool_pb2.ListNodesResponse(
            nodes=nodes, next_page_token="" if cursor == "0" else cursor
        )

    async def list_pools(self, request: pool_pb2.ListPoolsRequest) -> pool_pb2.ListPoolsResponse:
        """The pools of the directions asked for, with their slots."""
        src, tgt = normal(request.src), normal(request.tgt)
        wanted = []
        for name, size in (await self.pool_sizes()).items():
            *text, pool_src, pool_tgt = name.split(":")
            reached = pool_tgt in (tgt, ANY) or not tgt
            if bool(text) == request.text and src in ("", pool_src) and reached:
                wanted.append((pool_src, pool_tgt, name, size))
        if not wanted:
            return pool_pb2.ListPoolsResponse()
        rooms = (await self.fleet()).rooms
        pools = []
        for pool_src, pool_tgt, name, size in sorted(wanted):
            shards = self.shards(size)
            members = await self.members(name, range(shards))
            ready = [rooms[node_id] for node_id in members if node_id in rooms]
            pools.append(
                pool_pb2.Pool(
                    pair=common_pb2.LanguagePair(src=pool_src, tgt=pool_tgt),
                    text=request.text,
                    shards=shards,
                    nodes=size,
                    ready_nodes=len(ready),
                    slots=sum(room.slots for room in ready),
                    free_slots=sum(room.free for room in ready),
                )
            )
        return pool_pb2.ListPoolsResponse(pools=pools)

    async def fleet(self) -> Fleet:
        """One walk over all nodes, in pages of about a millisecond of Redis."""
        now = await self._now_ms()
        fleet = Fleet()
        unsettled = []
        async for node_id, live in self._all_nodes():
            health = live.effective_health(now, self._stale_ms)
            fleet.by_health[health] += 1
            if health != common_pb2.NODE_HEALTH_OFFLINE:
                fleet.late += now - live.beat_ms > self._stale_ms / 2
            if health != common_pb2.NODE_HEALTH_READY:
                continue
            if live.ejected_until_ms > now:
                fleet.ejected += 1
                continue
            slots = live.max_concurrent_jobs
            fleet.rooms[node_id] = _room(slots, live.used)
            if live.used and live.next_end_ms <= now:
                unsettled.append(node_id)
        for node_id in unsettled:
            slots = fleet.rooms[node_id].slots
            fleet.rooms[node_id] = _room(slots, sum(await self._leases(node_id, now)))
        return fleet

    async def pool_sizes(self) -> dict[str, int]:
        """How many nodes each pool has, by the pool's name."""
        sizes = await self._link.command("HGETALL", f"{self._prefix}:pools")
        pairs = zip(sizes[::2], sizes[1::2], strict=True)
        return {name.decode(): int(size) for name, size in pairs}

    def shards(self, size: int) -> int:
        """How many shards a pool of so many nodes has."""
        return -(-size // self._pool_size)

    async def members(self, pool: str, shards: Iterable[int]) -> list[str]:
        """The nodes in these shards of a pool."""
        found: list[str] = []
        for shard in shards:
            key = f"{self._prefix}:pool:{pool}:{shard}:nodes"
            found += map(bytes.decode, await self._link.command("SMEMBERS", key))
        return found

    async def some_members(self, pool: str, shards: Iterable[int], most: int) -> list[str]:
        """Of each of these shards of a pool, so many nodes at most, drawn at random."""
        drawn = await asyncio.gather(
            *(
                self._link.command("SRANDMEMBER", f"{self._prefix}:pool:{pool}:{shard}:nodes", most)
                for shard in shards
            )
        )
        return [node_id.decode() for nodes in drawn for node_id in nodes]

    async def _all_nodes(self) -> AsyncIterator[tuple[str, LiveNode]]:
        cursor = "0"
        while True:
            cursor, page = await self._scan(cursor, _SCAN)
            for entry in page:
                yield entry
            if cursor == "0":
                return

    async def _scan(self, cursor: str, count: int) -> tuple[str, list[tuple[str, LiveNode]]]:
        key = f"{self._prefix}:nodes:live"
        following, flat = await self._link.command("HSCAN", key, cursor, "COUNT", count)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return following.decode(), [(key.decode(), LiveNode.unpack(value)) for key, value in pairs]

    async def _leases(self, node_id: str, now: int) -> tuple[int, int]:
        key = f"{self._prefix}:node:{node_id}"
        reserved, running = await asyncio.gather(
            self._link.command("ZCOUNT", f"{key}:reserved", f"({now}", "+inf"),
            self._link.command("ZCOUNT", f"{key}:running", f"({now}", "+inf"),
        )
        return reserved, running

    async def _shown(self, node_id: str, live: LiveNode, now: int) -> pool_pb2.Node:
        key = f"{self._prefix}:node:{node_id}"
        (reserved, running), pools = await asyncio.gather(
            self._leases(node_id, now), self._link.command("HLEN", f"{key}:pools")
        )
        return pool_pb2.Node(
            node_id=node_id,
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
        )

    async def _now_ms(self) -> int:
        seconds, micros = await self._link.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


def _room(slots: int, used: int) -> Room:
    # A node that has come back with fewer slots may hold more leases than that for a while.
    return Room(slots, max(0, slots - used))
