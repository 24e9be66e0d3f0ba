"""Eight processes share a small fleet through the real scripts, and are killed as they go.

No node ever holds more than its slots, and no slot is lost for longer than a lease.
"""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import redis

from lingua_scheduler.services.pool_service.cell_registry import CellRegistry
from lingua_scheduler.services.runtime.errors import AllCandidatesFullOrFailedError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.faults.slot_checks import MUTATIONS, SAMPLE, TOLD
from tests.faults.slot_worker import (
    NODES,
    RUNNING_MS,
    allocation,
    new_link,
    new_operations,
    quick_settings,
)
from tests.support.process import Process

PROCESSES = 8
CALLS = 100_000
# Under a minute on two idle cores; the rest is for machines that have other work.
DEADLINE_S = 200.0
KILL_EVERY_S = 0.25


class Worker(Process):
    """A process that uses slots until it is killed."""

    def __init__(self, **environ: str) -> None:
        super().__init__("worker")
        self._environ = environ

    def start(self) -> None:
        """Starts the process."""
        code = "from tests.faults.slot_worker import main; main()"
        self.fork(code, env={**os.environ, **self._environ})


@dataclass
class Fleet:
    """Nodes in a Redis, and processes that use them."""

    url: str
    prefix: str
    store: "redis.Redis[bytes]"
    mutation: str
    workers: list[Worker] = field(default_factory=list)
    kills: int = 0
    samples: int = 0

    def spawn(self) -> None:
        """Starts one more worker."""
        worker = Worker(
            WORKER_REDIS=self.url, WORKER_PREFIX=self.prefix, WORKER_MUTATION=self.mutation
        )
        worker.start()
        self.workers.append(worker)

    def kill_one(self) -> None:
        """Kills any worker, wherever it is in its work."""
        self.workers.pop(random.randrange(len(self.workers))).stop()
        self.kills += 1

    def kill_all(self) -> None:
        """Kills every worker."""
        while self.workers:
            self.kill_one()

    def counted(self, what: str) -> dict[str, int]:
        """How often each script ran (calls), gave or took a slot (changes), or found none free."""
        found = self.store.hgetall(f"{self.prefix}:test:{what}")
        return {name.decode(): int(times) for name, times in found.items()}

    def listed(self, what: str) -> list[str]:
        """The first of the violations or failures."""
        return [line.decode() for line in self.store.lrange(f"{self.prefix}:test:{what}", 0, 4)]

    def sample(self) -> tuple[str, int, int, int]:
        """A node that holds too much or '', leases of all nodes, end of the last one, time."""
        self.samples += 1
        over, total, last, now = self.store.eval(SAMPLE, 1, self.prefix)
        return over.decode(), int(total), int(last), int(now)


@contextmanager
def fleet(mutation: str = "") -> Iterator[Fleet]:
    """Registered nodes, and eight processes at work."""
    prefix = "test:eight"
    with EmbeddedRedis() as server, redis.Redis.from_url(server.url, protocol=2) as store:
        store.hset(f"{prefix}:test:max", mapping=NODES)
        asyncio.run(register_nodes(server.url, prefix))
        made = Fleet(server.url, prefix, store, mutation)
        try:
            for _ in range(PROCESSES):
                made.spawn()
            yield made
        finally:
            made.kill_all()


async def register_nodes(url: str, prefix: str) -> None:
    link = new_link(url, prefix, "")
    await link.open()
    registry = CellRegistry(cell=Cell(0, link), settings=quick_settings(url, prefix))
    able = common_pb2.NodeCapabilities(asr_langs=["zh"], semantic_langs=["zh"], tts_langs=["en"])
    for node_id, slots in NODES.items():
        await registry.register(
            pool_pb2.RegisterNodeRequest(
                node_id=node_id,
                incarnation="i1",
                stream_id="s1",
                capabilities=able,
                max_concurrent_jobs=slots,
                owner_instance="dispatcher-0",
            )
        )
    await link.close()


async def fill(url: str, prefix: str) -> dict[str, int]:
    """Allocates until nothing is left; how many slots each node gave."""
    link = new_link(url, prefix, "")
    await link.open()
    # Leases that outlast this: on a busy machine a short one would be free again, and given twice.
    operations = new_operations(link, url, prefix, reservation_ttl_ms=60_000)
    given = dict.fromkeys(NODES, 0)
    try:
        for number in range(sum(NODES.values()) + 1):
            answer = await operations.allocate(allocation(f"last-{number}"))
            given[answer.placement.node_id] += 1
    except AllCandidatesFullOrFailedError:
        return given
    finally:
        await link.close()
    raise AssertionError(f"more slots than there are: {given}")


@pytest.mark.timeout(240)
@pytest.mark.long
def test_killed_processes_neither_oversell_a_node_nor_lose_a_slot() -> None:
    began = time.monotonic()
    with fleet() as made:
        next_kill = time.monotonic() + 1.0
        while sum(made.counted("calls").values()) < CALLS:
            assert time.monotonic() - began < DEADLINE_S, made.counted("calls")
            over, *_ = made.sample()
            assert not over
            assert not made.listed("violations")
            if time.monotonic() >= next_kill:
                made.kill_one()
                made.spawn()
                next_kill = time.monotonic() + KILL_EVERY_S
        made.kill_all()
        busy_s = time.monotonic() - began

        over, left, last_end, now = made.sample()
        assert not over
        assert last_end <= now + RUNNING_MS, "a lease outlives the longest that there is"
        deadline = time.monotonic() + 2 * RUNNING_MS / 1000
        while made.sample()[1]:
            assert time.monotonic() < deadline, "slots were lost"
        assert made.listed("violations") == []
        assert asyncio.run(fill(made.url, made.prefix)) == NODES
        assert made.listed("violations") == []
        assert made.listed("failures") == []

        calls, changes = made.counted("calls"), made.counted("changes")
        # Not only refusals: every way in which a slot comes and goes was taken often. On a faster
        # machine more leases that nobody ends fill the fleet, and more calls are refused.
        assert sum(changes.values()) > CALLS / 6, changes
        assert min(changes[name] for name in TOLD) > 200, changes
        # And not only grants: the fleet was full often enough for its limits to matter.
        refusals = made.counted("refusals")
        assert sum(refusals.values()) > CALLS / 50, refusals
        # A slow machine has fewer calls at once, so fewer of these.
        assert refusals["allocate"] > 100, refusals
        print(
            f"\n{sum(calls.values())} calls in {busy_s:.1f} s by {PROCESSES} processes, "
            f"{made.kills} kills, {left} leases left at the end, {made.samples} samples"
            f"\n  calls    {calls}\n  changes  {changes}\n  refusals {refusals}"
        )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mutation", [name for name in MUTATIONS if name])
def test_the_checks_see_a_fault(mutation: str) -> None:
    with fleet(mutation) as made:
        deadline = time.monotonic() + DEADLINE_S
        # By work and not by time: a busy machine is no excuse, and no reason to fail.
        while not made.listed("violations"):
            assert sum(made.counted("calls").values()) < CALLS / 5, f"nobody noticed: {mutation}"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert made.listed("failures") == []
