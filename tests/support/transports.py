"""The two transports of calls: gRPC on a socket, and the one within a process."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import grpc

from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer

GRPC, IN_PROCESS = "grpc", "in-process"
TRANSPORTS = (GRPC, IN_PROCESS)


@asynccontextmanager
async def channel_to(transport: str, options: Mapping[str, Any]) -> AsyncIterator[grpc.aio.Channel]:
    """Starts a GrpcServer with these options, and yields a channel to it."""
    in_process = InProcessServer() if transport == IN_PROCESS else None
    server = GrpcServer(**options, in_process=in_process)
    address = await server.start()
    try:
        channel = in_process.channel() if in_process else grpc.aio.insecure_channel(address)
        async with channel:
            yield channel
    finally:
        await server.drain()
