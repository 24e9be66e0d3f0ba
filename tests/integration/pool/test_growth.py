"""What the pool service costs Redis, counted in commands, does not grow with the fleet."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.cell_registry import POOLS_A_STEP
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.errors import AllCandidatesFullOrFailedError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2
from tests.support.pool_client import allocation, criteria, ref, registration

# Setting up thousands of nodes at once is no test of how fast Redis answers.
TIMEOUT_MS = 4000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def languages(first: str, count: int) -> tuple[str, ...]:
    """So many codes, all beginning with a letter that no other list uses."""
    return tuple(f"{first}{LETTERS[i // 26]}{LETTERS[i % 26]}" for i in range(count))


class CountingLink(RedisLink):
    """Knows how many commands each of its calls made Redis carry out, while `watching`.

    Only for calls made one after another.
    """

    def __init__(self, *, store: "redis.Redis[bytes]", **options: Any) -> None:
        super().__init__(**options)
        self._store = store
        self.watching = False
        self.costs: list[tuple[str, int]] = []

    async def call(self, script: str, *args: str | bytes | int | float) -> Any:
        if not self.watching:
            return await super().call(script, *args)
        before = self._commands()
        try:
            return await super().call(script, *args)
        finally:
            self.costs.append((script, self._commands() - before))

    def _commands(self) -> int:
        """All that Redis has carried out, but for these very questions and new connections."""
        stats = self._store.info("commandstats")
        aside = re.compile("cmdstat_(info|evalsha|hello|client|ping|script|select)")
        return sum(stat["calls"] for name, stat in stats.items() if not aside.match(name))


class Fleet:
    """The pool service without its gRPC face, on a Redis of its own."""

    def __init__(self, link: CountingLink, settings: Settings) -> None:
        self.link = link
        cells = Cells(settings, {})
        cells.first.link = link
        metrics = PoolMetrics(CollectorRegistry())
        self.registry = Registry(cells=cells, settings=settings)
        self.reports = NodeReports(
            cells=cells,
            settings=settings,
            metrics=metrics,
            nodes=Nodes(cells=cells, settings=settings),
            registry=self.registry,
        )
        self.operations = Operations(
            cells=cells, settings=settings, metrics=metrics, reports=self.reports
        )

    async def register(self, ids: Sequence[str], **fields: Any) -> list[int]:
        """Registers nodes, some at a time; their epochs."""
        epochs: list[int] = []
        for at in range(0, len(ids), 200):
            requests = (registration(node_id, **fields) for node_id in ids[at : at + 200])
            answers = await asyncio.gather(*map(self.registry.register, requests))
            epochs += (answer.epoch for answer in answers)
        return epochs

    async def costs(self, *calls: Any) -> list[tuple[str, int]]:
        """The scripts that the calls ran, one after another, and the commands of each."""
        self.link.costs, self.link.watching = [], True
        for call in calls:
            await call
        self.link.watching = False
        return self.link.costs


@pytest.fixture
async def fleet(own_redis: EmbeddedRedis, prefix: str) -> AsyncIterator[Fleet]:
    settings = Settings(
        redis_url=own_redis.url,
        redis_prefix=prefix,
        redis_timeout_ms=TIMEOUT_MS,
        heartbeat_stale_ms=600_000,
        # Longer than a busy machine needs for any of these tests: leases that end cost more.
        reservation_ttl_ms=60_000,
        running_lease_ms=60_000,
    )
    with redis.Redis.from_url(own_redis.url, protocol=2) as store:
        link = CountingLink(
            store=store,
            url=own_redis.url,
            prefix=prefix,
            scripts=load_scripts(),
            timeout_ms=TIMEOUT_MS,
        )
        await link.open()
        yield Fleet(link, settings)
        await link.close()


# The second where none of the first few nodes that were looked at was idle.
ALLOCATION_COMMANDS = {13, 15}


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


async def allocation_costs(fleet: Fleet, round_: str, direction: str = "zh>en") -> set[int]:
    """What ten allocations cost, each with a session whose turn goes on."""
    calls = (
        fleet.operations.allocate(
            allocation(f"{round_}-{n}", session_id=f"{round_}-{n}", wants=criteria(direction))
        )
        for n in range(10)
    )
    return {commands for _, commands in await fleet.costs(*calls)}


async def test_an_allocation_costs_the_same_among_100_and_among_5000_nodes(
    fleet: Fleet, prefix: str
) -> None:
    everyone = names(5000)
    await fleet.register(everyone[:100])
    few = await allocation_costs(fleet, "few")
    await fleet.register(everyone[100:])
    many = await allocation_costs(fleet, "many")
    assert await fleet.link.command("HGET", f"{prefix}:pools", "zh:en") == b"5000"
    assert few | many <= ALLOCATION_COMMANDS


async def test_to_commit_and_complete_costs_little_whatever_else_its_node_runs(
    fleet: Fleet,
) -> None:
    await fleet.register(["n1"], slots=500)
    for n in range(200):
        await fleet.operations.allocate(allocation(f"j{n}"))
    costs = []
    for n in (0, 1):
        attempt, done = ref(f"j{n}"), pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
        commit = pool_pb2.CommitRequest(attempt=attempt, node_id="n1")
        complete = pool_pb2.CompleteRequest(attempt=attempt, node_id="n1", outcome=done)
        costs += await fleet.costs(
            fleet.operations.commit(commit), fleet.operations.complete(complete)
        )
    # The last command of `complete` adds the end to the log of changes.
    assert costs == [("commit", 8), ("complete", 9)] * 2


async def test_an_allocation_costs_the_same_for_nodes_of_1_and_of_2000_pairs(fleet: Fleet) -> None:
    await fleet.register(names(20))
    narrow = await allocation_costs(fleet, "narrow")
    await fleet.register(
        names(20), stream_id="s2", asr=("zh", *languages("a", 39)), tts=("en", *languages("b", 49))
    )
    wide = await allocation_costs(fleet, "wide")
    assert narrow | wide <= ALLOCATION_COMMANDS


async def test_a_refusal_costs_no_more_among_5000_full_nodes_than_three_shards_of_them(
    fleet: Fleet,
) -> None:
    everyone = names(5000)
    epochs = await fleet.register(everyone, slots=1)
    for at in range(0, 5000, 1000):
        beats = [
            pool_pb2.NodeBeat(node_id=node_id, epoch=epoch, running=[ref(f"busy-{node_id}")])
            for node_id, epoch in zip(everyone[at : at + 1000], epochs[at : at + 1000], strict=True)
        ]
        await fleet.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats))

    async def refused(job_id: str) -> None:
        with pytest.raises(AllCandidatesFullOrFailedError):
            await fleet.operations.allocate(allocation(job_id))

    costs = [commands for _, commands in await fleet.costs(*(refused(f"j{n}") for n in range(10)))]
    # A first look and three draws, of two commands each; the reading of the job and the pools.
    assert max(costs) <= 12


async def test_a_heartbeat_costs_the_same_with_1_and_with_6000_pairs(fleet: Fleet) -> None:
    (narrow,) = await fleet.register(["narrow"])
    (wide,) = await fleet.register(["wide"], asr=languages("a", 100), tts=languages("b", 60))

    def beat(node_id: str, epoch: int) -> Any:
        beats = [pool_pb2.NodeBeat(node_id=node_id, epoch=epoch, running=[ref(f"j-{node_id}")])]
        return fleet.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats))

    # The first heartbeat of all costs one command more.
    first = [pool_pb2.NodeBeat(node_id="narrow", epoch=narrow)]
    await fleet.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=first))
    for _ in range(2):  # the first takes a slot, the second finds it
        costs = await fleet.costs(beat("narrow", narrow), beat("wide", wide))
        assert costs[0] == costs[1]


async def test_a_thousand_heartbeats_are_one_call_of_four_commands(
    fleet: Fleet, own_redis: EmbeddedRedis
) -> None:
    everyone = names(1000)
    epochs = await fleet.register(everyone)
    beats = [
        pool_pb2.NodeBeat(node_id=node_id, epoch=epoch)
        for node_id, epoch in zip(everyone, epochs, strict=True)
    ]
    await fleet.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats[:1]))
    with redis.Redis.from_url(own_redis.url, protocol=2) as store:
        store.config_resetstat()
        answer = await fleet.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
        stats = store.info("commandstats")
    calls = {name: stat["calls"] for name, stat in stats.items() if name != "cmdstat_info"}
    calls.pop("cmdstat_config|resetstat", None)
    assert not answer.problems
    assert calls == {
        "cmdstat_evalsha": 1,
        "cmdstat_time": 1,
        "cmdstat_set": 1,
        "cmdstat_hmget": 1,
        "cmdstat_hset": 1,
    }


async def test_6000_pairs_are_joined_in_short_steps_and_later_only_the_difference_moves(
    fleet: Fleet,
) -> None:
    asr, tts = languages("a", 100), languages("b", 61)
    answers: list[pool_pb2.RegisterNodeResponse] = []

    async def register(node_id: str, stream_id: str, spoken: tuple[str, ...]) -> None:
        request = registration(node_id, stream_id=stream_id, asr=asr, tts=spoken)
        answers.append(await fleet.registry.register(request))

    async def remove(node_id: str) -> None:
        gone = await fleet.registry.remove(pool_pb2.RemoveNodeRequest(node_id=node_id))
        assert (gone.removed, gone.pools_left) == (True, 6100)

    await register("other", "s1", tts[:60])
    costs = {
        "join": await fleet.costs(register("n1", "s1", tts[:60])),
        "change": await fleet.costs(register("n1", "s2", tts[1:61])),
        "same": await fleet.costs(register("n1", "s3", tts[1:61])),
        "leave": await fleet.costs(remove("other")),
    }
    # 100 x 60 with speech, and 100 into any language as text.
    assert [(it.pools, it.pools_joined, it.pools_left) for it in answers[1:]] == [
        (6100, 6100, 0),
        (6100, 100, 100),
        (6100, 0, 0),
    ]
    steps = {what: [cost for name, cost in found] for what, found in costs.items()}
    # A pool takes at most six commands; what a step has besides is its own.
    assert max(map(max, steps.values())) <= POOLS_A_STEP * 6 + 20
    # 31 steps of 200, and the registration itself.
    assert len(steps["join"]) == 32
    assert [name for name, _ in costs["change"]] == ["register_node", "move_pools", "move_pools"]
    assert [name for name, _ in costs["same"]] == ["register_node"]
