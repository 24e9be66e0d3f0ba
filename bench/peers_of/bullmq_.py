"""BullMQ for Python: Lua scripts on Redis, results by the queue's stream of events."""

import asyncio
import base64
import itertools
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bullmq import Job, Queue, QueueEvents, Worker
from redis.asyncio import BlockingConnectionPool, Redis

from peers_of import CORES, REDIS_URL

CONNECTIONS = 16
# With more, an idle worker asks Redis more often than there are jobs.
CONCURRENCY = 4
WORKERS = [(sys.executable, "-m", "peers_of.bullmq_")] * CORES


def options(**more: object) -> dict[str, object]:
    """Options with a pool of connections; given a URL, BullMQ sends one command at a time."""
    pool = BlockingConnectionPool.from_url(
        REDIS_URL, max_connections=CONNECTIONS, timeout=60, decode_responses=True
    )
    return {"connection": Redis.from_pool(pool), **more}


async def nothing(job: Job, token: str) -> int:
    """The job. BullMQ carries JSON, so audio is in base64."""
    return len(base64.b64decode(job.data["audio"]))


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    results: dict[str, asyncio.Future[int]] = {}
    numbers = itertools.count()
    queue: Queue | None = None

    def completed(event: dict[str, Any], _: str) -> None:
        results.pop(event["jobId"]).set_result(int(event["returnvalue"]))

    def start() -> Queue:
        # From the first event on, so that none is missed before the first read.
        QueueEvents("nothing", options(lastEventId="0")).on("completed", completed)
        return Queue("nothing", options())

    async def job(audio: bytes) -> int:
        nonlocal queue
        if queue is None:
            queue = start()
        # An id of our own: the job may complete before `add` has returned.
        job_id = f"job-{next(numbers)}"
        result = results[job_id] = asyncio.get_running_loop().create_future()
        data = {"audio": base64.b64encode(audio).decode("ascii")}
        await queue.add("nothing", data, {"jobId": job_id, "removeOnComplete": True})
        async with asyncio.timeout(60):
            return await result

    return job


async def main() -> None:
    """Run a worker until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    worker = Worker("nothing", nothing, options(concurrency=CONCURRENCY))
    await stop.wait()
    await worker.close(force=True)


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
