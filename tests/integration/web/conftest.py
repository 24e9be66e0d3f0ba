"""Fixtures for tests of the web entry."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_client import WebClient, web_client


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway that the tests of a file share."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=100,
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture
async def web(gateway: GatewayProcess) -> AsyncIterator[WebClient]:
    """A client of the web entry of the file's `gateway`."""
    async with web_client(gateway.web_address) as made:
        yield made
