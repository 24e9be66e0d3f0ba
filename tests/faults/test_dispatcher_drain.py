"""Dispatchers are told to end under load, as in every roll-out: nobody notices."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import pytest

from tests.faults.cluster import Cluster, running_cluster
from tests.faults.fleet import fleet_of
from tests.faults.steady_gateway import SteadyGateway, steady_gateway
from tests.support.services import PoolProcess

pytestmark = pytest.mark.usefixtures("in_order")

NODES = 20
# Jobs are in flight all the time, and about half of the slots are taken.
EVERY_S = 0.01
WORK_S = 0.15
# Far less than drain_grace_ms, after which whatever is left is dropped.
DRAINED_S = 10.0


@contextlib.asynccontextmanager
async def traffic(cluster: Cluster, gateway: SteadyGateway) -> AsyncIterator[list[str]]:
    """Jobs come one by one until the end of the block; then all of them must have ended."""
    jobs: list[str] = []

    async def submit() -> None:
        while True:
            jobs.extend(gateway.submit(cluster.spec(len(jobs))))
            await asyncio.sleep(EVERY_S)

    submitting = asyncio.create_task(submit())
    try:
        yield jobs
    finally:
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
    await gateway.all_over(20)


async def drain(
    cluster: Cluster, at: int, record: Callable[[str, object], None], title: str
) -> None:
    """Tells a dispatcher to end, and waits until it has."""
    started = time.monotonic()
    cluster.dispatchers[at].terminate()
    assert await cluster.dispatchers[at].exit_code() == 0, cluster.dispatchers[at].log()
    took = time.monotonic() - started
    print(f"{title}: {took:.2f} s")
    record(title, took)
    assert took < DRAINED_S


async def has_nodes(cluster: Cluster, at: int, count: int) -> None:
    """Waits until so many nodes are connected to a dispatcher."""
    await cluster.until_metric(at, "lingua_dispatcher_nodes", lambda nodes: nodes == count)


def check(gateway: SteadyGateway, jobs: list[str]) -> None:
    """Everything was delivered, and nothing twice."""
    gateway.check_delivered(jobs)
    gateway.check_each_ended_once()
    print(f"{len(jobs)} jobs, {gateway.resubmitted} resubmitted")


async def test_a_dispatcher_that_is_told_to_end_loses_nothing_and_its_nodes_move_on(
    pool_process: PoolProcess, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    async with (
        running_cluster(pool_process, redis_url, 2) as cluster,
        fleet_of(cluster, NODES // 2, cluster.addresses(0, 1)) as fleet,
        steady_gateway(cluster, 0, 1) as gateway,
    ):
        fleet.add(NODES // 2, cluster.addresses(1, 0))
        await fleet.all_connected()
        fleet.records.work = lambda _: asyncio.sleep(WORK_S)
        async with traffic(cluster, gateway) as jobs:
            await gateway.until(lambda: len(gateway.texts) >= 100, 20)
            await drain(cluster, 0, record_property, "drain of one of two")
            await has_nodes(cluster, 1, NODES)
            so_far = len(gateway.texts)
            await gateway.until(lambda: len(gateway.texts) >= so_far + 100, 20)
        check(gateway, jobs)
        assert len(jobs) >= 200
        await cluster.all_slots_back(fleet.node_ids)


@pytest.mark.long
async def test_a_rolling_restart_of_all_dispatchers_loses_nothing(
    pool_process: PoolProcess, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    async with (
        running_cluster(pool_process, redis_url, 2) as cluster,
        fleet_of(cluster, NODES, cluster.addresses(0, 1)) as fleet,
        steady_gateway(cluster, 0, 1) as gateway,
    ):
        fleet.records.work = lambda _: asyncio.sleep(WORK_S)
        async with traffic(cluster, gateway) as jobs:
            for at in (0, 1):
                so_far = len(gateway.texts)
                await gateway.until(lambda seen=so_far: len(gateway.texts) >= seen + 50, 20)
                await drain(cluster, at, record_property, f"rolling restart, dispatcher {at}")
                await has_nodes(cluster, 1 - at, NODES)
                await cluster.dispatchers[at].restart()
            so_far = len(gateway.texts)
            await gateway.until(lambda: len(gateway.texts) >= so_far + 50, 20)
        check(gateway, jobs)
        await cluster.all_slots_back(fleet.node_ids)
