"""Several dispatchers over one pool service and one Redis, with leases that end within a test."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.support.audio import FORMAT
from tests.support.local_codes import local_code
from tests.support.pool_client import Pool, connected
from tests.support.services import DispatcherProcess, PoolProcess

# All that is lost heals within the longest of these.
SHORT: dict[str, int] = {
    "reservation_ttl_ms": 1500,
    "ack_timeout_ms": 500,
    "running_lease_ms": 4000,
    "job_timeout_ms": 3000,
    "node_reconnect_grace_ms": 2000,
    "node_heartbeat_ms": 300,
    "heartbeat_stale_ms": 1500,
    "heartbeat_batch_ms": 100,
    "redis_timeout_ms": 1200,
}
LONGEST_LEASE_S = SHORT["running_lease_ms"] / 1000
# For what a busy machine adds to any time.
SLACK_S = 5.0

_codes = itertools.count()


NAME = "name"
"""The feature that tells a node the session of a job."""


@dataclass
class Cluster:
    """The dispatchers of one test, and languages that no other test uses."""

    pool: Pool
    dispatchers: list[DispatcherProcess]
    src: str
    tgt: str = "es"

    def addresses(self, *order: int) -> list[str]:
        """The addresses of dispatchers, in this order; by default of all."""
        return [self.dispatchers[at].address for at in order or range(len(self.dispatchers))]

    def spec(self, index: int, **fields: Any) -> dispatcher_pb2.JobSpec:
        """A job; by default each index is a session of its own."""
        values: dict[str, Any] = {
            "session_id": f"s-{self.src}-{index}",
            "audio": index.to_bytes(4, "little") * 4,
            "reason": common_pb2.FINALIZE_REASON_IS_FINAL,
            "require_tts": True,
            **fields,
        }
        # Nodes are not told the session.
        values["features"] = {NAME: values["session_id"]}
        return dispatcher_pb2.JobSpec(
            tenant="t",
            utterance_index=index,
            pair=common_pb2.LanguagePair(src=self.src, tgt=self.tgt),
            audio_format=FORMAT,
            **values,
        )

    async def leases(self, node_ids: Iterable[str]) -> list[pool_pb2.Lease]:
        """The leases on these nodes, as the pool service sees them."""
        answers = await asyncio.gather(*(self.pool.node(each) for each in node_ids))
        return [lease for answer in answers for lease in answer.leases]

    async def all_slots_back(
        self, node_ids: Sequence[str], within: float = LONGEST_LEASE_S + SLACK_S
    ) -> float:
        """Waits until no lease is left; returns the seconds that it took."""
        started = time.monotonic()
        while left := await self.leases(node_ids):
            assert time.monotonic() < started + within, f"not given back: {left}"
            await asyncio.sleep(0.05)
        return time.monotonic() - started

    async def until_metric(
        self, at: int, name: str, holds: Callable[[float], bool], within: float = 20.0
    ) -> float:
        """Waits until a dispatcher's metric is as wanted; returns it."""
        deadline = time.monotonic() + within
        while not holds(value := await self.dispatchers[at].metric(name)):
            assert time.monotonic() < deadline, f"dispatcher {at}: {name} is still {value}"
            await asyncio.sleep(0.02)
        return value

    def check_logs(self) -> None:
        """Fails if the log of a dispatcher tells of a bug."""
        for at, dispatcher in enumerate(self.dispatchers):
            assert not dispatcher.faults(), f"dispatcher {at}:\n{dispatcher.log()}"


@contextlib.asynccontextmanager
async def running_cluster(
    pool_process: PoolProcess,
    redis_url: str,
    count: int,
    limits: dict[str, int] | None = None,
    **settings: int,
) -> AsyncIterator[Cluster]:
    """Dispatchers named d0, d1 and so on; fails at the end if a log tells of a bug."""
    src = local_code(next(_codes))
    dispatchers = [
        DispatcherProcess(
            pool=pool_process,
            redis_url=redis_url,
            limits=limits,
            **{"instance_id": f"d{at}", **SHORT, "queue_wait_ms": 20_000, **settings},
        )
        for at in range(count)
    ]
    try:
        for dispatcher in dispatchers:
            dispatcher.start()
        for dispatcher in dispatchers:
            await asyncio.to_thread(dispatcher.wait_ready)
        async with connected(pool_process, redis_url) as pool:
            cluster = Cluster(pool=pool, dispatchers=dispatchers, src=src)
            yield cluster
            cluster.check_logs()
    finally:
        await asyncio.gather(*(asyncio.to_thread(each.stop) for each in dispatchers))
