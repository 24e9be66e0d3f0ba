"""The cells as operators see and change them, and how a cell begins."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from lingua_scheduler.services.pool_service import validate
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InvalidMessageError,
    SettingsError,
)
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells, CellState
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.services.runtime.settings.redis_url import parse_redis_url
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

# How often cells that have come up are looked for.
_LOOK_EVERY_S = 1.0

_STATES = {
    CellState.NEW: pool_pb2.CELL_STATE_NEW,
    CellState.READY: pool_pb2.CELL_STATE_READY,
    CellState.DRAINING: pool_pb2.CELL_STATE_DRAINING,
}
_BY_NUMBER = {number: state for state, number in _STATES.items()}

_log = logging.getLogger(__name__)


class CellStates:
    """Prepares cells for use, lists them, and changes their state."""

    def __init__(self, *, cells: Cells, settings: Settings, nodes: Nodes) -> None:
        self._cells = cells
        self._pool_size = settings.pool_size
        self._nodes = nodes
        urls = settings.redis_url.split()
        self._addresses: Sequence[str] = [
            parse_redis_url(url).shown for url in (urls * len(cells.all))[: len(cells.all)]
        ]
        # Those that were prepared since they came up, and those that were ever.
        self._prepared: set[int] = set()
        self._known: set[int] = set()
        cells.on_change(lambda cell, up, reason: self._prepared.discard(cell.number))

    # ---- how a cell begins ----

    @property
    def is_prepared(self) -> bool:
        """Whether all cells are up and can be used."""
        return len(self._prepared) == len(self._cells.all)

    async def open(self) -> None:
        """Prepares the cells that are up.

        Raises:
            SettingsError: a cell has pools of another size.
            DependencyDownError: no cell can be reached.
        """
        if self._cells.one:
            await self._check_layout(self._cells.first)
        else:
            await self._prepare()

    async def run(self) -> None:
        """Prepares cells when they come up, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            if self._cells.one or self.is_prepared:
                continue
            try:
                await self._prepare()
            except (SettingsError, DependencyDownError) as error:
                _log.error("cell not prepared", extra={"reason": str(error)})

    async def _prepare(self) -> None:
        first, count = self._cells.first, len(self._cells.all)
        if not first.up:
            # Only the first cell knows which ones are new. They are prepared when it is back.
            return
        in_use = await first.link.call(*script_calls.count_cells(cells=count))

        async def prepare(cell: Cell) -> None:
            if cell.number in self._prepared:
                return
            await self._check_layout(cell)
            state = CellState.READY if cell.number < in_use else CellState.NEW
            # A Redis that has lost its data is told what it was.
            await cell.write_state(
                cell.state if cell.number in self._known else state, replace=False
            )
            self._prepared.add(cell.number)
            self._known.add(cell.number)

        await self._cells.each(prepare)
        if in_use != count and len(self._known) == count:
            await first.link.command("HSET", f"{first.prefix}:cell", "cells", count)

    async def _check_layout(self, cell: Cell) -> None:
        """Checks that the pools in this Redis have the configured size."""
        key = f"{cell.prefix}:layout"
        await cell.link.command("HSETNX", key, "pool_size", self._pool_size)
        kept = int(await cell.link.command("HGET", key, "pool_size"))
        if kept != self._pool_size:
            raise SettingsError(
                f"LINGUA_POOL_SIZE={self._pool_size}: this Redis has pools of {kept} nodes per "
                f"shard; set LINGUA_POOL_SIZE={kept}, or use another LINGUA_REDIS_PREFIX"
            )

    # ---- what operators do ----

    async def list_cells(self, request: pool_pb2.ListCellsRequest) -> pool_pb2.ListCellsResponse:
        """Returns all cells, those that are away without what they have."""
        return pool_pb2.ListCellsResponse(
            cells=await asyncio.gather(*map(self._shown, self._cells.all))
        )

    async def set_cell_state(
        self, request: pool_pb2.SetCellStateRequest
    ) -> pool_pb2.SetCellStateResponse:
        """Drains a cell, or makes it ready.

        Raises:
            InvalidMessageError: there is no such cell, or no other one takes sessions and nodes.
            DependencyDownError: the cell is away.
        """
        validate.set_cell_state(request)
        cell = self._cells.of_number(request.number, "number")
        if not self._cells.one:
            await self._cells.read_states()
        state = _BY_NUMBER[request.state]
        if state is CellState.DRAINING and not any(
            other.is_open for other in self._cells.all if other is not cell
        ):
            problem = (
                f"no other cell than {cell.number} is ready and up: make another one ready first"
            )
            raise InvalidMessageError(f"state: {problem}", fields=[("state", problem)])
        if cell.state is not state:
            await cell.write_state(state)
            facts = {"cell": cell.number, "state": state.value}
            _log.info("cell state changed", extra=facts)
        return pool_pb2.SetCellStateResponse(cell=await self._shown(cell))

    async def _shown(self, cell: Cell) -> pool_pb2.Cell:
        shown = pool_pb2.Cell(
            number=cell.number,
            state=_STATES[cell.state],
            address=self._addresses[cell.number],
            is_up=cell.up,
            down_reason=cell.link.down_reason,
        )
        try:
            await self._count(cell, shown)
        except DependencyDownError as error:
            shown.is_up, shown.down_reason = False, error.why
        return shown

    async def _count(self, cell: Cell, shown: pool_pb2.Cell) -> None:
        link, now = cell.link, await redis_now_ms(cell.link)

        async def alive(key: str) -> Any:
            return await link.command("ZCOUNT", f"{cell.prefix}:{key}", f"({now}", "+inf")

        shown.sessions, shown.rooms = await asyncio.gather(alive("sessions"), alive("rooms"))
        nodes, slots, used = await self._nodes.of_cell[cell.number].totals(now)
        shown.nodes, shown.slots, shown.used_slots = nodes, slots, used
