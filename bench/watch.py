"""The cost of watching a large fleet: samples of the pool service as WatchFleet takes them.

    make bench-watch                     a table of shares
    make bench-watch ARGS="--nodes 1000"

The records of the nodes are written to Redis directly. CPU is that of this process, which does only
what the pool service would do; the time of Redis is its own (INFO commandstats). Both are given as
shares of the interval between samples.
"""

import argparse
import asyncio
import gc
import json
import random
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

import redis
from pool_parts import PoolParts, pool_parts

from lingua_scheduler.services.pool_service.fleet.fleet_messages import messages
from lingua_scheduler.services.pool_service.fleet.sample import KnownFleet
from lingua_scheduler.services.pool_service.fleet.sampler import FleetSampler
from lingua_scheduler.services.pool_service.fleet.watch import interval_s
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

PREFIX = "bench"
ROUNDS = 3
SETS, LANGUAGES = 40, 20
# lua/lib/live.lua
RECORD = struct.Struct("<ddddddHHBBBBBIB")
COMMANDS = ("hscan", "hmget", "zcount", "time")
EVERY_S = 2.0

Change = Callable[[int], dict[str, Any]]


class Bench:
    """A fleet in a Redis of its own."""

    def __init__(self, store: "redis.Redis[bytes]", parts: PoolParts, nodes: int) -> None:
        self._store = store
        self._nodes = [f"node-{number:06}" for number in range(nodes)]
        self._sampler = FleetSampler(cells=parts.cells, settings=parts.settings, nodes=parts.nodes)
        self._fleet: KnownFleet = self._sampler.new_fleet()
        self._sent: dict[str, pool_pb2.CapabilitySet] = {}

    def describe(self) -> None:
        """Writes what nodes declare when they register."""
        sets = []
        for each in range(SETS):
            languages = tuple(f"l{(7 * each + number) % 90:02}" for number in range(LANGUAGES))
            able = Capabilities(languages, languages, languages, (), 15)
            listed = json.dumps(languages, separators=(",", ":"))
            names = ("asr_langs", "semantic_langs", "tts_langs")
            facts = {**dict.fromkeys(names, listed), "nmt_pairs": "[]", "node_owner": ""}
            sets.append({**facts, "pools_hash": able.digest()})
        for at in range(0, len(self._nodes), 1000):
            pipe = self._store.pipeline(transaction=False)
            for number, node_id in enumerate(self._nodes[at : at + 1000]):
                pipe.hset(f"{PREFIX}:node:{node_id}", mapping=sets[number % SETS])
            pipe.execute()

    def write(self, change: Change) -> None:
        """Writes a heartbeat of each node, and what changes with it."""
        for at in range(0, len(self._nodes), 1000):
            records: dict[str, bytes] = {}
            for number, node_id in enumerate(self._nodes[at : at + 1000], at):
                now = time.time() * 1000
                facts = change(number)
                owner = f"dispatcher-{number % 8}".encode()
                fixed = RECORD.pack(
                    *(now, 1, now + 600_000, facts.get("load", 0.0), 0.0, 0.0),
                    *(facts.get("used", 0), 8, 1, 0, 15, 0, 0, 0, len(owner)),
                )
                records[node_id] = fixed + owner + b"10.0.0.1:7720"
            self._store.hset(f"{PREFIX}:nodes:live", mapping=records)  # type: ignore[arg-type]

    async def sample(self) -> tuple[int, float, float]:
        """Takes a sample; returns the number of changes, and the shares of CPU and of Redis."""
        before, number = self._redis_s(), self._fleet.number
        began, cpu = time.perf_counter(), time.process_time()
        sample = await self._sampler.sample(self._fleet)
        self._fleet.end(sample, oldest=number)
        took = time.perf_counter() - began
        for message in messages(self._fleet.since(number), self._sent, 3 * 1024 * 1024):
            message.SerializeToString()
        cpu = time.process_time() - cpu
        interval = interval_s(EVERY_S, took)
        return len(sample.changed), cpu / interval, (self._redis_s() - before) / interval

    def _redis_s(self) -> float:
        facts: Any = self._store.info("commandstats")
        names = (f"cmdstat_{name}" for name in COMMANDS)
        return float(sum(facts[name]["usec"] for name in names if name in facts)) / 1e6


async def run(nodes: int) -> None:
    """Prints a row for each kind of change."""
    dice = random.Random(1)
    changes: dict[str, Change] = {
        "heartbeats only": lambda _: {},
        "heartbeats and loads": lambda _: {"load": dice.random()},
        "a tenth of the nodes": lambda n: {"used": dice.randrange(8) if n % 10 == 0 else 0},
        "all nodes": lambda _: {"load": dice.random(), "used": 1 + dice.randrange(7)},
    }
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url) as store:
        settings = Settings(
            redis_url=server.url,
            redis_prefix=PREFIX,
            redis_timeout_ms=4000,
            instance_id="bench",
            heartbeat_stale_ms=600_000,
        )
        async with pool_parts(settings) as parts:
            bench = Bench(store, parts, nodes)
            bench.describe()
            bench.write(lambda _: {})
            # As in a service process.
            gc.collect()
            gc.freeze()
            gc.set_threshold(2000, 500, 1000)
            print("| what changed since the last sample | changed nodes | pool service | Redis |")
            print("|---|---|---|---|")
            _row("the first sample", [await bench.sample()])
            for what, change in changes.items():
                found = []
                for _ in range(ROUNDS):
                    bench.write(change)
                    found.append(await bench.sample())
                _row(what, found)


def _row(what: str, samples: list[tuple[int, float, float]]) -> None:
    changed, cpu, of_redis = (statistics.median(column) for column in zip(*samples, strict=True))
    print(f"| {what} | {changed:,.0f} | {100 * cpu:.1f} % | {100 * of_redis:.2f} % |")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50_000)
    asyncio.run(run(parser.parse_args().nodes))


if __name__ == "__main__":
    main()
