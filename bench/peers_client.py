"""Submits no-op jobs of 32 KiB to one of `peers_of`, for `peers.py`, in the peers' venv.

It prints READY after a first job and then reads commands from stdin, as `path_client.py` does:
`saturate SECONDS` keeps 64 jobs in progress, `steady RATE SECONDS` sends at that rate. The answer
to each is one line of JSON: the number of jobs, the total time, and the time of each job.
"""

import asyncio
import importlib
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

AUDIO = bytes(32 * 1024)
IN_FLIGHT = 64
# For blocking clients: enough for the jobs that accumulate at a steady rate.
THREADS = 128


class Load:
    """Submits jobs at saturation or at a steady rate."""

    def __init__(self, job: Callable[[bytes], Awaitable[int]]) -> None:
        self._job = job
        self.took_ms: list[float] = []

    async def one(self) -> None:
        """A job, from submission to result."""
        began = time.perf_counter()
        if await self._job(AUDIO) != len(AUDIO):
            sys.exit("a wrong result")
        self.took_ms.append((time.perf_counter() - began) * 1000)

    async def saturate(self, seconds: float) -> None:
        """Keep a constant number of jobs in progress."""
        end = time.perf_counter() + seconds

        async def again_and_again() -> None:
            while time.perf_counter() < end:
                await self.one()

        await asyncio.gather(*(again_and_again() for _ in range(IN_FLIGHT)))

    async def steady(self, rate: float, seconds: float) -> None:
        """Submit at even intervals, whatever is in progress."""
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for at in range(int(rate * seconds)):
                wait = began + at / rate - time.perf_counter()
                if wait > 0:
                    await asyncio.sleep(wait)
                group.create_task(self.one())


async def main(name: str) -> None:
    """Run commands until stdin ends."""
    job: Any = importlib.import_module(f"peers_of.{name}").client()
    loop = asyncio.get_running_loop()
    if not inspect.iscoroutinefunction(job):
        blocking, threads = job, ThreadPoolExecutor(THREADS)

        async def job(audio: bytes) -> int:
            return int(await loop.run_in_executor(threads, blocking, audio))

    load = Load(job)
    await load.one()
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
    try:
        import uvloop

        uvloop.run(main(sys.argv[1]))
    except ImportError:
        asyncio.run(main(sys.argv[1]))
