"""The cost of a job by number of nodes, sessions and replicas, and by hop.

    make bench-growth                                    tables
    make bench-growth ARGS="--json"                      one JSON object
    make bench-growth ARGS="--from FILE --plots FOLDER"  charts of an earlier run

Measures CPU milliseconds per job of each process, minus what it uses while idle, with 64 utterances
in progress. `replicas` are instances of each service, `stacks` are processes with all of them; each
instance has its own 64 utterances, 64 sessions and 8 nodes. In the series of nodes, heartbeats are
sent once a minute, so that 10,000 nodes do not drown the jobs; the cost of a heartbeat is measured
separately. Cases run one after the other, in a random order in each round; results are medians over
the rounds.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from growth_report import plots, table
from machine import machine
from path import NODES, SESSIONS, Parts, end_to_end, overhead, path, rss_kib
from redis import Redis

from lingua_scheduler.cli.up.errors import PartFailedError

WIDTH = 64
COUNTS = {
    "nodes": (10, 100, 1000, 10_000),
    "sessions": (10, 64, 500, 2000),
    "replicas": (1, 2, 4),
    "stacks": (1, 2, 4),
}
SETTLE_S, WARM_S, IDLE_S, RUN_S = 1.0, 2.0, 5.0, 4.0
# During the warm-up every session speaks; this rate is always reached.
WARM_SESSIONS_A_S = 200
RARE_BEATS = {"LINGUA_NODE_HEARTBEAT_MS": "60000", "LINGUA_HEARTBEAT_STALE_MS": "200000"}
BEATING, BEAT_S = 2000, 5.0
CHUNKS, CHUNK_TURNS, CHUNK_TURN_S = 10, 3, 1.5
SCHEDULER = ("gateway", "dispatcher", "pool", "redis")
OUTSIDE = ("nodes", "clients")
# The dispatchers count relayed jobs. Many instances on few cores are slow.
METRICS = {"LINGUA_DISPATCHER_METRICS_LISTEN": "127.0.0.1:0", "LINGUA_REDIS_TIMEOUT_MS": "4000"}
Tree = dict[str, Any]


def grown(series: str, count: int) -> Tree:
    """One point of a series."""
    instances = count if series in ("replicas", "stacks") else 1
    sessions = count if series == "sessions" else SESSIONS * instances
    nodes = count if series == "nodes" else NODES * instances
    width = WIDTH * instances
    settings = METRICS | (RARE_BEATS if series == "nodes" else {})
    split = series != "stacks"
    with path(sessions, nodes, instances=instances, settings=settings, split=split) as one:
        redis_kib = used_kib(one)
        # Read before the first job, because work after the last job is part of its cost.
        idle = idle_ms(one, IDLE_S)
        one.measure("saturate", max(WARM_S, sessions / WARM_SESSIONS_A_S), width)
        before_kib, before = used_kib(one), one.placed()
        full = one.measure("saturate", RUN_S, width)
        placed = one.placed() - before
        job_kib = (used_kib(one) - before_kib) / max(1, full["jobs"])
        cpu = {
            name: max(0.0, ms - idle[name] / full["jobs_per_s"])
            for name, ms in full["cpu_ms"].items()
        }
        return {
            "count": count,
            "jobs_per_s": full["jobs_per_s"],
            "scheduler_cpu_ms_per_job": sum(ms for name, ms in cpu.items() if name not in OUTSIDE),
            "relayed": placed["elsewhere"] / max(1, placed.total()),
            "cpu_ms_per_job": cpu,
            "idle_cpu_ms_per_s": idle,
            **end_to_end(full["rows"]),
            "rss_kib": {name: rss_kib(pid) for name, pid in one.pids.items()},
            "redis_kib_at_start": redis_kib,
            "redis_kib_per_job": job_kib,
        }


def idle_ms(one: Parts, seconds: float) -> dict[str, float]:
    """CPU milliseconds per second of every process while idle."""
    one.measure("idle", SETTLE_S)
    answer = one.measure("idle", seconds)
    return {name: ms / answer["took_s"] for name, ms in answer["cpu_ms"].items()}


def used_kib(one: Parts) -> float:
    """Memory of the data in Redis."""
    with Redis.from_url(one.redis_url) as redis:
        return float(redis.info("memory")["used_memory"]) / 1024


def beats() -> Tree:
    """CPU microseconds that a node's heartbeat costs each process."""
    idle = {}
    for nodes in (NODES, BEATING):
        with path(1, nodes) as one:
            idle[nodes] = idle_ms(one, 2 * BEAT_S)
    a_second = (BEATING - NODES) / BEAT_S
    return {
        name: max(0.0, ms - idle[NODES][name]) * 1000 / a_second
        for name, ms in idle[BEATING].items()
    }


def chunks() -> Tree:
    """CPU microseconds of each process for a chunk of 3.2 KiB.

    The difference between utterances in ten chunks and in one.
    """
    seen: dict[int, list[dict[str, float]]] = {1: [], CHUNKS: []}
    with path(SESSIONS, NODES) as one:
        one.measure("saturate", WARM_S, WIDTH)
        for _ in range(CHUNK_TURNS):
            for count, rows in seen.items():
                rows.append(one.measure("saturate", CHUNK_TURN_S, WIDTH, count)["cpu_ms"])
    few, many = (
        {name: median(row[name] for row in rows) for name in rows[0]} for rows in seen.values()
    )
    return {name: max(0.0, many[name] - few[name]) * 1000 / (CHUNKS - 1) for name in few}


def hops() -> Tree:
    """CPU and time by hop, at half of saturation."""
    with path(SESSIONS, NODES) as one:
        one.measure("saturate", WARM_S)
        full = one.measure("saturate", RUN_S)
        half = one.measure("steady", full["jobs_per_s"] / 2, RUN_S)
        node_rows = one.nodes.end()
    return {
        "jobs_per_s": half["jobs_per_s"],
        "cpu_ms_per_job": half["cpu_ms"],
        "end_to_end": end_to_end(half["rows"]),
        **overhead(half["rows"], node_rows),
    }


def costs(result: Tree) -> dict[str, float]:
    """The input of `capacity.py`."""
    nodes, sessions, replicas = (result[series] for series in ("nodes", "sessions", "replicas"))
    cpu, beat = result["hops"]["cpu_ms_per_job"], result["beat_us"]
    first, last = (replicas[at]["cpu_ms_per_job"]["dispatcher"] for at in (0, -1))
    # The extra cost of a relayed job.
    relay = (last - first) / max(0.01, replicas[-1]["relayed"])
    return {
        **{f"{name}_ms": cpu[name] for name in SCHEDULER},
        "relay_ms": max(0.0, relay),
        "chunk_us": result["chunk_us"]["gateway"],
        **{f"{name}_beat_us": beat[name] for name in ("dispatcher", "pool", "redis")},
        "session_kib": each(sessions, lambda row: row["rss_kib"]["gateway"]),
        "node_kib": each(nodes, lambda row: row["rss_kib"]["dispatcher"]),
        "redis_session_kib": each(sessions, lambda row: row["redis_kib_at_start"]),
        "redis_node_kib": each(nodes, lambda row: row["redis_kib_at_start"]),
        "redis_job_kib": median(row["redis_kib_per_job"] for row in sessions),
    }


def each(rows: list[Tree], of: Callable[[Tree], float]) -> float:
    """The cost of one more, from the first point of a series to the last."""
    more = int(rows[-1]["count"]) - int(rows[0]["count"])
    return max(0.0, of(rows[-1]) - of(rows[0])) / more


def tried_twice(case: Callable[[], Tree]) -> Tree:
    """Retry once, so that one time-out on a busy machine does not waste half an hour."""
    try:
        return case()
    except (RuntimeError, PartFailedError) as error:
        print(f"retrying after: {error}", file=sys.stderr)
        return case()


def medians(rounds: list[Any]) -> Any:
    """The same tree, with the median of every number."""
    if isinstance(rounds[0], dict):
        return {name: medians([one[name] for one in rounds]) for name in rounds[0]}
    return round(median(rounds), 3)


def run(rounds: int, only: list[str]) -> Tree:
    """All measurements as one object."""
    cases: dict[tuple[str, int], Callable[[], Tree]] = {
        (series, count): partial(grown, series, count)
        for series, counts in COUNTS.items()
        for count in counts
        if series in only
    }
    single = {"hops": hops, "chunk_us": chunks, "beat_us": beats}
    cases |= {(name, 0): case for name, case in single.items() if name in only}
    seen: dict[tuple[str, int], list[Tree]] = {case: [] for case in cases}
    order, chance = list(cases), random.Random(0)
    # Measured before any process of the benchmark runs.
    load = os.getloadavg()[0]
    for number in range(1, rounds + 1):
        chance.shuffle(order)
        for case in order:
            began = time.monotonic()
            seen[case].append(tried_twice(cases[case]))
            took = time.monotonic() - began
            print(f"round {number}: {case[0]} {case[1] or ''} in {took:.0f} s", file=sys.stderr)
    result: Tree = {"machine": machine() | {"load": load}, "rounds": rounds}
    for series in only:
        points = [medians(rows) for (name, _), rows in seen.items() if name == series]
        result[series] = points if series in COUNTS else points[0]
    if set(only) == {*COUNTS, *single}:
        result["costs"] = medians([costs(result)])
    return result


def main() -> None:
    """Run and print."""
    parts = [*COUNTS, "hops", "chunk_us", "beat_us"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--from", dest="file", type=Path, help="an earlier JSON; nothing is run")
    parser.add_argument("--plots", type=Path, help="a folder for charts (SVG)")
    given = parser.parse_args()
    result = (
        json.loads(given.file.read_text(encoding="utf-8"))
        if given.file
        else run(given.rounds, given.only)
    )
    if given.plots:
        plots(result, given.plots)
    print(json.dumps(result, indent=2) if given.json else table(result))


if __name__ == "__main__":
    main()
