"""Pools as operators see them, and estimates of their free slots. Reads only."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.cell_nodes import CellNodes, Room
from lingua_scheduler.services.runtime.contract.capabilities import ANY, normal
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

# Pools that one command reads (about a millisecond of Redis), and that one step of a page reads.
_SCAN = 1000
_SCAN_A_PAGE = 100

# A page ends after this many pools, nodes in them or steps of the scan, whichever comes first.
_POOLS_A_PAGE = 1000
_NODES_A_PAGE = 10_000
_STEPS_A_PAGE = 20
# Pools read concurrently: few enough that other calls do not wait long.
_POOLS_AT_ONCE = 16

# A pool up to these sizes is read completely. A larger one is estimated from random nodes of random
# shards: 300 nodes show how full 10,000 are, usually to within a tenth. They come from many shards
# because nodes that joined together are in the same shard, and may fail together.
_WHOLE_SHARDS = 3
_WHOLE_NODES = 1000
_SHARDS_DRAWN = 30
_NODES_DRAWN = 300


class Drawn(NamedTuple):
    """A sample of the nodes of a pool.

    Attributes:
        size: number of entries of the pool (lua/lib/pools.lua).
        weights: by node id, how many nodes of the pool each represents; 1 if all were read.
    """

    size: int
    weights: dict[str, float]

    def room(self, rooms: Mapping[str, Room]) -> Room:
        """Estimates the slots of the pool from those of its nodes that may be chosen."""
        found = [(rooms[each], weight) for each, weight in self.weights.items() if each in rooms]
        slots = sum(room.slots * weight for room, weight in found)
        free = sum(room.free * weight for room, weight in found)
        return Room(round(slots), round(free))


class Pools:
    """Reads pools, and the slots of their nodes. Changes nothing."""

    def __init__(self, *, link: RedisLink, settings: Settings, nodes: CellNodes) -> None:
        self._link = link
        self._nodes = nodes
        self._prefix = settings.redis_prefix
        self._pool_size = settings.pool_size

    async def list_pools(self, request: pool_pb2.ListPoolsRequest) -> pool_pb2.ListPoolsResponse:
        """Returns a page of the pools of the requested directions, with their slots."""
        src, tgt = normal(request.src), normal(request.tgt)
        cursor, page = request.page_token or "0", dict[str, Drawn]()
        for _ in range(_STEPS_A_PAGE):
            cursor, sizes = await self._scan(cursor, _SCAN_A_PAGE)
            wanted = (name for name in sizes if _serves(name, src, tgt, text=request.text))
            while names := list(islice(wanted, _POOLS_AT_ONCE)):
                drawn = await asyncio.gather(*(self.drawn(each, sizes[each]) for each in names))
                page.update(zip(names, drawn, strict=True))
            nodes_read = sum(len(pool.weights) for pool in page.values())
            is_full = len(page) >= (request.page_size or _POOLS_A_PAGE)
            if cursor == "0" or is_full or nodes_read >= _NODES_A_PAGE:
                break
        rooms = await self._nodes.rooms({each for pool in page.values() for each in pool.weights})
        pools = [self._shown(name, pool, rooms) for name, pool in page.items()]
        pools.sort(key=lambda pool: (pool.pair.src, pool.pair.tgt))
        return pool_pb2.ListPoolsResponse(
            pools=pools, next_page_token="" if cursor == "0" else cursor
        )

    async def sizes(self, most: int) -> dict[str, int]:
        """Returns the number of entries of each pool by name, for about `most` pools."""
        cursor, found = "0", dict[str, int]()
        while len(found) < most:
            cursor, sizes = await self._scan(cursor, _SCAN)
            found.update(sizes)
            if cursor == "0":
                break
        return found

    async def sizes_of(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the number of entries of these pools, without empty ones."""
        if not names:
            return {}
        sizes = await self._link.command("HMGET", f"{self._prefix}:pools", *names)
        return {name: int(size) for name, size in zip(names, sizes, strict=True) if size}

    async def some(self, most: int) -> tuple[dict[str, int], int]:
        """Returns at most `most` random pools with their sizes, and the number of all pools."""
        key = f"{self._prefix}:pools"
        flat, count = await asyncio.gather(
            self._link.command("HRANDFIELD", key, most, "WITHVALUES"),
            self._link.command("HLEN", key),
        )
        return _sizes(flat), count

    async def drawn(self, pool: str, size: int) -> Drawn:
        """Reads the nodes of a pool of `size` entries, or a sample of them."""
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
        """Samples the nodes of these owners, with how many nodes of its owner each represents."""
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
        """Returns all members of a pool, or of an owner's group in a pool."""
        keys = [self._shard_key(name, shard) for shard in range(self._shards(size))]
        found = [await self._link.command("SMEMBERS", key) for key in keys]
        return [entry.decode() for shard in found for entry in shard]

    async def _draw(self, name: str, shard: int, most: int) -> list[str]:
        found = await self._link.command("SRANDMEMBER", self._shard_key(name, shard), most)
        return [entry.decode() for entry in found]

    def _shards(self, size: int) -> int:
        """Returns the number of shards of a pool of `size` entries."""
        return -(-size // self._pool_size)

    def _shard_key(self, pool: str, shard: int) -> str:
        return f"{self._prefix}:pool:{pool}:{shard}:nodes"

    def _shown(self, name: str, drawn: Drawn, rooms: dict[str, Room]) -> pool_pb2.Pool:
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

    async def _scan(self, cursor: str, count: int) -> tuple[str, dict[str, int]]:
        following, flat = await self._link.command(
            "HSCAN", f"{self._prefix}:pools", cursor, "COUNT", count
        )
        return following.decode(), _sizes(flat)


def _sizes(flat: Sequence[bytes]) -> dict[str, int]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): int(size) for name, size in pairs}


def _serves(pool: str, src: str, tgt: str, *, text: bool) -> bool:
    """Returns whether a pool serves this direction; an empty language means any."""
    *kind, pool_src, pool_tgt = pool.split(":")
    return bool(kind) == text and src in ("", pool_src) and (not tgt or pool_tgt in (tgt, ANY))
