"""What is for operators does not reach clients: the words of nodes, and addresses of services."""

import uuid
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import (
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from tests.security.conftest import Services
from tests.security.issuer import Issuer, bearer
from tests.security.test_tenants import hello
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client
from tests.support.raw_node import RawNode
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

WORDS = "the words that somebody said"


@pytest.mark.parametrize("how", ["fails", "rejects"])
async def test_what_a_node_says_of_a_failure_is_for_operators(
    services: Services, issuer: Issuer, how: str
) -> None:
    src = {"fails": "qcz", "rejects": "qdz"}[how]
    token = bearer(issuer.token("client", tenant="told"))
    node = RawNode(
        services.dispatcher.address,
        hello(f"told-{src}", src),
        metadata=issuer.metadata("node", node_id=f"told-{src}"),
    )
    try:
        await node.open()
        async with raw_client(services.gateway.address, token) as client:
            await client.open(new_session(src, tenant=""))
            await client.send(speech(5), final=True)
            assign = await node.expect_assign()
            if how == "fails":
                await node.ack(assign)
                await node.fail(assign, "NO_GPU", WORDS, worth_retry=False)
            else:
                bad = dispatcher_pb2.JobReject.CAUSE_BAD_JOB
                await node.reject(assign, bad, WORDS)
                retrying = (await client.utterance(0, "retrying")).retrying
                assert "BAD_JOB" in retrying.why.message
            if how == "fails":
                assert "NO_GPU" in (await client.missing(0)).message
            assert WORDS not in str(client.events)
    finally:
        await node.cut()
    async with grpc.aio.insecure_channel(services.dispatcher.address) as channel:
        stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
        request = dispatcher_pb2.GetJobRequest(job_id=assign.attempt.job_id)
        for_client = await stub.GetJob(request, metadata=token)
        for_operator = await stub.GetJob(request, metadata=issuer.metadata("operator"))
    assert for_client.job.attempts
    assert WORDS not in str(for_client)
    assert WORDS in for_operator.job.attempts[0].detail
    assert all(WORDS not in process.log() for process in services.all())


async def test_errors_do_not_tell_where_redis_or_another_service_is() -> None:
    said: list[str] = []

    async def failure(call: Any) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        said.append(f"{caught.value.details()} {caught.value.trailing_metadata()}")

    with (
        EmbeddedRedis() as redis,
        PoolProcess(redis_url=redis.url, prefix=f"test:{uuid.uuid4().hex[:8]}") as pool,
        DispatcherProcess(pool=pool, redis_url=redis.url) as dispatcher,
        GatewayProcess(pool=pool, redis_url=redis.url, dispatchers=dispatcher.address) as gateway,
    ):
        redis.kill()
        async with (
            grpc.aio.insecure_channel(pool.address) as to_pool,
            grpc.aio.insecure_channel(dispatcher.address) as to_dispatcher,
            grpc.aio.insecure_channel(gateway.address) as to_gateway,
        ):
            nodes: Any = pool_pb2_grpc.PoolServiceStub(to_pool)
            jobs: Any = dispatcher_pb2_grpc.DispatcherStub(to_dispatcher)
            sessions: Any = session_pb2_grpc.SessionGatewayStub(to_gateway)
            await failure(nodes.ListNodes(pool_pb2.ListNodesRequest()))
            await failure(jobs.GetJob(dispatcher_pb2.GetJobRequest(job_id="j")))
            await failure(sessions.ListSessions(session_pb2.ListSessionsRequest()))
        async with raw_client(gateway.address) as client:
            await client.say(open=session_pb2.Open(new=new_session("en")))
            said.append(str(await client.failure()))
        ports = [str(redis.port), *(each.address.split(":")[1] for each in (pool, dispatcher))]
        for text in said:
            assert "cannot be used" in text
            assert "127.0.0.1" not in text
            assert not [port for port in ports if port in text]
        assert str(redis.port) in gateway.log()
