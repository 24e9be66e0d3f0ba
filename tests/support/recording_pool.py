"""A pool service that records what it is asked, and clients of pool services."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.dispatcher.pool.connection import PoolConnection
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.support.pool_client import ref

TIMEOUT_MS = 1000
NO_STORE = errors.to_proto(DependencyDownError("Redis is away", retry_after_ms=1))


def make_client(address: str, *, timeout_ms: int = TIMEOUT_MS, **limits: int) -> PoolClient:
    settings = load_settings({})
    return PoolClient(
        PoolConnection(
            address=address,
            timeout_ms=timeout_ms,
            max_message_bytes=limits.get("max_message_bytes", settings.max_message_bytes),
            silence_ms=settings.peer_silence_ms,
            renew_ms=settings.channel_renew_ms,
            cells=limits.get("cells", 1),
            dialer=Dialer(settings),
        )
    )


@contextlib.asynccontextmanager
async def client_of(address: str, **options: Any) -> AsyncIterator[PoolClient]:
    client = make_client(address, **options)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def release(job_id: str, node_id: str = "n1") -> pool_pb2.ReleaseRequest:
    cause = pool_pb2.RELEASE_CAUSE_CANCELLED
    return pool_pb2.ReleaseRequest(attempt=ref(job_id), node_id=node_id, cause=cause)


def commit(job_id: str, node_id: str = "n1") -> pool_pb2.CommitRequest:
    return pool_pb2.CommitRequest(attempt=ref(job_id), node_id=node_id)


class RecordingServer(pool_pb2_grpc.PoolServiceServicer):
    """Answers every operation with an empty response, and remembers the messages."""

    def __init__(self) -> None:
        self.batches: list[pool_pb2.OperateRequest] = []
        self.streams = 0
        self.leave_unread = False
        self.has_store = True
        self.has_cell = True
        """Whether the one cell is up that all operations are about; there are others."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def Operate(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        self.streams += 1
        async for batch in request_iterator:
            if self.leave_unread and batch.operations:
                self.leave_unread = False
                return
            if batch.operations:
                self.batches.append(batch)
                await self.answers.wait()
            response = pool_pb2.OperateResponse()
            for operation in batch.operations:
                result = response.results.add(id=operation.id)
                getattr(result, operation.WhichOneof("operation")).SetInParent()
            if not self.has_cell:
                for result in response.results:
                    result.error.CopyFrom(NO_STORE)
            if not self.has_store:
                for result in response.results or [response.results.add()]:
                    result.error.CopyFrom(NO_STORE)
            yield response


@contextlib.asynccontextmanager
async def recording_server(address: str = "127.0.0.1:0") -> AsyncIterator[Any]:
    servicer = RecordingServer()
    server = grpc.aio.server()
    pool_pb2_grpc.add_PoolServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port(address)
    servicer.address = f"127.0.0.1:{port}"  # type: ignore[attr-defined]
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)
