"""The operations of every job: Allocate, Commit, Complete and Release, one script call each.

Each consists of two plain functions, one before the script call and one after it, so that the
operations of a message on the Operate stream need no task of their own.
"""

import random
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from lingua_scheduler.services.pool_service import codes, validate
from lingua_scheduler.services.pool_service.metrics import PoolMetrics
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.contract.capabilities import normal, stage_mask
from lingua_scheduler.services.runtime.errors import InvalidMessageError, LinguaError
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.script_calls import Call, Words
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_OK = b"ok"
_DETAIL_CHARS = 200


class Attempts:
    """The operations on attempts, by their names in the contract's Operation."""

    def __init__(self, *, link: RedisLink, settings: Settings, metrics: PoolMetrics) -> None:
        self._link = link
        self._metrics = metrics
        self._pack_want = script_calls.Want(
            sample_k=settings.sample_k,
            pool_size=settings.pool_size,
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
            load_threshold=settings.load_threshold,
            eject_max_share=settings.eject_max_share,
        ).call
        self._pack_allocate = script_calls.Allocate(
            # A node acknowledges an attempt while it is reserved, and then has job_timeout_ms.
            hold_ms=settings.reservation_ttl_ms + settings.job_timeout_ms,
            reservation_ttl_ms=settings.reservation_ttl_ms,
            binding_ttl_ms=settings.binding_ttl_ms,
            timeout_binds=settings.timeout_binding == "always",
            job_record_ttl_ms=settings.job_record_ttl_ms,
            job_log_max=settings.job_log_max,
        ).call
        self._pack_commit = script_calls.Commit(
            running_lease_ms=settings.running_lease_ms,
            job_record_ttl_ms=settings.job_record_ttl_ms,
        ).call
        self._pack_release = script_calls.Release(
            eject_failures=settings.eject_failures,
            eject_ms=settings.eject_ms,
            eject_max_ms=settings.eject_max_ms,
            job_log_max=settings.job_log_max,
        ).call
        self._pack_complete = script_calls.Complete(
            eject_failures=settings.eject_failures,
            eject_ms=settings.eject_ms,
            eject_max_ms=settings.eject_max_ms,
            job_record_ttl_ms=settings.job_record_ttl_ms,
            job_log_max=settings.job_log_max,
        ).call
        self.send = link.send
        self.selected = metrics.selection_seconds.observe
        """Observes how long Redis took for an allocation, in seconds."""
        self.calls: dict[str, Callable[[Any], Call]] = {
            "allocate": self._allocate,
            "commit": self._commit,
            "release": self._release,
            "complete": self._complete,
        }
        """Packs the script call of a request. Raises InvalidMessageError."""
        self.fill: dict[str, Callable[[Any, Any, Any], None]] = {
            "allocate": self._allocated,
            "commit": self._committed,
            "release": self._released,
            "complete": self._completed,
        }
        """Fills the response from the reply of the script. Raises if the script refused."""

    def refused(self, request: pool_pb2.AllocateRequest, error: Exception) -> None:
        """Counts an allocation that was valid but was refused."""
        if isinstance(error, LinguaError) and not isinstance(error, InvalidMessageError):
            self._metrics.refused(error, request.criteria)

    async def run(self, name: str, request: Any, response: Any) -> Any:
        """Carries out an operation, with a span for the call of Redis if the caller is traced."""
        call = self.calls[name](request)
        started = perf_counter()
        try:
            reply = await self._link.call(*call)
            if name == "allocate":
                self.selected(perf_counter() - started)
            self.fill[name](request, reply, response)
        except LinguaError as error:
            if name == "allocate":
                self.refused(request, error)
            raise
        return response

    def want(self, criteria: pool_pb2.NodeCriteria, tenant: str, session_id: str) -> Words:
        """Packs the arguments of lua/lib/want.lua."""
        pair, excluded, stages = criteria.pair, criteria.exclude_node_ids, criteria.required_stages
        return self._pack_want(
            seed=random.getrandbits(31),
            src=normal(pair.src),
            tgt=normal(pair.tgt),
            require_tts=criteria.require_tts,
            stages=stage_mask(stages) if stages else 0,
            preferred=criteria.preferred_node_id,
            strict=criteria.strict,
            instance=criteria.local_instance,
            tenant=tenant,
            session=session_id,
            excluded=excluded,
        )

    def _allocate(self, request: pool_pb2.AllocateRequest) -> Call:
        validate.criteria(request.criteria)
        limits = request.limits
        return self._pack_allocate(
            job=request.job_id,
            attempt=request.attempt,
            key=request.job_key,
            home=request.home_instance,
            utterance=request.utterance_index,
            session_epoch=request.session_epoch,
            reason=request.reason,
            may_wait=request.wait_for_bound_node,
            max_jobs=limits.jobs,
            max_audio_ms=limits.audio_ms_per_minute,
            audio_ms=request.audio_ms,
            want=self.want(request.criteria, request.tenant, request.session_id),
        )

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
        why, turn_id = reply[12:]
        attempt = response.attempt
        attempt.job_id, attempt.attempt = request.job_id, number
        fill_placement(response.placement, placed)
        response.state = codes.JOB_STATES[state]
        response.existing = bool(existing)
        response.lease_ends_ms = ends
        response.placement.turn_id = turn_id.decode()
        if why:
            response.error.ParseFromString(why)
        self._metrics.allocated(existing, *placed[4:])

    def _commit(self, request: pool_pb2.CommitRequest) -> Call:
        attempt = request.attempt
        return self._pack_commit(
            node_id=request.node_id, job=attempt.job_id, attempt=attempt.attempt
        )

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

    def _release(self, request: pool_pb2.ReleaseRequest) -> Call:
        validate.final_state(request.final_state)
        attempt = request.attempt
        return self._pack_release(
            node_id=request.node_id,
            job=attempt.job_id,
            attempt=attempt.attempt,
            why=_why(codes.RELEASE_CAUSES[request.cause], request.detail),
            is_fault=codes.RELEASE_FAULTS[request.cause],
            final=codes.FINAL_STATES[request.final_state],
            may_run=request.cause == pool_pb2.RELEASE_CAUSE_CONNECTION_LOST,
        )

    def _released(
        self,
        request: pool_pb2.ReleaseRequest,
        reply: Sequence[Any],
        response: pool_pb2.ReleaseResponse,
    ) -> None:
        self._metrics.releases[codes.RELEASE_CAUSES[request.cause]] += 1
        response.outcome = codes.RELEASE_OUTCOMES[reply[0]]

    def _complete(self, request: pool_pb2.CompleteRequest) -> Call:
        validate.complete(request)
        attempt = request.attempt
        return self._pack_complete(
            node_id=request.node_id,
            job=attempt.job_id,
            attempt=attempt.attempt,
            outcome=codes.ATTEMPT_OUTCOMES[request.outcome],
            why=request.detail[:_DETAIL_CHARS],
            final=codes.FINAL_STATES[request.final_state],
            is_fault=request.outcome in codes.FAULTS and not request.job_at_fault,
            steps=request.steps,
            kind=request.result_kind,
        )

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


def _why(cause: str, detail: str) -> str:
    """Describes why an attempt was given up, for its record."""
    return f"{cause}: {detail}"[:_DETAIL_CHARS] if detail else cause
