"""Nodes cannot tell which turns belong to one conversation, and join those parts that they must."""

from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.security.test_tenants import hello
from tests.support.audio import speech
from tests.support.raw_client import RawClient, new_session, raw_client
from tests.support.raw_node import RawNode

TENANT = "secret-tenant"


@pytest.fixture
async def node(services: Services, issuer: Issuer) -> AsyncIterator[RawNode]:
    metadata = issuer.metadata("node", node_id="follower")
    node = RawNode(services.dispatcher.address, hello("follower", "qfz"), metadata=metadata)
    await node.open()
    yield node
    await node.cut()


@pytest.fixture
async def client(services: Services, issuer: Issuer) -> AsyncIterator[RawClient]:
    metadata = issuer.metadata("client", tenant=TENANT)
    async with raw_client(services.gateway.address, metadata) as client:
        yield client


async def finish(node: RawNode, client: RawClient, index: int) -> dispatcher_pb2.JobAssign:
    """One utterance, from its end to its result."""
    await client.send(speech(index + 1), final=True)
    assign = await node.take_job()
    await node.result(assign)
    await client.result(index)
    return assign


async def test_a_node_is_told_neither_tenant_nor_session_and_each_turn_has_another_name(
    node: RawNode, client: RawClient
) -> None:
    opened = await client.open(new_session("qfz", tenant=""))
    assigns = [await finish(node, client, index) for index in range(3)]

    assert len({each.job.session_id for each in assigns}) == 3
    for assign in assigns:
        told = str(assign)
        assert opened.session_id not in told
        assert TENANT not in told
        job = assign.job
        assert (job.tenant, job.session_epoch, job.first_chunk_client_ms) == ("", 0, 0)
        assert not job.steps
        assert not job.HasField("limits")


async def test_what_a_node_holds_and_what_joins_it_have_one_name(
    node: RawNode, client: RawClient
) -> None:
    opened = await client.open(new_session("qfz", tenant=""))
    await client.send(speech(1, ms=500))
    held = await node.take_job()
    assert held.job.reason == common_pb2.FINALIZE_REASON_TIMEOUT
    await node.held(held)
    await client.result(0)
    await client.send(speech(2), final=True)
    joining = await node.take_job()
    assert joining.job.session_id == held.job.session_id != opened.session_id
    assert not joining.begins_turn
    texts = dispatcher_pb2.Texts(source="both", translated="both")
    joined = dispatcher_pb2.JobResult(
        attempt=joining.attempt,
        kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
        texts=texts,
        joined_utterances=[0],
    )
    await node.say(dispatcher_pb2.NodeEvent(job_result=joined))
    assert (await client.result(1)).joined_utterances == [0]
    after = await finish(node, client, 2)
    assert after.job.session_id != held.job.session_id
