"""The pool service compared with the scripts of the original design.

    make bench-pool              tables, and whether the targets are met
    make bench-pool ARGS=--json  one JSON object

Both run in one run, each on its own Redis. Times are Redis's own (INFO commandstats, microseconds
per call), medians over several alternating rounds. Absolute numbers depend on the machine; the
ratios are the result.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from machine import machine
from pool_parts import PoolParts, pool_parts

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc

FLEETS = (100, 10_000, 50_000)
PAIRS = (1, 6_000)
SLOTS = 4
ROUNDS = 9
CALLS_A_ROUND = 150
# Calls that arrive together, as they do under load; Redis counts the time of each separately.
AT_ONCE = 25
IN_FLIGHT = 64
RPS_SECONDS = 3.0

SEED_SCRIPTS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (Path(__file__).parent / "original_scripts").glob("*.lua")
}


class Bench:
    """The same fleet twice, with our scripts and with the original ones.

    Each has its own Redis, so that neither pays for the garbage of the other.
    """

    def __init__(self, ours: PoolParts, seed: RedisLink) -> None:
        self.settings = ours.settings
        self.link = ours.cells.first.link
        self.seed = seed
        self.registry = ours.registry
        self.reports = ours.reports
        self.operations = ours.operations
        self._jobs = 0

    @staticmethod
    async def us_a_call(link: RedisLink, calls: int, run: Callable[[], Awaitable[object]]) -> float:
        """Redis microseconds of one script call, as counted by Redis."""
        await link.command("CONFIG", "RESETSTAT")
        for _ in range(calls // AT_ONCE):
            await asyncio.gather(*(run() for _ in range(AT_ONCE)))
        stats = (await link.command("INFO", "commandstats")).decode()
        line = next(line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:"))
        fields = dict(field.split("=") for field in line.split(":")[1].split(","))
        return float(fields["usec_per_call"])

    async def fill(self, nodes: int) -> None:
        """Register a fleet for one pair in both."""
        for start in range(0, nodes, 500):
            some = range(start, min(start + 500, nodes))
            await asyncio.gather(*(self.registry.register(_node(f"node-{i:06}")) for i in some))
            await asyncio.gather(
                *(
                    self.seed.command(
                        "SADD", f"lingua:v1:pool:zh:en:{i // 100}:nodes", f"node-{i:06}"
                    )
                    for i in some
                )
            )

    def next_job(self) -> pool_pb2.AllocateRequest:
        """A job of a session in which every second utterance is cut by its duration."""
        self._jobs += 1
        return _job(self._jobs)

    async def allocate_us(self) -> float:
        """An allocation: choice, reservation, record, binding. Returning slots is not timed."""
        placed: list[pool_pb2.AllocateResponse] = []

        async def allocate() -> None:
            placed.append(await self.operations.allocate(self.next_job()))

        us = await self.us_a_call(self.link, CALLS_A_ROUND, allocate)
        await asyncio.gather(*(self.operations.complete(_done(answer)) for answer in placed))
        return us

    async def seed_select_us(self) -> float:
        """The original selection: a choice and a key, without a reservation."""

        async def select() -> None:
            self._jobs += 1
            await self.seed.call("select_node", "zh:en", f"job-{self._jobs}")

        return await self.us_a_call(self.seed, CALLS_A_ROUND, select)


def _pair(src: str, tgt: str) -> common_pb2.LanguagePair:
    return common_pb2.LanguagePair(src=src, tgt=tgt)


def _node(node_id: str, src: tuple[str, ...] = ("zh",), tgt: tuple[str, ...] = ("en",)) -> Any:
    return pool_pb2.RegisterNodeRequest(
        node_id=node_id,
        incarnation="bench",
        stream_id="bench",
        capabilities=common_pb2.NodeCapabilities(asr_langs=src, semantic_langs=src, tts_langs=tgt),
        max_concurrent_jobs=SLOTS,
        owner_instance="dispatcher-1",
        owner_address="127.0.0.1:7720",
    )


def _job(number: int) -> pool_pb2.AllocateRequest:
    reasons = (common_pb2.FINALIZE_REASON_IS_FINAL, common_pb2.FINALIZE_REASON_MAX_DURATION)
    return pool_pb2.AllocateRequest(
        job_id=f"job-{number}",
        attempt=1,
        criteria=pool_pb2.NodeCriteria(pair=_pair("zh", "en"), require_tts=True),
        job_key=f"tenant:session-{number % 100}:{number}:translate:en:0",
        tenant="tenant",
        session_id=f"session-{number % 100}",
        utterance_index=number,
        reason=reasons[number % 2],
        home_instance="dispatcher-1",
    )


def _done(answer: pool_pb2.AllocateResponse) -> pool_pb2.CompleteRequest:
    return pool_pb2.CompleteRequest(
        attempt=answer.attempt,
        node_id=answer.placement.node_id,
        outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
    )


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Both sets of scripts, each on a fresh Redis."""
    with EmbeddedRedis() as ours, EmbeddedRedis() as seeds:
        settings = load_settings(
            {
                "LINGUA_REDIS_URL": ours.url,
                "LINGUA_REDIS_PREFIX": "bench",
                "LINGUA_REDIS_TIMEOUT_MS": "4000",
                # These nodes send no heartbeats.
                "LINGUA_HEARTBEAT_STALE_MS": "3600000",
            }
        )
        seed = RedisLink(url=seeds.url, prefix="bench", scripts=SEED_SCRIPTS, timeout_ms=4000)
        await seed.open()
        try:
            async with pool_parts(settings) as parts:
                yield Bench(parts, seed)
        finally:
            await seed.close()


async def measure_fleet(nodes: int) -> dict[str, float]:
    """Allocate and the original selection, alternating; then calls a second through gRPC."""
    async with bench() as one:
        await one.fill(nodes)
        ours, seeds = [], []
        for _ in range(ROUNDS):
            ours.append(await one.allocate_us())
            seeds.append(await one.seed_select_us())
        return {
            "allocate_us": statistics.median(ours),
            "seed_select_us": statistics.median(seeds),
            **await rps(one.settings),
        }


async def measure_heartbeat(pairs: int) -> dict[str, float]:
    """A heartbeat of a node with this many pairs, with our script and the original one."""
    sources, targets = (100, 60) if pairs == 6_000 else (1, pairs)
    src = tuple(f"a{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(sources))
    tgt = tuple(f"b{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(targets))
    async with bench() as one:
        registered = await one.registry.register(_node("node", src, tgt))
        beat = pool_pb2.HeartbeatRequest(
            beats=[pool_pb2.NodeBeat(node_id="node", epoch=registered.epoch)]
        )
        key = "lingua:v1:node:node"
        await one.seed.command(
            "HSET", key, "asr_langs", json.dumps(src), "tts_langs", json.dumps(tgt)
        )

        def seed_beat() -> Awaitable[Any]:
            return one.seed.call("heartbeat_with_pool_assign", "node", int(time.time()))

        await seed_beat()
        ours, seeds = [], []
        for _ in range(ROUNDS):
            ours.append(await one.us_a_call(one.link, 50, lambda: one.reports.heartbeat(beat)))
            seeds.append(await one.us_a_call(one.seed, AT_ONCE, seed_beat))
        return {
            "heartbeat_us": statistics.median(ours),
            "seed_heartbeat_us": statistics.median(seeds),
        }


async def rps(settings: Settings) -> dict[str, float]:
    """Allocate + Complete through a real pool service: its stream for dispatchers, and unary."""
    environment = {
        "LINGUA_REDIS_URL": settings.redis_url,
        "LINGUA_REDIS_PREFIX": settings.redis_prefix,
        "LINGUA_HEARTBEAT_STALE_MS": str(settings.heartbeat_stale_ms),
        "LINGUA_POOL_LISTEN": "127.0.0.1:0",
        "LINGUA_POOL_METRICS_LISTEN": "",
        "LINGUA_LOG_LEVEL": "warning",
    }
    command = [sys.executable, "-m", "lingua_scheduler.cli", "serve", "pool", "--announce"]
    process = await asyncio.to_thread(
        subprocess.Popen, command, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = json.loads(await asyncio.to_thread(process.stdout.readline))["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            stub = pool_pb2_grpc.PoolServiceStub(channel)
            return {"allocate_rps": await _stream_rps(stub), "unary_rps": await _unary_rps(stub)}
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def _stream_rps(stub: Any) -> float:
    """Allocations a second with IN_FLIGHT in progress on one Operate stream."""
    stream = stub.Operate()
    number, allocated, queued = 10_000_000, 0, []
    started = time.perf_counter()

    def allocate() -> pool_pb2.Operation:
        nonlocal number
        number += 1
        return pool_pb2.Operation(id=number, allocate=_job(number))

    # Eight per message, as many as accumulate in a dispatcher while a message is in transit.
    for _ in range(IN_FLIGHT // 8):
        await stream.write(pool_pb2.OperateRequest(operations=[allocate() for _ in range(8)]))
    while time.perf_counter() - started < RPS_SECONDS:
        answer = await stream.read()
        queued = []
        for result in answer.results:
            if result.HasField("error"):
                raise RuntimeError(result.error.message)
            if result.HasField("allocate"):
                allocated += 1
                done = pool_pb2.Operation(id=result.id, complete=_done(result.allocate))
                queued += (done, allocate())
        if queued:
            await stream.write(pool_pb2.OperateRequest(operations=queued))
    took = time.perf_counter() - started
    stream.cancel()
    return allocated / took


async def _unary_rps(stub: Any) -> float:
    """Allocations a second by IN_FLIGHT callers that allocate and complete alternately."""
    number, allocated = 20_000_000, 0
    end = time.perf_counter() + RPS_SECONDS

    async def caller() -> None:
        nonlocal number, allocated
        while time.perf_counter() < end:
            number += 1
            answer = await stub.Allocate(_job(number))
            allocated += 1
            await stub.Complete(_done(answer))

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return allocated / RPS_SECONDS


async def run() -> dict[str, Any]:
    """All measurements as one object."""
    fleets = {str(nodes): await measure_fleet(nodes) for nodes in FLEETS}
    beats = {str(pairs): await measure_heartbeat(pairs) for pairs in PAIRS}

    def column(table: dict[str, dict[str, float]], name: str) -> dict[str, float]:
        return {key: round(row[name], 1) for key, row in table.items()}

    smallest, middle, largest = (fleets[str(nodes)] for nodes in FLEETS)
    many = beats[str(PAIRS[-1])]
    ratios = {
        "allocate_largest_to_smallest": largest["allocate_us"] / smallest["allocate_us"],
        "seed_select_to_allocate_at_10000": middle["seed_select_us"] / middle["allocate_us"],
        "seed_heartbeat_to_heartbeat_at_6000": many["seed_heartbeat_us"] / many["heartbeat_us"],
    }
    return {
        "allocate_us": column(fleets, "allocate_us"),
        "seed_select_us": column(fleets, "seed_select_us"),
        "heartbeat_us": column(beats, "heartbeat_us"),
        "seed_heartbeat_us": column(beats, "seed_heartbeat_us"),
        "allocate_rps": round(middle["allocate_rps"], 1),
        "allocate_rps_by_fleet": column(fleets, "allocate_rps"),
        "unary_rps_by_fleet": column(fleets, "unary_rps"),
        "ratios": {name: round(value, 2) for name, value in ratios.items()},
        "targets": {
            "allocate_largest_to_smallest <= 1.5": ratios["allocate_largest_to_smallest"] <= 1.5,
            "seed_select_to_allocate_at_10000 > 1": ratios["seed_select_to_allocate_at_10000"] > 1,
            "seed_heartbeat_to_heartbeat_at_6000 >= 100": (
                ratios["seed_heartbeat_to_heartbeat_at_6000"] >= 100
            ),
        },
        "machine": machine(),
    }


def show(result: dict[str, Any]) -> None:
    """Print the result as tables."""
    print(f"{'nodes on one pair':>18} {'Allocate us':>12} {'original us':>15}", end="")
    print(f" {'stream calls/s':>15} {'unary calls/s':>14}")
    for nodes, us in result["allocate_us"].items():
        print(f"{nodes:>18} {us:>12} {result['seed_select_us'][nodes]:>15}", end="")
        print(f" {result['allocate_rps_by_fleet'][nodes]:>15}", end="")
        print(f" {result['unary_rps_by_fleet'][nodes]:>14}")
    print(f"\n{'pairs per node':>18} {'Heartbeat us':>12} {'original us':>18}")
    for pairs, us in result["heartbeat_us"].items():
        print(f"{pairs:>18} {us:>12} {result['seed_heartbeat_us'][pairs]:>18}")
    print()
    for name, value in result["ratios"].items():
        print(f"  {name} = {value}")
    for name, met in result["targets"].items():
        print(f"  {'met ' if met else 'MISSED'}  {name}")
    print(f"\n{result['machine']}")


def main() -> int:
    """Run the benchmark; returns 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    result = asyncio.run(run())
    if parser.parse_args().json:
        print(json.dumps(result, indent=2))
    else:
        show(result)
    return 0 if all(result["targets"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
