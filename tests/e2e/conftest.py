"""Fixtures for tests of whole processes."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Any

import pytest

from tests.e2e.span_collector import SpanCollector
from tests.e2e.tracing import Traced
from tests.support.commands import Start, Up
from tests.support.local_codes import local_code
from tests.support.raw_client import RawClient, raw_client
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    start_all,
)

_codes = count()


@pytest.fixture
def up() -> Iterator[Start]:
    """Starts `lingua up`; kills what still runs at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **variables: stack.enter_context(Up(*args, **variables))


@pytest.fixture(scope="module")
def traced(redis_url: str) -> Iterator[Traced]:
    """A scheduler that traces, for all tests of a file; each has a language of its own."""
    with SpanCollector() as collector:
        ground: dict[str, Any] = {
            "redis_url": redis_url,
            "environ": collector.environ,
            "redis_timeout_ms": 4000,
            "ack_timeout_ms": 8000,
            "reservation_ttl_ms": 9000,
            "hangover_manual_ms": 20,
        }
        pool = PoolProcess(prefix=f"test:{uuid.uuid4().hex[:8]}", **ground)
        all_of_them: list[ServiceProcess] = [pool]
        try:
            start_all([pool])
            dispatchers = [DispatcherProcess(pool=pool, **ground) for _ in range(2)]
            all_of_them += dispatchers
            start_all(dispatchers)
            # To the first, so that nodes of the second are reached by relay.
            to = {"pool": pool, "dispatchers": dispatchers[0].address}
            never = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"}
            never["OTEL_TRACES_SAMPLER_ARG"] = "0"
            silent = ground | {"environ": collector.environ | never}
            gateways = [GatewayProcess(**to, **ground), GatewayProcess(**to, **silent)]
            all_of_them += gateways
            start_all(gateways)
            yield Traced(collector, pool, dispatchers, gateways[0], gateways[1])
            for each in all_of_them:
                assert not each.faults(), each.log()
        finally:
            for each in all_of_them:
                each.stop()


@pytest.fixture
def language() -> str:
    """A language that no other test uses."""
    return local_code(next(_codes))


@pytest.fixture
async def traced_client(traced: Traced) -> AsyncIterator[RawClient]:
    """A client of the gateway that samples."""
    async with raw_client(traced.gateway.address) as client:
        yield client
