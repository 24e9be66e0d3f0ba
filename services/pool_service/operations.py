"""The operations of the contract: each calls its script and reads the reply.

Used by the unary RPCs and by the Operate stream.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from lingua_scheduler.services.pool_service import codes, validate
from lingua_scheduler.services.pool_service.attempts.attempts import (
    Attempts,
    direction,
    fill_placement,
)
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.node_reports import NodeReports
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.contract.capabilities import normal
from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

_OK = b"ok"
_ALL_FULL = b"ALL_CANDIDATES_FULL_OR_FAILED"


class Operations:
    """The operations on leases and bindings: one script and one round trip each."""

    def __init__(
        self, *, cells: Cells, settings: Settings, metrics: PoolMetrics, reports: NodeReports
    ) -> None:
        self._cells = cells
        self._metrics = metrics
        self._reserve = script_calls.Reserve(
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
            reservation_ttl_ms=settings.reservation_ttl_ms,
            job_record_ttl_ms=settings.job_record_ttl_ms,
        ).call
        self._end_job = script_calls.EndJob(
            job_record_ttl_ms=settings.job_record_ttl_ms,
            unplaced_record_ttl_ms=min(settings.job_record_ttl_ms, settings.unplaced_record_ttl_ms),
            job_log_max=settings.job_log_max,
        ).call
        self._bind_session = script_calls.BindSession(
            binding_ttl_ms=settings.binding_ttl_ms, held_in_row_max=settings.held_in_row_max
        ).call
        self.attempts = Attempts(cells=cells, settings=settings, metrics=metrics)
        self.by_name: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "select_node": self.select_node,
            "allocate": self.allocate,
            "reserve": self.reserve,
            "commit": self.commit,
            "release": self.release,
            "complete": self.complete,
            "end_job": self.end_job,
            "bind_session": self.bind_session,
            "clear_session": self.clear_session,
            "heartbeat": reports.heartbeat,
            "set_node_health": reports.set_node_health,
        }

    async def select_node(self, request: pool_pb2.SelectNodeRequest) -> pool_pb2.SelectNodeResponse:
        """Chooses a node as `allocate` would, but changes nothing."""
        validate.criteria(request.criteria)
        criteria = request.criteria
        want = self.attempts.calls.want(
            criteria,
            request.tenant,
            request.session_id,
            preferred=criteria.preferred_node_id,
            strict=criteria.strict,
        )
        own = self._cells.of_session(request.session_id)
        refused: list[list[Any]] = []
        for cell in (own, *self.attempts.across.cells_to_ask(own, request.session_id, criteria)):
            reply = await cell.link.call(*script_calls.select_node(want=want))
            if reply[0] == _OK:
                response = pool_pb2.SelectNodeResponse()
                fill_placement(response.placement, reply[1:])
                response.placement.cell = cell.number
                return response
            refused.append(reply)
        # That nodes are full says more than that a cell has none.
        said = max(refused, key=lambda reply: reply[0] == _ALL_FULL)
        raise refusal(said, direction(criteria), criteria.preferred_node_id)

    async def allocate(self, request: pool_pb2.AllocateRequest) -> pool_pb2.AllocateResponse:
        """Chooses a node, reserves a slot, records the job and updates the binding."""
        response = pool_pb2.AllocateResponse()
        await self.attempts.run("allocate", request, response)
        return response

    async def reserve(self, request: pool_pb2.ReserveRequest) -> pool_pb2.ReserveResponse:
        """Reserves a slot on a given node of the job's own cell."""
        attempt = request.attempt
        cell = self._cells.of_job(attempt.job_id)
        reply = await cell.link.call(
            *self._reserve(node_id=request.node_id, job=attempt.job_id, attempt=attempt.attempt)
        )
        if reply[0] != _OK:
            error = refusal(reply, f"node {request.node_id}", request.node_id)
            self._metrics.reserves[reason_name(error.reason).lower()] += 1
            raise error
        self._metrics.reserves["existing" if reply[1] else "reserved"] += 1
        response = pool_pb2.ReserveResponse(lease_ends_ms=reply[2], existing=bool(reply[1]))
        path, none = pool_pb2.PLACEMENT_PATH_NAMED, pool_pb2.BINDING_OUTCOME_NONE
        fill_placement(response.placement, [*reply[3:], path, none, 0])
        response.placement.cell = cell.number
        return response

    async def commit(self, request: pool_pb2.CommitRequest) -> pool_pb2.CommitResponse:
        """Turns a reservation into a running lease."""
        response = pool_pb2.CommitResponse()
        await self.attempts.run("commit", request, response)
        return response

    async def release(self, request: pool_pb2.ReleaseRequest) -> pool_pb2.ReleaseResponse:
        """Gives a reservation back."""
        response = pool_pb2.ReleaseResponse()
        await self.attempts.run("release", request, response)
        return response

    async def complete(self, request: pool_pb2.CompleteRequest) -> pool_pb2.CompleteResponse:
        """Ends an attempt and frees its slot."""
        response = pool_pb2.CompleteResponse()
        await self.attempts.run("complete", request, response)
        return response

    async def end_job(self, request: pool_pb2.EndJobRequest) -> pool_pb2.EndJobResponse:
        """Records that a job has ended without a result."""
        validate.end_job(request)
        state = "unplaced" if request.may_begin_anew else codes.FINAL_STATES[request.state]
        outcome, left = await self._cells.of_job(request.job_id).link.call(
            *self._end_job(
                job=request.job_id,
                home=request.home_instance,
                final=state,
                why=request.error.SerializeToString(),
                error=request.error.reason,
                steps=request.steps,
                key=request.job_key,
                tenant=request.tenant,
                session=request.session_id,
                utterance=request.utterance_index,
                src=normal(request.pair.src),
                tgt=normal(request.pair.tgt),
                reason=request.reason,
            )
        )
        if not self._cells.one:
            await self.attempts.across.let_go(request.job_id, request.tenant)
        return pool_pb2.EndJobResponse(
            outcome=codes.END_OUTCOMES[outcome],
            state=codes.JOB_STATES.get(left, common_pb2.JOB_STATE_UNSPECIFIED),
        )

    async def bind_session(
        self, request: pool_pb2.BindSessionRequest
    ) -> pool_pb2.BindSessionResponse:
        """Binds a session's direction to the node that keeps its audio."""
        validate.bind(request)
        if request.HasField("attempt"):
            own = self._cells.of_job(request.attempt.job_id)
        else:
            own = self._cells.of_session(request.session_id)
        bound = await own.link.call(
            *self._bind_session(
                tenant=request.tenant,
                session=request.session_id,
                src=normal(request.pair.src),
                tgt=normal(request.pair.tgt),
                kind=codes.BINDING_NAMES[request.kind],
                node_id=request.node_id,
                utterance=request.utterance_index,
                job=request.attempt.job_id,
                attempt=request.attempt.attempt,
                cell="" if request.cell == own.number else str(request.cell),
            )
        )
        return pool_pb2.BindSessionResponse(
            bound=bound == b"bound", limit_reached=bound == b"limit"
        )

    async def clear_session(
        self, request: pool_pb2.ClearSessionRequest
    ) -> pool_pb2.ClearSessionResponse:
        """Deletes bindings."""
        cleared = await self._cells.of_session(request.session_id).link.call(
            *script_calls.clear_session(
                tenant=request.tenant,
                session=request.session_id,
                directions=[(normal(pair.src), normal(pair.tgt)) for pair in request.pairs],
            )
        )
        return pool_pb2.ClearSessionResponse(cleared=cleared)
