"""SAQ: one event loop; Redis publishes when a job has ended."""

import asyncio
import pickle
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from redis.asyncio import BlockingConnectionPool, Redis
from saq.job import TERMINAL_STATUSES, Status
from saq.queue.redis import RedisQueue

from peers_of import REDIS_URL

WORKERS = [(sys.executable, "-m", "saq", "peers_of.saq_.settings")]

# Until Redis has the subscription.
SUBSCRIBE_S = 1.0

# redis-py's own pool raises an error when it is exhausted, which happens under load.
connections = BlockingConnectionPool.from_url(REDIS_URL, max_connections=100, timeout=60)
queue = RedisQueue(Redis.from_pool(connections), dump=pickle.dumps, load=pickle.loads)


async def nothing(context: dict[str, Any], *, audio: bytes) -> int:
    """The job."""
    return len(audio)


settings = {"queue": queue, "functions": [nothing], "concurrency": 64}


def finished(key: str, status: Status) -> bool:
    """Whether to stop listening."""
    return status in TERMINAL_STATUSES


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    listening: asyncio.Task[None] | None = None

    async def job(audio: bytes) -> int:
        nonlocal listening
        if listening is None:
            # Without any listener SAQ ends its subscription.
            listening = asyncio.create_task(queue.listen(["none"], finished, timeout=None))
            await asyncio.sleep(SUBSCRIBE_S)
        # Listens first, because the job may end before `enqueue` returns; `refresh` then waits
        # forever, and `apply` polls.
        key = uuid4().hex
        done = asyncio.create_task(queue.listen([key], finished, timeout=60))
        await asyncio.sleep(0)
        await queue.enqueue("nothing", key=key, audio=audio)
        await done
        ended = await queue.job(key)
        assert ended is not None
        return int(ended.result)

    return job
