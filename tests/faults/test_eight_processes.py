"""Eight processes share a small fleet through the real scripts, and are killed as they go.

No node ever holds more than its slots, and no slot is lost for longer than a lease. Two truths are
compared in the same atomic step as each call: what the store holds (the lease sets), and what
callers were told (a ledger that is written from the scripts' replies alone). A slot that is given
twice shows in the first; one that is taken from under its holder shows in the second.

This file is also the program of those processes: `zygote` imports once and forks a worker for each
line on its stdin, so that a replacement costs milliseconds.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.fleet.views import Views
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.errors import (
    AllCandidatesFullOrFailedError,
    DependencyDownError,
)
from lingua_scheduler.services.runtime.redis.embedded import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.script_header import prelude
from lingua_scheduler.services.runtime.redis.scripts import load_scripts, script_headers
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

PROCESSES = 8
CALLERS_A_PROCESS = 6
CALLS = 100_000
# Under a minute on two idle cores; the rest is for machines that have other work.
DEADLINE_S = 200.0
KILL_EVERY_S = 0.25
NODES = {f"n{i:02}": 1 + i % 3 for i in range(20)}
RESERVATION_MS, RUNNING_MS = 300, 500

# Runs after a script, in the same atomic step, with the script's arguments. `told` reads its reply:
# the node, the lease, and when it ends (nil: it has ended).
CHECKED = """
{arguments}
local function under_test()
{source}
end
local reply = under_test()
local P = KEYS[1]
redis.call('HINCRBY', P .. ':test:calls', '{name}', 1)
if reply[1] == 'ALL_CANDIDATES_FULL_OR_FAILED' then
  redis.call('HINCRBY', P .. ':test:refusals', '{name}', 1)
end

local function told()
{told}
end
local id, lease, ends = told()
if not id then
  return reply
end
redis.call('HINCRBY', P .. ':test:changes', '{name}', 1)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ledger = P .. ':test:told:' .. id
if ends then
  redis.call('ZADD', ledger, ends, lease)
else
  redis.call('ZREM', ledger, lease)
end
redis.call('ZREMRANGEBYSCORE', ledger, '-inf', now)
local promised = redis.call('ZCARD', ledger)
local held = redis.call('ZCOUNT', P .. ':node:' .. id .. ':reserved', '(' .. now, '+inf')
  + redis.call('ZCOUNT', P .. ':node:' .. id .. ':running', '(' .. now, '+inf')
local max = tonumber(redis.call('HGET', P .. ':test:max', id))
if promised > max or held ~= promised then
  redis.call('RPUSH', P .. ':test:violations', string.format(
    '%s after {name} of %s: %d slots, %d leases, %d promised', id, lease, max, held, promised))
end
return reply
"""
TOLD = {
    "allocate": """
  if reply[1] == 'ok' and reply[2] == 0 then
    return reply[6], job .. ':' .. reply[3], reply[5]
  end""",
    "reserve": """
  if reply[1] == 'ok' and reply[2] == 0 then
    return node_id, job .. ':' .. attempt, reply[3]
  end""",
    "commit": """
  if reply[1] == 'committed' or reply[1] == 'committed_late' then
    return node_id, job .. ':' .. attempt, reply[2]
  end""",
    "release": """
  if reply[1] == 'released' then
    return node_id, job .. ':' .. attempt, nil
  end""",
    "complete": "  return node_id, job .. ':' .. attempt, nil",
}
# All nodes at one moment. Returns the first node with more leases than slots or '', how many
# leases there are, and when the last one ends.
SAMPLE = """
local P = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local over, total, last = '', 0, 0
local slots = redis.call('HGETALL', P .. ':test:max')
for i = 1, #slots, 2 do
  local held = 0
  for _, kind in ipairs({ ':reserved', ':running' }) do
    local key = P .. ':node:' .. slots[i] .. kind
    held = held + redis.call('ZCOUNT', key, '(' .. now, '+inf')
    local latest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    last = math.max(last, tonumber(latest[2]) or 0)
  end
  if held > tonumber(slots[i + 1]) then
    over = slots[i] .. ' holds ' .. held .. ' of ' .. slots[i + 1]
  end
  total = total + held
end
return { over, total, last, now }
"""

# Faults that the checks must see: script, what is replaced in it, and by what.
MUTATIONS: dict[str, list[tuple[str, str, str]]] = {
    "": [],
    "the draw does not look for room": [
        ("allocate", "if not why and is_full(used, max, kept, now) then why = 'full' end", ""),
        (
            "allocate",
            "if not is_full(node.used, node.max, node.kept, now) then return id, node end",
            "do return id, node end",
        ),
    ],
    "reservations are dropped before they end": [
        (
            "allocate",
            "redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)",
            "redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now + 250)",
        ),
        ("allocate", "if node.next_end <= now then", "if true then"),
    ],
    "a late commit takes a slot that is not there": [
        ("commit", "elseif node.used < node.max then", "elseif true then"),
    ],
    "leases are not counted when a node is settled": [
        ("allocate", "node.used = redis.call('ZCARD', reserved) + ", "node.used = 0 * "),
    ],
}


def checked_scripts(mutation: str) -> dict[str, str]:
    """The real scripts, those that give and take slots with the check behind them."""
    scripts = load_scripts()
    for name, old, new in MUTATIONS[mutation]:
        assert old in scripts[name], f"{name} no longer has: {old}"
        scripts[name] = scripts[name].replace(old, new)
    for name, told in TOLD.items():
        scripts[name] = CHECKED.format(
            arguments=prelude(script_headers(name)), source=scripts[name], name=name, told=told
        )
    return scripts


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
    return Operations(
        link=link,
        settings=settings,
        metrics=PoolMetrics(CollectorRegistry()),
        views=Views(link=link, settings=settings),
    )


def allocation(job_id: str, attempt: int = 1) -> pool_pb2.AllocateRequest:
    pair = common_pb2.LanguagePair(src="zh", tgt="en")
    criteria = pool_pb2.NodeCriteria(pair=pair, require_tts=True)
    return pool_pb2.AllocateRequest(job_id=job_id, attempt=attempt, criteria=criteria)


# ---- the program of a worker


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


def zygote(url: str, prefix: str, mutation: str) -> None:
    """Forks a worker for each line on stdin and prints its pid; ends them all at end of file."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    children = []
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(0)
            asyncio.run(work(url, prefix, mutation))
            os._exit(0)
        children.append(pid)
        print(pid, flush=True)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# ---- the test


@dataclass
class Fleet:
    """Nodes in a Redis, and processes that use them."""

    url: str
    prefix: str
    store: "redis.Redis[bytes]"
    nursery: "subprocess.Popen[str]"
    workers: list[int]
    kills: int = 0
    samples: int = 0

    def spawn(self) -> None:
        """One more worker."""
        assert self.nursery.stdin is not None
        assert self.nursery.stdout is not None
        self.nursery.stdin.write("one\n")
        self.nursery.stdin.flush()
        self.workers.append(int(self.nursery.stdout.readline()))

    def kill_one(self) -> None:
        """Any worker, wherever it is in its work."""
        os.kill(self.workers.pop(random.randrange(len(self.workers))), signal.SIGKILL)
        self.kills += 1

    def kill_all(self) -> None:
        """Every worker at once."""
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
        program = [sys.executable, str(Path(__file__).resolve())]
        nursery = subprocess.Popen(
            [*program, server.url, prefix, mutation],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            made = Fleet(server.url, prefix, store, nursery, [])
            for _ in range(PROCESSES):
                made.spawn()
            yield made
        finally:
            # The end of its input ends it and all its workers.
            nursery.communicate(timeout=60)


async def register_nodes(url: str, prefix: str) -> None:
    link = new_link(url, prefix, "")
    await link.open()
    registry = Registry(link=link, settings=quick_settings(url, prefix))
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


if __name__ == "__main__":
    arguments: Any = sys.argv[1:4]
    zygote(*arguments)
