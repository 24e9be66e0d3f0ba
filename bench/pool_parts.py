"""The pool service without its gRPC face, for benchmarks of what it costs Redis."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import Settings


class PoolParts:
    """The parts that carry out operations, connected as in the service."""

    def __init__(self, settings: Settings, cells: Cells) -> None:
        self.settings = settings
        self.cells = cells
        self.nodes = Nodes(cells=cells, settings=settings)
        self.registry = Registry(cells=cells, settings=settings)
        metrics = PoolMetrics(CollectorRegistry())
        self.reports = NodeReports(
            cells=cells,
            settings=settings,
            metrics=metrics,
            nodes=self.nodes,
            registry=self.registry,
        )
        self.operations = Operations(
            cells=cells, settings=settings, metrics=metrics, reports=self.reports
        )


@asynccontextmanager
async def pool_parts(settings: Settings) -> AsyncIterator[PoolParts]:
    """The parts, with cells that are open inside the block."""
    cells = Cells(settings, load_scripts())
    await cells.open()
    try:
        yield PoolParts(settings, cells)
    finally:
        await cells.close()
