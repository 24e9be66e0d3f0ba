"""Node processes are killed or stopped with jobs on them: how soon the work is done elsewhere."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable

import pytest

from lingua_scheduler.v1 import pool_pb2
from tests.conftest import Eventually
from tests.faults.cluster import SHORT, SLACK_S, Cluster, running_cluster
from tests.faults.fleet import Fleet, fleet_of
from tests.faults.steady_gateway import SteadyGateway, steady_gateway
from tests.support.node_process import NodeProcess
from tests.support.services import PoolProcess

PROGRAM = "tests.faults.node_program"
JOBS = 2
GRACE_S = SHORT["node_reconnect_grace_ms"] / 1000
SILENT_S = 3 * SHORT["node_heartbeat_ms"] / 1000
# So long that no test sees its end: what happens before is not its doing.
ACK_S = 20.0
# Waiting for an ACK must not be cut short by the reservation.
PATIENT = {"ack_timeout_ms": int(ACK_S * 1000), "reservation_ttl_ms": 30_000}


def new_victim(cluster: Cluster, name: str, mode: str) -> NodeProcess:
    """A node process; "take": it runs its jobs; "ignore": it does not even acknowledge them."""
    return NodeProcess(
        f"{cluster.src}-{name}",
        program=PROGRAM,
        dispatchers=",".join(cluster.addresses()),
        src=cluster.src,
        tgt=cluster.tgt,
        ignores=int(mode == "ignore"),
    )


async def has_jobs(victim: NodeProcess, count: int, mode: str, eventually: Eventually) -> None:
    """Returns when the victim has been given so many jobs."""
    word = "started" if mode == "take" else "assigned"
    await eventually(lambda: len(victim.told(word)) == count)


@contextlib.asynccontextmanager
async def jobs_on_victim(
    cluster: Cluster, gateway: SteadyGateway, eventually: Eventually, mode: str
) -> AsyncIterator[tuple[NodeProcess, list[str]]]:
    """A node process that was given jobs."""
    victim = new_victim(cluster, "victim", mode)
    try:
        victim.start()
        await _known(cluster, victim)
        specs = [cluster.spec(at, preferred_node_id=victim.node_id) for at in range(JOBS)]
        jobs = gateway.submit(*specs)
        await has_jobs(victim, JOBS, mode, eventually)
        if mode == "take":
            await _committed(cluster, victim)
        yield victim, jobs
    finally:
        victim.stop()


async def _known(cluster: Cluster, victim: NodeProcess) -> None:
    deadline = time.monotonic() + 30
    while True:
        listed = await cluster.pool.stub.ListNodes(pool_pb2.ListNodesRequest())
        if any(each.node_id == victim.node_id and each.pools for each in listed.nodes):
            return
        assert victim.process.poll() is None, "the node process has ended"
        assert time.monotonic() < deadline, "the node process is not connected"
        await asyncio.sleep(0.02)


async def _committed(cluster: Cluster, victim: NodeProcess) -> None:
    deadline = time.monotonic() + 10
    while sum(lease.running for lease in await cluster.leases([victim.node_id])) < JOBS:
        assert time.monotonic() < deadline, "the jobs do not count as running"
        await asyncio.sleep(0.01)


async def _run_elsewhere(
    cluster: Cluster,
    fleet: Fleet,
    gateway: SteadyGateway,
    victim: NodeProcess,
    jobs: list[str],
    struck_at: float,
) -> float:
    """Waits until the fleet has done the jobs; returns the seconds until the last was begun."""
    await gateway.until(
        lambda: sum(fleet.records.started.values()) >= JOBS or bool(gateway.failures), ACK_S - 1
    )
    took = time.monotonic() - struck_at
    await gateway.all_over(10)
    gateway.check_delivered(jobs)
    gateway.check_each_ended_once()
    await cluster.all_slots_back([*fleet.node_ids, victim.node_id])
    return took


@pytest.mark.parametrize(
    ("title", "mode", "strikes_with", "at_least", "at_most"),
    [
        ("killed before ACK", "ignore", signal.SIGKILL, 0.0, 1.0),
        ("killed after ACK", "take", signal.SIGKILL, GRACE_S, GRACE_S + 1.0),
        ("stopped before ACK", "ignore", signal.SIGSTOP, SILENT_S / 2, SILENT_S + 1.0),
        (
            "stopped after ACK",
            "take",
            signal.SIGSTOP,
            SILENT_S / 2 + GRACE_S,
            SILENT_S + GRACE_S + 1.0,
        ),
    ],
)
async def test_the_work_of_a_node_is_done_elsewhere_when_it_is(
    pool_process: PoolProcess,
    redis_url: str,
    eventually: Eventually,
    record_property: Callable[[str, object], None],
    title: str,
    mode: str,
    strikes_with: signal.Signals,
    at_least: float,
    at_most: float,
) -> None:
    async with (
        running_cluster(pool_process, redis_url, 1, job_timeout_ms=4000, **PATIENT) as cluster,
        steady_gateway(cluster, 0) as gateway,
        jobs_on_victim(cluster, gateway, eventually, mode) as (victim, jobs),
        fleet_of(cluster, 2, cluster.addresses()) as fleet,
    ):
        struck_at = time.monotonic()
        victim.process.send_signal(strikes_with)
        took = await _run_elsewhere(cluster, fleet, gateway, victim, jobs, struck_at)
        print(f"{title}: {took:.2f} s until the work runs elsewhere")
        record_property(title, took)
        assert at_least <= took < at_most + SLACK_S

        if strikes_with == signal.SIGSTOP:
            # It wakes up, comes back, and what it says now changes nothing.
            victim.process.send_signal(signal.SIGCONT)
            victim.order(go=1)
            await cluster.until_metric(0, "lingua_dispatcher_nodes", lambda nodes: nodes == 3)
            gateway.submit(cluster.spec(10, preferred_node_id=fleet.node_ids[0]))
            await gateway.all_over(10)
            gateway.check_delivered(jobs)
            gateway.check_each_ended_once()


async def test_a_job_that_prefers_a_node_that_dies_with_it_is_done_by_another(
    pool_process: PoolProcess, redis_url: str, eventually: Eventually
) -> None:
    """Once before and once after its ACK, and with other nodes there from the start."""
    async with (
        running_cluster(pool_process, redis_url, 1, **PATIENT) as cluster,
        steady_gateway(cluster, 0) as gateway,
        fleet_of(cluster, 2, cluster.addresses()) as fleet,
    ):
        for index, mode in enumerate(("ignore", "take")):
            with contextlib.ExitStack() as stack:
                victim = new_victim(cluster, mode, mode)
                stack.callback(victim.stop)
                victim.start()
                await _known(cluster, victim)
                spec = cluster.spec(index, preferred_node_id=victim.node_id)
                jobs = gateway.submit(spec)
                await has_jobs(victim, 1, mode, eventually)
                victim.process.kill()
                await gateway.all_over(GRACE_S + SLACK_S)
                gateway.check_delivered(jobs)
        gateway.check_each_ended_once()
        await cluster.all_slots_back(fleet.node_ids)
