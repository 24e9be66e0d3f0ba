"""Dispatchers with settings that several files use."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.scene import Scene, scene, together
from tests.support.services import PATIENT, DispatcherProcess, PoolProcess, running_dispatcher

# Limits small enough for a test to reach.
SMALL = {"gateways.streams._MAX_BYTES": 2_000_000, "nodes.admission.MAX_BYTES": 2_000_000}


@pytest.fixture
async def narrow(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that keeps little for peers that do not read."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            limits=SMALL,
            **PATIENT,
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.fixture
async def brisk(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher of the test's own, which passes heartbeats on at once."""
    async with (
        running_dispatcher(pool_process, redis_url, heartbeat_batch_ms=50) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.fixture
async def at(
    dispatchers: list[DispatcherProcess], pool_process: PoolProcess
) -> AsyncIterator[list[Scene]]:
    """One test's scene at each of the file's `dispatchers`, all with the same languages."""
    async with together(dispatchers, pool_process) as scenes:
        yield scenes


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[EmbeddedRedis]]:
    """Two servers that keep their data when they are killed."""
    with (
        EmbeddedRedis(data_dir=tmp_path / "a", args=("--appendfsync", "always")) as first,
        EmbeddedRedis(data_dir=tmp_path / "b", args=("--appendfsync", "always")) as second,
    ):
        yield [first, second]
