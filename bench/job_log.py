"""Cost of the log of job changes: the scripts of a job with a full log, and without a log.

    .venv/bin/python bench/job_log.py           a table
    .venv/bin/python bench/job_log.py --json    one JSON object
    .venv/bin/python bench/job_log.py --entries 2000 --rounds 4    to see whether it works

Both run on one Redis, in alternating rounds, each on keys of its own. Times are Redis's own (INFO
commandstats), of Allocate, Commit and Complete together. The machine may be busy: the ratio is the
result.
"""

import argparse
import asyncio
import json
import statistics
import sys
from typing import Any

from machine import machine
from pool_parts import PoolParts, pool_parts

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

NODES = 100
ROUNDS = 60
JOBS_A_ROUND = 100
AT_ONCE = 25
LOG_MAX = 50_000
# About as many bytes as the timeline of a job that goes well.
STEPS = b"s" * 220


class Side:
    """The pool service's operations on keys of their own, with or without a log."""

    def __init__(self, parts: PoolParts) -> None:
        self.link = parts.cells.first.link
        self.registry = parts.registry
        self.operations = parts.operations
        self._jobs = 0

    async def fill(self) -> None:
        """Registers the nodes."""
        for number in range(NODES):
            await self.registry.register(
                pool_pb2.RegisterNodeRequest(
                    node_id=f"node-{number:06}",
                    incarnation="i",
                    stream_id="s",
                    owner_instance="dispatcher-0",
                    owner_address="127.0.0.1:7720",
                    max_concurrent_jobs=8,
                    capabilities=common_pb2.NodeCapabilities(
                        asr_langs=["zh"], semantic_langs=["zh"], tts_langs=["en"]
                    ),
                )
            )

    async def _job(self) -> None:
        """One job from its allocation to its result."""
        self._jobs += 1
        number, operations = self._jobs, self.operations
        placed = await operations.allocate(
            pool_pb2.AllocateRequest(
                job_id=f"{number:032x}",
                attempt=1,
                job_key=f"t1:session-{number // 10:08}:{number % 10}:translate:en:",
                tenant="t1",
                session_id=f"session-{number // 10:08}",
                utterance_index=number % 10,
                reason=common_pb2.FINALIZE_REASON_IS_FINAL,
                home_instance="dispatcher-0",
                criteria=pool_pb2.NodeCriteria(
                    pair=common_pb2.LanguagePair(src="zh", tgt="en"), require_tts=True
                ),
            )
        )
        node = placed.placement.node_id
        await operations.commit(pool_pb2.CommitRequest(attempt=placed.attempt, node_id=node))
        await operations.complete(
            pool_pb2.CompleteRequest(
                attempt=placed.attempt,
                node_id=node,
                outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
                steps=STEPS,
                result_kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
            )
        )

    async def us_a_job(self, jobs: int = JOBS_A_ROUND) -> float:
        """Redis microseconds of the three scripts of a job."""
        await self.link.command("CONFIG", "RESETSTAT")
        for _ in range(jobs // AT_ONCE):
            await asyncio.gather(*(self._job() for _ in range(AT_ONCE)))
        stats = (await self.link.command("INFO", "commandstats")).decode()
        line = next(line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:"))
        fields = dict(field.split("=") for field in line.split(":")[1].split(","))
        return float(fields["usec"]) / jobs


def settings(url: str, name: str, log_max: int) -> Settings:
    """Settings of one side. Its nodes send no heartbeats."""
    return load_settings(
        {
            "LINGUA_REDIS_URL": url,
            "LINGUA_REDIS_PREFIX": name,
            "LINGUA_REDIS_TIMEOUT_MS": "4000",
            "LINGUA_JOB_LOG_MAX": str(log_max),
            "LINGUA_HEARTBEAT_STALE_MS": "3600000",
            "LINGUA_NODE_FORGET_MS": "7200000",
        }
    )


async def run(most: int, count: int) -> dict[str, Any]:
    """All measurements as one object, with a log of so many entries, in so many rounds."""
    with EmbeddedRedis() as server:
        async with (
            pool_parts(settings(server.url, "without", 0)) as no_log,
            pool_parts(settings(server.url, "with", most)) as full_log,
        ):
            return await measure(Side(no_log), Side(full_log), most, count)


async def measure(without: Side, with_log: Side, most: int, count: int) -> dict[str, Any]:
    """Both sides in alternating rounds."""
    sides = [without, with_log]
    for side in sides:
        await side.fill()
        await side.us_a_job()
    while await with_log.link.command("XLEN", "with:jobs:log") < most:
        await with_log.us_a_job(1000)
    rounds = []
    for number in range(count):
        pair = sides if number % 2 else sides[::-1]
        us = {side: await side.us_a_job() for side in pair}
        rounds.append((us[without], us[with_log]))
    entries = await with_log.link.command("XLEN", "with:jobs:log")
    size = await with_log.link.command("MEMORY", "USAGE", "with:jobs:log", "SAMPLES", "0")
    before, after = (statistics.median(each) for each in zip(*rounds, strict=True))
    least = [min(each) for each in zip(*rounds, strict=True)]
    return {
        "job_us_without": round(before, 1),
        "job_us_with": round(after, 1),
        "ratio_of_medians": round(after / before, 3),
        "ratio_of_minima": round(least[1] / least[0], 3),
        "median_ratio_of_rounds": round(statistics.median(b / a for a, b in rounds), 3),
        "entries": entries,
        "bytes_an_entry": round(size / entries, 1),
        "machine": machine(),
    }


def main() -> int:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--entries", type=int, default=LOG_MAX, help="of the full log")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    result = asyncio.run(run(given.entries, given.rounds))
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:>24}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
