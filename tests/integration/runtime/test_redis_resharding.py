"""A slot of a real Redis Cluster moves to another server while scripts use its keys."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.link import RedisLink
from tests.support.redis_cluster import RedisCluster, running_cluster

Eventually = Callable[..., Awaitable[None]]

KEYS = 60
SCRIPTS = {
    # As the real ones, it declares the prefix and makes keys from it. They are all the same, unless
    # it saw only a part of them once, or ran only in part.
    "add": f"""
        local seen = {{}}
        for i = 1, {KEYS} do
          seen[redis.call('INCR', KEYS[1] .. ':' .. i)] = true
        end
        local value, other = next(seen), nil
        return next(seen, value) == nil and value or redis.error_reply('ERR parts of the keys')
    """,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with running_cluster(replicas=False) as cluster:
        yield cluster


@asynccontextmanager
async def opened(url: str, prefix: str, timeout_ms: int = 20_000) -> AsyncIterator[RedisLink]:
    # A busy machine takes its time to move a slot. How long calls may wait is not what is tested.
    link = RedisLink(url=url, prefix=prefix, scripts=SCRIPTS, timeout_ms=timeout_ms)
    await link.open()
    try:
        yield link
    finally:
        await link.close()


class Load:
    """Callers that add for as long as the block lasts, each without a pause.

    `answers` has what they got; an error ends the test.
    """

    def __init__(self, link: RedisLink, callers: int = 8) -> None:
        self.answers: list[int] = []
        self._link = link
        self._callers = callers
        self._ending = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._call()) for _ in range(self._callers)]
        await self.progress()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)

    async def progress(self) -> None:
        """Waits until each caller can have got an answer to a call that it made from now on."""
        enough = len(self.answers) + 2 * self._callers
        while len(self.answers) < enough:
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.005)

    async def _call(self) -> None:
        while not self._ending:
            self.answers.append(await self._link.call("add"))


def assert_each_ran_once(answers: list[int]) -> None:
    assert sorted(answers) == list(range(1, len(answers) + 1))


async def test_calls_go_on_without_an_error_while_a_slot_moves_key_by_key(
    cluster: RedisCluster, prefix: str
) -> None:
    tagged = f"{prefix}:{{c7}}"
    async with opened(cluster.url, tagged) as link:
        addresses = {link.server.address}
        async with Load(link) as load:
            # There, and back again.
            for _ in range(2):
                target = await asyncio.to_thread(cluster.reshard, tagged)
                await load.progress()
                assert link.server.address == ("127.0.0.1", target.port)
                addresses.add(link.server.address)
        assert link.up
    assert len(addresses) == 2
    assert_each_ran_once(load.answers)


async def test_calls_go_on_without_an_error_while_a_slot_moves_in_one_step(
    cluster: RedisCluster, prefix: str
) -> None:
    tagged = f"{prefix}:{{c8}}"
    async with opened(cluster.url, tagged) as link, Load(link) as load:
        target = await asyncio.to_thread(cluster.reshard_atomically, tagged)
        await load.progress()
        assert link.server.address == ("127.0.0.1", target.port)
    assert_each_ran_once(load.answers)


async def test_nothing_runs_on_a_part_of_the_keys_however_long_they_move(
    cluster: RedisCluster, prefix: str, eventually: Eventually
) -> None:
    tagged = f"{prefix}:{{c9}}"
    async with opened(cluster.url, tagged, timeout_ms=1000) as link:
        told: list[tuple[bool, str]] = []
        link.on_change.append(lambda up, reason: told.append((up, reason)))
        assert await link.call("add") == 1
        moving = await asyncio.to_thread(cluster.begin_resharding, tagged)
        await asyncio.to_thread(moving.move, KEYS // 2)
        with pytest.raises(DependencyDownError, match="the call was not sent"):
            await link.call("add")
        await eventually(lambda: not link.up)
        assert "on its way to another server" in link.down_reason
        # Now they fail at once, and new sessions go elsewhere.
        with pytest.raises(DependencyDownError):
            link.send("add")
        while await asyncio.to_thread(moving.move, KEYS):
            pass
        assert not link.up
        await asyncio.to_thread(moving.finish)
        await eventually(lambda: link.up)
        assert [up for up, _ in told] == [False, True]
        assert link.server.address == ("127.0.0.1", moving.target.port)
        assert await link.call("add") == 2


async def test_a_slot_that_stays_after_all_is_used_again(
    cluster: RedisCluster, prefix: str
) -> None:
    tagged = f"{prefix}:{{c10}}"
    async with opened(cluster.url, tagged) as link:
        assert await link.call("add") == 1
        moving = await asyncio.to_thread(cluster.begin_resharding, tagged)
        held = link.send("add")
        await asyncio.sleep(0.1)
        assert not held.done()
        assert link.up
        await asyncio.to_thread(moving.cancel)
        assert await held == 2
        assert link.server.address == ("127.0.0.1", moving.source.port)


async def test_a_command_with_keys_in_two_places_waits_until_they_are_in_one(
    cluster: RedisCluster, prefix: str
) -> None:
    tagged = f"{prefix}:{{c11}}"
    keys = [f"{tagged}:{i}" for i in range(1, KEYS + 1)]
    async with opened(cluster.url, tagged) as link:
        await link.call("add")
        moving = await asyncio.to_thread(cluster.begin_resharding, tagged)
        await asyncio.to_thread(moving.move, KEYS // 2)
        reading = asyncio.create_task(link.command("MGET", *keys))
        await asyncio.sleep(0.05)
        while await asyncio.to_thread(moving.move, KEYS):
            assert not reading.done()
        await asyncio.to_thread(moving.finish)
        assert await reading == [b"1"] * KEYS
