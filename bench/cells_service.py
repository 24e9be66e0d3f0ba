"""A pool service with several cells, on its own Redis servers, and what a job costs there."""

import asyncio
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import redis

from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell, ranked
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc

SLOTS = 4
# A node at 70 % with jobs of a second has 2.8 a second, and a heartbeat every 5 s.
JOBS_A_BEAT = 14
BEATS_EVERY_S = 1.0
# About as many bytes as the timeline of a job that goes well.
STEPS = b"s" * 220
# Nothing may end by itself while it is measured.
LONG_MS = "3600000"
# How long a job runs, so that its calls are not made together with those of others.
HOLD_S = 0.2
PER_S = ("cpu_us", "redis_us", "redis_cpu_us", "calls", "commands")


class PoolStream:
    """An Operate stream. What has queued up goes in one message, as a dispatcher sends it."""

    def __init__(self, stub: Any) -> None:
        self._stream = stub.Operate()
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[pool_pb2.OperationResult]] = {}
        self._queued: list[pool_pb2.Operation] = []
        self._wake = asyncio.Event()
        self._tasks = [asyncio.create_task(each()) for each in (self._write, self._read)]

    async def ask(self, name: str, request: Any) -> Any:
        """The response to an operation. Raises RefusedError."""
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        self._queued.append(pool_pb2.Operation(id=number, **{name: request}))
        self._wake.set()
        result = await answer
        if result.HasField("error"):
            raise RefusedError(result.error.message)
        return getattr(result, name)

    async def close(self) -> None:
        """Ends the stream."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._stream.cancel()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            some, self._queued = self._queued, []
            if some:
                await self._stream.write(pool_pb2.OperateRequest(operations=some))

    async def _read(self) -> None:
        while True:
            response = await self._stream.read()
            for result in response.results:
                answer = self._asked.pop(result.id)
                # Who asked may have been cancelled.
                if not answer.done():
                    answer.set_result(result)


class RefusedError(Exception):
    """The pool service has refused an operation."""


@dataclass
class Spent:
    """What has been spent so far, or in between."""

    jobs: int = 0
    spilled: int = 0
    cpu_us: float = 0.0
    """Of the pool service."""
    redis_us: float = 0.0
    """In scripts (INFO commandstats), of all servers."""
    redis_cpu_us: float = 0.0
    """Of the servers' main threads, also for reading and writing."""
    calls: int = 0
    """Of scripts."""
    commands: int = 0
    """Within scripts."""

    def since(self, before: "Spent", idle: "Spent", seconds: float) -> dict[str, float]:
        """What was spent since then for each job, besides what is spent each second anyway."""
        jobs = self.jobs - before.jobs

        def spent(name: str) -> float:
            return float(
                getattr(self, name) - getattr(before, name) - getattr(idle, name) * seconds
            )

        return {name: spent(name) / jobs for name in ("spilled", *PER_S)}


@dataclass(frozen=True)
class Work:
    """Jobs of one kind: their direction, and where their session lives, by a random source."""

    src: str
    tgt: str
    session: Callable[[random.Random], tuple[int, str]]
    """Returns the cell and the id of a session."""


class CellsService:
    """A pool service, a stream to it, and its nodes."""

    def __init__(self, cells: int, servers: Sequence[EmbeddedRedis], pid: int, stub: Any) -> None:
        self.cells = cells
        self.spent = Spent()
        self.idle = Spent()
        """What is spent each second without jobs."""
        self._stores = [redis.Redis.from_url(server.url) for server in servers]
        self._pid = pid
        self._stub = stub
        self._stream = PoolStream(stub)
        self._dice = random.Random(cells)
        self._numbers = itertools.count(1)
        self._nodes: dict[str, pool_pb2.RegisterNodeResponse] = {}
        self._running: dict[str, list[common_pb2.AttemptRef]] = defaultdict(list)
        self._next_beats: Any = iter(())

    async def close(self) -> None:
        """Ends the stream and closes the connections."""
        await self._stream.close()
        for store in self._stores:
            store.close()

    # ---- nodes ----

    async def register(self, src: str, tgt: str, names: Sequence[str], slots: int = SLOTS) -> None:
        """Registers nodes for one direction."""
        for name in names:
            able = common_pb2.NodeCapabilities(
                asr_langs=[src], semantic_langs=[src], tts_langs=[tgt]
            )
            self._nodes[name] = await self._stub.RegisterNode(
                pool_pb2.RegisterNodeRequest(
                    node_id=name,
                    incarnation="bench",
                    stream_id="bench",
                    capabilities=able,
                    max_concurrent_jobs=slots,
                    owner_instance="dispatcher-0",
                    owner_address="127.0.0.1:7720",
                )
            )
        self._next_beats = itertools.cycle(self._nodes)

    def names_in(self, cell: int, count: int, prefix: str) -> list[str]:
        """Ids of nodes that belong into a cell."""
        names = (f"{prefix}-{number}" for number in itertools.count())
        fit = (name for name in names if ranked(name, range(self.cells))[0] == cell)
        return list(itertools.islice(fit, count))

    def cell_of(self, node_id: str) -> int:
        """The cell in which a node has registered."""
        return self._nodes[node_id].cell

    # ---- jobs ----

    def anywhere(self, dice: random.Random) -> tuple[int, str]:
        """A session in a random cell."""
        cell = dice.randrange(self.cells)
        return cell, id_in_cell(f"session-{dice.randrange(1000)}", cell)

    async def begin(self, work: Work) -> pool_pb2.AllocateResponse:
        """Allocates and commits. Raises RefusedError."""
        number, (cell, session) = next(self._numbers), work.session(self._dice)
        placed: pool_pb2.AllocateResponse = await self._stream.ask(
            "allocate",
            pool_pb2.AllocateRequest(
                job_id=f"{number:029x}{cell:03x}",
                attempt=1,
                job_key=f"t1:{session}:{number}:translate:{work.tgt}:",
                tenant="t1",
                session_id=session,
                utterance_index=number,
                reason=common_pb2.FINALIZE_REASON_IS_FINAL,
                home_instance="dispatcher-0",
                criteria=pool_pb2.NodeCriteria(
                    pair=common_pb2.LanguagePair(src=work.src, tgt=work.tgt), require_tts=True
                ),
            ),
        )
        there, attempt = placed.placement, placed.attempt
        self.spent.spilled += there.cell != cell
        await self._stream.ask(
            "commit",
            pool_pb2.CommitRequest(attempt=attempt, node_id=there.node_id, cell=there.cell),
        )
        self._running[there.node_id].append(attempt)
        return placed

    async def end(self, placed: pool_pb2.AllocateResponse) -> None:
        """Completes."""
        there = placed.placement
        self._running[there.node_id].remove(placed.attempt)
        await self._stream.ask(
            "complete",
            pool_pb2.CompleteRequest(
                attempt=placed.attempt,
                node_id=there.node_id,
                cell=there.cell,
                outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
                steps=STEPS,
            ),
        )
        self.spent.jobs += 1

    async def together(self, work: Work, jobs: int, at_once: int) -> dict[str, float]:
        """As many jobs at once as told, each as fast as possible; what each cost."""
        left = iter(range(jobs))

        async def worker() -> None:
            for _ in left:
                await self.end(await self.begin(work))

        async with self._measured() as cost:
            await asyncio.gather(*(worker() for _ in range(at_once)))
        return cost

    async def steady(self, work: Work, rate: float, seconds: float) -> dict[str, float]:
        """Jobs that come at random, so many a second, and run for a moment; what each cost."""

        async def job() -> None:
            placed = await self.begin(work)
            await asyncio.sleep(self._dice.expovariate(1 / HOLD_S))
            await self.end(placed)

        async with self._measured() as cost:
            await at_random(self._dice, rate, seconds, job)
        return cost

    async def sequence(self, works: Iterable[Work]) -> dict[str, float]:
        """One job after the other; what each cost."""
        async with self._measured() as cost:
            for work in works:
                await self.end(await self.begin(work))
        return cost

    @asynccontextmanager
    async def _measured(self) -> AsyncIterator[dict[str, float]]:
        """With heartbeats. Fills in the cost of a job, without what the service does anyway."""
        cost: dict[str, float] = {}
        before, began = self.read(), time.perf_counter()
        beats = asyncio.create_task(self._beat())
        try:
            yield cost
        finally:
            beats.cancel()
        cost |= self.read().since(before, self.idle, time.perf_counter() - began)

    async def measure_idle(self, seconds: float) -> None:
        """Finds out what the service and its servers spend while there are no jobs."""
        before, began = self.read(), time.perf_counter()
        await asyncio.sleep(seconds)
        took, now = time.perf_counter() - began, self.read()
        for name in PER_S:
            setattr(self.idle, name, (getattr(now, name) - getattr(before, name)) / took)

    async def _beat(self) -> None:
        """Sends the heartbeats of as many nodes as the jobs would need, for each cell a request."""
        counted = self.spent.jobs
        while True:
            await asyncio.sleep(BEATS_EVERY_S)
            due, counted = (self.spent.jobs - counted) / JOBS_A_BEAT, self.spent.jobs
            by_cell: dict[int, list[pool_pb2.NodeBeat]] = defaultdict(list)
            for name in itertools.islice(self._next_beats, max(1, round(due))):
                node = self._nodes[name]
                by_cell[node.cell].append(
                    pool_pb2.NodeBeat(
                        node_id=name, epoch=node.epoch, cell=node.cell, running=self._running[name]
                    )
                )
            requests = (pool_pb2.HeartbeatRequest(beats=some) for some in by_cell.values())
            await asyncio.gather(*(self._stream.ask("heartbeat", each) for each in requests))

    # ---- what it costs ----

    def read(self) -> Spent:
        """All that has been spent so far."""
        now = Spent(self.spent.jobs, self.spent.spilled, _cpu_us(self._pid))
        for store in self._stores:
            facts: Any = store.info("everything")
            now.redis_cpu_us += 1e6 * sum(
                facts[f"used_cpu_{kind}_main_thread"] for kind in ("sys", "user")
            )
            for name, stat in facts.items():
                if name == "cmdstat_evalsha":
                    now.redis_us += stat["usec"]
                    now.calls += stat["calls"]
                elif name.startswith("cmdstat_") and name != "cmdstat_info":
                    now.commands += stat["calls"]
        return now


def _cpu_us(pid: int) -> float:
    """CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in threads) / 1000


@asynccontextmanager
async def cells_service(cells: int, servers: int) -> AsyncIterator[CellsService]:
    """A pool service whose cells are spread over so many servers."""
    with ExitStack() as stack:
        stores = [stack.enter_context(EmbeddedRedis()) for _ in range(servers)]
        urls = [stores[cell % servers].url for cell in range(cells)]
        environment = {
            **{name: value for name, value in os.environ.items() if "LINGUA" not in name},
            "LINGUA_CELLS": str(cells),
            "LINGUA_REDIS_URL": stores[0].url if servers == 1 else " ".join(urls),
            "LINGUA_REDIS_PREFIX": "bench",
            "LINGUA_REDIS_TIMEOUT_MS": "4000",
            "LINGUA_HEARTBEAT_STALE_MS": LONG_MS,
            "LINGUA_NODE_FORGET_MS": "7200000",
            "LINGUA_RUNNING_LEASE_MS": LONG_MS,
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
                service = CellsService(cells, stores, process.pid, stub)
                yield service
                await service.close()
        finally:
            process.terminate()
            await asyncio.to_thread(process.communicate)


async def at_random(
    dice: random.Random, rate: float, seconds: float, job: Callable[[], Awaitable[None]]
) -> None:
    """Starts jobs at random times, so many a second; returns when all have ended."""
    began, at = time.perf_counter(), 0.0
    tasks: list[asyncio.Task[None]] = []

    async def run() -> None:
        await job()

    while (at := at + dice.expovariate(rate)) < seconds:
        if (wait := began + at - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(run()))
    await asyncio.gather(*tasks)
