"""The pools of one cell, and estimates of their free slots. Reads only."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lingua_scheduler.services.pool_service.fleet.cell_nodes import Room
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

# Pools that one command reads: about a millisecond of Redis.
_SCAN = 1000

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


class CellPools:
    """Reads the pools of a cell. Changes nothing."""

    def __init__(self, *, cell: Cell, settings: Settings) -> None:
        self._link = cell.link
        self._prefix = cell.prefix
        self._pool_size = settings.pool_size

    async def sizes(self, most: int) -> dict[str, int]:
        """Returns the number of entries of each pool by name, for about `most` pools."""
        cursor, found = "0", dict[str, int]()
        while len(found) < most:
            cursor, sizes = await self.scan(cursor, _SCAN)
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

    def shown(self, name: str, drawn: Drawn, rooms: Mapping[str, Room]) -> pool_pb2.Pool:
        """A pool as operators see it."""
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

    async def scan(self, cursor: str, count: int) -> tuple[str, dict[str, int]]:
        """One step through all pools and their sizes, from cursor to cursor; "0" at both ends."""
        following, flat = await self._link.command(
            "HSCAN", f"{self._prefix}:pools", cursor, "COUNT", count
        )
        return following.decode(), _sizes(flat)


def _sizes(flat: Sequence[bytes]) -> dict[str, int]:
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): int(size) for name, size in pairs}
