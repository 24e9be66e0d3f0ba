"""The sweep: takes silent nodes out of their pools, and deletes those that are gone for long.

Allocate never chooses a silent node, so the sweep is not needed for correctness. But draws from
pools with many dead nodes would fail. Every instance sweeps; the second one finds nothing to do.

A node that is taken out loses its turns, so the sweep must not mistake an interruption for the
silence of a node: lua/lib/hearing.lua records since when heartbeats arrive, and silence counts from
then.
"""

import asyncio
import logging
import time

from lingua_scheduler.services.pool_service.cell_registry import CellRegistry
from lingua_scheduler.services.pool_service.fleet.capacity import Capacity
from lingua_scheduler.services.pool_service.fleet.offered import offers
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.contract.announcements import KEEP_MS
from lingua_scheduler.services.runtime.contract.offers import TTL_MS, offers_key, packed
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.script_calls import ForgetInstances, Sweep
from lingua_scheduler.services.runtime.settings.settings import Settings

_log = logging.getLogger(__name__)

# Nodes that one step checks: about a millisecond of Redis.
_NODES_A_STEP = 1000
# Instances that one step checks, with every sample.
_INSTANCES_A_STEP = 1000
# How often the fleet is sampled, which reads all nodes and pools. If that takes longer than a
# fiftieth of the interval, the interval grows, up to a limit. If the number of pools has changed,
# the next sample comes earlier, but not so early that it would take more than that share.
_SAMPLE_EVERY_S, _SAMPLE_AT_LEAST_EVERY_S = 15.0, 60.0
_REST = 50


class Sweeper:
    """Checks some nodes of every cell every `sweep_interval_ms`, and all of them in turn.

    It also samples the fleet, for the gauges and for the directions that gateways offer to clients:
    while Redis answers, these are at most 15 seconds old (up to 60 if there are so many nodes and
    pools that reading them takes long), plus one `sweep_interval_ms`. A new direction appears with
    the next sweep. A scrape does not read Redis. With every sample it also forgets instances that
    died a while ago. A cell that is away holds up no other.
    """

    def __init__(
        self,
        *,
        cells: Cells,
        settings: Settings,
        registry: Registry,
        capacity: Capacity,
        metrics: PoolMetrics,
    ) -> None:
        self._cells = cells
        self._interval = settings.sweep_interval_ms / 1000
        self._capacity = capacity
        self._metrics = metrics
        # How many pools there were before the last sample.
        self._pools_sampled = -1
        self._of_cell = [
            _CellSweep(cell, settings, registry.of_cell[cell.number], metrics) for cell in cells.all
        ]

    async def run(self) -> None:
        """Sweeps until it is cancelled, and continues after failures of Redis."""
        loop = asyncio.get_running_loop()
        sample_due = rested = loop.time()
        while True:
            try:
                await self.step()
                began = loop.time()
                if began >= sample_due or (began >= rested and await self._pools_changed()):
                    await self.sample(began)
                    rest = min(_REST * (loop.time() - began), _SAMPLE_AT_LEAST_EVERY_S)
                    rested, sample_due = began + rest, began + max(rest, _SAMPLE_EVERY_S)
            except LinguaError as error:
                _log.warning("sweep postponed", extra={"reason": str(error)})
            except Exception:
                _log.exception("sweep failed")
            await asyncio.sleep(self._interval)

    async def step(self) -> None:
        """Checks one page of nodes of each cell, and expels or deletes those that timed out."""
        await self._cells.each(lambda cell: self._of_cell[cell.number].step())

    async def _pools_changed(self) -> bool:
        return await self._count_pools() != self._pools_sampled

    async def _count_pools(self) -> int:
        counts = await self._cells.each(
            lambda cell: cell.link.command("HLEN", f"{cell.prefix}:pools")
        )
        return sum(map(int, counts))

    async def sample(self, now: float) -> None:
        """Samples the fleet; `now` is in seconds, from a monotonic clock."""
        self._pools_sampled = await self._count_pools()
        sample = await self._capacity.sample(now)
        self._metrics.show(sample, time.time())
        value = packed(int(time.time() * 1000), offers(sample.rooms))
        # Gateways read them from any cell.
        await self._cells.each(
            lambda cell: cell.link.command("SET", offers_key(cell.prefix), value, "PX", TTL_MS)
        )
        await self._cells.each(lambda cell: self._of_cell[cell.number].forget_instances())


class _CellSweep:
    """The sweep of one cell."""

    def __init__(
        self, cell: Cell, settings: Settings, registry: CellRegistry, metrics: PoolMetrics
    ) -> None:
        self._link = cell.link
        self._settings = settings
        self._registry = registry
        self._metrics = metrics
        self._cursor = self._instances_cursor = "0"
        self._sweep = Sweep(
            nodes_per_step=_NODES_A_STEP,
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
            node_reconnect_grace_ms=settings.node_reconnect_grace_ms,
            node_forget_ms=settings.node_forget_ms,
        ).call
        self._forget = ForgetInstances(instances_per_step=_INSTANCES_A_STEP, keep_ms=KEEP_MS).call

    async def forget_instances(self) -> None:
        """Deletes instances that died a while ago from the list."""
        call = self._forget(cursor=self._instances_cursor)
        cursor, forgotten = await self._link.call(*call)
        self._instances_cursor = cursor.decode()
        for instance in map(bytes.decode, forgotten):
            _log.info("instance forgotten", extra={"instance_id": instance})

    async def step(self) -> None:
        """Checks one page of nodes, and expels or deletes those that have timed out."""
        settings = self._settings
        cursor, expel, forget = await self._link.call(*self._sweep(cursor=self._cursor))
        self._cursor = cursor.decode()
        silent_ms = min(settings.heartbeat_stale_ms, settings.node_reconnect_grace_ms)
        for node_id in map(bytes.decode, expel):
            await self._registry.expel(node_id, silent_ms)
            self._metrics.expelled.inc()
            _log.info("node expelled", extra={"node_id": node_id})
        for node_id in map(bytes.decode, forget):
            await self._registry.forget(node_id, settings.node_forget_ms)
            _log.info("node forgotten", extra={"node_id": node_id})
