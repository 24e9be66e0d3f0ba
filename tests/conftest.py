"""Fixtures for tests of every kind: a real Redis, and key prefixes of their own in it."""

import asyncio
import os
import shutil
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis

Eventually = Callable[..., Awaitable[None]]

# On a busy machine an example may take any length of time.
settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")


@dataclass(frozen=True)
class ExternalRedis:
    """The Redis at LINGUA_REDIS_URL, which other tests and workers share."""

    url: str


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedRedis | ExternalRedis]:
    """One server for each worker process, unless LINGUA_REDIS_URL names one for all."""
    if url := os.environ.get("LINGUA_REDIS_URL"):
        yield ExternalRedis(url)
        return
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedRedis | ExternalRedis) -> str:
    """The URL of a shared Redis, which no test may flush, stop or reconfigure."""
    return redis_server.url


@pytest.fixture
def own_redis() -> Iterator[EmbeddedRedis]:
    """A Redis for one test, which may flush, stop or reconfigure it."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture(scope="module")
def one_cell() -> Iterator[None]:
    """Services have one cell, whatever LINGUA_CELLS says: for tests of keys and raw calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LINGUA_CELLS", raising=False)
        yield


@pytest.fixture
def prefix() -> str:
    """A key prefix that no other test uses."""
    return f"test:{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    """Waits until a condition holds; fails the test after `within` seconds."""

    async def wait(condition: Callable[[], bool], within: float = 10.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s: {condition}"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def promtool() -> str:
    """The path of promtool."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not there: 'apt-get install prometheus' (Debian) brings it")
    return found
