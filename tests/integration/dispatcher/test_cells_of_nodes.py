"""The cell of a node, as the pool service says it: every later call about the node repeats it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.dispatcher.main import DISPATCHER
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, pool_pb2_grpc
from tests.conftest import Eventually
from tests.support.audio import FORMAT
from tests.support.hosted import Hosted, hosted
from tests.support.raw_gateway import RawGateway
from tests.support.raw_node import RawNode

# The cell of the node's registration, and that of its attempts: they differ only here.
REGISTERED, PLACED = 3, 5
PAIR = common_pb2.LanguagePair(src="zh", tgt="en")


class PoolOfCells(pool_pb2_grpc.PoolServiceServicer):
    """Places every job on node "n1", says which cells that is in, and remembers the operations."""

    def __init__(self) -> None:
        self.operations: list[pool_pb2.Operation] = []

    def last(self, name: str) -> Any:
        """The last request of this name; None if there was none."""
        found = [each for each in self.operations if each.WhichOneof("operation") == name]
        return getattr(found[-1], name) if found else None

    async def RegisterNode(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pool_pb2.RegisterNodeResponse(epoch=1, pools=1, cell=REGISTERED)

    async def Operate(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for request in request_iterator:
            self.operations += request.operations
            response = pool_pb2.OperateResponse()
            for operation in request.operations:
                result, name = (
                    response.results.add(id=operation.id),
                    operation.WhichOneof("operation"),
                )
                getattr(result, name).SetInParent()
                if name == "allocate":
                    result.allocate.CopyFrom(self._placed(operation.allocate))
            yield response

    @staticmethod
    def _placed(request: pool_pb2.AllocateRequest) -> pool_pb2.AllocateResponse:
        return pool_pb2.AllocateResponse(
            attempt=common_pb2.AttemptRef(job_id=request.job_id, attempt=request.attempt),
            placement=pool_pb2.Placement(node_id="n1", node_epoch=1, cell=PLACED),
            state=common_pb2.JOB_STATE_RESERVED,
            lease_ends_ms=1,
        )


@pytest.fixture
async def pool() -> AsyncIterator[PoolOfCells]:
    servicer, server = PoolOfCells(), grpc.aio.server()
    pool_pb2_grpc.add_PoolServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"  # type: ignore[attr-defined]
    await server.start()
    try:
        yield servicer
    finally:
        await server.stop(0)


@pytest.fixture(params=[1, 8], ids=["one cell", "8 cells"])
async def dispatcher(
    request: pytest.FixtureRequest, pool: Any, redis_url: str, prefix: str
) -> AsyncIterator[Hosted]:
    async with hosted(
        DISPATCHER,
        redis_url=redis_url,
        prefix=prefix,
        cells=request.param,
        pool_address=pool.address,
        heartbeat_batch_ms=50,
    ) as made:
        yield made


def spec(**fields: Any) -> dispatcher_pb2.JobSpec:
    return dispatcher_pb2.JobSpec(
        tenant="t",
        session_id="s",
        pair=PAIR,
        audio=b"\0\1" * 160,
        audio_format=FORMAT,
        limits=common_pb2.TenantLimits(jobs=7),
        **fields,
    )


async def node_of(dispatcher: Hosted) -> RawNode:
    languages = common_pb2.NodeCapabilities(
        asr_langs=["zh"], semantic_langs=["zh"], tts_langs=["en"]
    )
    node = RawNode(
        dispatcher.address,
        dispatcher_pb2.Hello(
            node_id="n1", incarnation="i", capabilities=languages, max_concurrent_jobs=4
        ),
    )
    await node.open()
    return node


async def test_calls_about_a_node_and_its_attempts_name_its_cell(
    dispatcher: Hosted, pool: PoolOfCells, eventually: Eventually, request: pytest.FixtureRequest
) -> None:
    node, gateway = await node_of(dispatcher), RawGateway("", dispatcher.channel())
    try:
        await gateway.submit(spec(reason=common_pb2.FINALIZE_REASON_TIMEOUT))
        assign = await node.take_job()
        await eventually(lambda: pool.last("commit") is not None)
        assert pool.last("commit").cell == PLACED
        await node.heartbeat(running=[assign.attempt])
        await eventually(lambda: pool.last("heartbeat") is not None)
        assert {beat.cell for beat in pool.last("heartbeat").beats} == {REGISTERED}
        await node.held(assign)
        await eventually(lambda: pool.last("complete") is not None)
        assert pool.last("bind_session").cell == REGISTERED
        assert pool.last("complete").cell == PLACED
        # With one cell, the one that counts the jobs of the tenant is that of the job.
        has_many = "one cell" not in request.node.name
        assert pool.last("complete").tenant == ("t" if has_many else "")

        await gateway.submit(spec(utterance_index=1))
        await node.reject(await node.expect_assign())
        await eventually(lambda: pool.last("release") is not None)
        assert pool.last("release").cell == PLACED
    finally:
        await asyncio.gather(node.cut(), gateway.cut())
