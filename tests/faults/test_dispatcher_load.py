"""Many jobs through two dispatchers, with nodes that fail, reject and lose what they are given."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from lingua_scheduler.sdk import Job
from lingua_scheduler.v1 import dispatcher_pb2
from tests.faults.cluster import running_cluster
from tests.faults.fleet import LOSE, REJECT, TAKE, failing, fleet_of
from tests.faults.steady_gateway import steady_gateway
from tests.support.services import PoolProcess

SEED = 20240607
JOBS, NODES, SLOTS = 2000, 50, 2
# More than there are slots: some always wait.
AT_ONCE = 150
FAIL_RATE, REJECT_RATE, LOSE_RATE = 0.05, 0.05, 0.02
WORK_S = 0.02
# Jobs that are over are soon forgotten, so that the test sees what is left; but not before a busy
# machine has got to saying that their results are taken.
LIMITS = {"home.delivery._TAKEN_WITHIN_MS": 2000, "home.delivery._REMEMBER_MS": 4000}
# No node may take a busy dispatcher for a dead one: connections that are lost are not the
# subject here, and a result that is told again after its job was forgotten stays at its node.
CALM = {"node_heartbeat_ms": 5000, "heartbeat_stale_ms": 15_000}


@pytest.mark.long
async def test_under_load_and_with_bad_nodes_every_job_ends_once_and_nothing_is_left(
    pool_process: PoolProcess, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    rng = random.Random(SEED)
    did: Counter[str] = Counter()

    def decide(_: dispatcher_pb2.JobAssign) -> str:
        drawn = rng.random()
        decision = LOSE if drawn < LOSE_RATE else TAKE
        decision = REJECT if LOSE_RATE <= drawn < LOSE_RATE + REJECT_RATE else decision
        did[decision] += 1
        return decision

    async def work(_: Job) -> None:
        fails = rng.random() < FAIL_RATE
        await asyncio.sleep(WORK_S * rng.uniform(0.5, 1.5))
        if fails:
            did["fail"] += 1
            raise failing("this job was drawn to fail")

    async with (
        running_cluster(
            pool_process, redis_url, 2, LIMITS, queue_wait_ms=60_000, **CALM
        ) as cluster,
        fleet_of(cluster, NODES, cluster.addresses(), slots=SLOTS) as fleet,
        steady_gateway(cluster, 0) as first,
        steady_gateway(cluster, 1) as second,
    ):
        fleet.records.decide = decide
        fleet.records.work = work
        started = time.monotonic()
        for at in range(0, JOBS, 2):
            for gateway, index in ((first, at), (second, at + 1)):
                gateway.submit(cluster.spec(index))
                await gateway.until(lambda seen=gateway: len(seen.under_way) < AT_ONCE // 2, 60)
        for gateway in (first, second):
            await gateway.all_over(60)
        took = time.monotonic() - started

        for gateway in (first, second):
            gateway.check_each_ended_once()
        failed = sum(bool(errors) for each in (first, second) for errors in each.failures.values())
        told = f"{JOBS} jobs in {took:.1f} s, {JOBS / took:.0f}/s; {failed} failed; nodes: {did}"
        print(told)
        record_property("load", told)
        # Three attempts each, and about one in eight goes wrong.
        assert failed < JOBS / 50
        await cluster.all_slots_back(fleet.node_ids)
        for at in (0, 1):
            await cluster.until_metric(at, "lingua_dispatcher_jobs", lambda jobs: jobs == 0)
        assert all(node.running == 0 for node in fleet.nodes)
        assert {node.node_id: node.unconfirmed for node in fleet.nodes if node.unconfirmed} == {}
