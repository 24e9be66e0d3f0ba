"""Fixtures for tests of whole processes."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from tests.e2e.span_collector import SpanCollector
from tests.e2e.tracing import Traced
from tests.support.all_in_one import AllInOneProcess
from tests.support.commands import Start, Up
from tests.support.local_codes import local_code
from tests.support.raw_client import RawClient, raw_client
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    all_running,
)

_codes = count()


@pytest.fixture
def up() -> Iterator[Start]:
    """Starts `lingua up`; kills what still runs at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **variables: stack.enter_context(Up(*args, **variables))


@pytest.fixture(scope="module", params=[True, False], ids=["split", "all_in_one"])
def traced(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Traced]:
    """A scheduler that traces, for all tests of a file; each has a language of its own."""
    with SpanCollector() as collector, contextlib.ExitStack() as stack:
        ground: dict[str, Any] = {
            "redis_url": redis_url,
            "environ": collector.environ,
            "redis_timeout_ms": 4000,
            "ack_timeout_ms": 8000,
            "reservation_ttl_ms": 9000,
            "hangover_manual_ms": 20,
        }
        prefix = f"test:{uuid.uuid4().hex[:8]}"
        pool: ServiceProcess
        dispatchers: list[ServiceProcess]
        gateway: ServiceProcess
        if request.param:
            pool = PoolProcess(prefix=prefix, **ground)
            stack.enter_context(all_running([pool]))
            dispatchers = [DispatcherProcess(pool=pool, **ground) for _ in range(2)]
            stack.enter_context(all_running(dispatchers))
            # To the first, so that nodes of the second are reached by relay.
            to = dispatchers[0].address
            gateway = GatewayProcess(pool=pool, dispatchers=to, **ground)
            stack.enter_context(all_running([gateway]))
        else:
            processes = [AllInOneProcess(prefix=prefix, **ground) for _ in range(2)]
            stack.enter_context(all_running(processes))
            pool, gateway = processes[0].pool, processes[0].gateway
            dispatchers = [each.dispatcher for each in processes]
        never = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
        silent = ground | {"environ": collector.environ | never}
        silent_gateway = GatewayProcess(pool=pool, dispatchers=dispatchers[0].address, **silent)
        stack.enter_context(all_running([silent_gateway]))
        yield Traced(collector, pool, dispatchers, gateway, silent_gateway)
        for each in (pool, *dispatchers, gateway, silent_gateway):
            assert not each.faults(), each.log()


@pytest.fixture
def language() -> str:
    """A language that no other test uses."""
    return local_code(next(_codes))


@pytest.fixture
async def traced_client(traced: Traced) -> AsyncIterator[RawClient]:
    """A client of the gateway that samples."""
    async with raw_client(traced.gateway.address) as client:
        yield client
