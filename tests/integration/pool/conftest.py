"""The pool service over both transports."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from lingua_scheduler.services.pool_service.main import POOL
from lingua_scheduler.v1 import pool_pb2_grpc
from tests.support.hosted import hosted
from tests.support.pool_client import Pool, connected
from tests.support.services import WATCH_MS, PoolProcess
from tests.support.transports import IN_PROCESS, TRANSPORTS


@pytest.fixture(scope="module", autouse=True)
def _raw_calls(one_cell: None) -> None:
    """Callers here name no cell, unless a test makes cells of its own."""


@pytest.fixture(params=TRANSPORTS)
async def pool(
    request: pytest.FixtureRequest, pool_process: PoolProcess, redis_url: str
) -> AsyncIterator[Pool]:
    """A client of a pool service that has no keys: the shared process, or one in this process."""
    async with connected(pool_process, redis_url) as client:
        client.forget_all()
        if request.param != IN_PROCESS:
            yield client
            return
        async with (
            hosted(
                POOL, redis_url=redis_url, prefix=client.prefix, fleet_watch_ms=WATCH_MS
            ) as service,
            service.channel() as channel,
        ):
            stub = pool_pb2_grpc.PoolServiceStub(channel)
            yield replace(client, channel=channel, stub=stub)  # type: ignore[arg-type]
