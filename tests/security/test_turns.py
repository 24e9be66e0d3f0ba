"""Nobody directs another's conversation to a node of its own choice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from tests.conftest import Eventually
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.raw_node import RawNode
from tests.support.rpc_errors import failure

OURS, THEIRS = {"tenant": "ours"}, {"tenant": "theirs"}
# What tells jobs of the two apart at a node, which is not told the tenant.
OUR_SPEECH = speech(4)


@contextlib.asynccontextmanager
async def connected(
    services: Services, issuer: Issuer, name: str, src: str
) -> AsyncIterator[RawNode]:
    """A node that has its own token, translates from `src`, and was welcomed."""
    hello = dispatcher_pb2.Hello(
        node_id=name,
        incarnation="1",
        max_concurrent_jobs=4,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[src], semantic_langs=[src], tts_langs=["es"]
        ),
    )
    metadata = issuer.metadata("node", node_id=name)
    node = RawNode(services.dispatcher.address, hello, metadata=metadata)
    try:
        await node.open()
        yield node
    finally:
        await node.cut()


@contextlib.asynccontextmanager
async def dispatcher(services: Services) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(services.dispatcher.address) as channel:
        yield dispatcher_pb2_grpc.DispatcherStub(channel)


def job(session_id: str, src: str, **fields: Any) -> dispatcher_pb2.DispatchRequest:
    """One job of a session."""
    spec = dispatcher_pb2.JobSpec(
        session_id=session_id,
        pair=common_pb2.LanguagePair(src=src, tgt="es"),
        audio=speech(3),
        audio_format=FORMAT,
        require_tts=True,
        reason=common_pb2.FINALIZE_REASON_MAX_DURATION,
    )
    spec.MergeFrom(dispatcher_pb2.JobSpec(**fields))
    return dispatcher_pb2.DispatchRequest(job=spec)


async def test_a_single_job_may_not_be_of_a_gateways_session(
    services: Services, issuer: Issuer
) -> None:
    ours, theirs = issuer.metadata("client", **OURS), issuer.metadata("client", **THEIRS)
    async with (
        connected(services, issuer, "turn-a", "xta"),
        dispatcher(services) as stub,
        raw_client(services.gateway.address, ours) as client,
    ):
        session_id = (await client.open(new_session("xta", tenant=""))).session_id
        for who in (ours, theirs):
            code, reason, said = await failure(
                stub.Dispatch(job(session_id, "xta", utterance_index=9), metadata=who)
            )
            assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
            assert [each.field for each in said.field_violations] == ["job.session_id"]


async def test_a_node_cannot_keep_a_conversation_whose_sentences_are_over(
    services: Services, issuer: Issuer, eventually: Eventually
) -> None:
    kept = 0

    async def keep_all(node: RawNode) -> None:
        nonlocal kept
        while True:
            assign = await node.expect_assign(within=60)
            kept += 1
            await node.ack(assign)
            await node.held(assign)

    async with (
        connected(services, issuer, "turn-c", "xtc") as honest,
        connected(services, issuer, "turn-keeper", "xtc") as keeper,
        dispatcher(services) as stub,
        working(honest) as heard,
    ):
        keeping = asyncio.create_task(keep_all(keeper))
        for spoken in range(1, 25):
            final = common_pb2.FINALIZE_REASON_IS_FINAL
            request = job("kept", "xtc", utterance_index=spoken, reason=final)
            await stub.Dispatch(request, metadata=issuer.metadata("client", **OURS))
            # The next job is submitted when the word of the keeper has counted, if it does. What it
            # keeps is heard all the same.
            await keeper.settled()
            await eventually(lambda spoken=spoken: len(heard) == spoken)
        name = "lingua_dispatcher_audio_held_total"
        await services.dispatcher.reaches(kept, name, outcome="not_cut")
        keeping.cancel()
    assert 0 < kept < 24
    assert await services.dispatcher.metric(name, outcome="not_cut") == kept


async def test_a_tenant_cannot_bind_the_session_of_another_to_its_own_node(
    services: Services, issuer: Issuer
) -> None:
    ours, theirs = issuer.metadata("client", **OURS), issuer.metadata("client", **THEIRS)
    async with (
        connected(services, issuer, "turn-b", "xtb") as honest,
        connected(services, issuer, "turn-spy", "xtb") as spy,
        dispatcher(services) as stub,
        working(honest) as heard,
        working(spy) as spied,
    ):
        # A job that is cut off binds its session to its node. The other tenant uses the same id.
        placed = await stub.Dispatch(
            job("shared", "xtb", utterance_index=50, preferred_node_id="turn-spy", strict=True),
            metadata=theirs,
        )
        assert placed.node_id == "turn-spy"
        final = common_pb2.FINALIZE_REASON_IS_FINAL
        for index in range(51, 75):
            # Whatever came before, each of these is free to go to any node.
            await stub.Dispatch(
                job("shared", "xtb", utterance_index=index, reason=final, audio=OUR_SPEECH),
                metadata=ours,
            )
            await stub.Dispatch(
                job("shared", "xtb", utterance_index=index, preferred_node_id="turn-spy"),
                metadata=theirs,
            )
        assert any(each.audio == OUR_SPEECH for each in heard.values())
        assert any(each.audio != OUR_SPEECH for each in spied.values())
