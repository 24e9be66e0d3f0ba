"""What dispatchers and operators say of nodes: heartbeats and health."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Container, Sequence

from lingua_scheduler.services.pool_service import codes, validate
from lingua_scheduler.services.pool_service.fleet.node_places import best_open, places_of
from lingua_scheduler.services.pool_service.fleet.nodes import Nodes
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.pool_service.registry import Registry
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_OK = b"ok"
# Of the nodes of a dispatcher that are in a wrong cell, so many leave it with one heartbeat, and so
# many that are busy get no further jobs, so that the others keep up the capacity of the cell.
_MOVES = 0.05
# How often cells learn that heartbeats arrive, also if none is for a node of theirs.
_NOTE_EVERY_S = 1.0

_Beats = Sequence[pool_pb2.NodeBeat]
_Problems = list[pool_pb2.BeatProblem]


class NodeReports:
    """Heartbeats, and changes of the health of nodes."""

    def __init__(
        self,
        *,
        cells: Cells,
        settings: Settings,
        metrics: PoolMetrics,
        nodes: Nodes,
        registry: Registry,
    ) -> None:
        self._cells = cells
        self._metrics = metrics
        self._nodes = nodes
        self._registry = registry
        self._noted_at = -math.inf
        self._heartbeat = script_calls.Heartbeat(
            running_lease_ms=settings.running_lease_ms,
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
        ).call

    async def heartbeat(self, request: pool_pb2.HeartbeatRequest) -> pool_pb2.HeartbeatResponse:
        """Renews nodes and the leases of their attempts.

        The heartbeats of nodes in a cell that is away are lost, as long as any other arrives.
        """
        problems: _Problems = []
        if self._cells.one:
            if request.beats:
                problems = await self._beat(self._cells.first, request.beats)
        else:
            problems = await self._beat_cells(request.beats)
        self._metrics.beats.inc(len(request.beats))
        return pool_pb2.HeartbeatResponse(problems=problems)

    async def _beat_cells(self, beats: _Beats) -> _Problems:
        by_cell: dict[int, list[pool_pb2.NodeBeat]] = defaultdict(list)
        problems: _Problems = []
        for beat in beats:
            if beat.cell < len(self._cells.all):
                by_cell[beat.cell].append(beat)
            else:
                # The cell has been taken out.
                problems.append(_register_again(beat.node_id))
        asked = (self._beat_and_move(self._cells.all[at], some) for at, some in by_cell.items())
        answers, _ = await asyncio.gather(
            asyncio.gather(*asked, return_exceptions=True), self._note_hearing(by_cell)
        )
        found = [each for each in answers if not isinstance(each, BaseException)]
        for answer in answers:
            is_away = isinstance(answer, DependencyDownError) and (found or problems)
            if isinstance(answer, BaseException) and not is_away:
                raise answer
        return [*problems, *(problem for some in found for problem in some)]

    async def _note_hearing(self, others: Container[int]) -> None:
        """Tells cells without heartbeats of their own that heartbeats arrive (lua/lib/hearing.lua).

        Otherwise the nodes of a cell that are all gone would be spared by the sweep.
        """
        now = asyncio.get_running_loop().time()
        if now - self._noted_at < _NOTE_EVERY_S:
            return
        self._noted_at = now
        call = self._heartbeat(beats=())
        rest = [cell for cell in self._cells.all if cell.number not in others and cell.up]
        await asyncio.gather(*(cell.link.call(*call) for cell in rest), return_exceptions=True)

    async def _beat_and_move(self, cell: Cell, beats: _Beats) -> _Problems:
        """Also makes some of the nodes that belong into another cell go there."""
        problems = await self._beat(cell, beats)
        refused = {problem.node_id for problem in problems}
        misplaced = [
            beat.node_id
            for beat in beats
            if beat.node_id not in refused
            and best_open(self._cells, beat.node_id) not in (cell, None)
        ]
        if misplaced:
            most = max(1, int(_MOVES * len(beats)))
            left = await self._registry.of_cell[cell.number].leave(misplaced, most)
            problems += map(_register_again, left)
        return problems

    async def _beat(self, cell: Cell, beats: _Beats) -> _Problems:
        packed = [
            (
                beat.node_id,
                beat.epoch,
                beat.health,
                max(beat.load.cpu, beat.load.gpu),
                [codes.lease_member(each) for each in beat.running],
            )
            for beat in beats
        ]
        return [
            pool_pb2.BeatProblem(
                node_id=node_id.decode(),
                kind=codes.BEAT_PROBLEMS[kind],
                attempts=map(codes.attempt_of, leases),
            )
            for node_id, kind, *leases in await cell.link.call(*self._heartbeat(beats=packed))
        ]

    async def set_node_health(
        self, request: pool_pb2.SetNodeHealthRequest
    ) -> pool_pb2.SetNodeHealthResponse:
        """Sets the health that a node or its dispatcher reports, or that an operator wants."""
        validate.set_node_health(request)
        cell = self._cells.first
        if not self._cells.one:
            cell = (await places_of(self._cells, request.node_id))[0].cell
        reply = await cell.link.call(
            *script_calls.set_node_health(
                node_id=request.node_id,
                epoch=request.epoch,
                health=request.health,
                by_operator=request.by_operator,
            )
        )
        if reply[0] != _OK:
            raise refusal(reply, "", request.node_id)
        node = await self._nodes.of_cell[cell.number].node(request.node_id)
        return pool_pb2.SetNodeHealthResponse(node=node)


def _register_again(node_id: str) -> pool_pb2.BeatProblem:
    return pool_pb2.BeatProblem(node_id=node_id, kind=pool_pb2.BeatProblem.KIND_REGISTER_AGAIN)
