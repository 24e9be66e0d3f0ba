"""The operations of a job whose node may be in another cell than the job (docs/cells.md)."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from lingua_scheduler.services.pool_service import validate
from lingua_scheduler.services.pool_service.attempts.calls import AttemptCalls
from lingua_scheduler.services.pool_service.attempts.elsewhere import (
    OK,
    Answer,
    AskOwnCell,
    Fail,
    Forget,
    GiveBack,
    Look,
    Placing,
    Reply,
    Step,
    Take,
)
from lingua_scheduler.services.runtime.contract.cell_names import ranked
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells, CellState
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_NO_NODE = b"NO_CAPABLE_NODE"
_JOB_OVER = (b"done", b"failed", b"cancelled")
# A cell without nodes for a direction is asked after all others for this long.
_REMEMBER_S = 1.0
# Directions and cells that are remembered. Callers choose the directions.
_REMEMBERED_MAX = 10_000

_Direction = tuple[str, str, bool]


class AcrossCells:
    """Allocate, Commit, Release and Complete over several cells. Replies are those of one cell."""

    def __init__(self, *, cells: Cells, calls: AttemptCalls, settings: Settings) -> None:
        self._cells = cells
        self._calls = calls
        self._tries = settings.cell_tries
        self._without: dict[tuple[int, _Direction], float] = {}
        # By job: the last operation that needs, or waits for one that needs, another cell.
        self._under_way: dict[str, asyncio.Task[Reply]] = {}
        self._operations: dict[str, Callable[[Any], Coroutine[Any, Any, Reply]]] = {
            "allocate": self._allocate,
            "commit": self._commit,
            "release": self._release,
            "complete": self._complete,
        }

    def send(self, name: str, request: Any) -> asyncio.Future[Reply]:
        """Starts an operation. A job that stays in its own cell needs no task.

        Raises:
            DependencyDownError: the job's own cell is away.
            InvalidMessageError: the request is not valid.
        """
        job_id = _job_of(name, request)
        own = self._cells.of_job(job_id)
        if job_id in self._under_way or self._leaves(own, name, request):
            return self._in_turn(job_id, partial(self._run, name, request))
        return own.link.send(*self._calls.of[name](request))

    def goes_on(
        self, request: pool_pb2.AllocateRequest, reply: Reply
    ) -> asyncio.Task[Reply] | None:
        """Looks for a node in other cells, if the job's own has none; otherwise None."""
        if reply[0] == OK:
            return None
        placing = self._placing(request)
        then = placing.after(AskOwnCell(), reply)
        if then == Answer(reply):
            return None
        return self._in_turn(request.job_id, partial(self._place, placing, then, request))

    async def run(self, name: str, request: Any) -> Reply:
        """The same, with spans of the calls if the caller is traced."""
        return await self._in_turn(_job_of(name, request), partial(self._run, name, request))

    async def _run(self, name: str, request: Any) -> Reply:
        own = self._cells.of_job(_job_of(name, request))
        if name == "allocate" or self._leaves(own, name, request):
            return await self._operations[name](request)
        reply: Reply = await own.link.call(*self._calls.of[name](request))
        return reply

    def _in_turn(
        self, job_id: str, operation: Callable[[], Awaitable[Reply]]
    ) -> asyncio.Task[Reply]:
        """Starts an operation after those before it that are under way for the same job.

        Calls of one cell stay in order by themselves. Without this, the end of an attempt could
        overtake its beginning, or the next attempt the end of the last one.
        """
        before = self._under_way.get(job_id)

        async def run() -> Reply:
            if before is not None:
                await asyncio.wait((before,))
            return await operation()

        task = asyncio.ensure_future(run())
        self._under_way[job_id] = task
        task.add_done_callback(partial(self._is_over, job_id))
        return task

    def _is_over(self, job_id: str, task: asyncio.Task[Reply]) -> None:
        if self._under_way.get(job_id) is task:
            del self._under_way[job_id]

    def cells_to_ask(self, own: Cell, key: str, criteria: pool_pb2.NodeCriteria) -> Sequence[Cell]:
        """The other cells that may have nodes, in the order of the key's own.

        Cells that recently had none for the direction come last: a direction that few nodes can do
        would otherwise cost a call of every cell.
        """
        now, direction = time.monotonic(), _direction(criteria)
        may = [
            cell.number
            for cell in self._cells.all
            if cell is not own and cell.up and cell.state is not CellState.NEW
        ]
        order = ranked(key, may)
        order.sort(key=lambda cell: self._without.get((cell, direction), 0) > now)
        return [self._cells.all[number] for number in order]

    def _has_none(self, cell: int, direction: _Direction) -> None:
        """Remembers that a cell has no node for a direction."""
        if len(self._without) >= _REMEMBERED_MAX:
            self._without.clear()
        self._without[cell, direction] = time.monotonic() + _REMEMBER_S

    async def let_go(self, job_id: str, tenant: str) -> None:
        """Stops counting a job that is counted in another cell than its own."""
        counts = self._cells.of_tenant(tenant)
        if counts is not self._cells.of_job(job_id):
            with contextlib.suppress(DependencyDownError):
                await counts.link.command("ZREM", f"{counts.prefix}:tenant:{tenant}:jobs", job_id)

    def _leaves(self, own: Cell, name: str, request: Any) -> bool:
        """Whether it is clear before the first call that a job needs another cell than its own."""
        if name == "allocate":
            limits = request.limits
            return bool(limits.jobs or limits.audio_ms_per_minute) and (
                self._cells.of_tenant(request.tenant) is not own
            )
        if request.cell != own.number:
            return True
        return name == "complete" and request.tenant != ""

    def _placing(self, request: pool_pb2.AllocateRequest) -> Placing:
        own = self._cells.of_job(request.job_id)
        criteria = request.criteria
        return Placing(
            own=own.number,
            others=lambda: [
                cell.number
                for cell in self.cells_to_ask(own, request.session_id or request.job_id, criteria)
            ],
            cell_of_node=lambda node_id: self._cells.of_new_node(node_id).number,
            tries=self._tries,
            preferred=criteria.preferred_node_id,
            strict=criteria.strict,
            may_wait=request.wait_for_bound_node,
        )

    async def _allocate(self, request: pool_pb2.AllocateRequest) -> Reply:
        validate.criteria(request.criteria)
        if self._leaves(self._cells.of_job(request.job_id), "allocate", request):
            counts = self._cells.of_tenant(request.tenant)
            # While the cell that counts is away, nothing is counted: all other cells go on.
            with contextlib.suppress(DependencyDownError):
                admitted: Reply = await counts.link.call(*self._calls.admit(request))
                if admitted[0] != OK:
                    return admitted
            counted = pool_pb2.AllocateRequest()
            counted.CopyFrom(request)
            counted.ClearField("limits")
            request = counted
        return await self._place(self._placing(request), AskOwnCell(), request)

    async def _place(
        self, placing: Placing, step: Step, request: pool_pb2.AllocateRequest
    ) -> Reply:
        while True:
            match step:
                case Answer():
                    return step.reply
                case Fail():
                    raise step.error
            try:
                reply = await self._take_step(step, request)
            except DependencyDownError as error:
                step = placing.away(step, error)
            else:
                if isinstance(step, Take) and reply[0] == _NO_NODE and not step.bound:
                    self._has_none(step.cell, _direction(request.criteria))
                step = placing.after(step, reply)

    async def _take_step(self, step: Step, request: pool_pb2.AllocateRequest) -> Reply:
        calls, own = self._calls, self._cells.of_job(request.job_id)
        match step:
            case AskOwnCell():
                cell, call = own, calls.allocate(request, step)
            case Take() | Look():
                cell, call = self._other(step.cell), calls.take(request, step)
            case GiveBack(taken=taken):
                cell, call = self._other(taken.cell), calls.give_back(request.job_id, taken)
            case Forget():
                key = f"{own.prefix}:job:{request.job_id}"
                await own.link.command("HDEL", key, f"{step.attempt}:cell")
                return ()
            case _:
                raise TypeError(step)
        reply: Reply = await cell.link.call(*call)
        return reply

    def _other(self, number: int) -> Cell:
        """The cell that a record names. Raises DependencyDownError if there is none."""
        if number < len(self._cells.all):
            return self._cells.all[number]
        why = f"there is no cell {number} (LINGUA_CELLS)"
        raise DependencyDownError("the cell of the node is not known", why=why)

    async def _commit(self, request: pool_pb2.CommitRequest) -> Reply:
        """The node's cell has the lease, and the job's cell says which attempt may win."""
        call = self._calls.of["commit"](request)
        own = self._cells.of_job(request.attempt.job_id)
        there = self._cells.of_number(request.cell)
        reply: Reply = await there.link.call(*call)
        if reply[0] in (b"no_room", b"superseded"):
            return reply
        in_own: Reply = await own.link.call(*call)
        if in_own[0] != b"superseded":
            return reply
        with contextlib.suppress(DependencyDownError):
            await there.link.call(*self._calls.superseded(request))
        return in_own

    async def _release(self, request: pool_pb2.ReleaseRequest) -> Reply:
        """A lease in a cell that is away ends by itself; the job must not wait for it."""
        own = self._cells.of_job(request.attempt.job_id)
        there = self._cells.of_number(request.cell)
        reply: Reply | None = None
        with contextlib.suppress(DependencyDownError):
            reply = await there.link.call(*self._calls.release_there(request))
        if reply is not None and reply[0] == b"running":
            return reply
        in_own: Reply = await own.link.call(*self._calls.of["release"](request))
        return in_own if reply is None else reply

    async def _complete(self, request: pool_pb2.CompleteRequest) -> Reply:
        job_id = request.attempt.job_id
        own = self._cells.of_job(job_id)
        call = self._calls.of["complete"](request)
        others = [] if request.cell == own.number else [self._cells.of_number(request.cell)]
        there = (self._complete_there(cell, request) for cell in others)
        reply: Reply = (await asyncio.gather(own.link.call(*call), *there))[0]
        if request.tenant and reply[1] in _JOB_OVER:
            await self.let_go(job_id, request.tenant)
        return reply

    async def _complete_there(self, there: Cell, request: pool_pb2.CompleteRequest) -> None:
        """Ends the lease in the cell of the node. In one that is away it ends by itself."""
        with contextlib.suppress(DependencyDownError):
            await there.link.call(*self._calls.complete_there(request))


def _job_of(name: str, request: Any) -> str:
    job_id: str = request.job_id if name == "allocate" else request.attempt.job_id
    return job_id


def _direction(criteria: pool_pb2.NodeCriteria) -> _Direction:
    """What decides whether a cell can have a node at all."""
    return criteria.pair.src, criteria.pair.tgt, criteria.require_tts
