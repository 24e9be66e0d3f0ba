"""Dramatiq: processes with threads, results in Redis."""

import sys
from collections.abc import Callable

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from peers_of import CORES, REDIS_URL, THREADS

WORKERS = [
    (
        *(sys.executable, "-m", "dramatiq", "peers_of.dramatiq_"),
        *(f"--processes={CORES}", "--threads=8"),
    )
]

# One connection for each thread of the client; redis-py raises an error at its default of 100.
URL = f"{REDIS_URL}?max_connections={THREADS}"

dramatiq.set_encoder(dramatiq.PickleEncoder())
broker = RedisBroker(url=URL, middleware=[])
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def nothing(audio: bytes) -> int:
    """The job."""
    return len(audio)


def client() -> Callable[[bytes], int]:
    """Runs one job."""
    return lambda audio: nothing.send(audio).get_result(block=True, timeout=60_000)
