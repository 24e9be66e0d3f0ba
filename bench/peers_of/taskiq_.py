"""Taskiq over Redis streams, one worker process per core."""

import sys
from collections.abc import Awaitable, Callable

from taskiq.serializers import PickleSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from peers_of import CORES, REDIS_URL

WORKERS = [
    (
        *(sys.executable, "-m", "taskiq", "worker", "peers_of.taskiq_:broker"),
        *(f"--workers={CORES}", "--max-async-tasks=64", "--log-level=WARNING"),
    )
]
LOOK_S = 0.01

broker = (
    RedisStreamBroker(REDIS_URL)
    .with_result_backend(
        RedisAsyncResultBackend(
            REDIS_URL, result_ex_time=60, keep_results=False, serializer=PickleSerializer()
        )
    )
    .with_serializer(PickleSerializer())
)


@broker.task
async def nothing(audio: bytes) -> int:
    """The job."""
    return len(audio)


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    ready = False

    async def job(audio: bytes) -> int:
        nonlocal ready
        if not ready:
            ready = True
            await broker.startup()
        task = await nothing.kiq(audio)
        return int((await task.wait_result(check_interval=LOOK_S, timeout=60)).return_value)

    return job
