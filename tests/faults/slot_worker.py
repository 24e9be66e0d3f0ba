"""A process that uses slots through the real scripts, and not always well, until it is killed."""

import asyncio
import os
import random
import uuid
from contextlib import suppress
from typing import Any

import redis
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.errors import (
    AllCandidatesFullOrFailedError,
    DependencyDownError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.faults.slot_checks import checked_scripts

CALLERS_A_PROCESS = 6
NODES = {f"n{i:02}": 1 + i % 3 for i in range(20)}
"""All nodes, and their slots."""
RESERVATION_MS, RUNNING_MS = 300, 500


def quick_settings(url: str, prefix: str, **others: int) -> Settings:
    """Leases so short that thousands of them end by themselves, unless told otherwise."""
    values: dict[str, Any] = {
        "redis_url": url,
        "redis_prefix": prefix,
        "redis_timeout_ms": RESERVATION_MS - 10,
        "reservation_ttl_ms": RESERVATION_MS,
        "ack_timeout_ms": RESERVATION_MS - 100,
        "running_lease_ms": RUNNING_MS,
        "job_timeout_ms": RUNNING_MS,
        "job_record_ttl_ms": 3000,
        "heartbeat_stale_ms": 3_600_000,
        "eject_failures": 255,
    }
    return Settings(**{**values, **others})


def new_link(url: str, prefix: str, mutation: str) -> RedisLink:
    settings = quick_settings(url, prefix)
    return RedisLink(
        url=url,
        prefix=prefix,
        scripts=checked_scripts(mutation),
        timeout_ms=settings.redis_timeout_ms,
    )


def new_operations(link: RedisLink, url: str, prefix: str, **others: int) -> Operations:
    settings = quick_settings(url, prefix, **others)
    metrics = PoolMetrics(CollectorRegistry())
    cells = Cells(settings, {})
    cells.first.link = link
    reports = NodeReports(
        cells=cells,
        settings=settings,
        metrics=metrics,
        nodes=Nodes(cells=cells, settings=settings),
        registry=Registry(cells=cells, settings=settings),
    )
    return Operations(cells=cells, settings=settings, metrics=metrics, reports=reports)


def allocation(job_id: str, attempt: int = 1) -> pool_pb2.AllocateRequest:
    pair = common_pb2.LanguagePair(src="zh", tgt="en")
    criteria = pool_pb2.NodeCriteria(pair=pair, require_tts=True)
    return pool_pb2.AllocateRequest(job_id=job_id, attempt=attempt, criteria=criteria)


class Caller:
    """Lives through one job after another, and not all of them well."""

    def __init__(self, operations: Operations, name: str) -> None:
        self._do = operations
        self._name = name
        self._dice = random.Random()

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            try:
                await self._job(f"{self._name}.{number}")
            except AllCandidatesFullOrFailedError:
                # About as long as a job takes, so that most calls find room and many do not.
                await asyncio.sleep(self._dice.uniform(0, 0.01))
            except DependencyDownError:
                await asyncio.sleep(0.02)

    async def _job(self, job_id: str) -> None:
        dice = self._dice
        if dice.random() < 0.2:
            ref = common_pb2.AttemptRef(job_id=job_id, attempt=1)
            node_id = await self._reserve_any(ref)
        else:
            first = await self._do.allocate(allocation(job_id))
            ref, node_id = first.attempt, first.placement.node_id
        chance = dice.random()
        if chance < 0.03:
            return  # its holder forgets it
        if chance < 0.10:
            again = await self._do.allocate(allocation(job_id))
            if again.existing and again.attempt == ref:
                assert again.placement.node_id == node_id, "a repeat went to another node"
            ref, node_id = again.attempt, again.placement.node_id
        elif chance < 0.15:
            # The ACK is late: a second node is tried, and whoever answers first wins.
            second = await self._do.allocate(allocation(job_id, ref.attempt + 1))
            if dice.random() < 0.5:
                await self._release(ref, node_id)
                ref, node_id = second.attempt, second.placement.node_id
            else:
                await self._release(second.attempt, second.placement.node_id)
        elif chance < 0.18:
            # The ACK comes when the reservation is over.
            await asyncio.sleep(RESERVATION_MS / 1000 + 0.01)
        elif chance < 0.30:
            await self._release(ref, node_id)
            return
        await self._run_and_complete(ref, node_id)

    async def _reserve_any(self, ref: common_pb2.AttemptRef) -> str:
        """The first of a few named nodes that has room."""
        *some, last = self._dice.sample(list(NODES), 4)
        for node_id in some:
            with suppress(AllCandidatesFullOrFailedError):
                await self._do.reserve(pool_pb2.ReserveRequest(node_id=node_id, attempt=ref))
                return node_id
        await self._do.reserve(pool_pb2.ReserveRequest(node_id=last, attempt=ref))
        return last

    async def _run_and_complete(self, ref: common_pb2.AttemptRef, node_id: str) -> None:
        dice, taken = self._dice, pool_pb2.CommitResponse
        request = pool_pb2.CommitRequest(attempt=ref, node_id=node_id)
        for _ in range(dice.choice((1, 1, 1, 2))):
            outcome = (await self._do.commit(request)).outcome
        if outcome in (taken.OUTCOME_NO_ROOM, taken.OUTCOME_SUPERSEDED):
            return
        if dice.random() < 0.02:
            return  # its node dies with it
        if dice.random() < 0.05:
            await self._release(ref, node_id)  # too late, it runs
        await asyncio.sleep(dice.uniform(0, 0.008))
        ended = dice.choice(
            (
                pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
                pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
                pool_pb2.ATTEMPT_OUTCOME_FAILED,
                pool_pb2.ATTEMPT_OUTCOME_CANCELLED,
            )
        )
        over = pool_pb2.CompleteRequest(attempt=ref, node_id=node_id, outcome=ended)
        for _ in range(dice.choice((1, 1, 1, 2))):
            await self._do.complete(over)

    async def _release(self, ref: common_pb2.AttemptRef, node_id: str) -> None:
        cause = pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT
        await self._do.release(pool_pb2.ReleaseRequest(attempt=ref, node_id=node_id, cause=cause))


async def work(url: str, prefix: str, mutation: str) -> None:
    """Calls until it is killed. What no caller expects is left in Redis for the test."""
    link = new_link(url, prefix, mutation)
    await link.open()
    operations = new_operations(link, url, prefix)
    name = uuid.uuid4().hex[:8]
    try:
        await asyncio.gather(
            *(Caller(operations, f"{name}-{n}").run() for n in range(CALLERS_A_PROCESS))
        )
    except Exception as error:
        with redis.Redis.from_url(url, protocol=2) as client:
            client.rpush(f"{prefix}:test:failures", repr(error))
        raise


def main() -> None:
    """Runs a worker as its environment says."""
    url, prefix = os.environ["WORKER_REDIS"], os.environ["WORKER_PREFIX"]
    asyncio.run(work(url, prefix, os.environ["WORKER_MUTATION"]))
