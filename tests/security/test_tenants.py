"""Nobody gets at what belongs to another: sessions, jobs, node ids."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode
from tests.support.rpc_errors import failure

OURS, THEIRS = {"tenant": "ours"}, {"tenant": "theirs"}


@contextlib.asynccontextmanager
async def gateway(services: Services) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(services.gateway.address) as channel:
        yield session_pb2_grpc.SessionGatewayStub(channel)


@contextlib.asynccontextmanager
async def dispatcher(services: Services) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(services.dispatcher.address) as channel:
        yield dispatcher_pb2_grpc.DispatcherStub(channel)


def hello(node_id: str, src: str) -> dispatcher_pb2.Hello:
    return dispatcher_pb2.Hello(
        node_id=node_id,
        incarnation="1",
        max_concurrent_jobs=2,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[src], semantic_langs=[src], tts_langs=["es"]
        ),
    )


@contextlib.asynccontextmanager
async def connected(
    services: Services, issuer: Issuer, name: str, src: str, **claims: Any
) -> AsyncIterator[RawNode]:
    """A node with a token; by default one that is bound to its id."""
    metadata = issuer.metadata("node", **(claims or {"node_id": name}))
    node = RawNode(services.dispatcher.address, hello(name, src), metadata=metadata)
    try:
        yield node
    finally:
        await node.cut()


async def test_a_client_speaks_and_is_understood_through_all_services(
    services: Services, issuer: Issuer
) -> None:
    async with connected(services, issuer, "n1", "qax") as node:
        await node.open()
        metadata = issuer.metadata("client", **OURS)
        async with working(node), raw_client(services.gateway.address, metadata) as client:
            await client.open(new_session("qax", tenant=""))
            await client.send(speech(7), final=True)
            result = await client.result(0)
            assert result.texts.translated == "7"
        async with dispatcher(services) as stub:
            request = dispatcher_pb2.GetJobRequest(job_id=result.job_id)
            assert (await stub.GetJob(request, metadata=metadata)).job.tenant == "ours"


async def test_a_client_opens_no_session_for_another_tenant(
    services: Services, issuer: Issuer
) -> None:
    metadata = issuer.metadata("client", **OURS)
    async with raw_client(services.gateway.address, metadata) as client:
        await client.say(open=session_pb2.Open(new=new_session("qbx", tenant="theirs")))
        said = await client.refused("PERMISSION_DENIED")
        assert [each.field for each in said.field_violations] == ["open.new.tenant"]
        assert await client.status() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_session_is_invisible_to_other_tenants(services: Services, issuer: Issuer) -> None:
    ours, theirs = issuer.metadata("client", **OURS), issuer.metadata("client", **THEIRS)
    async with raw_client(services.gateway.address, ours) as client, gateway(services) as stub:
        opened = await client.open(new_session("qcx", tenant="ours"))
        get = session_pb2.GetSessionRequest(session_id=opened.session_id)
        everything = session_pb2.ListSessionsRequest(page_size=1000)
        of_ours = session_pb2.ListSessionsRequest(page_size=1000, tenant="ours")

        async def listed(request: session_pb2.ListSessionsRequest, metadata: Any) -> bool:
            page = await stub.ListSessions(request, metadata=metadata)
            return any(each.session_id == opened.session_id for each in page.sessions)

        for who in (ours, issuer.metadata("operator")):
            assert (await stub.GetSession(get, metadata=who)).session.tenant == "ours"
            assert await listed(everything, who)
            assert await listed(of_ours, who)
        code, reason, said = await failure(stub.GetSession(get, metadata=theirs))
        assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND")
        assert not await listed(everything, theirs)
        assert not await listed(of_ours, theirs)
        # In the same words as for one that does not exist.
        nobody = session_pb2.GetSessionRequest(session_id="nobody")
        _, _, unknown = await failure(stub.GetSession(nobody, metadata=theirs))
        assert unknown.message == said.message.replace(opened.session_id, "nobody")


async def test_a_session_is_not_resumed_by_another_tenant_even_with_its_token(
    services: Services, issuer: Issuer
) -> None:
    ours, theirs = issuer.metadata("client", **OURS), issuer.metadata("client", **THEIRS)
    address = services.gateway.address
    async with raw_client(address, ours) as client:
        opened = await client.open(new_session("qdx", tenant=""))
        resume = session_pb2.ResumeSession(
            session_id=opened.session_id, resume_token=opened.resume_token
        )
        async with raw_client(address, theirs) as thief:
            await thief.say(open=session_pb2.Open(resume=resume))
            stolen = await thief.refused("SESSION_NOT_FOUND")
        async with raw_client(address, ours) as guesser:
            *most, last = opened.resume_token
            resume.resume_token = "".join(most) + ("B" if last == "A" else "A")
            await guesser.say(open=session_pb2.Open(resume=resume))
            assert await guesser.refused("SESSION_NOT_FOUND") == stolen
        # It was not even touched.
        async with gateway(services) as stub:
            get = session_pb2.GetSessionRequest(session_id=opened.session_id)
            found = await stub.GetSession(get, metadata=ours)
            assert (found.session.epoch, found.session.connected) == (1, True)
        assert not client.ended
    async with raw_client(address, ours) as client:
        await client.resume(opened)


async def test_resume_tokens_are_long_and_all_of_one_length(
    services: Services, issuer: Issuer
) -> None:
    seen = set()
    for _ in range(5):
        async with raw_client(services.gateway.address, issuer.metadata("client")) as client:
            seen.add((await client.open(new_session("qex", tenant=""))).resume_token)
    # 192 bits, in base64.
    assert [len(token) for token in seen] == [32] * 5


async def test_a_job_is_invisible_to_other_tenants_and_has_no_limits_of_its_clients_own(
    services: Services, issuer: Issuer
) -> None:
    ours, theirs = issuer.metadata("client", **OURS), issuer.metadata("client", **THEIRS)
    spec = dispatcher_pb2.JobSpec(
        session_id="s-xf",
        pair=common_pb2.LanguagePair(src="qfx", tgt="es"),
        audio=speech(3),
        audio_format=FORMAT,
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        limits=common_pb2.TenantLimits(jobs=777),
        audio_ms=1,
    )
    async with (
        connected(services, issuer, "n1", "qfx") as node,
        dispatcher(services) as stub,
    ):
        await node.open()
        async with working(node) as jobs:
            request = dispatcher_pb2.DispatchRequest(job=spec)
            job = await stub.Dispatch(request, metadata=ours)
            get = dispatcher_pb2.GetJobRequest(job_id=job.job_id, with_result=True)
            assert (await stub.GetJob(get, metadata=ours)).job.tenant == "ours"
            code, reason, said = await failure(stub.GetJob(get, metadata=theirs))
            assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "JOB_NOT_FOUND")
            nobody = dispatcher_pb2.GetJobRequest(job_id="nobody")
            _, _, unknown = await failure(stub.GetJob(nobody, metadata=theirs))
            assert unknown.message == said.message.replace(job.job_id, "nobody")
            assert jobs[job.job_id].limits.jobs != 777
            assert jobs[job.job_id].audio_ms != 1
        request.job.tenant = "theirs"
        code, _, said = await failure(stub.Dispatch(request, metadata=ours))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert [each.field for each in said.field_violations] == ["job.tenant"]


@pytest.mark.parametrize(
    ("claims", "node_id"),
    [
        ({"node_id": "n1"}, "n2"),
        ({"node_id": "n1"}, "n1.x"),
        ({"node_id": None, "owner": "acme"}, "acme2.gpu"),
        ({"node_id": None, "owner": "acme"}, "acme"),
        ({"node_id": None, "owner": "acme"}, "globex.gpu"),
    ],
)
async def test_a_node_that_claims_anothers_id_is_refused_before_anybody_knows_it(
    services: Services, issuer: Issuer, claims: dict[str, Any], node_id: str
) -> None:
    async with connected(services, issuer, node_id, "qgx", **claims) as node:
        said = await node.refused()
        assert said.reason == common_pb2.ERROR_REASON_PERMISSION_DENIED
        assert [each.field for each in said.field_violations] == ["events[0].hello.node_id"]
        assert await node.status() is grpc.StatusCode.PERMISSION_DENIED
    async with grpc.aio.insecure_channel(services.pool.address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        get = pool_pb2.GetNodeRequest(node_id=node_id)
        _, reason, _ = await failure(stub.GetNode(get, metadata=issuer.metadata("operator")))
        assert reason == "NODE_NOT_FOUND"


async def test_the_nodes_of_an_owner_share_its_token(services: Services, issuer: Issuer) -> None:
    owner: dict[str, Any] = {"node_id": None, "owner": "acme"}
    async with (
        connected(services, issuer, "acme.gpu-1", "qhx", **owner) as one,
        connected(services, issuer, "acme.gpu-2", "qhx", **owner) as two,
    ):
        await one.open()
        await two.open()
