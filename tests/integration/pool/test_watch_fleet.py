"""WatchFleet: all nodes, then every change; many watchers cost as much as one."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest

from lingua_scheduler.services.pool_service.fleet import watch
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.support.fleet_watcher import FleetWatcher, watching
from tests.support.live_records import live_record
from tests.support.pool_client import Pool, allocation, connected, ref, running_pool
from tests.support.rpc_errors import failure
from tests.support.services import WATCH_MS, PoolProcess, running

READY, OFFLINE = common_pb2.NODE_HEALTH_READY, common_pb2.NODE_HEALTH_OFFLINE
DRAINING = common_pb2.NODE_HEALTH_DRAINING
# No sweep, and no lease ends, during a test.
CALM: dict[str, str | int] = {"sweep_interval_ms": 3_600_000, "reservation_ttl_ms": 60_000}
QUICK: dict[str, str | int] = {**CALM, "node_heartbeat_ms": 1000, "heartbeat_stale_ms": 3000}
# Samples stay frequent, also if they take long on a busy machine.
OFTEN = {"fleet.watch._REST": 1}
# A connection that takes little that is not read. Its streams share that.
_NARROW = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)]


@pytest.fixture
async def fleet(pool: Pool) -> AsyncIterator[FleetWatcher]:
    """A watcher of the shared pool service, which has no nodes yet."""
    # The last sample for the watcher of an earlier test may be kept for a while.
    async with watching(pool.stub) as watcher:
        await watcher.until(lambda _: not watcher.nodes)
    async with watching(pool.stub) as watcher:
        assert watcher.nodes == {}
        yield watcher


async def set_health(pool: Pool, health: common_pb2.NodeHealth.ValueType) -> pool_pb2.Node:
    wish = pool_pb2.SetNodeHealthRequest(node_id="n1", health=health, by_operator=True)
    return (await pool.stub.SetNodeHealth(wish)).node


async def complete(pool: Pool, job_id: str) -> None:
    done = pool_pb2.CompleteRequest(
        attempt=ref(job_id), node_id="n1", outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
    )
    await pool.stub.Complete(done)


async def test_the_life_of_a_node_is_seen_change_by_change_and_nothing_else(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with (
        running_pool(own_redis.url, prefix, **QUICK) as pool,
        watching(pool.stub) as fleet,
    ):

        async def beats() -> None:
            while True:
                one = pool_pb2.NodeBeat(node_id="n1", epoch=epoch, load={"cpu": time.time() % 1})
                await pool.stub.Heartbeat(pool_pb2.HeartbeatRequest(beats=[one]))
                await asyncio.sleep(0.3)

        epoch = (await pool.register("n1", slots=2, node_owner="acme")).epoch
        beating = asyncio.create_task(beats())
        node = await fleet.sees("n1", health=READY, used_slots=0)
        assert (node.max_concurrent_jobs, node.epoch, node.node_owner) == (2, epoch, "acme")
        assert list(fleet.sets[node.capability_set].capabilities.asr_langs) == ["zh"]
        assert fleet.told == [(["n1"], [])]
        # Heartbeats and another load are no change.
        await fleet.says_that_nothing_changed()
        assert len(fleet.told) == 1

        for number in (1, 2):
            await pool.stub.Allocate(allocation(f"j{number}"))
            await fleet.sees("n1", used_slots=number)
        before = time.time() * 1000
        await set_health(pool, DRAINING)
        node = await fleet.sees("n1", health=DRAINING, drained_by_operator=True)
        assert (node.slots_used_at_drain, node.used_slots) == (2, 2)
        assert abs(node.drained_ms - before) < 10_000
        for left in (1, 0):
            await complete(pool, f"j{2 - left}")
            node = await fleet.sees("n1", used_slots=left)
            assert node.slots_used_at_drain == 2
        beating.cancel()
        await fleet.sees("n1", health=OFFLINE)
        await pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1"))
        await fleet.until(lambda _: not fleet.nodes)
        assert fleet.told == [*[(["n1"], [])] * 7, ([], ["n1"])]
        await fleet.says_that_nothing_changed()
        assert len(fleet.told) == 8


async def test_a_watcher_hears_regularly_that_nothing_changes(redis_url: str, prefix: str) -> None:
    process = PoolProcess(redis_url=redis_url, prefix=prefix, limits=OFTEN, **CALM)
    async with (
        running(process),
        connected(process, redis_url) as pool,
        watching(pool.stub) as fleet,
    ):
        began, messages = time.monotonic(), 4
        for _ in range(messages):
            await fleet.says_that_nothing_changed()
        # The first may be on its way already.
        tell_s = watch.tell_every_s(WATCH_MS / 1000)
        assert (messages - 1) * tell_s * 0.9 < time.monotonic() - began < 3 * messages * tell_s
    times = [response.as_of_ms for response in fleet.responses]
    assert all(response.is_complete for response in fleet.responses)
    assert times == sorted(set(times)), "each says until when nothing has changed"
    assert fleet.told == []


async def test_a_capability_set_is_sent_once_however_many_nodes_have_it(
    pool: Pool, fleet: FleetWatcher
) -> None:
    for number in range(20):
        await pool.register(f"n{number}")
    await fleet.until(lambda _: len(fleet.nodes) == 20)
    assert len(fleet.sets) == 1
    await pool.register("other", asr=("zh", "de"), nmt=("de>en",))
    await pool.register("more", stages=[common_pb2.STAGE_KIND_TTS + 1])
    await pool.register("n5", stream_id="again")
    await fleet.until(lambda _: {"other", "more"} <= set(fleet.nodes) and len(fleet.told) > 1)
    assert len(fleet.sets) == 3
    able = fleet.sets[fleet.nodes["other"].capability_set].capabilities
    assert able == (await pool.node("other")).node.capabilities
    # A watcher that comes later gets them all, too.
    async with watching(pool.stub) as late:
        assert late.nodes.keys() == fleet.nodes.keys()
        assert late.sets == fleet.sets


async def test_a_node_that_changes_its_capabilities_gets_another_set(
    pool: Pool, fleet: FleetWatcher
) -> None:
    await pool.register("n1")
    first = await fleet.sees("n1")
    await pool.register("n1", asr=("fr",), stream_id="again")
    await fleet.until(lambda _: fleet.nodes["n1"].capability_set != first.capability_set)
    able = fleet.sets[fleet.nodes["n1"].capability_set].capabilities
    assert list(able.asr_langs) == ["fr"]


async def test_leases_that_have_ended_are_not_counted(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    calm = {**CALM, "reservation_ttl_ms": 2000}
    async with running_pool(own_redis.url, prefix, **calm) as pool, watching(pool.stub) as fleet:
        await pool.register("n1")
        await pool.stub.Allocate(allocation("j1"))
        await fleet.sees("n1", used_slots=1)
        # No script has settled the node.
        await fleet.sees("n1", used_slots=0)


def scans(store: Any) -> int:
    facts = store.info("commandstats")
    return int(facts.get("cmdstat_hscan", {}).get("calls", 0))


async def test_many_watchers_cost_one_sampler_and_none_costs_nothing(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with running_pool(own_redis.url, prefix, **CALM) as pool, AsyncExitStack() as stack:
        await pool.register("n1")
        fleets = [await stack.enter_async_context(watching(pool.stub)) for _ in range(8)]
        before, began = scans(pool.store), time.monotonic()
        for fleet in fleets:
            await fleet.says_that_nothing_changed()
        took = time.monotonic() - began
        assert 1 <= scans(pool.store) - before <= took / (WATCH_MS / 1000) + 1
        await pool.process.reaches(8, "lingua_pool_fleet_watchers")
        sampled = await pool.process.metric("lingua_pool_fleet_sampled_timestamp_seconds")
        assert abs(time.time() - sampled) < 10
        assert 0 < await pool.process.metric("lingua_pool_fleet_sample_seconds") < 10
        await stack.aclose()
        await pool.process.reaches(0, "lingua_pool_fleet_watchers")
        # The last sample may be under way.
        await asyncio.sleep(2 * WATCH_MS / 1000)
        before = scans(pool.store)
        await asyncio.sleep(5 * WATCH_MS / 1000)
        assert scans(pool.store) == before


async def test_there_are_at_most_sixteen_watchers(pool: Pool) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(watch.MAX_WATCHERS):
            await stack.enter_async_context(watching(pool.stub))
        code, why, _ = await failure(pool.stub.WatchFleet().read())
        assert (code, why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BACKPRESSURE")
    async with watching(pool.stub):
        pass


async def test_a_watcher_ends_its_stream_by_closing_its_side(pool: Pool) -> None:
    call: Any = pool.stub.WatchFleet()
    assert (await call.read()).is_complete
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


def write_nodes(pool: Pool, count: int, **fields: Any) -> None:
    """Records of nodes, as register_node writes them, without pools."""
    now = time.time() * 1000
    pipe = pool.store.pipeline(transaction=False)
    for number in range(count):
        name = f"node-{number:05}-{'x' * 80}"
        pipe.hset(f"{pool.prefix}:nodes:live", name, live_record(beat=now, **fields))
        pipe.hset(f"{pool.prefix}:node:{name}", mapping={"asr_langs": '["zh"]'})
    pipe.execute()


async def test_who_does_not_read_holds_up_nobody_and_is_cut_off(
    redis_url: str, prefix: str
) -> None:
    process = PoolProcess(
        redis_url=redis_url,
        prefix=prefix,
        limits={"fleet.watch._READ_WITHIN_S": 1.0, **OFTEN},
        heartbeat_stale_ms=60_000,
        **CALM,
    )
    async with (
        running(process),
        connected(process, redis_url) as pool,
        grpc.aio.insecure_channel(process.address, _NARROW) as channel,
    ):
        write_nodes(pool, 3000)
        deaf: Any = pool_pb2_grpc.PoolServiceStub(channel).WatchFleet()
        await deaf.wait_for_connection()
        async with watching(pool.stub) as fleet:
            assert len(fleet.nodes) == 3000
            for used in (1, 2):
                write_nodes(pool, 3000, used=used)
                await fleet.until(lambda _, used=used: _all_use(fleet, used))
            await _logs(process, "fleet watcher cut off")
            write_nodes(pool, 1, used=3)
            await fleet.until(lambda _: any(each.used_slots == 3 for each in fleet.nodes.values()))
        code, why, _ = await failure(_drained(deaf))
        assert (code, why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BACKPRESSURE")
        assert not process.faults(), process.log()


async def _logs(process: PoolProcess, event: str) -> None:
    deadline = time.monotonic() + 20
    while event not in process.log():
        assert time.monotonic() < deadline, process.log()
        await asyncio.sleep(0.05)


def _all_use(fleet: FleetWatcher, used: int) -> bool:
    return all(node.used_slots == used for node in fleet.nodes.values())


async def _drained(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_all_nodes_come_in_messages_of_limited_size(pool: Pool) -> None:
    write_nodes(pool, 1700)
    async with watching(pool.stub) as fleet:
        # The last sample for an earlier watcher, which has no nodes, may come first.
        await fleet.until(lambda _: len(fleet.nodes) == 1700)
        said = [response for response in fleet.responses if response.nodes]
        assert [len(response.nodes) for response in said] == [500, 500, 500, 200]
        assert [response.is_complete for response in said] == [*[False] * 3, True]


async def test_a_stream_ends_while_redis_is_away_and_a_new_one_says_so(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    down = (grpc.StatusCode.UNAVAILABLE, "SCHEDULER_DEPENDENCY_DOWN")
    async with running_pool(own_redis.url, prefix, **CALM) as pool:
        call = pool.stub.WatchFleet()
        assert (await call.read()).is_complete  # type: ignore[union-attr]
        own_redis.kill()
        async with asyncio.timeout(20):
            assert (await failure(_drained(call)))[:2] == down
            assert (await failure(pool.stub.WatchFleet().read()))[:2] == down
        own_redis.restart()
        await pool.serves()
        await pool.register("n1")
        async with watching(pool.stub) as fleet:
            await fleet.sees("n1", health=READY)


async def test_a_stream_ends_when_the_service_drains(redis_url: str, prefix: str) -> None:
    async with running_pool(redis_url, prefix, **CALM) as pool:
        call = pool.stub.WatchFleet()
        assert (await call.read()).is_complete  # type: ignore[union-attr]
        pool.process.terminate()
        async with asyncio.timeout(20):
            code, why, _ = await failure(_drained(call))
        assert (code, why) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
