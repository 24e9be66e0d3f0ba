"""The parts of a pool service over several cells, without its gRPC face."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells, CellState
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2
from tests.support.pool_client import registration


@dataclass
class InCells:
    """Cells, and who registers nodes in them."""

    settings: Settings
    cells: Cells
    registry: Registry
    exported: CollectorRegistry
    metrics: PoolMetrics
    nodes: Nodes
    reports: NodeReports

    async def where(self, node_id: str) -> list[int]:
        """The numbers of the cells that know a node and are not away."""

        async def look(cell: Cell) -> int | None:
            known = await cell.link.command("HEXISTS", f"{cell.prefix}:nodes:live", node_id)
            return cell.number if known else None

        return [number for number in await self.cells.each(look) if number is not None]

    async def live(self, node_id: str) -> LiveNode:
        """The record of a node that is in only one cell."""
        (number,) = await self.where(node_id)
        cell = self.cells.all[number]
        packed = await cell.link.command("HGET", f"{cell.prefix}:nodes:live", node_id)
        return LiveNode.unpack(packed)

    async def register(self, node_id: str, **fields: object) -> pool_pb2.RegisterNodeResponse:
        """Registers a node as `registration` describes it."""
        return await self.registry.register(registration(node_id, **fields))

    async def occupy(self, node_id: str, number: int) -> None:
        """Puts a lease on a node that ends much later."""
        cell = self.cells.all[number]
        key = f"{cell.prefix}:node:{node_id}:running"
        await cell.link.command("ZADD", key, 4_000_000_000_000, "job:1")

    async def vacate(self, node_id: str, number: int) -> None:
        """Ends all that runs on a node."""
        cell = self.cells.all[number]
        await cell.link.command("DEL", f"{cell.prefix}:node:{node_id}:running")

    async def beat(self, *registered: tuple[str, pool_pb2.RegisterNodeResponse]) -> set[str]:
        """Heartbeats of nodes. Returns those that have to register again."""
        beats = [
            pool_pb2.NodeBeat(node_id=node_id, epoch=each.epoch, cell=each.cell)
            for node_id, each in registered
        ]
        answer = await self.reports.heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
        assert {each.kind for each in answer.problems} <= {pool_pb2.BeatProblem.KIND_REGISTER_AGAIN}
        return {each.node_id for each in answer.problems}

    def node_of(self, number: int) -> str:
        """The id of a node that belongs into a cell."""
        names = (f"n{n}" for n in range(1000))
        return next(name for name in names if self.cells.of_new_node(name).number == number)

    async def drain(self, number: int) -> None:
        """Drains a cell."""
        await self.cells.all[number].write_state(CellState.DRAINING)


@contextlib.asynccontextmanager
async def in_cells(redis_url: str, prefix: str, **settings: int) -> AsyncIterator[InCells]:
    """Four cells on one server, unless told otherwise; one for each of several URLs."""
    values = {"cells": 4, "redis_timeout_ms": 4000, **settings}
    made = Settings(redis_url=redis_url, redis_prefix=prefix, **values)  # type: ignore[arg-type]
    cells = Cells(made, load_scripts())
    await cells.open()
    try:
        nodes, registry = Nodes(cells=cells, settings=made), Registry(cells=cells, settings=made)
        exported = CollectorRegistry()
        metrics = PoolMetrics(exported)
        reports = NodeReports(
            cells=cells,
            settings=made,
            metrics=metrics,
            nodes=nodes,
            registry=registry,
        )
        yield InCells(made, cells, registry, exported, metrics, nodes, reports)
    finally:
        await cells.close()
