"""Ray Serve: a deployment called by its handle. Ray has its own store and processes."""

import logging
from collections.abc import Awaitable, Callable

import ray
from ray import serve

WORKERS: list[tuple[str, ...]] = []


@serve.deployment(num_replicas=1, max_ongoing_requests=100, logging_config={"log_level": "ERROR"})
class Nothing:
    """The job."""

    async def __call__(self, audio: bytes) -> int:
        """Does nothing."""
        return len(audio)


def client() -> Callable[[bytes], Awaitable[int]]:
    """Runs one job."""
    ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False)
    handle = serve.run(Nothing.bind(), route_prefix=None)

    async def job(audio: bytes) -> int:
        return int(await handle.remote(audio))

    return job
