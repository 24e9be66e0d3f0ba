"""Three cells on one Redis and one clock, between which calls and answers are lost.

The pool service's own operations run on links that fail as they are told: before a call, so that
nothing has happened, or after it, so that it has happened and nobody knows.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import redis
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.pool_service.attempts.attempts import Attempts
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.runtime.errors import DependencyDownError, LinguaError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

from .scripts import Scripts

CELLS = 3
SETTINGS = Settings(
    redis_url="redis://unused",
    cells=CELLS,
    reservation_ttl_ms=5_000,
    running_lease_ms=20_000,
    job_timeout_ms=10_000,
    binding_ttl_ms=30_000,
    job_record_ttl_ms=600_000,
    eject_failures=255,
)
FINE, BEFORE, AFTER = "fine", "before", "after"


class UnsafeLink:
    """A link whose calls get lost. `fate` decides of each call, by its cell and its script."""

    def __init__(self, scripts: Scripts, number: int, fate: Callable[[int, str], str]) -> None:
        self.scripts = scripts
        self.prefix = scripts.prefix
        self.up = True
        self.down_reason = "taken down by the test"
        self.calls: list[str] = []
        self._number = number
        self._fate = fate

    async def call(self, script: str, *args: Any) -> Any:
        return await self._carry_out(script, lambda: self.scripts.call(script, *args))

    def send(self, script: str, *args: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.call(script, *args))

    async def command(self, *args: Any) -> Any:
        return await self._carry_out(args[0], lambda: self.scripts.client.execute_command(*args))

    async def _carry_out(self, name: str, run: Callable[[], Any]) -> Any:
        self.calls.append(name)
        # Others may come between any two calls.
        for _ in range(random.randrange(3)):
            await asyncio.sleep(0)
        fate = self._fate(self._number, name)
        if not self.up or fate == BEFORE:
            raise DependencyDownError("Redis cannot be used", why="lost on the way")
        reply = run()
        if fate == AFTER:
            raise DependencyDownError("Redis cannot be used", why="the answer was lost")
        return reply


@dataclass(frozen=True)
class Placed:
    """An attempt that a caller was told of."""

    attempt: int
    node: str
    cell: int
    binding: int
    existing: bool
    is_over: bool

    @property
    def key(self) -> tuple[int, str, int]:
        """Which attempt it is."""
        return self.attempt, self.node, self.cell


class World:
    """The cells, and a pool service on them."""

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        fate: Callable[[int, str], str] = lambda _cell, _name: FINE,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.cells = [
            Scripts(client, f"{prefix}:{number}", sources=sources) for number in range(CELLS)
        ]
        self.links = [UnsafeLink(each, number, fate) for number, each in enumerate(self.cells)]
        own = Cells(SETTINGS, {})
        for cell, link in zip(own.all, self.links, strict=True):
            cell.link, cell.prefix = link, link.prefix  # type: ignore[assignment]
        self.attempts = Attempts(
            cells=own, settings=SETTINGS, metrics=PoolMetrics(CollectorRegistry())
        )

    def advance(self, ms: int) -> None:
        """Moves the clock of all cells."""
        for cell in self.cells:
            cell.advance(ms)

    def beat(self) -> None:
        """All nodes say that they are there, and which attempts they run."""
        for cell in self.cells:
            for node in cell.client.smembers(cell.key("nodes", "all")):
                name = node.decode()
                cell.beat((name, cell.known(name).epoch, list(cell.running(name))))

    def is_alive(self, job: str, placed: Placed) -> bool:
        """Whether the attempt has a slot."""
        return f"{job}:{placed.attempt}" in self.cells[placed.cell].leases(placed.node)

    def leases(self) -> dict[tuple[int, str], list[str]]:
        """All slots that are taken, by cell and node."""
        found = {}
        for number, cell in enumerate(self.cells):
            for node in cell.client.smembers(cell.key("nodes", "all")):
                if held := sorted(cell.leases(node.decode())):
                    found[number, node.decode()] = held
        return found

    async def allocate(self, job: str, attempt: int = 1, **fields: Any) -> Placed:
        """Allocates as the Operate stream does. Raises the refusal."""
        criteria = {
            "preferred_node_id": fields.pop("preferred", ""),
            "strict": fields.pop("strict", False),
            "exclude_node_ids": fields.pop("excluded", ()),
            "pair": {"src": fields.pop("src", "zh"), "tgt": "en"},
            "require_tts": True,
        }
        request = pool_pb2.AllocateRequest(
            job_id=job, attempt=attempt, criteria=criteria, home_instance="d1", **fields
        )
        response = pool_pb2.AllocateResponse()
        sent = self.attempts.send("allocate", request)
        await asyncio.wait((sent,))
        reply = await (self.attempts.goes_on(request, sent) or sent)
        self.attempts.fill["allocate"](request, reply, response)
        at = response.placement
        return Placed(
            response.attempt.attempt,
            at.node_id,
            at.cell,
            at.binding,
            response.existing,
            is_over=response.state == common_pb2.JOB_STATE_DONE,
        )

    async def commit(self, job: str, placed: Placed) -> str:
        """The node has acknowledged. Returns the outcome's name."""
        request = pool_pb2.CommitRequest(
            node_id=placed.node, attempt=_attempt(job, placed), cell=placed.cell
        )
        reply = await self.attempts.send("commit", request)
        return str(reply[0].decode())

    async def release(self, job: str, placed: Placed) -> str:
        """The dispatcher gives the attempt up."""
        request = pool_pb2.ReleaseRequest(
            node_id=placed.node,
            attempt=_attempt(job, placed),
            cell=placed.cell,
            cause=pool_pb2.RELEASE_CAUSE_SEND_FAILED,
        )
        reply = await self.attempts.send("release", request)
        return str(reply[0].decode())

    async def complete(
        self, job: str, placed: Placed, *, tenant: str = "", failed: bool = False
    ) -> tuple[str, str]:
        """The node has a result, or has failed. Returns the outcome and the state of the job."""
        succeeded, not_so = pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, pool_pb2.ATTEMPT_OUTCOME_FAILED
        request = pool_pb2.CompleteRequest(
            node_id=placed.node,
            attempt=_attempt(job, placed),
            cell=placed.cell,
            outcome=not_so if failed else succeeded,
            tenant=tenant,
        )
        outcome, state = await self.attempts.send("complete", request)
        return outcome.decode(), state.decode()


def _attempt(job: str, placed: Placed) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id=job, attempt=placed.attempt)


def job_in(cell: int, name: str = "j") -> str:
    """A job of a session in this cell."""
    return f"{name}{cell:03x}"


async def lost(call: Any) -> str:
    """Awaits a call that fails. Returns the reason's name, or "" if it did not fail."""
    try:
        await call
    except LinguaError as error:
        return common_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
    return ""
