"""SAQ: one event loop; results are looked for at intervals."""

import pickle
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from saq.queue.redis import RedisQueue

from peers_of import REDIS_URL

WORKERS = [(sys.executable, "-m", "saq", "peers_of.saq_.settings")]

# Its default of 0.5 s is for jobs that take long.
LOOK_S = 0.01

# One that fails beyond its size, as redis-py's own does, fails when much is under way.
connections = BlockingConnectionPool.from_url(REDIS_URL, max_connections=100, timeout=60)
queue = RedisQueue(Redis.from_pool(connections), dump=pickle.dumps, load=pickle.loads)


async def nothing(context: dict[str, Any], *, audio: bytes) -> int:
    """The job."""
    return len(audio)


settings = {"queue": queue, "functions": [nothing], "concurrency": 64}


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""

    async def job(audio: bytes) -> int:
        # Not by `refresh`, which waits for ever where the job is faster than its subscription.
        [size] = await queue.map("nothing", [{"audio": audio}], timeout=60, poll_interval=LOOK_S)
        return int(size)

    return job
