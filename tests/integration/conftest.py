"""Fixtures for tests of services on sockets."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.pool_client import Pool, connected
from tests.support.scene import Scene, scene
from tests.support.services import PATIENT, DispatcherProcess, PoolProcess


@pytest.fixture(scope="module")
def pool_process(redis_url: str) -> Iterator[PoolProcess]:
    """A pool service that the tests of a file share.

    It waits long for Redis, for busy machines; a slow Redis has tests of its own.
    """
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(redis_url=redis_url, prefix=prefix, redis_timeout_ms=4000) as process:
        yield process


@pytest.fixture
async def pool(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Pool]:
    """A client of the shared pool service, which has no keys."""
    async with connected(pool_process, redis_url) as client:
        client.forget_all()
        yield client


@pytest.fixture(scope="module")
def patient_process(pool_process: PoolProcess, redis_url: str) -> Iterator[DispatcherProcess]:
    """A dispatcher whose time limits are so long that no test reaches them."""
    with DispatcherProcess(
        pool=pool_process,
        redis_url=redis_url,
        **PATIENT,
    ) as process:
        yield process


@pytest.fixture(scope="module")
def hasty_process(pool_process: PoolProcess, redis_url: str) -> Iterator[DispatcherProcess]:
    """A dispatcher with short time limits, but longer than a busy machine takes to answer."""
    with DispatcherProcess(
        pool=pool_process,
        redis_url=redis_url,
        ack_timeout_ms=1000,
        job_timeout_ms=1000,
        queue_wait_ms=500,
        node_reconnect_grace_ms=500,
    ) as process:
        yield process


@pytest.fixture
async def patient(
    patient_process: DispatcherProcess, pool_process: PoolProcess
) -> AsyncIterator[Scene]:
    """A scene at the patient dispatcher."""
    async with scene(patient_process, pool_process) as made:
        yield made


@pytest.fixture
async def hasty(
    hasty_process: DispatcherProcess, pool_process: PoolProcess
) -> AsyncIterator[Scene]:
    """A scene at the hasty dispatcher."""
    async with scene(hasty_process, pool_process) as made:
        yield made
