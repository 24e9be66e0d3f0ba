"""Submits no-op jobs of 32 KiB to one of `peers_of`, for `peers.py`, in the peers' venv.

It prints READY after a first job and then reads commands from stdin, as `path_client.py` does:
`saturate SECONDS` keeps 64 jobs in progress, `steady RATE SECONDS` sends at that rate. The answer
to each is one line of JSON: the number of jobs, the total time, and the time of each job.

A job's time begins when the client begins to submit it, and ends when the code that submitted it
has its result. At a steady rate a job is submitted at its time, whatever is in progress.
"""

import asyncio
import gc
import importlib.util
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from peers_of import IN_PROGRESS, THREADS

AUDIO = bytes(32 * 1024)
FIRST_JOB_S = 60.0


class AsyncLoad:
    """Submits jobs from an event loop."""

    def __init__(self, job: Callable[[bytes], Awaitable[int]]) -> None:
        self._job = job
        self.took_ms: list[float] = []

    async def one(self) -> None:
        """A job, from submission to result."""
        began = time.perf_counter()
        check(await self._job(AUDIO))
        self.took_ms.append((time.perf_counter() - began) * 1000)

    async def saturate(self, seconds: float) -> None:
        """Keep a constant number of jobs in progress."""
        end = time.perf_counter() + seconds

        async def again_and_again() -> None:
            while time.perf_counter() < end:
                await self.one()

        await asyncio.gather(*(again_and_again() for _ in range(IN_PROGRESS)))

    async def steady(self, rate: float, seconds: float) -> None:
        """Submit at even intervals, whatever is in progress."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for at in range(int(rate * seconds)):
                left = began + at / rate - time.perf_counter()
                if left > 0:
                    await asyncio.sleep(left)
                group.create_task(self.one())


class ThreadLoad:
    """Submits jobs from threads, each of which waits for its result."""

    def __init__(self, job: Callable[[bytes], int]) -> None:
        self._job = job
        self._threads = ThreadPoolExecutor(THREADS)
        self.took_ms: list[float] = []

    def _one(self, began: float) -> None:
        check(self._job(AUDIO))
        self.took_ms.append((time.perf_counter() - began) * 1000)

    async def one(self) -> None:
        """A job, from submission to result."""
        await asyncio.to_thread(self._one, time.perf_counter())

    async def saturate(self, seconds: float) -> None:
        """Keep a constant number of jobs in progress."""
        end = time.perf_counter() + seconds

        def again_and_again() -> None:
            while time.perf_counter() < end:
                self._one(time.perf_counter())

        def all_threads() -> None:
            running = [self._threads.submit(again_and_again) for _ in range(IN_PROGRESS)]
            for each in running:
                each.result()

        await asyncio.to_thread(all_threads)

    async def steady(self, rate: float, seconds: float) -> None:
        """Submit at even intervals, whatever is in progress."""

        def submit() -> None:
            began = time.perf_counter()
            running = []
            for at in range(int(rate * seconds)):
                left = began + at / rate - time.perf_counter()
                if left > 0:
                    time.sleep(left)
                running.append(self._threads.submit(self._one, time.perf_counter()))
            for each in running:
                each.result()

        await asyncio.to_thread(submit)


def check(size: int) -> None:
    """End the benchmark if a result is wrong."""
    if size != len(AUDIO):
        sys.exit("a wrong result")


async def main(name: str) -> None:
    """Run commands until stdin ends."""
    job: Any = importlib.import_module(f"peers_of.{name}").client()
    load = AsyncLoad(job) if inspect.iscoroutinefunction(job) else ThreadLoad(job)
    async with asyncio.timeout(FIRST_JOB_S):
        await load.one()
    # So that no measured job waits for a collection of all modules.
    gc.collect()
    gc.freeze()
    print("READY", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        load.took_ms.clear()
        began = time.perf_counter()
        if line[0] == "saturate":
            await load.saturate(float(line[1]))
        else:
            await load.steady(float(line[1]), float(line[2]))
        answer = {"took_s": time.perf_counter() - began, "took_ms": load.took_ms}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    # Blocking clients do not have it.
    uvloop: Any = importlib.import_module("uvloop") if importlib.util.find_spec("uvloop") else None
    (uvloop or asyncio).run(main(sys.argv[1]))
