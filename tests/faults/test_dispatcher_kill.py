"""Dispatchers are killed with jobs in every state; what counts is what clients and nodes saw.

A job's state at the moment of the kill:
    confirmed-not   its result is with the gateway, which has not said that it took it
    on-its-way      its result has left the node, and the gateway has not read it
    running         acknowledged
    sent            assigned, not acknowledged (the node loses the first assignment)
    waiting         for room
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from lingua_scheduler.sdk import Job
from lingua_scheduler.v1 import dispatcher_pb2
from tests.conftest import Eventually
from tests.faults.cluster import LONGEST_LEASE_S, NAME, SLACK_S, Cluster, running_cluster
from tests.faults.fleet import LOSE, TAKE, Fleet, fleet_of
from tests.faults.steady_gateway import SteadyGateway, steady_gateway
from tests.support.services import PoolProcess

pytestmark = pytest.mark.usefixtures("in_order")

# 6 slots: the 6 that run or were sent take all of them, and the rest waits.
NODES, SLOTS = 3, 2
STATES = {"confirmed-not": 2, "on-its-way": 2, "running": 4, "sent": 2, "waiting": 4}
# Leases, and a second round for what was on its way when the first node was asked.
RECOVERED_S = 2 * LONGEST_LEASE_S + SLACK_S


class Play:
    """Brings jobs into every state, and sees how they come out of it."""

    def __init__(self, cluster: Cluster, fleet: Fleet, gateway: SteadyGateway, home: int) -> None:
        self.jobs: dict[str, list[str]] = {}
        self._cluster = cluster
        self._fleet = fleet
        self._gateway = gateway
        self._home = home
        self._go = asyncio.Event()
        self._lost: set[str] = set()
        self._killed_at = 0.0
        fleet.records.decide = self._decide
        fleet.records.work = self._work
        gateway.takes = lambda job: job not in self.jobs.get("confirmed-not", ())

    def _decide(self, assign: dispatcher_pb2.JobAssign) -> str:
        session = assign.job.features[NAME]
        if session.startswith("sent-") and session not in self._lost:
            self._lost.add(session)
            return LOSE
        return TAKE

    async def _work(self, job: Job) -> None:
        if job.features[NAME].startswith(("running-", "sent-", "waiting-")):
            await self._go.wait()
        await asyncio.sleep(0.02)

    def _submit(self, *states: str) -> None:
        specs = []
        for state in states:
            mine = [
                self._cluster.spec(
                    100 * (1 + list(STATES).index(state)) + at,
                    session_id=f"{state}-{self._cluster.src}-{at}",
                )
                for at in range(STATES[state])
            ]
            specs += mine
            self.jobs[state] = []
        ids = self._gateway.submit(*specs)
        for spec, job in zip(specs, ids, strict=True):
            self.jobs[spec.session_id.rsplit("-", 2)[0]].append(job)

    async def set_up(self, eventually: Eventually) -> None:
        """Returns when every job is in its state."""
        records, gateway = self._fleet.records, self._gateway
        self._submit("confirmed-not")
        await gateway.until(lambda: not gateway.under_way, 10)
        gateway.stop_reading()
        self._submit("on-its-way")
        await eventually(lambda: _count(records.finished, "on-its-way") == STATES["on-its-way"])
        await self._cluster.all_slots_back(self._fleet.node_ids)
        self._submit("running")
        await self._leases_are(lambda running: running == STATES["running"])
        waits = await self._cluster.dispatchers[self._home].metric("lingua_dispatcher_waits_total")
        self._submit("sent", "waiting")
        await eventually(lambda: len(self._lost) == STATES["sent"])
        await self._cluster.until_metric(
            self._home,
            "lingua_dispatcher_waits_total",
            lambda value: value >= waits + STATES["waiting"],
        )

    async def _leases_are(self, wanted: Callable[[int], bool], within: float = 5.0) -> None:
        deadline = time.monotonic() + within
        while True:
            leases = await self._cluster.leases(self._fleet.node_ids)
            if wanted(sum(lease.running for lease in leases)):
                return
            assert time.monotonic() < deadline, leases
            await asyncio.sleep(0.01)

    def kill(self, at: int) -> None:
        """Kills a dispatcher. A gateway that was on it loses what it has not read."""
        dispatcher = self._cluster.dispatchers[at]
        self._killed_at = self._killed_at or time.monotonic()
        dispatcher.kill()
        self._gateway.drop(dispatcher.address)
        self._gateway.read_on()

    async def recover(self) -> dict[str, float]:
        """Lets the nodes finish; returns the seconds from the kill to the last of each state."""
        self._go.set()
        gateway = self._gateway
        await gateway.all_over(RECOVERED_S)
        back = await self._cluster.all_slots_back(self._fleet.node_ids)
        for jobs in self.jobs.values():
            gateway.check_delivered(jobs)
        self._fleet.check_slots()
        took = {
            state: max(gateway.delivered_at[job] for job in jobs) - self._killed_at
            for state, jobs in self.jobs.items()
            if state != "confirmed-not"
        }
        return {**took, "slots back after that": back}


def _count(counted: Counter[str], state: str) -> int:
    return sum(count for session, count in counted.items() if session.startswith(f"{state}-"))


def _tell(
    title: str,
    took: dict[str, float],
    gateway: SteadyGateway,
    record: Callable[[str, object], None],
) -> None:
    times = ", ".join(f"{state} {seconds:.2f} s" for state, seconds in took.items())
    print(f"{title}: {times}; {gateway.duplicates()} duplicates, {gateway.resubmitted} resubmitted")
    record(title, times)


@pytest.mark.parametrize(
    ("title", "home", "owner"),
    [("home and owner", 0, 0), ("only the home", 0, 1), ("only the owner", 1, 0)],
)
async def test_jobs_in_every_state_outlive_the_death_of(
    pool_process: PoolProcess,
    redis_url: str,
    eventually: Eventually,
    record_property: Callable[[str, object], None],
    title: str,
    home: int,
    owner: int,
) -> None:
    async with (
        running_cluster(pool_process, redis_url, 2) as cluster,
        fleet_of(cluster, NODES, cluster.addresses(owner, 1 - owner), slots=SLOTS) as fleet,
        steady_gateway(cluster, home, 1 - home) as gateway,
    ):
        play = Play(cluster, fleet, gateway, home)
        await play.set_up(eventually)
        play.kill(0)
        took = await play.recover()
        _tell(title, took, gateway, record_property)
        if home != 0:
            assert gateway.duplicates() == 0
            assert gateway.resubmitted == 0


async def test_jobs_in_every_state_outlive_the_death_of_two_dispatchers_of_three(
    pool_process: PoolProcess,
    redis_url: str,
    eventually: Eventually,
    record_property: Callable[[str, object], None],
) -> None:
    async with (
        running_cluster(pool_process, redis_url, 3) as cluster,
        fleet_of(cluster, NODES - 1, cluster.addresses(0, 1, 2), slots=SLOTS) as fleet,
        steady_gateway(cluster, 0, 1, 2) as gateway,
    ):
        fleet.add(1, cluster.addresses(1, 2, 0), slots=SLOTS)
        await fleet.all_connected()
        play = Play(cluster, fleet, gateway, 0)
        await play.set_up(eventually)
        play.kill(0)
        # The next one dies in the middle of taking over.
        await fleet_moved(cluster, fleet.node_ids, "d1")
        play.kill(1)
        took = await play.recover()
        _tell("two of three", took, gateway, record_property)


async def fleet_moved(cluster: Cluster, node_ids: Sequence[str], instance: str) -> None:
    """Waits until all nodes are connected to a dispatcher."""
    deadline = time.monotonic() + 10
    while True:
        nodes = [(await cluster.pool.node(each)).node for each in node_ids]
        if all(node.owner_instance == instance for node in nodes):
            return
        assert time.monotonic() < deadline, nodes
        await asyncio.sleep(0.02)


async def test_a_job_that_comes_while_the_nodes_are_between_dispatchers_waits_for_them(
    pool_process: PoolProcess, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    """The pool still names the dead owner, and every node would cost a job one of its tries."""
    async with (
        running_cluster(pool_process, redis_url, 2) as cluster,
        # They try the dead one some more times before they go elsewhere.
        fleet_of(cluster, 2 * NODES, cluster.addresses(0, 0, 0, 0, 1), slots=SLOTS) as fleet,
        steady_gateway(cluster, 1) as gateway,
    ):
        warm_up = gateway.submit(cluster.spec(0))
        await gateway.all_over(10)
        cluster.dispatchers[0].kill()
        killed_at = time.monotonic()
        jobs = gateway.submit(cluster.spec(1))
        await gateway.all_over(RECOVERED_S)
        gateway.check_delivered(warm_up + jobs)
        assert gateway.duplicates() == 0
        took = {"a new job": max(gateway.delivered_at[job] for job in jobs) - killed_at}
        took["slots back after that"] = await cluster.all_slots_back(fleet.node_ids)
        _tell("between dispatchers", took, gateway, record_property)


async def test_under_load_dispatchers_are_killed_one_after_the_other_and_come_back(
    pool_process: PoolProcess, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    kills, jobs = 3, []
    async with (
        running_cluster(pool_process, redis_url, 3) as cluster,
        fleet_of(cluster, 4, cluster.addresses(0, 1, 2)) as fleet,
        steady_gateway(cluster, 0, 1, 2) as first,
        steady_gateway(cluster, 1, 2, 0) as second,
    ):
        fleet.add(4, cluster.addresses(1, 2, 0))
        fleet.add(4, cluster.addresses(2, 0, 1))
        await fleet.all_connected()
        fleet.records.work = lambda _: asyncio.sleep(0.1)

        async def submit() -> None:
            while True:
                gateway = (first, second)[len(jobs) % 2]
                jobs.append((gateway, *gateway.submit(cluster.spec(len(jobs)))))
                await asyncio.sleep(0.01)

        submitting = asyncio.create_task(submit())
        for at in range(kills):
            so_far = len(first.texts) + len(second.texts)
            await first.until(
                lambda seen=so_far: len(first.texts) + len(second.texts) >= seen + 40, RECOVERED_S
            )
            cluster.dispatchers[at % 3].kill()
            restarting = asyncio.create_task(cluster.dispatchers[at % 3].restart())
            await first.until(
                lambda seen=so_far: len(first.texts) + len(second.texts) >= seen + 60, RECOVERED_S
            )
            await restarting
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        for gateway in (first, second):
            await gateway.all_over(RECOVERED_S)
        for gateway, job in jobs:
            gateway.check_delivered([job])
        back = await cluster.all_slots_back(fleet.node_ids)
        twice = first.duplicates() + second.duplicates()
        told = f"{len(jobs)} jobs, {kills} kills, {twice} duplicates, slots back {back:.2f} s later"
        print(told)
        record_property("killed under load", told)
