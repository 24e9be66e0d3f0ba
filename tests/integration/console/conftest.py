"""Fixtures for tests of the console's data side."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.console_backend import Console, following
from tests.support.raw_client import RawClient, raw_client
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess


@pytest.fixture(scope="module")
def gateway(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway of the patient dispatcher."""
    with GatewayProcess(
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        hangover_manual_ms=0,
        hangover_auto_ms=0,
        pause_ms=300,
        short_merge_ms=50,
        instance_id="gateway-7",
    ) as process:
        yield process


@pytest.fixture
async def console(
    pool_process: PoolProcess, patient_process: DispatcherProcess, gateway: GatewayProcess
) -> AsyncIterator[Console]:
    """A console of these services."""
    async with following(
        pool_address=pool_process.address,
        dispatcher_address=patient_process.address,
        gateway_address=gateway.address,
    ) as made:
        yield made


@pytest.fixture
async def client(gateway: GatewayProcess) -> AsyncIterator[RawClient]:
    """A client of the gateway."""
    async with raw_client(gateway.address) as made:
        yield made
