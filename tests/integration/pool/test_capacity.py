"""Room by direction, as the gauges show it, on a real Redis."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.fleet.capacity import Capacity
from lingua_scheduler.services.pool_service.fleet.cell_nodes import Room
from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.fleet.pools import Pools
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.support.pool_client import Pool, allocation, criteria, ref, registration, running_pool
from tests.support.rpc_errors import failure

KEEP_MS = 60_000
ZH_EN = Direction("speech", "zh", "en")
ZH_TEXT = Direction("text", "zh", "any")


def settings_of(pool: Pool, **fields: int | str) -> Settings:
    values = {"redis_prefix": pool.prefix, **fields}
    return load_settings({f"LINGUA_{name.upper()}": str(value) for name, value in values.items()})


@contextlib.asynccontextmanager
async def fleet_of(
    pool: Pool, redis_url: str, **settings: int
) -> AsyncIterator[tuple[Cells, Nodes, Pools]]:
    """Eyes on the store of a pool service."""
    chosen = settings_of(pool, redis_url=redis_url, redis_timeout_ms=4000, **settings)
    cells = Cells(chosen, {})
    await cells.open()
    try:
        nodes = Nodes(cells=cells, settings=chosen)
        yield cells, nodes, Pools(cells=cells, settings=chosen, nodes=nodes)
    finally:
        await cells.close()


@contextlib.asynccontextmanager
async def capacity_of(pool: Pool, redis_url: str, **settings: int) -> AsyncIterator[Capacity]:
    async with fleet_of(pool, redis_url, **settings) as (cells, nodes, pools):
        yield Capacity(
            cells=cells, nodes=nodes, pools=pools, directions=Directions(), keep_ms=KEEP_MS
        )


async def test_a_node_counts_in_each_of_its_directions_and_once_in_the_fleet(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=2, asr=("zh", "de"))
    await pool.register("n2", slots=3, asr=("zh",), nmt=("zh>en", "zh>fr"))
    await pool.register("n3", slots=9, health=common_pb2.NODE_HEALTH_DRAINING)
    await pool.stub.Allocate(allocation("j1", wants=criteria("de>en")))

    async with capacity_of(pool, redis_url) as capacity:
        sample = await capacity.sample(0.0)

    assert sample.rooms == {
        ZH_EN: Room(5, 4),
        Direction("speech", "de", "en"): Room(2, 1),
        ZH_TEXT: Room(2, 1),
        Direction("text", "de", "any"): Room(2, 1),
        Direction("text", "zh", "en"): Room(3, 3),
        Direction("text", "zh", "fr"): Room(3, 3),
    }
    assert sample.whole == Room(5, 4)
    assert sample.fleet.by_health == {
        common_pb2.NODE_HEALTH_READY: 2,
        common_pb2.NODE_HEALTH_DRAINING: 1,
    }


async def test_the_nodes_of_owners_count_however_many_an_owner_has(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=2)
    await pool.register("one.1", slots=3, node_owner="one")
    for number in range(4):
        await pool.register(f"many.{number}", slots=5, node_owner="many")
    for number in range(3):
        wants = criteria(preferred_node_id=f"many.{number}")
        await pool.stub.Allocate(allocation(f"j{number}", wants=wants))

    async with capacity_of(pool, redis_url) as capacity:
        assert (await capacity.sample(0.0)).rooms[ZH_EN] == Room(25, 22)
    (shown,) = (await pool.stub.ListPools(pool_pb2.ListPoolsRequest(src="zh"))).pools
    assert (shown.nodes, shown.ready_nodes, shown.slots, shown.free_slots) == (6, 6, 25, 22)


async def test_a_pool_with_large_owners_is_estimated_from_some_of_their_nodes(
    redis_url: str, prefix: str
) -> None:
    async with running_pool(redis_url, prefix, owner_nodes=0, owner_slots=0) as pool:
        for owner, nodes in (("large", 900), ("larger", 1100), ("small", 1)):
            for start in range(0, nodes, 100):
                some = range(start, min(start + 100, nodes))
                await asyncio.gather(
                    *(pool.register(f"{owner}.{n}", slots=4, node_owner=owner) for n in some)
                )
        async with capacity_of(pool, redis_url) as capacity:
            assert (await capacity.sample(0.0)).rooms[ZH_EN] == Room(8004, 8004)


async def test_a_direction_whose_last_node_has_gone_is_shown_empty_for_a_while(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=2)
    async with capacity_of(pool, redis_url) as capacity:
        assert (await capacity.sample(0.0)).rooms[ZH_EN] == Room(2, 2)
        await pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1"))

        almost, after = KEEP_MS / 1000 - 1, KEEP_MS / 1000 + 1
        assert (await capacity.sample(almost)).rooms == {ZH_EN: Room(0, 0), ZH_TEXT: Room(0, 0)}
        assert (await capacity.sample(after)).rooms == {}


async def test_a_large_pool_is_estimated_from_a_few_of_its_shards(
    redis_url: str, prefix: str
) -> None:
    async with running_pool(redis_url, prefix, pool_size=2) as pool:
        await asyncio.gather(
            *(pool.stub.RegisterNode(registration(f"n{n}", slots=4)) for n in range(100))
        )
        for n in range(50):
            await pool.stub.Allocate(allocation(f"j{n}", wants=criteria(preferred_node_id=f"n{n}")))
        async with capacity_of(pool, redis_url, pool_size=2) as capacity:
            samples = [(await capacity.sample(0.0)).rooms[ZH_EN] for _ in range(20)]

    assert {room.slots for room in samples} == {400}
    # Half of the nodes have a job, and thirty shards of fifty are read each time. A guess is off by
    # about 6, the mean of all by a quarter of that: six times as much is one in a million.
    assert all(314 <= room.free <= 386 for room in samples)
    assert 341 <= sum(room.free for room in samples) / len(samples) <= 359
    assert len({room.free for room in samples}) > 1


async def test_what_has_no_label_left_is_summed_up_as_other(pool: Pool, redis_url: str) -> None:
    await pool.register("n1", slots=2, asr=("zh", "de", "fr"), nmt=("zh>en", "de>en", "fr>en"))
    await pool.register("n2", slots=3, asr=("zh",), nmt=("zh>en",))
    async with fleet_of(pool, redis_url) as (cells, nodes, pools):
        capacity = Capacity(
            cells=cells, nodes=nodes, pools=pools, directions=Directions(limit=2), keep_ms=KEEP_MS
        )
        sample = await capacity.sample(0.0)

    # The largest pools have labels.
    assert sample.rooms == {
        Direction("text", "zh", "en"): Room(5, 5),
        ZH_EN: Room(5, 5),
        Direction("text", "other", "other"): Room(4, 4),
        Direction("speech", "other", "other"): Room(4, 4),
    }


async def test_nodes_whose_heartbeat_is_late_are_counted_until_they_are_offline(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1")
    seen = set()
    beats = {"heartbeat_stale_ms": 2000, "node_heartbeat_ms": 500, "heartbeat_batch_ms": 500}
    async with fleet_of(pool, redis_url, **beats) as (_, nodes, _):
        deadline = time.monotonic() + 20
        while (fleet := await nodes.of_cell[0].fleet()).by_health[
            common_pb2.NODE_HEALTH_OFFLINE
        ] == 0:
            seen.add(fleet.late)
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    assert seen == {0, 1}
    assert fleet.late == 0


async def test_nodes_that_are_ejected_have_no_room_and_are_counted(
    redis_url: str, prefix: str
) -> None:
    async with running_pool(redis_url, prefix, eject_failures=1) as pool:
        await pool.register("n1", slots=2)
        await pool.stub.Allocate(allocation("j1"))
        await pool.stub.Commit(pool_pb2.CommitRequest(attempt=ref("j1"), node_id="n1"))
        failed = pool_pb2.ATTEMPT_OUTCOME_FAILED
        await pool.stub.Complete(
            pool_pb2.CompleteRequest(attempt=ref("j1"), node_id="n1", outcome=failed)
        )
        async with capacity_of(pool, redis_url) as capacity:
            sample = await capacity.sample(0.0)
    assert (sample.fleet.ejected, sample.whole) == (1, Room(0, 0))


async def test_a_node_that_comes_back_with_fewer_slots_than_jobs_has_no_room(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=2)
    for job_id in ("j1", "j2"):
        await pool.stub.Allocate(allocation(job_id))
        await pool.stub.Commit(pool_pb2.CommitRequest(attempt=ref(job_id), node_id="n1"))
    await pool.register("n1", slots=1, stream_id="s2", running=[ref("j1"), ref("j2")])

    async with capacity_of(pool, redis_url) as capacity:
        assert (await capacity.sample(0.0)).whole == Room(1, 0)
    listed = await pool.stub.ListPools(pool_pb2.ListPoolsRequest())
    assert [(each.slots, each.free_slots) for each in listed.pools] == [(1, 0)]


async def test_the_gauges_show_a_sample_and_forget_what_is_not_in_the_next(
    pool: Pool, redis_url: str
) -> None:
    registry, directions = CollectorRegistry(), Directions()
    metrics = PoolMetrics(registry, directions)

    def shown(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"lingua_pool_{name}", labels)

    await pool.register("n1", slots=4)
    await pool.stub.Allocate(allocation("j1"))
    zh_en = ZH_EN._asdict()
    async with fleet_of(pool, redis_url) as (cells, nodes, pools):
        capacity = Capacity(
            cells=cells, nodes=nodes, pools=pools, directions=directions, keep_ms=KEEP_MS
        )
        metrics.show(await capacity.sample(0.0), at=1000.5)
        assert [shown(name, **zh_en) for name in ("slots", "free_slots", "utilization_ratio")] == [
            *(4, 3, 0.25),
        ]
        assert (shown("fleet_slots"), shown("fleet_free_slots")) == (4, 3)
        assert shown("sampled_timestamp_seconds") == 1000.5
        assert shown("refusals_total", **zh_en, reason="no_capable_node") == 0

        await pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1"))
        metrics.show(await capacity.sample(1.0), at=1001.5)
        assert (shown("slots", **zh_en), shown("utilization_ratio", **zh_en)) == (0, 1)

        metrics.show(await capacity.sample(KEEP_MS), at=1002.5)
        assert shown("slots", **zh_en) is shown("utilization_ratio", **zh_en) is None


async def test_refusals_are_counted_by_direction_and_unserved_ones_together(
    pool: Pool, redis_url: str
) -> None:
    await pool.register("n1", slots=1)
    await pool.stub.Allocate(allocation("j1"))
    # A service that starts now learns of the direction with its first sample.
    async with running_pool(redis_url, pool.prefix) as other:
        await other.process.reaches(1, "lingua_pool_slots", src="zh", tgt="en", kind="speech")
        await failure(other.stub.Allocate(allocation("j2")))
        for each in ("qaa>en", "qab>en"):
            await failure(other.stub.Allocate(allocation("j3", wants=criteria(each))))

        async def refusals(**labels: str) -> float:
            return await other.process.metric("lingua_pool_refusals_total", **labels)

        assert await refusals(src="zh", tgt="en", reason="all_candidates_full_or_failed") == 1
        assert await refusals(src="other", tgt="other", reason="no_capable_node") == 2
        assert await refusals() == 3


async def test_reserve_calls_are_counted_by_outcome(redis_url: str, prefix: str) -> None:
    async with running_pool(redis_url, prefix) as pool:
        await pool.register("n1", slots=1)
        asks = [
            pool_pb2.ReserveRequest(attempt=ref(job_id), node_id=node_id)
            for job_id, node_id in (("j1", "n1"), ("j1", "n1"), ("j2", "n1"), ("j2", "nobody"))
        ]
        for ask in asks[:2]:
            await pool.stub.Reserve(ask)
        for ask in asks[2:]:
            await failure(pool.stub.Reserve(ask))

        async def reserves(outcome: str) -> float:
            return await pool.process.metric("lingua_pool_reserves_total", outcome=outcome)

        assert [await reserves("reserved"), await reserves("existing")] == [1, 1]
        assert await pool.process.metric("lingua_pool_reserves_total") == 4


async def test_an_allocation_that_redis_fails_is_counted_too(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with running_pool(own_redis.url, prefix) as pool:
        await pool.register("n1")
        await asyncio.to_thread(own_redis.kill)
        _, why, _ = await failure(pool.stub.Allocate(allocation("j1")))
        assert why == "SCHEDULER_DEPENDENCY_DOWN"
        await pool.process.reaches(
            1, "lingua_pool_allocations_total", outcome="scheduler_dependency_down"
        )
