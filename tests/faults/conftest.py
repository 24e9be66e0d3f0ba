"""Fixtures for tests of faults."""

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.faults.cluster import SHORT
from tests.faults.fleet import use_first_address
from tests.support.services import PoolProcess


@pytest.fixture(scope="module")
def pool_process(redis_url: str) -> Iterator[PoolProcess]:
    """A pool service with short leases, which the tests of a file share."""
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(redis_url=redis_url, prefix=prefix, **SHORT) as process:
        yield process


@pytest.fixture(scope="module")
def redis() -> Iterator[EmbeddedRedis]:
    """A Redis that comes back with its data."""
    # Without a sync that may hold up a write: what was answered is in the file.
    no_sync = ("--appendfsync", "no")
    with (
        tempfile.TemporaryDirectory(prefix="lingua-redis-") as folder,
        EmbeddedRedis(data_dir=Path(folder), args=no_sync) as server,
    ):
        yield server


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes try their dispatchers in the order in which these are given."""
    use_first_address(monkeypatch)
