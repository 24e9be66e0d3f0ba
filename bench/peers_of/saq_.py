"""SAQ: one event loop; the client polls for results."""

import pickle
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from saq.queue.redis import RedisQueue

from peers_of import REDIS_URL

WORKERS = [(sys.executable, "-m", "saq", "peers_of.saq_.settings")]

# Its default of 0.5 s is meant for long jobs.
LOOK_S = 0.01

# redis-py's own pool raises an error when it is exhausted, which happens under load.
connections = BlockingConnectionPool.from_url(REDIS_URL, max_connections=100, timeout=60)
queue = RedisQueue(Redis.from_pool(connections), dump=pickle.dumps, load=pickle.loads)


async def nothing(context: dict[str, Any], *, audio: bytes) -> int:
    """The job."""
    return len(audio)


settings = {"queue": queue, "functions": [nothing], "concurrency": 64}


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""

    async def job(audio: bytes) -> int:
        # Not `refresh`, which waits forever if the job ends before its subscription starts.
        [size] = await queue.map("nothing", [{"audio": audio}], timeout=60, poll_interval=LOOK_S)
        return int(size)

    return job
