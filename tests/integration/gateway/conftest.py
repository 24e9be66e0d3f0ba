"""Fixtures for tests of gateways."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.raw_client import RawClient, raw_client
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess


@pytest.fixture(scope="module")
def frail_redis() -> Iterator[EmbeddedRedis]:
    """A Redis of the file's own, which its tests kill or freeze; it comes back empty."""
    with EmbeddedRedis() as made:
        yield made


@pytest.fixture(scope="module")
def frail_pool(frail_redis: EmbeddedRedis) -> Iterator[PoolProcess]:
    """A pool service on the frail Redis."""
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(redis_url=frail_redis.url, prefix=prefix) as pool:
        yield pool


@pytest.fixture(scope="module")
def frail_dispatcher(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess
) -> Iterator[DispatcherProcess]:
    """A dispatcher on the frail Redis."""
    with DispatcherProcess(
        pool=frail_pool, redis_url=frail_redis.url, node_heartbeat_ms=500, heartbeat_batch_ms=100
    ) as process:
        yield process


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[RawClient]:
    """A client of the file's `gateway`."""
    async with raw_client(gateway.address) as made:
        yield made
