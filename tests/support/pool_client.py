"""A client of a pool service, and the requests that tests send."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.services import PoolProcess, running


@dataclass
class Pool:
    """A client of a pool service that also reads the service's keys in Redis."""

    process: PoolProcess
    channel: grpc.aio.Channel
    stub: "pool_pb2_grpc.PoolServiceAsyncStub"
    store: "redis.Redis[bytes]"

    @property
    def prefix(self) -> str:
        """The prefix of every key of this service."""
        return self.process.prefix

    def keys(self) -> set[str]:
        """All keys that requests write, without their prefix.

        The service itself writes the layout at its start, and from time to time what nodes offer
        and that it runs.
        """
        found = self.store.scan_iter(match=f"{self.prefix}:*", count=1000)
        names = {key.decode().removeprefix(f"{self.prefix}:") for key in found}
        own = {"layout", "offers", "instances", "format", "format:readers"}
        return {each for each in names - own if not each.startswith("instance:")}

    def forget_all(self) -> None:
        """Deletes all keys of this service."""
        if keys := self.keys():
            self.store.delete(*(f"{self.prefix}:{key}" for key in keys))

    def leases(self) -> dict[str, set[bytes]]:
        """The members of all sets of leases, including those that have ended."""
        return {
            key: set(self.store.zrange(f"{self.prefix}:{key}", 0, -1))
            for key in self.keys()
            if key.endswith((":reserved", ":running"))
        }

    async def health(self) -> int:
        """The answer of the standard health service: SERVING or NOT_SERVING."""
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
    process = PoolProcess(redis_url=redis_url, prefix=prefix, **settings)
    async with running(process), connected(process, redis_url) as pool:
        yield pool


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
