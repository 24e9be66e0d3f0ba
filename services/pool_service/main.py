"""The process of the pool service."""

from collections.abc import Coroutine, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.pool_service.cells.states import CellStates
from lingua_scheduler.services.pool_service.fleet.capacity import Capacity
from lingua_scheduler.services.pool_service.fleet.directions import Directions
from lingua_scheduler.services.pool_service.fleet.instances import AnnouncedInstances
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.fleet.pools import Pools
from lingua_scheduler.services.pool_service.fleet.sampler import FleetSampler
from lingua_scheduler.services.pool_service.fleet.watch import FleetWatch
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.service import PoolServicer
from lingua_scheduler.services.pool_service.sweeper import Sweeper
from lingua_scheduler.services.runtime.hosted_service import Runtime, ServiceKind
from lingua_scheduler.services.runtime.service_process import Ready, run_services
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc


class PoolService:
    """Creates and connects the parts of the pool service."""

    grpc_name = pool_pb2.DESCRIPTOR.services_by_name["PoolService"].full_name
    max_request_bytes: int | None = None
    web_address = ""

    def __init__(self, runtime: Runtime) -> None:
        settings, cells = runtime.settings, runtime.cells
        directions = Directions()
        metrics = PoolMetrics(runtime.registry, directions)
        nodes = Nodes(cells=cells, settings=settings)
        pools = Pools(cells=cells, settings=settings, nodes=nodes)
        registry = Registry(cells=cells, settings=settings)
        reports = NodeReports(
            cells=cells, settings=settings, metrics=metrics, nodes=nodes, registry=registry
        )
        self._runtime = runtime
        self._cell_states = CellStates(cells=cells, settings=settings, nodes=nodes)
        self._stats = metrics.stats
        self._watch = FleetWatch(
            sampler=FleetSampler(cells=cells, settings=settings, nodes=nodes),
            max_message_bytes=settings.max_message_bytes,
            every_s=settings.fleet_watch_ms / 1000,
            on_sample=metrics.fleet_sampled,
        )
        metrics.fleet_watchers.set_function(lambda: len(self._watch))
        self._servicer = PoolServicer(
            cells=cells,
            operations=Operations(cells=cells, settings=settings, metrics=metrics, reports=reports),
            reports=reports,
            registry=registry,
            nodes=nodes,
            pools=pools,
            instances=AnnouncedInstances(cells=cells, settings=settings),
            cell_states=self._cell_states,
            watch=self._watch,
            instance_id=settings.instance_id,
            max_message_bytes=settings.max_message_bytes,
        )
        self._sweeper = Sweeper(
            cells=cells,
            settings=settings,
            registry=registry,
            capacity=Capacity(
                cells=cells,
                nodes=nodes,
                pools=pools,
                directions=directions,
                keep_ms=settings.node_forget_ms,
            ),
            metrics=metrics,
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server."""
        pool_pb2_grpc.add_PoolServiceServicer_to_server(self._servicer, server)

    async def open(self, address: str) -> None:
        """Announces the instance, and prepares the cells."""
        await self._runtime.instances.announce(address, self._stats)
        await self._cell_states.open()

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Background tasks: the sweep, and the preparation of cells."""
        return self._sweeper.run(), self._cell_states.run()

    async def drain(self) -> None:
        """Ends the streams of dispatchers and consoles, which connect to another instance."""
        await self._servicer.end_streams()

    async def close(self) -> None:
        """Ends the sampling of the fleet."""
        await self._watch.close()


POOL = ServiceKind("pool", PoolService)


async def serve(settings: Settings, ready: Ready) -> None:
    """Runs the pool service until it is told to stop; see `run_services`."""
    await run_services(settings, (POOL,), ready)
