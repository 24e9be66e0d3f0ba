"""The operations of every job: Allocate, Commit, Complete and Release, one script call each.

Each consists of two plain functions, one before the script call and one after it, so that the
operations of a message on the Operate stream need no task of their own.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.attempts.across_cells import AcrossCells
from lingua_scheduler.services.pool_service.attempts.calls import AttemptCalls
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.errors import InvalidMessageError, LinguaError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_OK = b"ok"


class Attempts:
    """The operations on attempts, by their names in the contract's Operation."""

    def __init__(self, *, cells: Cells, settings: Settings, metrics: PoolMetrics) -> None:
        self._cells = cells
        self._metrics = metrics
        self.calls = AttemptCalls(settings)
        self.across = AcrossCells(cells=cells, calls=self.calls, settings=settings)
        self.selected = metrics.selection_seconds.observe
        """Observes how long Redis took for an allocation, in seconds."""
        self.fill: dict[str, Callable[[Any, Any, Any], None]] = {
            "allocate": self._allocated,
            "commit": self._committed,
            "release": self._released,
            "complete": self._completed,
        }
        """Fills the response from the reply of the script. Raises if the script refused."""

    def send(self, name: str, request: Any) -> asyncio.Future[Any]:
        """Starts an operation, without spans. The future gets the reply or the error.

        If there are several cells, `goes_on` must follow for an allocation.

        Raises:
            DependencyDownError: the cell of the job is away.
            InvalidMessageError: the request is not valid.
        """
        if self._cells.one:
            return self._cells.first.link.send(*self.calls.of[name](request))
        return self.across.send(name, request)

    def goes_on(
        self, request: pool_pb2.AllocateRequest, outcome: asyncio.Future[Any]
    ) -> asyncio.Future[Any] | None:
        """Goes on with an allocation that `send` has begun, if it needs other cells, else None."""
        if outcome.exception() is not None:
            return None
        return self.across.goes_on(request, outcome.result())

    def refused(self, request: pool_pb2.AllocateRequest, error: Exception) -> None:
        """Counts an allocation that was valid but was refused."""
        if isinstance(error, LinguaError) and not isinstance(error, InvalidMessageError):
            self._metrics.refused(error, request.criteria)

    async def run(self, name: str, request: Any, response: Any) -> Any:
        """Carries out an operation, with a span for the call of Redis if the caller is traced."""
        started = perf_counter()
        try:
            if self._cells.one:
                reply = await self._cells.first.link.call(*self.calls.of[name](request))
            else:
                reply = await self.across.run(name, request)
            if name == "allocate":
                self.selected(perf_counter() - started)
            self.fill[name](request, reply, response)
        except LinguaError as error:
            if name == "allocate":
                self.refused(request, error)
            raise
        return response

    def _allocated(
        self,
        request: pool_pb2.AllocateRequest,
        reply: Sequence[Any],
        response: pool_pb2.AllocateResponse,
    ) -> None:
        if reply[0] != _OK:
            criteria = request.criteria
            raise refusal(reply, direction(criteria), criteria.preferred_node_id)
        _, existing, number, state, ends, *placed = reply[:12]
        why, turn_id = reply[12:14]
        attempt = response.attempt
        attempt.job_id, attempt.attempt = request.job_id, number
        fill_placement(response.placement, placed)
        response.state = codes.JOB_STATES[state]
        response.existing = bool(existing)
        response.lease_ends_ms = ends
        response.placement.turn_id = turn_id.decode()
        if len(reply) == 14:
            response.placement.cell = self._cells.of_job(request.job_id).number
        else:
            response.placement.cell = reply[14]
            self._metrics.elsewhere.inc(not existing)
        if why:
            response.error.ParseFromString(why)
        self._metrics.allocated(existing, *placed[4:])

    def _committed(
        self,
        request: pool_pb2.CommitRequest,
        reply: Sequence[Any],
        response: pool_pb2.CommitResponse,
    ) -> None:
        outcome, ends = reply
        self._metrics.commits[outcome.decode()] += 1
        response.outcome = codes.COMMIT_OUTCOMES[outcome]
        response.lease_ends_ms = ends

    def _released(
        self,
        request: pool_pb2.ReleaseRequest,
        reply: Sequence[Any],
        response: pool_pb2.ReleaseResponse,
    ) -> None:
        self._metrics.releases[codes.RELEASE_CAUSES[request.cause]] += 1
        response.outcome = codes.RELEASE_OUTCOMES[reply[0]]

    def _completed(
        self,
        request: pool_pb2.CompleteRequest,
        reply: Sequence[Any],
        response: pool_pb2.CompleteResponse,
    ) -> None:
        outcome, state = reply
        self._metrics.completions[codes.ATTEMPT_OUTCOMES[request.outcome]] += 1
        response.outcome = codes.COMPLETE_OUTCOMES[outcome]
        response.state = codes.JOB_STATES[state]


def direction(criteria: pool_pb2.NodeCriteria) -> str:
    """Describes what a job needs, for error messages."""
    text = "" if criteria.require_tts else " (text)"
    return f"{criteria.pair.src}->{criteria.pair.tgt}{text}"


def fill_placement(placement: pool_pb2.Placement, placed: Sequence[Any]) -> None:
    """Fills in the node that a script has chosen."""
    node_id, epoch, owner, address, path, binding, kind = placed
    placement.node_id = node_id.decode()
    placement.node_epoch = epoch
    placement.owner_instance = owner.decode()
    placement.owner_address = address.decode()
    placement.path = path
    placement.binding = binding
    placement.binding_kind = kind
