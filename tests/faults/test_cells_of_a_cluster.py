"""Twelve cells on a real Redis Cluster: its masters share the load, and one of them dies."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.redis.cells.prefixes import cell_prefix
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc
from tests.faults.cell_crowd import cell_of, node_in, talking_in
from tests.faults.crowd import LONG, SHORT, Crowd
from tests.support.redis_cluster import MASTERS, RedisCluster, running_cluster
from tests.support.rpc_errors import failure
from tests.support.scheduler import Scheduler
from tests.support.services import addresses
from tests.support.speaker import Speaker, speaking

pytestmark = pytest.mark.long

CELLS = 12
EVERY_CELL = range(CELLS)
WORK_MS = 200
UNEVEN = 0.2
# A dead master is replaced after this. Whoever had to wait for that waited longer than anybody
# who did not, even on a busy machine.
NODE_TIMEOUT_MS = 2500
UNHARMED_S = 2.0
NEW_SESSIONS = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster() as cluster:
        for node in cluster.nodes:
            cluster.ask(node, "CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
        yield cluster


@pytest.fixture(scope="module")
def scheduler(cluster: RedisCluster) -> Iterator[Scheduler]:
    """Two processes of each service, and a node in each cell."""
    with Scheduler(redis_url=cluster.url, instances=2, cells=CELLS) as made:
        made.add_nodes(
            [addresses(made.dispatchers)] * CELLS,
            ids=[node_in(cell, EVERY_CELL) for cell in EVERY_CELL],
            slots=4,
            work_ms=WORK_MS,
        )
        yield made
        made.check_logs()


async def test_masters_share_the_load_of_twelve_cells(
    cluster: RedisCluster, scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    async with talking_in(scheduler, EVERY_CELL, SHORT) as crowd:
        before = await asyncio.to_thread(commands, cluster)
        await crowd.hear_more(3)
        after = await asyncio.to_thread(commands, cluster)
    crowd.check("twelve cells", record_property)
    load = [late - early for late, early in zip(after, before, strict=True)]
    print(f"commands of each master: {load}")
    record_property("commands of each master", load)
    assert max(load) <= min(load) * (1 + UNEVEN), load
    assert {cell_of(each) for each in crowd.people} == set(EVERY_CELL)


async def test_only_the_cells_of_a_master_that_dies_stall(
    cluster: RedisCluster, scheduler: Scheduler, record_property: Callable[[str, object], None]
) -> None:
    prefixes = [cell_prefix(scheduler.prefix, cell, is_cluster=True) for cell in EVERY_CELL]
    master = await asyncio.to_thread(cluster.master_of, prefixes[0])
    owners = [await asyncio.to_thread(cluster.master_of, prefix) for prefix in prefixes]
    dead = {cell for cell in EVERY_CELL if owners[cell] is master}
    assert len(dead) == CELLS // MASTERS
    async with talking_in(scheduler, EVERY_CELL, LONG) as crowd:
        await asyncio.to_thread(cluster.wait_replicated, master)
        began = time.monotonic()
        await asyncio.to_thread(master.kill)
        stalled = next(each for each in crowd.people if cell_of(each) in dead)
        assert await asked(scheduler, stalled) == "SCHEDULER_DEPENDENCY_DOWN"
        new = await cells_of_new_sessions(scheduler)
        opened_s = time.monotonic() - began
        await asyncio.to_thread(cluster.wait_for_other_master, prefixes[0], master)
        replaced = time.monotonic()
        await crowd.hear_more(2)
        recovered = [first_heard(crowd, cell, replaced) - began for cell in dead]
    crowd.check("a master that dies", record_property)
    late = {cell: longest(crowd, cell, began) for cell in EVERY_CELL}
    others = max(late[cell] for cell in EVERY_CELL if cell not in dead)
    earlier = max(took for each in crowd.people for at, took in each.waits if at < began)
    facts = {
        "the cluster had another master after, s": replaced - began,
        "its cells spoke again after, s": max(recovered),
        "longest wait in its cells, s": max(late[cell] for cell in dead),
        "longest wait in other cells, s": others,
        "longest wait before, s": earlier,
        "new sessions were open after, s": opened_s,
    }
    for name, value in facts.items():
        print(f"{name}: {value:.2f}")
        record_property(name, round(value, 2))
    assert replaced - began > UNHARMED_S, "the test proves nothing"
    assert others < earlier + UNHARMED_S
    assert opened_s < UNHARMED_S
    assert not new & dead
    for each in crowd.people:
        assert cell_of(each) in dead or not each.interruptions
    await asyncio.to_thread(cluster.restart, master)
    await cells_of_new_sessions(scheduler)


async def asked(scheduler: Scheduler, person: Speaker) -> str:
    """Asks for somebody's session; returns the reason of the refusal."""
    async with grpc.aio.insecure_channel(scheduler.gateways[0].address) as channel:
        stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
        request = session_pb2.GetSessionRequest(session_id=person.session.session_id)
        return (await failure(stub.GetSession(request)))[1]


def commands(cluster: RedisCluster) -> list[int]:
    """What each master has done so far."""
    done = []
    for node in cluster.nodes:
        with redis.Redis(port=node.port, protocol=2) as client:
            if client.role()[0] == b"master":
                done.append(client.info("stats")["total_commands_processed"])
    return done


def first_heard(crowd: Crowd, cell: int, after: float) -> float:
    """When the last person in a cell had the first result after a time."""
    people = [each for each in crowd.people if cell_of(each) == cell]
    return max(min(at for at, _ in each.waits if at > after) for each in people)


def longest(crowd: Crowd, cell: int, after: float) -> float:
    """The longest wait in a cell for a result that came after a time."""
    people = [each for each in crowd.people if cell_of(each) == cell]
    return max(took for each in people for at, took in each.waits if at > after)


async def cells_of_new_sessions(scheduler: Scheduler) -> set[int]:
    """Opens some sessions at once, and says something in each; returns their cells."""
    async with contextlib.AsyncExitStack() as stack:
        new = await asyncio.gather(
            *(
                stack.enter_async_context(speaking(addresses(scheduler.gateways)))
                for _ in range(NEW_SESSIONS)
            )
        )
        for each in new:
            await each.say_sentence(2, 4)
    for each in new:
        each.check_all_heard()
    return {cell_of(each) for each in new}
