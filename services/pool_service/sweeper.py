"""The sweep: takes nodes that fell silent out of their pools, and forgets those long gone.

Allocate never chooses a silent node, so this is about room, not about correctness: pools full of
the dead would make draws fail. Every instance sweeps; who comes second finds nothing to do.
"""

import asyncio
import logging

from lingua_scheduler.services.pool_service.pool_metrics import PoolMetrics
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.views import Views
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.redis_link import RedisLink
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

_log = logging.getLogger(__name__)

# Nodes that one look takes in: about a millisecond of Redis.
_NODES_A_LOOK = 1000
# The gauges need a walk over all nodes and pools, so they are only this fresh.
_GAUGES_EVERY_S = 15.0


class Sweeper:
    """Looks at some nodes every `sweep_interval_ms`, and at all of them in turn."""

    def __init__(
        self,
        *,
        link: RedisLink,
        settings: Settings,
        registry: Registry,
        views: Views,
        metrics: PoolMetrics,
    ) -> None:
        self._link = link
        self._settings = settings
        self._registry = registry
        self._views = views
        self._metrics = metrics
        self._cursor = "0"

    async def run(self) -> None:
        """Sweeps until it is cancelled. While Redis is away, waits."""
        interval = self._settings.sweep_interval_ms / 1000
        loop = asyncio.get_running_loop()
        gauges_due = loop.time()
        while True:
            try:
                await self.look()
                if loop.time() >= gauges_due:
                    await self.gauge()
                    gauges_due = loop.time() + _GAUGES_EVERY_S
            except LinguaError as error:
                _log.warning("the sweep waits: %s", error)
            except Exception:
                _log.exception("a sweep failed; the next one goes on")
            await asyncio.sleep(interval)

    async def look(self) -> None:
        """One look: a page of nodes, and what follows from it."""
        settings = self._settings
        cursor, expel, forget = await self._link.call(
            "sweep",
            self._cursor,
            _NODES_A_LOOK,
            settings.heartbeat_stale_ms,
            settings.node_reconnect_grace_ms,
            settings.node_forget_ms,
        )
        self._cursor = cursor.decode()
        silent_ms = min(settings.heartbeat_stale_ms, settings.node_reconnect_grace_ms)
        for node_id in map(bytes.decode, expel):
            await self._registry.expel(node_id, silent_ms)
            self._metrics.expelled.inc()
            _log.info("node fell silent, out of its pools", extra={"node_id": node_id})
        for node_id in map(bytes.decode, forget):
            await self._registry.forget(node_id, settings.node_forget_ms)
            _log.info("node forgotten", extra={"node_id": node_id})

    async def gauge(self) -> None:
        """Reads what the gauges show."""
        by_health = await self._views.nodes_by_health()
        for health in common_pb2.NodeHealth.values()[1:]:
            word = common_pb2.NodeHealth.Name(health).removeprefix("NODE_HEALTH_").lower()
            self._metrics.nodes.labels(word).set(by_health[health])
        pools = (await self._views.list_pools(pool_pb2.ListPoolsRequest())).pools
        self._metrics.slots.clear()
        self._metrics.free_slots.clear()
        for pool in pools:
            self._metrics.slots.labels(pool.pair.src, pool.pair.tgt).set(pool.slots)
            self._metrics.free_slots.labels(pool.pair.src, pool.pair.tgt).set(pool.free_slots)
