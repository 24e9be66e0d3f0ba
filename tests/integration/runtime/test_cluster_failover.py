"""Twelve cells on a real Redis Cluster with a password, whose masters fail or change."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.server_link import CONNECTIONS
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.support.redis_cluster import MASTERS, RedisCluster, running_cluster

Eventually = Callable[..., Awaitable[None]]

CELLS = 12
PASSWORD = "hunter2"
KEYS = 20
SCRIPTS = {
    "add": "return redis.call('INCRBY', KEYS[1] .. ':n', ARGV[1])",
    "count": f"""
        local found = 0
        for i = 0, {KEYS - 1} do
          found = found + redis.call('EXISTS', KEYS[1] .. ':' .. i)
        end
        return found
    """,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster(password=PASSWORD) as cluster:
        yield cluster


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Cells]:
    # A busy machine may be slow, and that is no error here.
    settings = Settings(redis_url=url, redis_prefix=prefix, cells=CELLS, redis_timeout_ms=4000)
    cells = Cells(settings, SCRIPTS)
    await cells.open()
    try:
        yield cells
    finally:
        await cells.close()


class Caller:
    """Adds one after the other in one cell, and tries again after an error."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.answers: list[int] = []
        self.failed_at: list[float] = []
        self.unknown = 0
        self.answered_at = 0.0

    async def run(self) -> None:
        while True:
            try:
                self.answers.append(await self.cell.link.call("add", 1))
                self.answered_at = time.monotonic()
            except DependencyDownError as error:
                self.failed_at.append(time.monotonic())
                self.unknown += "may have happened" in str(error)
            await asyncio.sleep(0.005)

    def assert_each_ran_once(self) -> None:
        """The answers rise by one, except for calls of which nobody knows whether they ran."""
        assert len(set(self.answers)) == len(self.answers)
        assert self.answers == sorted(self.answers)
        assert self.answers[-1] - len(self.answers) <= self.unknown


@asynccontextmanager
async def calling(cells: Cells) -> AsyncIterator[list[Caller]]:
    callers = [Caller(cell) for cell in cells.all]
    tasks = [asyncio.create_task(caller.run()) for caller in callers]
    try:
        yield callers
        for task in tasks:
            assert not task.done()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def all_answered(callers: list[Caller], eventually: Eventually) -> None:
    """Waits until each has an answer to a call that it made from now on."""
    enough = {caller: len(caller.answers) + 2 for caller in callers}
    await eventually(lambda: all(len(each.answers) >= enough[each] for each in callers), within=30)


async def test_only_the_cells_of_a_master_that_dies_are_away_and_each_finds_the_next(
    cluster: RedisCluster,
    prefix: str,
    eventually: Eventually,
    record_property: Callable[[str, object], None],
) -> None:
    async with opened(cluster.url, prefix) as cells, calling(cells) as callers:
        await all_answered(callers, eventually)
        first = cells.first.prefix
        master = await asyncio.to_thread(cluster.master_of, first)
        theirs = [each for each in callers if _port(each.cell) == master.port]
        others = [each for each in callers if each not in theirs]
        assert len(theirs) == CELLS // MASTERS
        await asyncio.to_thread(cluster.wait_replicated, master)
        killed_at = time.monotonic()
        await asyncio.to_thread(master.kill)
        await eventually(lambda: all(each.failed_at for each in theirs))
        await all_answered(callers, eventually)
        took = max(each.failed_at[-1] for each in theirs) - killed_at
        record_property("recovery_s", round(took, 2))
        print(f"recovery took {took:.2f} s")
        assert all(_port(each.cell) != master.port for each in theirs)
        assert not any(each.failed_at for each in others)
    for each in others:
        each.assert_each_ran_once()
    await asyncio.to_thread(cluster.restart, master)


async def test_a_planned_change_of_masters_shows_no_error(
    cluster: RedisCluster, prefix: str, eventually: Eventually
) -> None:
    async with opened(cluster.url, prefix) as cells, calling(cells) as callers:
        await all_answered(callers, eventually)
        first = cells.first.prefix
        master = await asyncio.to_thread(cluster.master_of, first)
        replica = await asyncio.to_thread(cluster.replica_of, master)
        await asyncio.to_thread(cluster.ask, replica, "CLUSTER", "FAILOVER")
        await eventually(lambda: _port(cells.first) == replica.port)
        await all_answered(callers, eventually)
        assert not any(each.failed_at for each in callers)
    for each in callers:
        each.assert_each_ran_once()
    await asyncio.to_thread(cluster.wait_for_replicas)


@pytest.mark.long
async def test_nothing_runs_on_a_part_of_the_keys_when_a_master_dies_while_they_move(
    cluster: RedisCluster, prefix: str, eventually: Eventually
) -> None:
    link = RedisLink(url=cluster.url, prefix=f"{prefix}:{{c7}}", scripts=SCRIPTS, timeout_ms=1000)
    await link.open()
    for key in range(KEYS):
        await link.command("SET", f"{link.prefix}:{key}", "here")
    counts: list[int] = []

    async def keep_counting() -> None:
        while True:
            with contextlib.suppress(DependencyDownError):
                counts.append(await link.call("count"))
            await asyncio.sleep(0.01)

    counting = asyncio.create_task(keep_counting())
    try:
        moving = await asyncio.to_thread(cluster.begin_resharding, link.prefix)
        await asyncio.to_thread(moving.move, KEYS // 2)
        killed = await asyncio.to_thread(cluster.kill_master_of, link.prefix)
        moving.source = await asyncio.to_thread(cluster.wait_for_other_master, link.prefix, killed)
        await eventually(lambda: "on its way to another server" in link.down_reason)
        while await asyncio.to_thread(moving.move, KEYS):
            pass
        await asyncio.to_thread(moving.finish)
        await eventually(lambda: link.up)
        assert link.server.address == ("127.0.0.1", moving.target.port)
        enough = len(counts) + 2
        await eventually(lambda: len(counts) > enough)
        assert set(counts) == {KEYS}
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
        await link.close()
    await asyncio.to_thread(cluster.restart, killed)


async def test_a_process_has_two_connections_for_each_cell_of_a_cluster(
    cluster: RedisCluster, prefix: str, eventually: Eventually
) -> None:
    def connections() -> int:
        clients = (cluster.ask(node, "CLIENT", "LIST", "TYPE", "normal") for node in cluster.nodes)
        # Each question has a connection of its own.
        return sum(listed.count(b"\n") - 1 for listed in clients)

    before = await asyncio.to_thread(connections)
    async with opened(cluster.url, prefix) as cells:
        calls = [cell.link.call("add", n) for cell in cells.all for n in range(1000)]
        await asyncio.gather(*calls)
        count = await asyncio.to_thread(connections) - before
        assert CELLS <= count <= CELLS * CONNECTIONS
    assert await asyncio.to_thread(connections) == before


async def test_a_process_has_two_connections_for_all_cells_of_one_server(
    redis_url: str, prefix: str
) -> None:
    async with opened(redis_url, prefix) as cells:
        calls = [cell.link.call("add", n) for cell in cells.all for n in range(1000)]
        await asyncio.gather(*calls)
        ids = set(await asyncio.gather(*(c.link.command("CLIENT", "ID") for c in cells.all * 100)))
        assert 1 <= len(ids) <= CONNECTIONS


async def test_a_wrong_password_of_a_cluster_is_reported(
    cluster: RedisCluster, prefix: str
) -> None:
    for wrong in ("", ":hunter3@"):
        url = cluster.url.replace(f":{PASSWORD}@", wrong)
        link = RedisLink(url=url, prefix=f"{prefix}:{{c7}}", scripts=SCRIPTS)
        with pytest.raises(DependencyDownError, match=r"(?i)auth|password") as caught:
            await link.open()
        assert "hunter3" not in f"{caught.value}"


def _port(cell: Cell) -> int:
    address = cell.link.server.address
    return address[1] if address else 0
