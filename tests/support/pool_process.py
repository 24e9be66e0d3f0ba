"""A pool service as a process of its own, on real sockets, and what tests say to it."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.service_process import START_S, ServiceProcess


class PoolProcess(ServiceProcess):
    """Starts a pool service and ends it."""

    name = "pool"
    package = "pool_service"

    def __init__(
        self,
        *,
        url: str,
        prefix: str,
        environ: dict[str, str] | None = None,
        **settings: str | int,
    ) -> None:
        super().__init__(redis_url=url, prefix=prefix, environ=environ, **settings)

    def wait_listening(self, within: float = START_S) -> None:
        """Returns when the service listens, which it does before it has found Redis."""
        deadline = time.monotonic() + within
        while True:
            for line in self.log().splitlines():
                with contextlib.suppress(json.JSONDecodeError):
                    record = json.loads(line)
                    if record["event"] == "listening":
                        self.address, self.metrics_address = record["address"], record["metrics"]
                        return
            assert self.process.poll() is None, f"the pool service ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"the pool service does not listen:\n{self.log()}"
            time.sleep(0.01)

    def wait_end(self, within: float = START_S) -> int:
        """The exit code of a process that ends by itself."""
        return self.process.wait(within)


@dataclass
class Pool:
    """A client of a pool service, and a look past it into the store."""

    process: PoolProcess
    channel: grpc.aio.Channel
    stub: "pool_pb2_grpc.PoolServiceAsyncStub"
    store: "redis.Redis[bytes]"

    @property
    def prefix(self) -> str:
        """Of every key of this service."""
        return self.process.prefix

    def keys(self) -> set[str]:
        """What is stored, without the prefix; the layout, which is there from the start, is not."""
        found = self.store.scan_iter(match=f"{self.prefix}:*", count=1000)
        return {key.decode().removeprefix(f"{self.prefix}:") for key in found} - {"layout"}

    def forget_all(self) -> None:
        """Empties the store of this service."""
        if keys := self.keys():
            self.store.delete(*(f"{self.prefix}:{key}" for key in keys))

    def leases(self) -> dict[str, set[bytes]]:
        """The members of all sets of leases that are not empty, ended ones included."""
        return {
            key: set(self.store.zrange(f"{self.prefix}:{key}", 0, -1))
            for key in self.keys()
            if key.endswith((":reserved", ":running"))
        }

    async def health(self) -> int:
        """What the standard health service says: SERVING or NOT_SERVING."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        return int(answer.status)

    async def serves(self, within: float = 10.0) -> None:
        """Returns when the health service says SERVING."""
        deadline = time.monotonic() + within
        while await self.health() != health_pb2.HealthCheckResponse.SERVING:
            assert time.monotonic() < deadline, f"not serving:\n{self.process.log()}"
            await asyncio.sleep(0.02)

    async def register(self, node_id: str, **fields: Any) -> pool_pb2.RegisterNodeResponse:
        """Registers a node as `registration` describes it."""
        return await self.stub.RegisterNode(registration(node_id, **fields))

    async def node(self, node_id: str) -> pool_pb2.GetNodeResponse:
        """A node and its leases."""
        return await self.stub.GetNode(pool_pb2.GetNodeRequest(node_id=node_id))


@contextlib.asynccontextmanager
async def connected(process: PoolProcess, redis_url: str) -> AsyncIterator[Pool]:
    """A client of a service that listens."""
    async with grpc.aio.insecure_channel(process.address) as channel:
        with redis.Redis.from_url(redis_url, protocol=2) as store:
            yield Pool(
                process=process,
                channel=channel,
                stub=pool_pb2_grpc.PoolServiceStub(channel),  # type: ignore[assignment]
                store=store,
            )


@contextlib.asynccontextmanager
async def running_pool(redis_url: str, prefix: str, **settings: str | int) -> AsyncIterator[Pool]:
    """A service of the test's own, and a client of it."""
    process = PoolProcess(url=redis_url, prefix=prefix, **settings)
    process.start()
    try:
        await asyncio.to_thread(process.wait_ready)
        async with connected(process, redis_url) as pool:
            yield pool
    finally:
        await asyncio.to_thread(process.stop)


def pair(name: str) -> common_pb2.LanguagePair:
    """A direction from two codes with ">" between them."""
    src, tgt = name.split(">")
    return common_pb2.LanguagePair(src=src, tgt=tgt)


def registration(
    node_id: str,
    *,
    slots: int = 2,
    asr: tuple[str, ...] = ("zh",),
    tts: tuple[str, ...] = ("en",),
    nmt: tuple[str, ...] = (),
    **fields: Any,
) -> pool_pb2.RegisterNodeRequest:
    """A node that does zh->en, unless told otherwise."""
    values: dict[str, Any] = {
        "incarnation": f"{node_id}-1",
        "stream_id": f"{node_id}-s1",
        "owner_instance": "dispatcher-0",
        "owner_address": "127.0.0.1:7720",
        **fields,
    }
    return pool_pb2.RegisterNodeRequest(
        node_id=node_id,
        max_concurrent_jobs=slots,
        capabilities=common_pb2.NodeCapabilities(
            asr_langs=asr,
            semantic_langs=asr,
            tts_langs=tts,
            nmt_pairs=[pair(name) for name in nmt],
            stages=values.pop("stages", []),
        ),
        **values,
    )


def criteria(direction: str = "zh>en", **fields: Any) -> pool_pb2.NodeCriteria:
    """A speech job from zh to en, unless told otherwise."""
    return pool_pb2.NodeCriteria(**{"pair": pair(direction), "require_tts": True, **fields})


def allocation(
    job_id: str, attempt: int = 1, *, wants: pool_pb2.NodeCriteria | None = None, **fields: Any
) -> pool_pb2.AllocateRequest:
    """An attempt at a job."""
    return pool_pb2.AllocateRequest(
        job_id=job_id, attempt=attempt, criteria=wants or criteria(), **fields
    )


def ref(job_id: str, attempt: int = 1) -> common_pb2.AttemptRef:
    """An attempt at a job, as the other calls name it."""
    return common_pb2.AttemptRef(job_id=job_id, attempt=attempt)


async def failure(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, common_pb2.Error]:
    """The status, the reason without its prefix, and all else that a call fails with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    said = from_rpc_error(caught.value)
    assert said is not None, f"not an error of the scheduler: {caught.value!r}"
    return caught.value.code(), reason(said), said


def reason(error: common_pb2.Error) -> str:
    """The reason as people write it."""
    return common_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
