"""What operators see of several cells is one fleet."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.fleet.capacity import Capacity
from lingua_scheduler.services.pool_service.fleet.cell_nodes import Room
from lingua_scheduler.services.pool_service.fleet.directions import Direction, Directions
from lingua_scheduler.services.pool_service.fleet.instances import AnnouncedInstances
from lingua_scheduler.services.pool_service.fleet.pools import Pools
from lingua_scheduler.services.pool_service.fleet.sample import KnownFleet
from lingua_scheduler.services.pool_service.fleet.sampler import FleetSampler
from lingua_scheduler.services.pool_service.sweeper import Sweeper
from lingua_scheduler.services.runtime.contract.offers import offers_key, unpacked
from lingua_scheduler.services.runtime.errors import DependencyDownError, InvalidMessageError
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2
from tests.support.pool_client import registration

from .in_cells import InCells, in_cells

ZH_EN = Direction("speech", "zh", "en")


@pytest.fixture
async def world(redis_url: str, prefix: str) -> AsyncIterator[InCells]:
    """Four cells on one server."""
    async with in_cells(redis_url, prefix) as made:
        yield made


@contextlib.asynccontextmanager
async def on_two_servers(prefix: str) -> AsyncIterator[tuple[InCells, EmbeddedRedis]]:
    """Two cells, and the server of the second, to stop it."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(EmbeddedRedis()) for _ in range(2)]
        urls = " ".join(server.url for server in servers)
        async with in_cells(urls, prefix, cells=2, redis_timeout_ms=400) as world:
            yield world, servers[1]


def pools_of(world: InCells) -> Pools:
    return Pools(cells=world.cells, settings=world.settings, nodes=world.nodes)


def capacity_of(world: InCells, directions: Directions | None = None) -> Capacity:
    return Capacity(
        cells=world.cells,
        nodes=world.nodes,
        pools=pools_of(world),
        directions=directions or Directions(),
        keep_ms=60_000,
    )


def sweeper_of(world: InCells) -> Sweeper:
    return Sweeper(
        cells=world.cells,
        settings=world.settings,
        registry=world.registry,
        capacity=capacity_of(world),
        metrics=world.metrics,
    )


def free_slots(world: InCells, number: int) -> float | None:
    """As the gauge of a cell shows them."""
    name = "lingua_pool_cell_free_slots"
    return world.exported.get_sample_value(name, {"cell": str(number)})


async def all_nodes(world: InCells, size: int) -> list[list[pool_pb2.Node]]:
    """The nodes on each page."""
    pages, token = [], ""
    while True:
        request = pool_pb2.ListNodesRequest(page_size=size, page_token=token)
        page = await world.nodes.list_nodes(request)
        pages.append(list(page.nodes))
        token = page.next_page_token
        if not token:
            return pages


@pytest.mark.parametrize("size", [0, 1, 5, 1000])
async def test_the_nodes_of_all_cells_are_listed_once(world: InCells, size: int) -> None:
    cells = {f"n{n}": (await world.register(f"n{n}")).cell for n in range(30)}
    pages = await all_nodes(world, size)
    listed = [(node.node_id, node.cell) for page in pages for node in page]
    assert sorted(listed) == sorted(cells.items())
    assert set(cells.values()) == {0, 1, 2, 3}
    assert len(pages) == 1 or size in (1, 5)


async def test_a_page_token_of_a_cell_that_does_not_exist_is_refused(world: InCells) -> None:
    with pytest.raises(InvalidMessageError, match="page_token: names cell 4"):
        await world.nodes.list_nodes(pool_pb2.ListNodesRequest(page_token="4"))
    with pytest.raises(InvalidMessageError, match="page_token: names cell 4095"):
        await pools_of(world).list_pools(pool_pb2.ListPoolsRequest(page_token="8191"))


async def test_a_pool_of_several_cells_is_listed_once_with_all_its_slots(world: InCells) -> None:
    for number in range(4):
        await world.register(world.node_of(number), slots=number + 1)
    only = next(f"m{n}" for n in range(100) if world.cells.of_new_node(f"m{n}").number == 2)
    await world.register(only, slots=9, asr=("de",))
    await world.occupy(world.node_of(3), 3)
    # Settles the count of its slots.
    await world.registry.of_cell[3].leave([world.node_of(3)], 0)

    listed = [
        pool for size in (0, 1) for page in [await pages(pools_of(world), size)] for pool in page
    ]

    found = {(pool.pair.src, pool.pair.tgt): pool for pool in listed}
    assert len(listed) == 2 * len(found) == 4
    zh = found["zh", "en"]
    assert (zh.nodes, zh.ready_nodes, zh.slots, zh.free_slots, zh.shards) == (4, 4, 10, 9, 4)
    de = found["de", "en"]
    assert (de.nodes, de.slots, de.shards) == (1, 9, 1)


async def pages(pools: Pools, size: int) -> list[pool_pb2.Pool]:
    """The pools on all pages."""
    found, token = [], ""
    while True:
        request = pool_pb2.ListPoolsRequest(page_size=size, page_token=token)
        page = await pools.list_pools(request)
        found += page.pools
        token = page.next_page_token
        if not token:
            return found


async def test_the_slots_of_a_direction_are_those_in_all_cells(world: InCells) -> None:
    for number in range(4):
        await world.register(world.node_of(number), slots=number + 1)
    sample = await capacity_of(world).sample(0.0)
    assert sample.rooms[ZH_EN] == Room(10, 10)
    assert sample.whole == Room(10, 10)
    assert sum(sample.fleet.by_health.values()) == 4
    assert {number: each.whole.slots for number, each in sample.cells.items()} == {
        0: 1,
        1: 2,
        2: 3,
        3: 4,
    }


async def test_pools_without_labels_are_summed_up_over_cells(world: InCells) -> None:
    for number in range(4):
        await world.register(world.node_of(number), slots=2)
    sample = await capacity_of(world, Directions(limit=1)).sample(0.0)
    assert sorted(sample.rooms.values()) == [Room(8, 8), Room(8, 8)]


async def test_watchers_learn_which_cell_a_node_is_in_and_that_it_has_moved(
    world: InCells,
) -> None:
    sampler = FleetSampler(cells=world.cells, settings=world.settings, nodes=world.nodes)
    fleet = sampler.new_fleet()
    nodes = [world.node_of(number) for number in range(4)]
    for node in nodes:
        await world.register(node)
    assert await news(sampler, fleet) == {node: number for number, node in enumerate(nodes)}
    assert await news(sampler, fleet) == {}
    await world.drain(3)
    moved = (await world.register(nodes[3], stream_id="s2")).cell
    assert await news(sampler, fleet) == {nodes[3]: moved}


async def news(sampler: FleetSampler, fleet: KnownFleet) -> dict[str, int]:
    """The nodes that one more sample finds changed, with their cells."""
    before = fleet.number
    fleet.end(await sampler.sample(fleet), oldest=before)
    return {each.node.node_id: each.node.cell for each in fleet.since(before).nodes}


async def test_of_two_records_of_a_node_the_newer_one_counts(world: InCells) -> None:
    node = world.node_of(1)
    await world.register(node)
    cell, other = world.cells.all[1], world.cells.all[0]
    stale = await cell.link.command("HGET", f"{cell.prefix}:nodes:live", node)
    await other.link.command("HSET", f"{other.prefix}:nodes:live", node, stale)
    last = world.cells.all[3]
    await last.link.command("HSET", f"{last.prefix}:nodes:live", node, stale)
    again = await world.registry.of_cell[1].register(request_of(node))

    sampler = FleetSampler(cells=world.cells, settings=world.settings, nodes=world.nodes)
    fleet = sampler.new_fleet()
    assert await news(sampler, fleet) == {node: 1}
    assert fleet.since(0).nodes[0].node.epoch == again.epoch
    assert await news(sampler, fleet) == {}
    view = await world.nodes.get_node(pool_pb2.GetNodeRequest(node_id=node))
    assert (view.node.cell, view.node.epoch) == (1, again.epoch)


def request_of(node: str) -> pool_pb2.RegisterNodeRequest:
    return registration(node, stream_id="s2")


async def test_the_rest_is_seen_while_a_cell_is_away(prefix: str) -> None:
    async with on_two_servers(prefix) as (world, second):
        nodes = [world.node_of(0), world.node_of(1)]
        for node in nodes:
            await world.register(node, slots=3)
        sampler = FleetSampler(cells=world.cells, settings=world.settings, nodes=world.nodes)
        fleet, capacity = sampler.new_fleet(), capacity_of(world)
        await news(sampler, fleet)
        sweeper = sweeper_of(world)
        await sweeper.sample(0.0)
        assert [free_slots(world, number) for number in range(2)] == [3, 3]
        second.kill()

        assert await news(sampler, fleet) == {}
        assert fleet.since(1).removed == nodes[1:]
        assert (await capacity.sample(0.0)).rooms[ZH_EN] == Room(3, 3)
        (pool,) = (await pools_of(world).list_pools(pool_pb2.ListPoolsRequest())).pools
        assert (pool.nodes, pool.slots) == (1, 3)
        await sweeper.step()
        await sweeper.sample(0.0)
        assert [free_slots(world, number) for number in range(2)] == [3, None]
        first = world.cells.first
        offered = await first.link.command("GET", offers_key(first.prefix))
        assert unpacked(offered).directions


async def test_nodes_that_are_gone_are_taken_out_in_every_cell(redis_url: str, prefix: str) -> None:
    async with in_cells(redis_url, prefix, node_reconnect_grace_ms=1) as world:
        nodes = [world.node_of(number) for number in range(4)]
        await world.beat(*[(node, await world.register(node)) for node in nodes])
        for node in nodes:
            gone = pool_pb2.SetNodeHealthRequest(
                node_id=node, health=common_pb2.NODE_HEALTH_OFFLINE
            )
            await world.reports.set_node_health(gone)
        sweeper = sweeper_of(world)
        for _ in range(100):
            await sweeper.step()
            found = [(await world.live(node)).health for node in nodes]
            if found == [codes.OUT] * 4:
                return
        pytest.fail(f"not all were taken out: {found}")


async def test_instances_are_read_from_a_cell_that_is_up(prefix: str) -> None:
    async with on_two_servers(prefix) as (world, second):
        instances = AnnouncedInstances(cells=world.cells, settings=world.settings)
        second.kill()
        listed = await instances.list_instances(instances_pb2.ListInstancesRequest())
        assert listed.as_of_ms > 0
    with pytest.raises(DependencyDownError):
        await instances.list_instances(instances_pb2.ListInstancesRequest())
