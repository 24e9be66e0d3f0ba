"""Celery: prefork, results in Redis by publish and subscribe."""

import sys
from collections.abc import Callable

from celery import Celery

from peers_of import CORES, REDIS_URL, THREADS

WORKERS = [
    (
        *(sys.executable, "-m", "celery", "-A", "peers_of.celery_", "worker"),
        *(f"--concurrency={CORES}", "-O", "fair", "--loglevel=WARNING"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    )
]

SOCKET = REDIS_URL.replace("unix://", "redis+socket://")

app = Celery("peers", broker=SOCKET, backend=SOCKET)
app.conf.update(
    # One connection for each thread of the client; the default is 10.
    broker_pool_limit=THREADS,
    task_serializer="pickle",
    result_serializer="pickle",
    accept_content=["pickle"],
    worker_prefetch_multiplier=32,
    worker_disable_rate_limits=True,
    task_ignore_result=False,
    result_expires=60,
)


@app.task
def nothing(audio: bytes) -> int:
    """The job."""
    return len(audio)


def client() -> Callable[[bytes], int]:
    """Runs one job."""
    return lambda audio: nothing.delay(audio).get(timeout=60)
