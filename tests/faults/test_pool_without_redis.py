"""A pool service that cannot reach Redis, beside one that can: its dispatcher goes to the other."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from tests.faults.cluster import SHORT, SLACK_S, Cluster, running_cluster
from tests.faults.fleet import fleet_of
from tests.faults.steady_gateway import steady_gateway
from tests.robustness.network import CUT, SILENT, SWALLOW, Link, Network
from tests.support.services import PoolProcess

# A link that is silent is known to be so after redis_timeout_ms; a busy machine needs some more.
SETTINGS = {**SHORT, "redis_timeout_ms": 600, "heartbeat_stale_ms": 3000}
# Longer than any of the times after which a node would be out of its pools.
AWAY_S = 5.0
# With the pause that a gateway makes after a refusal.
MOVED_WITHIN_S = 3.0


@dataclass
class Pools:
    """Two pool services, and the ways from them to Redis and to them."""

    network: Network
    processes: list[PoolProcess]
    to_redis: list[Link]
    to_pool: list[Link]

    @property
    def addresses(self) -> str:
        """Where the dispatcher finds them."""
        return ",".join(link.address for link in self.to_pool)

    async def expelled(self) -> float:
        """Nodes that were taken out of their pools."""
        name = "lingua_pool_nodes_expelled_total"
        return sum([await each.metric(name) for each in self.processes])


@pytest.fixture
def pools(redis_url: str) -> Iterator[Pools]:
    """The second one cannot be reached yet, so that a dispatcher goes to the first."""
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    host = redis_url.removeprefix("redis://").partition("/")[0]
    with Network() as network, contextlib.ExitStack() as stack:
        to_redis = [network.link(f"pool-{at}", "redis", host) for at in range(2)]
        processes = [
            stack.enter_context(
                PoolProcess(
                    redis_url=redis_url.replace(host, link.address),
                    prefix=prefix,
                    **{**SETTINGS, "sweep_interval_ms": 200},
                )
            )
            for link in to_redis
        ]
        to_pool = [
            network.link("dispatcher", f"pool-{at}", each.address)
            for at, each in enumerate(processes)
        ]
        network.change(to_pool[1], CUT)
        yield Pools(network, processes, to_redis, to_pool)


@contextlib.asynccontextmanager
async def cluster_of(pools: Pools, redis_url: str) -> AsyncIterator[Cluster]:
    """A dispatcher that uses the first pool service, and could use the second."""
    settings = {**SETTINGS, "pool_address": pools.addresses, "instance_id": "d0"}
    async with running_cluster(pools.processes[1], redis_url, 1, **settings) as cluster:  # type: ignore[arg-type]
        pools.network.mend(pools.to_pool[1])
        deadline = time.monotonic() + 10
        while not pools.to_pool[1].is_used:
            assert time.monotonic() < deadline, "the dispatcher does not reach the second one"
            await asyncio.sleep(0.02)
        yield cluster


@pytest.mark.parametrize("fault", [CUT, SILENT, SWALLOW])
async def test_a_dispatcher_leaves_a_pool_service_that_cannot_reach_redis(
    pools: Pools, redis_url: str, fault: str
) -> None:
    async with (
        cluster_of(pools, redis_url) as cluster,
        fleet_of(cluster, 3, cluster.addresses(), slots=2) as fleet,
        steady_gateway(cluster, 0) as gateway,
    ):
        gateway.submit(cluster.spec(0))
        await gateway.all_over(SLACK_S)
        epochs = [(await cluster.pool.node(each)).node.epoch for each in fleet.node_ids]
        pools.network.change(pools.to_redis[0], fault)
        began, index = time.monotonic(), 0
        while time.monotonic() < began + AWAY_S:
            index += 1
            gateway.submit(cluster.spec(index))
            await gateway.all_over(MOVED_WITHIN_S)
        gateway.check_each_ended_once()
        assert not any(gateway.failures.values())
        assert await pools.expelled() == 0
        assert [(await cluster.pool.node(each)).node.epoch for each in fleet.node_ids] == epochs
        await cluster.all_slots_back(fleet.node_ids)
