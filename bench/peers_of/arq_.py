"""ARQ: one event loop that polls for jobs and results."""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings

from peers_of import REDIS_URL

# A second worker adds no throughput: both wake up for each job and race for it.
WORKERS = [(sys.executable, "-m", "arq", "peers_of.arq_.WorkerSettings")]
# Its default of 0.5 s is meant for long jobs.
LOOK_S = 0.01


async def nothing(context: dict[str, Any], audio: bytes) -> int:
    """The job."""
    return len(audio)


class WorkerSettings:
    """Settings that `arq` reads."""

    functions: ClassVar = [nothing]
    redis_settings = replace(RedisSettings.from_dsn(REDIS_URL), max_connections=1000)
    max_jobs = 64
    poll_delay = LOOK_S
    keep_result = 60


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    pool: ArqRedis | None = None

    async def job(audio: bytes) -> int:
        nonlocal pool
        if pool is None:
            pool = await create_pool(WorkerSettings.redis_settings)
        enqueued = await pool.enqueue_job("nothing", audio)
        assert enqueued is not None
        return int(await enqueued.result(timeout=60, poll_delay=LOOK_S))

    return job
