"""A stream ends when the token that opened it does, and leaves nothing behind."""

import asyncio
import contextlib
import time
from typing import Any

import grpc

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
)
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.security.test_tenants import hello
from tests.support.raw_client import new_session, raw_client
from tests.support.raw_node import RawNode


async def test_a_session_goes_on_with_the_next_token(services: Services, issuer: Issuer) -> None:
    address, ends = services.gateway.address, time.time() + 2.5
    metadata = issuer.metadata("client", exp=ends - LEEWAY_S)
    async with raw_client(address, metadata) as client:
        opened = await client.open(new_session("qay", tenant=""))
        said = await client.failure()
        assert said.reason == common_pb2.ERROR_REASON_UNAUTHENTICATED
        assert "expired" in said.message
        assert time.time() >= ends
    await gone(services, "lingua_gateway_sessions")
    async with raw_client(address, issuer.metadata("client")) as client:
        assert (await client.resume(opened)).session_id == opened.session_id


async def test_a_nodes_stream_ends_and_the_node_is_taken_out(
    services: Services, issuer: Issuer
) -> None:
    metadata = issuer.metadata("node", exp=time.time() + 2.5 - LEEWAY_S)
    node = RawNode(services.dispatcher.address, hello("n1", "qby"), metadata=metadata)
    try:
        await node.open()
        assert await node.status() is grpc.StatusCode.UNAUTHENTICATED
    finally:
        await node.cut()
    async with grpc.aio.insecure_channel(services.pool.address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        get, operator = pool_pb2.GetNodeRequest(node_id="n1"), issuer.metadata("operator")
        offline = common_pb2.NODE_HEALTH_OFFLINE
        async with asyncio.timeout(10):
            while (await stub.GetNode(get, metadata=operator)).node.health != offline:
                pass


async def test_streams_between_services_end_too(services: Services, issuer: Issuer) -> None:
    metadata = issuer.metadata("service", exp=time.time() + 2.5 - LEEWAY_S)
    async with contextlib.AsyncExitStack() as stack:
        pool = await stack.enter_async_context(grpc.aio.insecure_channel(services.pool.address))
        dispatcher = await stack.enter_async_context(
            grpc.aio.insecure_channel(services.dispatcher.address)
        )
        streams: dict[str, Any] = {
            "Operate": pool_pb2_grpc.PoolServiceStub(pool).Operate(metadata=metadata),
            "Submit": dispatcher_pb2_grpc.DispatcherStub(dispatcher).Submit(metadata=metadata),
            "Relay": dispatcher_pb2_grpc.DispatcherStub(dispatcher).Relay(metadata=metadata),
        }
        # All three are open: this one answers what is empty.
        await streams["Submit"].write(dispatcher_pb2.SubmitRequest())
        await streams["Submit"].read()
        for name, stream in streams.items():
            with contextlib.suppress(grpc.aio.AioRpcError):
                async with asyncio.timeout(10):
                    await stream.read()
            assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED, name
            assert "expired" in await stream.details()


async def gone(services: Services, gauge: str) -> None:
    """Returns when nothing is left of what a gauge of the gateway counts."""
    async with asyncio.timeout(10):
        while await services.gateway.metric(gauge):
            pass
