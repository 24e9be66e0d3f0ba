"""ListInstances: which instances run, what they have done, and what becomes of those that die."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.contract.announcements import KEEP_MS
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.runtime.version import version
from lingua_scheduler.v1 import instances_pb2, pool_pb2_grpc
from tests.support.all_in_one import SERVICES, AllInOneProcess
from tests.support.pool_client import connected
from tests.support.process import SOON_S
from tests.support.raw_client import RawClient, new_session
from tests.support.scheduler import Scheduler
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    running,
)
from tests.support.speaker import speaking

SERVING, DRAINING, DOWN = (
    instances_pb2.INSTANCE_HEALTH_SERVING,
    instances_pb2.INSTANCE_HEALTH_DRAINING,
    instances_pb2.INSTANCE_HEALTH_DOWN,
)
# Announcements are more frequent than outside of tests, and fewer may be missing.
ANNOUNCE = {"runtime.instances._INTERVAL_S": 0.3}
DOWN_AFTER_MS = 2000
# Also for a busy machine.
LATER_S = 60.0


class Listing:
    """A client that lists instances."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = pool_pb2_grpc.PoolServiceStub(channel)

    async def all(self, *, with_settings: bool = False) -> list[instances_pb2.Instance]:
        """The instances, as they are listed."""
        request = instances_pb2.ListInstancesRequest(with_settings=with_settings)
        response = await self._stub.ListInstances(request, timeout=SOON_S)
        assert all(each.announced_ms <= response.as_of_ms for each in response.instances)
        return list(response.instances)

    async def healths(self) -> dict[str, int]:
        """The health of each instance."""
        return {each.instance_id: each.health for each in await self.all()}

    async def becomes(self, expected: dict[str, int]) -> None:
        """Returns when these instances are listed, with this health."""
        deadline = time.monotonic() + LATER_S
        while (found := await self.healths()) != expected:
            assert time.monotonic() < deadline, found
            await asyncio.sleep(0.05)

    async def stats(
        self, service: str, holds: Callable[[instances_pb2.InstanceStats], bool]
    ) -> instances_pb2.InstanceStats:
        """The counters of the only instance of a service, once they meet a condition."""
        deadline = time.monotonic() + LATER_S
        while True:
            (found,) = [each for each in await self.all() if each.service == service]
            if holds(found.stats):
                return found.stats
            assert time.monotonic() < deadline, found.stats
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def listing(address: str) -> AsyncIterator[Listing]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Listing(channel)


@contextlib.asynccontextmanager
async def services(
    redis_url: str, prefix: str, **settings: Any
) -> AsyncIterator[tuple[Listing, PoolProcess, DispatcherProcess, GatewayProcess]]:
    """A process of each service: "p", "d" and "g"."""
    limits = {"fleet.instances._DOWN_AFTER_MS": DOWN_AFTER_MS, **ANNOUNCE}
    pool = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p", limits=limits)
    async with running(pool), listing(pool.address) as client:
        settings = {"redis_url": redis_url, "limits": ANNOUNCE, **settings}
        dispatcher = DispatcherProcess(pool=pool, instance_id="d", **settings)
        async with running(dispatcher):
            gateway = GatewayProcess(
                pool=pool, dispatchers=dispatcher.address, instance_id="g", **settings
            )
            async with running(gateway):
                yield client, pool, dispatcher, gateway


def restarted(process: ServiceProcess, **settings: str | int) -> None:
    """Starts a process again after its end, with other settings."""
    process._settings.update(settings)
    process.start()
    process.wait_ready()


@pytest.mark.parametrize("split", [True, False])
async def test_all_services_are_listed_with_their_version_address_and_counters(
    redis_url: str, split: bool
) -> None:
    before = int(time.time() * 1000)
    with Scheduler(redis_url=redis_url, split=split) as scheduler:
        scheduler.add_nodes([scheduler.dispatchers[0].address])
        async with listing(scheduler.pools[0].address) as client:
            async with speaking(scheduler.gateways[0].address) as speaker:
                for words in ((1, 2), (3, 4)):
                    await speaker.say_sentence(*words)
                await speaker.outcome(1)
                talk = await client.stats("gateway", lambda stats: stats.results == 2)
            jobs = await client.stats("dispatcher", lambda stats: stats.jobs_done == 2)
            slots = await client.stats("pool", lambda stats: stats.allocations >= 2)
            found = await client.all()
    assert [each.service for each in found] == ["dispatcher", "gateway", "pool"]
    assert (talk.sessions, talk.missing, sum(talk.result_counts)) == (1, 0, 2)
    assert (jobs.jobs_failed, jobs.jobs_waiting, jobs.retries, jobs.nodes) == (0, 0, 0, 1)
    assert slots.allocations_refused == 0
    parts = (scheduler.dispatchers, scheduler.gateways, scheduler.pools)
    addresses = [processes[0].address for processes in parts]
    assert [each.address for each in found] == addresses
    assert len({each.instance_id for each in found}) == 3
    for each in found:
        assert (each.health, each.version) == (SERVING, version())
        assert before <= each.started_ms <= each.announced_ms
        assert not each.settings, "they were not asked for"


async def test_a_killed_instance_is_down_until_it_is_back_and_a_stopped_one_is_gone(
    redis_url: str, prefix: str
) -> None:
    async with services(redis_url, prefix) as (client, _, dispatcher, gateway):
        await client.becomes({"p": SERVING, "d": SERVING, "g": SERVING})
        dispatcher.kill()
        await client.becomes({"p": SERVING, "d": DOWN, "g": SERVING})
        (dead,) = [each for each in await client.all() if each.instance_id == "d"]
        assert (dead.service, dead.address) == ("dispatcher", dispatcher.address)
        await dispatcher.restart()
        await client.becomes({"p": SERVING, "d": SERVING, "g": SERVING})
        gateway.terminate()
        assert await gateway.exit_code() == 0, gateway.log()
        assert await client.healths() == {"p": SERVING, "d": SERVING}


async def test_an_instance_that_waits_for_its_clients_to_leave_is_draining(
    redis_url: str, prefix: str
) -> None:
    async with services(redis_url, prefix, drain_grace_ms=600_000) as (client, _, _, gateway):
        talking = RawClient(gateway.address)
        await talking.open(new_session("en"))
        gateway.terminate()
        await client.becomes({"p": SERVING, "d": SERVING, "g": DRAINING})
        await talking.close()
        assert await gateway.exit_code() == 0, gateway.log()
        assert await client.healths() == {"p": SERVING, "d": SERVING}


async def test_all_services_of_a_process_are_draining_from_the_start(
    redis_url: str, prefix: str
) -> None:
    one = AllInOneProcess(
        redis_url=redis_url, prefix=prefix, instance_id="a", drain_grace_ms=600_000
    )
    other = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p")
    own = [f"a-{service}" for service in SERVICES]
    async with running(one, other), listing(other.address) as client:
        await client.becomes({**dict.fromkeys(own, SERVING), "p": SERVING})
        talking = RawClient(one.gateway.address)
        await talking.open(new_session("en"))
        one.terminate()
        # Only the gateway has a client, and the others wait for it.
        await client.becomes({**dict.fromkeys(own, DRAINING), "p": SERVING})
        await talking.close()
        assert await one.exit_code() == 0, one.log()
        assert await client.healths() == {"p": SERVING}


async def test_a_frozen_instance_is_down_while_it_says_nothing(redis_url: str, prefix: str) -> None:
    async with services(redis_url, prefix) as (client, _, _, gateway):
        gateway.process.send_signal(signal.SIGSTOP)
        await client.becomes({"p": SERVING, "d": SERVING, "g": DOWN})
        gateway.process.send_signal(signal.SIGCONT)
        await client.becomes({"p": SERVING, "d": SERVING, "g": SERVING})


async def test_settings_are_listed_if_asked_for_and_are_those_of_the_process_that_runs(
    redis_url: str, prefix: str
) -> None:
    async with services(redis_url, prefix, max_retry=3) as (client, _, dispatcher, _):

        async def retries() -> dict[str, tuple[str, str]]:
            return {
                each.instance_id: (setting.value, setting.origin)
                for each in await client.all(with_settings=True)
                for setting in each.settings
                if setting.name == "max_retry"
            }

        given, default = ("3", "environment"), ("2", "default")
        assert await retries() == {"d": given, "g": given, "p": default}
        (one,) = [each for each in await client.all(with_settings=True) if each.instance_id == "p"]
        rows = [(row.group, row.name, row.description) for row in load_settings({}).rows()]
        assert [(each.group, each.name, each.description) for each in one.settings] == rows
        # Its successor has the same id, and finds the settings of the dead one.
        dispatcher.kill()
        await asyncio.to_thread(restarted, dispatcher, max_retry=4)
        assert await retries() == {"d": ("4", "environment"), "g": given, "p": default}


async def test_everything_is_announced_again_after_redis_lost_it(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with services(own_redis.url, prefix) as (client, _, _, _):
        await client.becomes({"p": SERVING, "d": SERVING, "g": SERVING})
        with redis.Redis.from_url(own_redis.url) as store:
            store.flushall()
        await client.becomes({"p": SERVING, "d": SERVING, "g": SERVING})
        found = await client.all(with_settings=True)
        deadline = time.monotonic() + LATER_S
        while not all(each.settings for each in found):
            assert time.monotonic() < deadline
            found = await client.all(with_settings=True)


def announcement(name: str, at_ms: int) -> bytes:
    """An announcement of a gateway as Redis has it."""
    instance = instances_pb2.Instance(
        instance_id=name, service="gateway", health=SERVING, version="0.1.0"
    )
    return f"{at_ms} ".encode() + instance.SerializeToString()


async def test_the_dead_are_forgotten_after_ten_minutes(redis_url: str, prefix: str) -> None:
    now = int(time.time() * 1000)
    with redis.Redis.from_url(redis_url) as store:
        store.hset(f"{prefix}:instances", "old", announcement("old", now - KEEP_MS - 1))
        store.hset(f"{prefix}:instances", "recent", announcement("recent", now - KEEP_MS // 2))
        pool = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p")
        async with running(pool), listing(pool.address) as client:
            # Every pool service looks for them at its start, and every 15 s.
            await client.becomes({"p": SERVING, "recent": DOWN})
            assert set(store.hkeys(f"{prefix}:instances")) == {b"p", b"recent"}
            await pool.logs("instance forgotten")


async def test_at_most_1000_are_listed_those_that_announced_themselves_last(
    redis_url: str, prefix: str
) -> None:
    now = int(time.time() * 1000)
    pool = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p")
    with redis.Redis.from_url(redis_url) as store:
        for at in range(0, 1500, 500):
            names = [f"g{number:04}" for number in range(at, at + 500)]
            store.hset(
                f"{prefix}:instances",
                mapping={
                    name: announcement(name, now - 200_000 + 100 * int(name[1:])) for name in names
                },
            )
        async with running(pool), listing(pool.address) as client:
            found = await client.all()
    names = [each.instance_id for each in found]
    # "pool" comes after "gateway".
    assert names == [*(f"g{number:04}" for number in range(501, 1500)), "p"]


async def test_settings_that_do_not_fit_into_a_message_are_left_out(
    redis_url: str, prefix: str
) -> None:
    now = int(time.time() * 1000)
    setting = instances_pb2.InstanceSetting(name="languages", value="x" * 100_000)
    settings = instances_pb2.Instance(settings=[setting]).SerializeToString()
    pool = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p")
    with redis.Redis.from_url(redis_url) as store:
        for at in range(60):
            name = f"g{at:02}"
            store.hset(f"{prefix}:instances", name, announcement(name, now - 200_000 + at))
            store.set(f"{prefix}:instance:{name}:settings", settings, px=60_000)
        async with running(pool), connected(pool, redis_url) as caller:
            found = await Listing(caller.channel).all(with_settings=True)
    assert len(found) == 61
    having = [each.instance_id for each in found if each.settings]
    # 3 MiB: that of the pool service, and those of the newest others.
    assert having == [*(f"g{at:02}" for at in range(60 - 31, 60)), "p"]


async def test_an_entry_that_cannot_be_read_hides_no_other(redis_url: str, prefix: str) -> None:
    pool = PoolProcess(redis_url=redis_url, prefix=prefix, instance_id="p", log_level="debug")
    # Without a time it would soon be forgotten.
    strange = f"{int(time.time() * 1000)} ".encode() + b"\xff\xff"
    with redis.Redis.from_url(redis_url) as store:
        async with running(pool), listing(pool.address) as client:
            store.hset(f"{prefix}:instances", "strange", strange)
            assert await client.healths() == {"p": SERVING}
            await pool.logs("announcement unreadable")
