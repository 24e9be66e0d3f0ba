"""The gRPC interface of the pool service; `operations`, `registry` and `fleet` do the work."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc

from lingua_scheduler.services.pool_service.cells.reach import reach_any
from lingua_scheduler.services.pool_service.cells.states import CellStates
from lingua_scheduler.services.pool_service.fleet.instances import AnnouncedInstances
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.fleet.pools import Pools
from lingua_scheduler.services.pool_service.fleet.watch import FleetWatch
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.operations import Operations
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.pool_service.stream import OperateStream
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.rpc.duplex import all_ended
from lingua_scheduler.services.runtime.telemetry.traces import span_writer_if_on
from lingua_scheduler.v1 import instances_pb2, pool_pb2, pool_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class PoolServicer(pool_pb2_grpc.PoolServiceServicer):
    """All RPCs of PoolService."""

    def __init__(
        self,
        *,
        cells: Cells,
        operations: Operations,
        reports: NodeReports,
        registry: Registry,
        nodes: Nodes,
        pools: Pools,
        instances: AnnouncedInstances,
        cell_states: CellStates,
        watch: FleetWatch,
        instance_id: str,
        max_message_bytes: int,
    ) -> None:
        self._cells = cells
        self._operations = operations
        self._reports = reports
        self._registry = registry
        self._nodes = nodes
        self._pools = pools
        self._instances = instances
        self._cell_states = cell_states
        self._watch = watch
        self._instance_id = instance_id
        self._max_message_bytes = max_message_bytes
        self._spans = span_writer_if_on()
        self._draining = asyncio.Event()

    async def end_streams(self) -> None:
        """Ends all streams, those of Operate after their current operations. Part of the drain."""
        self._draining.set()
        self._watch.drain()

    async def RegisterNode(  # noqa: N802 - the contract's name, as are all below
        self, request: pool_pb2.RegisterNodeRequest, context: Context
    ) -> pool_pb2.RegisterNodeResponse:
        return await self._registry.register(request)

    async def Heartbeat(  # noqa: N802
        self, request: pool_pb2.HeartbeatRequest, context: Context
    ) -> pool_pb2.HeartbeatResponse:
        return await self._reports.heartbeat(request)

    async def SetNodeHealth(  # noqa: N802
        self, request: pool_pb2.SetNodeHealthRequest, context: Context
    ) -> pool_pb2.SetNodeHealthResponse:
        return await self._reports.set_node_health(request)

    async def RemoveNode(  # noqa: N802
        self, request: pool_pb2.RemoveNodeRequest, context: Context
    ) -> pool_pb2.RemoveNodeResponse:
        return await self._registry.remove(request)

    async def SelectNode(  # noqa: N802
        self, request: pool_pb2.SelectNodeRequest, context: Context
    ) -> pool_pb2.SelectNodeResponse:
        return await self._operations.select_node(request)

    async def Allocate(  # noqa: N802
        self, request: pool_pb2.AllocateRequest, context: Context
    ) -> pool_pb2.AllocateResponse:
        return await self._operations.allocate(request)

    async def Reserve(  # noqa: N802
        self, request: pool_pb2.ReserveRequest, context: Context
    ) -> pool_pb2.ReserveResponse:
        return await self._operations.reserve(request)

    async def Commit(  # noqa: N802
        self, request: pool_pb2.CommitRequest, context: Context
    ) -> pool_pb2.CommitResponse:
        return await self._operations.commit(request)

    async def Release(  # noqa: N802
        self, request: pool_pb2.ReleaseRequest, context: Context
    ) -> pool_pb2.ReleaseResponse:
        return await self._operations.release(request)

    async def Complete(  # noqa: N802
        self, request: pool_pb2.CompleteRequest, context: Context
    ) -> pool_pb2.CompleteResponse:
        return await self._operations.complete(request)

    async def EndJob(  # noqa: N802
        self, request: pool_pb2.EndJobRequest, context: Context
    ) -> pool_pb2.EndJobResponse:
        return await self._operations.end_job(request)

    async def BindSession(  # noqa: N802
        self, request: pool_pb2.BindSessionRequest, context: Context
    ) -> pool_pb2.BindSessionResponse:
        return await self._operations.bind_session(request)

    async def ClearSession(  # noqa: N802
        self, request: pool_pb2.ClearSessionRequest, context: Context
    ) -> pool_pb2.ClearSessionResponse:
        return await self._operations.clear_session(request)

    async def GetNode(  # noqa: N802
        self, request: pool_pb2.GetNodeRequest, context: Context
    ) -> pool_pb2.GetNodeResponse:
        return await self._nodes.get_node(request)

    async def ListNodes(  # noqa: N802
        self, request: pool_pb2.ListNodesRequest, context: Context
    ) -> pool_pb2.ListNodesResponse:
        return await self._nodes.list_nodes(request)

    async def ListPools(  # noqa: N802
        self, request: pool_pb2.ListPoolsRequest, context: Context
    ) -> pool_pb2.ListPoolsResponse:
        return await self._pools.list_pools(request)

    async def ListInstances(  # noqa: N802
        self, request: instances_pb2.ListInstancesRequest, context: Context
    ) -> instances_pb2.ListInstancesResponse:
        return await self._instances.list_instances(request)

    async def ListCells(  # noqa: N802
        self, request: pool_pb2.ListCellsRequest, context: Context
    ) -> pool_pb2.ListCellsResponse:
        return await self._cell_states.list_cells(request)

    async def SetCellState(  # noqa: N802
        self, request: pool_pb2.SetCellStateRequest, context: Context
    ) -> pool_pb2.SetCellStateResponse:
        return await self._cell_states.set_cell_state(request)

    # grpc.aio accepts a coroutine that writes as well as an iterator; the generated stubs of this
    # and the next method know only the latter.
    async def WatchFleet(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pool_pb2.WatchFleetRequest], context: Context
    ) -> None:
        """See `FleetWatch`."""
        await self._watch.serve(request_iterator, context)

    async def Operate(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[pool_pb2.OperateRequest], context: Context
    ) -> None:
        """See `OperateStream`."""
        stream = OperateStream(
            operations=self._operations,
            reach_store=partial(reach_any, self._cells),
            in_order=self._cells.one,
            spans=self._spans,
            instance_id=self._instance_id,
            max_message_bytes=self._max_message_bytes,
        )
        reading = asyncio.create_task(stream.read(request_iterator))
        writing = asyncio.create_task(stream.write(context))
        draining = asyncio.create_task(self._draining.wait())
        tasks = (reading, writing, draining)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # Nothing more is read from here on. What was read is carried out and must be answered.
            if not reading.done():
                reading.cancel()
                await asyncio.wait((reading,))
            stream.close()
            await writing
            if not reading.cancelled():
                await reading
        finally:
            for task in tasks:
                task.cancel()
            stream.give_up()
            # Wait for their end: the requests cannot be closed while they are read.
            await all_ended(tasks)
