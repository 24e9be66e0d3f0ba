"""Services in the test's own event loop, called within the process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from lingua_scheduler.services.runtime.hosted_service import (
    HostedService,
    ServiceKind,
    in_process_address,
)
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.process import environment
from tests.support.services import PATIENT_REDIS_MS


@dataclass(frozen=True)
class Hosted:
    """A running service."""

    address: str
    """For those who call it by gRPC."""
    channel: Callable[[], grpc.aio.Channel]
    """Makes a channel to it within the process."""
    web_address: str
    """Where it serves browsers; empty if it does not."""


@asynccontextmanager
async def hosted(
    kind: ServiceKind, *, redis_url: str, prefix: str, **settings: str | int
) -> AsyncIterator[Hosted]:
    """Runs a service with these settings."""
    own = load_settings(
        environment(
            redis_url=redis_url,
            redis_prefix=prefix,
            drain_grace_ms=0,
            **{f"{kind.name}_listen": "127.0.0.1:0", f"{kind.name}_metrics_listen": ""},
            **{"redis_timeout_ms": PATIENT_REDIS_MS, **settings},
        )
    )
    cells = Cells(own, load_scripts())
    server = InProcessServer()
    service = HostedService(kind, own, cells, {in_process_address(kind.name): server})
    await cells.open()
    watching = asyncio.create_task(cells.run())
    await service.start()
    try:
        await service.open()
        service.serve(cells.up)
        service.begin_work()
        yield Hosted(service.address, server.channel, service.web_address)
    finally:
        await service.end(0.0)
        watching.cancel()
        await cells.close()
        await service.close()
