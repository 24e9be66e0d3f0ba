"""What operators see: nodes, leases, pools. Reads only, in pieces too small to hold Redis up."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.runtime.contract.capabilities import (
    ANY,
    normal,
    speech_pool,
    stages_of,
    text_pool,
)
from lingua_scheduler.services.runtime.errors import NodeNotFoundError
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

_PAGE = 100
# Records that one command reads: about a millisecond of Redis.
_SCAN = 1000

# A page of pools ends after so many pools, nodes in them or steps of the scan, whichever is first.
_POOLS_A_PAGE = 1000
_NODES_A_PAGE = 10_000
_STEPS_A_PAGE = 20
# Pools asked for at the same time: other calls do not wait long behind them.
_POOLS_AT_ONCE = 16

# A pool up to these sizes is read as a whole. A larger one is estimated from some nodes of some
# shards, all drawn at random: 300 nodes tell how full 10,000 are, mostly to within a tenth. They
# are of many shards, because nodes that came together lie together, and may fail together.
_WHOLE_SHARDS = 3
_WHOLE_NODES = 1000
_SHARDS_DRAWN = 30
_NODES_DRAWN = 300


class Room(NamedTuple):
    """Slots, and how many of them are free."""

    slots: int
    free: int


class Drawn(NamedTuple):
    """Nodes of a pool.

    Attributes:
        size: how many entries the pool has (lua/lib/pools.lua).
        weights: by node id, how many nodes of the pool each stands for; 1 if all were read.
    """

    size: int
    weights: dict[str, float]

    def room(self, rooms: Mapping[str, Room]) -> Room:
        """The room in the pool, from that of its nodes that may be chosen."""
        found = [(rooms[each], weight) for each, weight in self.weights.items() if each in rooms]
        slots = sum(room.slots * weight for room, weight in found)
        free = sum(room.free * weight for room, weight in found)
        return Room(round(slots), round(free))


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
        *languages, owner = await self._link.command(
            "HMGET",
            f"{self._prefix}:node:{node_id}",
            "asr_langs",
            "semantic_langs",
            "tts_langs",
            "nmt_pairs",
            "node_owner",
        )
        node.node_owner = (owner or b"").decode()
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
        """A page of the pools of the directions asked for, with their slots."""
        src, tgt = normal(request.src), normal(request.tgt)
        cursor, page = request.page_token or "0", dict[str, Drawn]()
        for _ in range(_STEPS_A_PAGE):
            cursor, sizes = await self._scan_pools(cursor, _PAGE)
            wanted = (name for name in sizes if _serves(name, src, tgt, text=request.text))
            while names := list(islice(wanted, _POOLS_AT_ONCE)):
                drawn = await asyncio.gather(*(self.drawn(each, sizes[each]) for each in names))
                page.update(zip(names, drawn, strict=True))
            nodes_read = sum(len(pool.weights) for pool in page.values())
            is_full = len(page) >= (request.page_size or _POOLS_A_PAGE)
            if cursor == "0" or is_full or nodes_read >= _NODES_A_PAGE:
                break
        rooms = await self._rooms({each for pool in page.values() for each in pool.weights})
        pools = [self._shown_pool(name, pool, rooms) for name, pool in page.items()]
        pools.sort(key=lambda pool: (pool.pair.src, pool.pair.tgt))
        return pool_pb2.ListPoolsResponse(
            pools=pools, next_page_token="" if cursor == "0" else cursor
        )

    async def fleet(self) -> Fleet:
        """One walk over all nodes, in pages of about a millisecond of Redis."""
        now = await self._now_ms()
        fleet = Fleet()
        ready = []
        async for node_id, live in self._all_nodes():
            health = live.effective_health(now, self._stale_ms)
            fleet.by_health[health] += 1
            if health != common_pb2.NODE_HEALTH_OFFLINE:
                fleet.late += now - live.beat_ms > self._stale_ms / 2
            if health == common_pb2.NODE_HEALTH_READY:
                fleet.ejected += live.ejected_until_ms > now
                ready.append((node_id, live))
        fleet.rooms = await self._rooms_of(ready, now)
        return fleet

    async def pools(self, most: int) -> dict[str, int]:
        """How many entries each pool has, by its name; of about `most` pools at most."""
        cursor, found = "0", dict[str, int]()
        while len(found) < most:
            cursor, sizes = await self._scan_pools(cursor, _SCAN)
            found.update(sizes)
            if cursor == "0":
                break
        return found

    async def pool_sizes(self, names: Sequence[str]) -> dict[str, int]:
        """How many entries these pools have; those without any are left out."""
        if not names:
            return {}
        sizes = await self._link.command("HMGET", f"{self._prefix}:pools", *names)
        return {name: int(size) for name, size in zip(names, sizes, strict=True) if size}

    async def some_pools(self, most: int) -> tuple[dict[str, int], int]:
        """So many pools at most, drawn at random, with their sizes; also how many there are."""
        key = f"{self._prefix}:pools"
        flat, count = await asyncio.gather(
            self._link.command("HRANDFIELD", key, most, "WITHVALUES"),
            self._link.command("HLEN", key),
        )
        return _sizes(flat), count

    async def drawn(self, pool: str, size: int) -> Drawn:
        """The nodes of a pool of so many entries, or some of them that stand for all."""
        shards = self._shards(size)
        if shards <= _WHOLE_SHARDS and size <= _WHOLE_NODES:
            entries = await self._members(pool, size)
        else:
            some = random.sample(range(shards), min(shards, _SHARDS_DRAWN))
            each = -(-_NODES_DRAWN // len(some))
            found = await asyncio.gather(*(self._draw(pool, shard, each) for shard in some))
            entries = [entry for drawn in found for entry in drawn]
        weight = max(1.0, size / len(entries)) if entries else 1.0
        owners = [entry for entry in entries if entry.startswith("@")]
        weights = dict.fromkeys(
            (entry.removeprefix("+") for entry in entries if not entry.startswith("@")), weight
        )
        for node_id, stands_for in (await self._owned(pool, owners)).items():
            weights[node_id] = weight * stands_for
        return Drawn(size, weights)

    async def _owned(self, pool: str, owners: list[str]) -> dict[str, float]:
        """Nodes of these entries of owners, and how many nodes of its owner each stands for."""
        if not owners:
            return {}
        groups = [pool + owner for owner in owners]
        found = await self._link.command("HMGET", f"{self._prefix}:pools:owned", *groups)
        sizes = [int(size or 0) for size in found]
        each = max(1, _NODES_DRAWN // len(owners))
        weights: dict[str, float] = {}
        for group, size in zip(groups, sizes, strict=True):
            if sum(sizes) <= _WHOLE_NODES:
                nodes = await self._members(group, size)
            else:
                nodes = await self._draw(group, random.randrange(max(1, self._shards(size))), each)
            weights.update(dict.fromkeys(nodes, size / max(1, len(nodes))))
        return weights

    async def _members(self, name: str, size: int) -> list[str]:
        """All of a pool, or of an owner's nodes in a pool."""
        keys = [self._shard_key(name, shard) for shard in range(self._shards(size))]
        found = [await self._link.command("SMEMBERS", key) for key in keys]
        return [entry.decode() for shard in found for entry in shard]

    async def _draw(self, name: str, shard: int, most: int) -> list[str]:
        found = await self._link.command("SRANDMEMBER", self._shard_key(name, shard), most)
        return [entry.decode() for entry in found]

    def _shards(self, size: int) -> int:
        """How many shards a pool of so many entries has."""
        return -(-size // self._pool_size)

    def _shard_key(self, pool: str, shard: int) -> str:
        return f"{self._prefix}:pool:{pool}:{shard}:nodes"

    def _shown_pool(self, name: str, drawn: Drawn, rooms: dict[str, Room]) -> pool_pb2.Pool:
        *text, src, tgt = name.split(":")
        ready = (weight for node_id, weight in drawn.weights.items() if node_id in rooms)
        room = drawn.room(rooms)
        return pool_pb2.Pool(
            pair=common_pb2.LanguagePair(src=src, tgt=tgt),
            text=bool(text),
            shards=self._shards(drawn.size),
            nodes=round(sum(drawn.weights.values())),
            ready_nodes=round(sum(ready)),
            slots=room.slots,
            free_slots=room.free,
        )

    async def _scan_pools(self, cursor: str, count: int) -> tuple[str, dict[str, int]]:
        following, flat = await self._link.command(
            "HSCAN", f"{self._prefix}:pools", cursor, "COUNT", count
        )
        return following.decode(), _sizes(flat)

    async def _rooms(self, node_ids: Iterable[str]) -> dict[str, Room]:
        """The room of those of these nodes that may be chosen."""
        now, rest = await self._now_ms(), iter(node_ids)
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
        """The room of each of these ready nodes that is not ejected."""
        rooms = {}
        for node_id, live in ready:
            if live.ejected_until_ms <= now:
                used = live.used
                if used and live.next_end_ms <= now:
                    used = sum(await self._leases(node_id, now))
                rooms[node_id] = _room(live.max_concurrent_jobs, used)
        return rooms

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


def _sizes(flat: Sequence[bytes]) -> dict[str, int]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): int(size) for name, size in pairs}


def _serves(pool: str, src: str, tgt: str, *, text: bool) -> bool:
    """Whether a pool is for this direction; an empty language stands for all."""
    *kind, pool_src, pool_tgt = pool.split(":")
    return bool(kind) == text and src in ("", pool_src) and (not tgt or pool_tgt in (tgt, ANY))
