"""One test's part of a dispatcher that other tests share.

A scene has languages that no other test uses, so that its jobs meet only its own nodes.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    dispatcher_pb2_grpc,
    pool_pb2,
    pool_pb2_grpc,
)
from tests.support.audio import FORMAT
from tests.support.hosted import Hosted
from tests.support.local_codes import local_code
from tests.support.process import SOON_S
from tests.support.raw_gateway import RawGateway
from tests.support.raw_node import RawNode
from tests.support.services import DispatcherProcess, PoolProcess

_codes = itertools.count()


@dataclass
class Scene:
    """One test's nodes and gateways at a dispatcher, with languages of their own."""

    dispatcher: DispatcherProcess
    pool_address: str
    src: str
    tgt: str
    stub: "dispatcher_pb2_grpc.DispatcherAsyncStub"
    hosted: Hosted | None = None
    """A dispatcher within this process, in the place of `dispatcher`."""
    _open: list[RawNode | RawGateway] = field(default_factory=list)

    def hello(self, name: str = "a", *, slots: int = 1, **fields: Any) -> dispatcher_pb2.Hello:
        """The Hello of a node of this scene."""
        values: dict[str, Any] = {
            "incarnation": f"{name}-1",
            "capabilities": common_pb2.NodeCapabilities(
                asr_langs=[self.src], semantic_langs=[self.src], tts_langs=[self.tgt]
            ),
            **fields,
        }
        return dispatcher_pb2.Hello(
            node_id=f"{self.src}-{name}", max_concurrent_jobs=slots, **values
        )

    def peer(self, hello: dispatcher_pb2.Hello, **options: bool) -> RawNode:
        """A node that has connected, and has sent nothing yet."""
        node = RawNode((self.hosted or self.dispatcher).address, hello, **options)
        self._open.append(node)
        return node

    async def node(
        self,
        name: str = "a",
        *,
        slots: int = 1,
        beats: bool = True,
        reads: bool = True,
        **fields: Any,
    ) -> RawNode:
        """A node that has been welcomed."""
        node = self.peer(self.hello(name, slots=slots, **fields), beats=beats, reads=reads)
        await node.open()
        return node

    def gateway(self) -> RawGateway:
        """A gateway of this scene."""
        within = self.hosted.channel() if self.hosted else None
        gateway = RawGateway(self.dispatcher.address, within)
        self._open.append(gateway)
        return gateway

    def spec(self, index: int = 0, **fields: Any) -> dispatcher_pb2.JobSpec:
        """A job for the nodes of this scene."""
        values: dict[str, Any] = {
            "session_id": f"s-{self.src}",
            "audio": b"\0\1" * 160,
            "reason": common_pb2.FINALIZE_REASON_IS_FINAL,
            "require_tts": True,
            **fields,
        }
        return dispatcher_pb2.JobSpec(
            tenant="t",
            utterance_index=index,
            pair=common_pb2.LanguagePair(src=self.src, tgt=self.tgt),
            audio_format=FORMAT,
            **values,
        )

    async def job(self, job: str, **fields: bool) -> dispatcher_pb2.GetJobResponse:
        """A job as operators see it."""
        return await self.stub.GetJob(dispatcher_pb2.GetJobRequest(job_id=job, **fields))

    async def ended(self, job: str) -> dispatcher_pb2.Job:
        """Waits until the record, which lags behind the job, has the last attempt's outcome."""
        deadline = time.monotonic() + SOON_S
        while not (record := (await self.job(job)).job).attempts[-1].outcome:
            assert time.monotonic() < deadline, f"not yet ended: {record}"
            await asyncio.sleep(0.01)
        return record

    async def known_node(self, node: RawNode | dispatcher_pb2.Hello) -> pool_pb2.Node | None:
        """A node as the pool service sees it; None if it is unknown there."""
        async with grpc.aio.insecure_channel(self.pool_address) as channel:
            stub = pool_pb2_grpc.PoolServiceStub(channel)
            try:
                answer = await stub.GetNode(pool_pb2.GetNodeRequest(node_id=node.node_id))
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
                return None
        assert isinstance(answer, pool_pb2.GetNodeResponse)
        return answer.node

    async def until(
        self,
        node: RawNode | dispatcher_pb2.Hello,
        condition: Callable[[pool_pb2.Node | None], bool],
    ) -> pool_pb2.Node | None:
        """Waits until the pool service sees the node as wanted."""
        deadline = time.monotonic() + SOON_S
        while not condition(known := await self.known_node(node)):
            assert time.monotonic() < deadline, f"the pool service still sees {known}"
            await asyncio.sleep(0.02)
        return known

    async def drains(self, within: float = SOON_S) -> None:
        """Returns when the dispatcher reports that it does not serve."""
        deadline = time.monotonic() + within
        async with grpc.aio.insecure_channel(self.dispatcher.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest()
            while (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING:
                assert time.monotonic() < deadline, "the dispatcher still serves"
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Cuts all streams."""
        for peer in self._open:
            await peer.cut()


@contextlib.asynccontextmanager
async def scene(dispatcher: DispatcherProcess, pool: PoolProcess) -> AsyncIterator[Scene]:
    """A scene at this dispatcher; fails at the end if its log tells of a bug."""
    async with grpc.aio.insecure_channel(dispatcher.address) as channel:
        made = Scene(
            dispatcher=dispatcher,
            pool_address=pool.address,
            src=local_code(next(_codes)),
            tgt="es",
            stub=dispatcher_pb2_grpc.DispatcherStub(channel),
        )
        try:
            yield made
        finally:
            await made.close()
    assert not dispatcher.faults(), dispatcher.log()


@contextlib.asynccontextmanager
async def together(
    dispatchers: list[DispatcherProcess], pool: PoolProcess
) -> AsyncIterator[list[Scene]]:
    """A scene at each dispatcher, all with the same languages."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(scene(dispatchers[0], pool))
        scenes = [first]
        for dispatcher in dispatchers[1:]:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(dispatcher.address))
            stub = dispatcher_pb2_grpc.DispatcherStub(channel)
            made = replace(first, dispatcher=dispatcher, stub=stub, _open=[])
            stack.push_async_callback(made.close)
            scenes.append(made)
        yield scenes
    for dispatcher in dispatchers:
        assert not dispatcher.faults(), dispatcher.log()
