"""A client whose jobs make nodes fail does not take those nodes from others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest

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
from tests.support.raw_node import RawNode

NODES = 4
BAD = dispatcher_pb2.JobReject.CAUSE_BAD_JOB
BAD_AUDIO = speech(9)

Fails = Callable[[RawNode, dispatcher_pb2.JobAssign], Coroutine[Any, Any, None]]


async def calls_it_bad(node: RawNode, assign: dispatcher_pb2.JobAssign) -> None:
    await node.ack(assign)
    await node.fail(assign, "BROKEN_AUDIO", worth_retry=False)


async def rejects_it_as_bad(node: RawNode, assign: dispatcher_pb2.JobAssign) -> None:
    await node.reject(assign, BAD)


async def breaks_down(node: RawNode, assign: dispatcher_pb2.JobAssign) -> None:
    await node.ack(assign)
    await node.fail(assign, "EXCEPTION", worth_retry=True)


def job(src: str, tenant: str, session_id: str, index: int) -> dispatcher_pb2.DispatchRequest:
    return dispatcher_pb2.DispatchRequest(
        job=dispatcher_pb2.JobSpec(
            tenant=tenant,
            session_id=session_id,
            utterance_index=index,
            pair=common_pb2.LanguagePair(src=src, tgt="es"),
            audio=BAD_AUDIO if tenant == "bad" else speech(3),
            audio_format=FORMAT,
            require_tts=True,
            reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        )
    )


@contextlib.asynccontextmanager
async def fleet(
    services: Services, issuer: Issuer, src: str, fails: Fails
) -> AsyncIterator[list[str]]:
    """Nodes that fail with bad audio and do all other jobs."""

    async def work(node: RawNode) -> None:
        while True:
            assign = await node.expect_assign(within=60)
            if assign.job.audio == BAD_AUDIO:
                await fails(node, assign)
            else:
                await node.ack(assign)
                await node.result(assign)

    names = [f"eject-{src}-{number}" for number in range(NODES)]
    async with contextlib.AsyncExitStack() as stack:
        for name in names:
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
            stack.push_async_callback(node.cut)
            await node.open()
            working = asyncio.create_task(work(node))
            stack.callback(working.cancel)
        yield names


@contextlib.asynccontextmanager
async def stubs(services: Services) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        grpc.aio.insecure_channel(services.dispatcher.address) as one,
        grpc.aio.insecure_channel(services.pool.address) as two,
    ):
        yield dispatcher_pb2_grpc.DispatcherStub(one), pool_pb2_grpc.PoolServiceStub(two)


async def shown(pool: Any, issuer: Issuer, names: list[str]) -> list[pool_pb2.Node]:
    metadata = issuer.metadata("operator")
    found = [
        await pool.GetNode(pool_pb2.GetNodeRequest(node_id=name), metadata=metadata)
        for name in names
    ]
    return [each.node for each in found]


async def bad_jobs(dispatcher: Any, issuer: Issuer, src: str, jobs: int, sessions: int) -> None:
    """Jobs of the tenant "bad", one after the other; that they fail is none of its business."""
    metadata = issuer.metadata("client", tenant="bad")
    for index in range(jobs):
        with contextlib.suppress(grpc.aio.AioRpcError):
            request = job(src, "bad", f"s{index % sessions}-{src}", index)
            await dispatcher.Dispatch(request, metadata=metadata, timeout=30)
        # Dispatch answers as soon as a node has acknowledged the job.
        await settled(dispatcher, issuer, src)


async def settled(dispatcher: Any, issuer: Issuer, src: str) -> None:
    """Waits until none of the jobs is under way."""
    request = dispatcher_pb2.ListJobsRequest(page_size=1000)
    over = (common_pb2.JOB_STATE_DONE, common_pb2.JOB_STATE_FAILED)
    async with asyncio.timeout(30):
        while True:
            listed = await dispatcher.ListJobs(request, metadata=issuer.metadata("operator"))
            ours = [each for each in listed.jobs if each.pair.src == src]
            if all(each.state in over for each in ours):
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("src", "fails"),
    [("qja", calls_it_bad), ("qjb", rejects_it_as_bad)],
    ids=["failed", "rejected"],
)
async def test_nodes_that_refuse_bad_jobs_are_not_blamed(
    services: Services, issuer: Issuer, src: str, fails: Fails
) -> None:
    async with fleet(services, issuer, src, fails) as names, stubs(services) as (dispatcher, pool):
        await bad_jobs(dispatcher, issuer, src, jobs=20, sessions=20)
        for node in await shown(pool, issuer, names):
            assert (node.failures_in_row, node.ejected_until_ms) == (0, 0), node.node_id


async def test_one_session_whose_jobs_break_nodes_ejects_none(
    services: Services, issuer: Issuer
) -> None:
    async with (
        fleet(services, issuer, "qjc", breaks_down) as names,
        stubs(services) as (dispatcher, pool),
    ):
        await bad_jobs(dispatcher, issuer, "qjc", jobs=8, sessions=1)
        found = await shown(pool, issuer, names)
        assert {node.failures_in_row for node in found} == {1}
        assert not any(node.ejected_until_ms for node in found)


async def test_a_tenant_that_gets_all_nodes_ejected_stops_nobody(
    services: Services, issuer: Issuer
) -> None:
    metadata = issuer.metadata("client", tenant="good")
    async with (
        fleet(services, issuer, "qjd", breaks_down) as names,
        stubs(services) as (dispatcher, pool),
    ):
        await bad_jobs(dispatcher, issuer, "qjd", jobs=12, sessions=12)
        found = await shown(pool, issuer, names)
        assert sum(node.ejected_until_ms > 0 for node in found) > NODES / 2
        # They stay ejected for 30 s; nobody waits for that.
        for index in range(20):
            await dispatcher.Dispatch(job("qjd", "", "good", index), metadata=metadata, timeout=10)
