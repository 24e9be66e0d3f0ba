"""What is secret is in no log, however much is logged."""

from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.security.conftest import Services, tokens_in
from tests.security.issuer import Issuer, bearer
from tests.security.test_tenants import hello
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode


async def test_no_log_has_a_token_of_anybody(services: Services, issuer: Issuer) -> None:
    good = issuer.token("client", tenant="logged")
    bad = issuer.signed(issuer.claims("client"), "x" * 40)
    node_token = issuer.token("node", node_id="logged-1")
    async with grpc.aio.insecure_channel(services.pool.address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        for token in (good, bad, f"{good} {bad}", "opaque-and-secret"):
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.ListNodes(pool_pb2.ListNodesRequest(), metadata=bearer(token))
    node = RawNode(
        services.dispatcher.address, hello("logged-1", "za"), metadata=bearer(node_token)
    )
    try:
        await node.open()
        async with (
            working(node),
            raw_client(services.gateway.address, bearer(good)) as client,
        ):
            opened = await client.open(new_session("za", tenant=""))
            await client.send(speech(5), final=True)
            await client.result(0)
    finally:
        await node.cut()
    async with raw_client(services.gateway.address, bearer(good)) as client:
        await client.resume(opened)
    for process in services.all():
        log = process.log()
        assert '"level": "debug"' in log
        assert not tokens_in(log)
        for secret in (opened.resume_token, issuer.secret, "opaque-and-secret"):
            assert secret not in log


async def test_a_refused_call_is_logged_with_who_made_it(
    services: Services, issuer: Issuer
) -> None:
    async with grpc.aio.insecure_channel(services.pool.address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        metadata = issuer.metadata("node", sub="somebody of the log test")
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ListNodes(pool_pb2.ListNodesRequest(), metadata=metadata)
    (line,) = (each for each in services.pool.log().splitlines() if "of the log test" in each)
    for fact in ("call refused", '"role": "node"', "PoolService/ListNodes", "may not call"):
        assert fact in line
