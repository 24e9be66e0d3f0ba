"""An owner of nodes hears no more than its share, however many ids and slots it claims."""

import contextlib
from typing import Any

import grpc

from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
)
from tests.security.conftest import Services
from tests.security.issuer import Issuer
from tests.support.audio import FORMAT, speech
from tests.support.raw_client import working
from tests.support.raw_node import RawNode


def node(
    services: Services, issuer: Issuer, name: str, src: str, slots: int = 4, **claims: Any
) -> RawNode:
    """A node; without claims its token is bound to its id."""
    hello = dispatcher_pb2.Hello(
        node_id=name,
        incarnation="1",
        max_concurrent_jobs=slots,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=[src], semantic_langs=[src], tts_langs=["es"]
        ),
    )
    metadata = issuer.metadata("node", **(claims or {"node_id": name}))
    return RawNode(services.dispatcher.address, hello, metadata=metadata)


async def test_an_owner_with_many_node_ids_hears_no_more_than_one_node(
    services: Services, issuer: Issuer
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        own: list[dict[str, dispatcher_pb2.JobSpec]] = []
        owner: dict[str, Any] = {"node_id": None, "owner": "greedy"}
        for number in range(12):
            many = node(services, issuer, f"greedy.{number}", "kl", slots=50, **owner)
            stack.push_async_callback(many.cut)
            await many.open()
            own.append(await stack.enter_async_context(working(many)))
        for number in range(3):
            one = node(services, issuer, f"modest-{number}", "kl", slots=50)
            stack.push_async_callback(one.cut)
            await one.open()
            await stack.enter_async_context(working(one))
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(services.dispatcher.address)
        )
        stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
        metadata = issuer.metadata("client", tenant="ours")
        for index in range(100):
            spec = dispatcher_pb2.JobSpec(
                session_id=f"owners-{index}",
                pair=common_pb2.LanguagePair(src="kl", tgt="es"),
                audio=speech(3),
                audio_format=FORMAT,
                require_tts=True,
                reason=common_pb2.FINALIZE_REASON_IS_FINAL,
            )
            await stub.Dispatch(dispatcher_pb2.DispatchRequest(job=spec), metadata=metadata)
        heard = sum(len(jobs) for jobs in own)
        to_pool = await stack.enter_async_context(grpc.aio.insecure_channel(services.pool.address))
        pool: Any = pool_pb2_grpc.PoolServiceStub(to_pool)
        get = pool_pb2.GetNodeRequest(node_id="greedy.0")
        found = await pool.GetNode(get, metadata=issuer.metadata("operator"))
        assert found.node.node_owner == "greedy"
    # A quarter: it is one of four. By the number of its ids it would be 80 of 100.
    assert 5 <= heard <= 50


async def test_an_owner_claims_no_more_slots_than_it_may(
    services: Services, issuer: Issuer
) -> None:
    owner: dict[str, Any] = {"node_id": None, "owner": "huge"}
    first = node(services, issuer, "huge.0", "to", slots=1000, **owner)
    second = node(services, issuer, "huge.1", "to", slots=1, **owner)
    try:
        await first.open()
        said = await second.refused()
        assert said.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
        assert (said.metadata["limit"], said.metadata["allowed"]) == ("owner_slots", "1000")
        assert said.retry_after_ms > 0
        # The node that is there is not concerned.
        assert await first.settled() == []
    finally:
        await first.cut()
        await second.cut()
