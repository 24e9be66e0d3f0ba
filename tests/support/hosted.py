"""Services in the test's own event loop, called within the process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from lingua_scheduler.services.runtime.hosted_service import (
    HostedService,
    ServiceKind,
    in_process_address,
)
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.process import environment
from tests.support.services import PATIENT_REDIS_MS


@asynccontextmanager
async def hosted(
    kind: ServiceKind, *, redis_url: str, prefix: str
) -> AsyncIterator[grpc.aio.Channel]:
    """A service, and a channel to it within the process."""
    settings = load_settings(
        environment(
            redis_url=redis_url,
            redis_prefix=prefix,
            redis_timeout_ms=PATIENT_REDIS_MS,
            drain_grace_ms=0,
            **{f"{kind.name}_listen": "127.0.0.1:0", f"{kind.name}_metrics_listen": ""},
        )
    )
    link = RedisLink(
        url=redis_url, prefix=prefix, scripts=load_scripts(), timeout_ms=PATIENT_REDIS_MS
    )
    server = InProcessServer()
    service = HostedService(kind, settings, link, {in_process_address(kind.name): server})
    await link.open()
    await service.start()
    try:
        await service.open()
        service.serve(link.up)
        service.begin_work()
        async with server.channel() as channel:
            yield channel
    finally:
        await service.end(0.0)
        await link.close()
        await service.close()
