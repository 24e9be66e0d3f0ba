"""Registration and removal of nodes: in which cell a node is, and that it is in only one."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from lingua_scheduler.services.pool_service.cell_registry import (
    Before,
    CellRegistry,
    Counted,
    Found,
)
from lingua_scheduler.services.pool_service.fleet.node_places import best_open, places_of
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    NodeEpochOldError,
    NodeNotFoundError,
)
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2


class Registry:
    """Registers and removes nodes.

    A node stays in its cell while it has leases there. Otherwise it registers in the cell that is
    right for it, or if that one is away, in the next that is right.
    """

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        self.of_cell: Sequence[CellRegistry] = [
            CellRegistry(cell=cell, settings=settings) for cell in cells.all
        ]
        """The registries of the cells, by number."""

    async def register(
        self, request: pool_pb2.RegisterNodeRequest
    ) -> pool_pb2.RegisterNodeResponse:
        """Registers a node, and moves it between cells and pools as necessary.

        Raises:
            NodeIdConflictError: a live node of another process has this id.
            QuotaExceededError: its owner has too many nodes.
            DependencyDownError: no cell can take it.
        """
        if self._cells.one:
            return await self.of_cell[0].register(request)
        found = await self._look_up(request)
        for each in found.values():
            if each.holder:
                reply = (b"NODE_ID_CONFLICT", each.holder.encode())
                raise refusal(reply, "", request.node_id)
        number = self._place(request.node_id, found)
        others = {cell: each for cell, each in found.items() if cell != number}
        left = await self._leave(request.node_id, others)
        if left is None:
            # It got a job meanwhile, so it stays where it is.
            return await self.register(request)
        nodes = (others[cell].node for cell in left)
        before = max(nodes, key=lambda node: node.epoch, default=Before())
        counted = Counted(
            sum(each.owner.nodes for each in others.values()),
            sum(each.owner.slots for each in others.values()),
        )
        response = await self.of_cell[number].register(request, before, counted)
        # Not before, so that jobs of a turn find it in one of the two cells. What fails is left to
        # the sweep.
        with contextlib.suppress(DependencyDownError, NodeEpochOldError):
            for cell in left:
                await self.of_cell[cell].remove(request.node_id, others[cell].node.epoch)
        return response

    async def _look_up(self, request: pool_pb2.RegisterNodeRequest) -> Mapping[int, Found]:
        """What each cell that is not away knows of the node, by number."""

        async def look(number: int) -> tuple[int, Found]:
            return number, await self.of_cell[number].look_up(
                request.node_id, request.incarnation, request.node_owner
            )

        return dict(await self._cells.each(lambda cell: look(cell.number)))

    def _place(self, node_id: str, found: Mapping[int, Found]) -> int:
        """The number of the cell in which a node registers."""
        busy = [number for number in found if found[number].leases]
        if busy:
            return max(busy, key=lambda number: found[number].node.epoch)
        best = best_open(self._cells, node_id)
        if best is not None and best.number in found:
            return best.number
        # No cell takes new nodes, or this one went away just now.
        if known := [number for number in found if found[number].node.epoch]:
            return max(known, key=lambda number: found[number].node.epoch)
        return self._cells.for_new().number

    async def _leave(self, node_id: str, others: Mapping[int, Found]) -> Sequence[int] | None:
        """Makes a node leave the cells that know it. Returns which, or None if it is not idle."""
        left = []
        for number, found in others.items():
            if found.node.epoch == 0:
                continue
            if await self.of_cell[number].leave([node_id], most=1):
                left.append(number)
            elif not found.leases:
                return None
            # Otherwise two cells have leases of it, because this one was away. Nothing more is put
            # on the node here, and the sweep deletes it.
        return left

    async def remove(self, request: pool_pb2.RemoveNodeRequest) -> pool_pb2.RemoveNodeResponse:
        """Deletes a node and takes it out of all pools."""
        cells = [self._cells.first]
        if not self._cells.one:
            try:
                places = await places_of(self._cells, request.node_id)
            except NodeNotFoundError:
                return pool_pb2.RemoveNodeResponse()
            fits = [place for place in places if request.epoch in (0, place.epoch)]
            cells = [place.cell for place in fits or places[:1]]
        removed = await asyncio.gather(
            *(self.of_cell[cell.number].remove(request.node_id, request.epoch) for cell in cells)
        )
        return pool_pb2.RemoveNodeResponse(
            removed=any(existed for existed, _ in removed),
            pools_left=sum(left for _, left in removed),
        )
