"""What tests of services on sockets may ask for."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.integration.pool_process import Pool, PoolProcess, connected


@pytest.fixture(scope="module")
def pool_process(redis_url: str) -> Iterator[PoolProcess]:
    """A pool service that the tests of a file share.

    A busy machine is no reason for these tests to fail; what a slow Redis does has its own.
    """
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(url=redis_url, prefix=prefix, redis_timeout_ms=4000) as process:
        yield process


@pytest.fixture
async def pool(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Pool]:
    """A client of the shared pool service, whose store is empty."""
    async with connected(pool_process, redis_url) as client:
        client.forget_all()
        yield client
