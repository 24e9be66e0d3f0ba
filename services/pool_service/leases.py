"""What every job costs: Allocate, Commit, Complete and Release, one script and one round trip each.

Each is two plain functions, one before its call of Redis and one after it, so that the operations
of a message on the Operate stream need no task of their own.
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
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_OK = b"ok"
_DETAIL_CHARS = 200

Words = Sequence[str | bytes | int | float]


class Attempts:
    """The operations on attempts, by the names that they have in the contract's Operation."""

    def __init__(self, *, link: RedisLink, settings: Settings, metrics: PoolMetrics) -> None:
        self._link = link
        self._metrics = metrics
        self._timeout_binds = settings.timeout_binding == "always"
        # An attempt is acknowledged while it is reserved, or not at all, and then has its time.
        self._hold_ms = settings.reservation_ttl_ms + settings.job_timeout_ms
        # What scripts get with every call.
        self._draw = _words(
            settings.sample_k,
            settings.pool_size,
            settings.heartbeat_stale_ms,
            settings.load_threshold,
            settings.eject_max_share,
        )
        self._placing = _words(
            settings.reservation_ttl_ms,
            settings.binding_ttl_ms,
            int(self._timeout_binds),
            settings.job_record_ttl_ms,
        )
        self._committing = _words(settings.running_lease_ms, settings.job_record_ttl_ms)
        self._ejection = _words(settings.eject_failures, settings.eject_ms, settings.eject_max_ms)
        self._record_ttl = _words(settings.job_record_ttl_ms)
        self.send = link.send
        self.selected = metrics.selection_seconds.observe
        """Told of every allocation that Redis has answered how long that took, in seconds."""
        self.words: dict[str, Callable[[Any], Words]] = {
            "allocate": self._allocate,
            "commit": self._commit,
            "release": self._release,
            "complete": self._complete,
        }
        """The arguments of a request's script. Raises InvalidMessageError."""
        self.fill: dict[str, Callable[[Any, Any, Any], None]] = {
            "allocate": self._allocated,
            "commit": self._committed,
            "release": self._released,
            "complete": self._completed,
        }
        """Fills the response to a request from what its script said. Raises where that refused."""

    def refused(self, request: pool_pb2.AllocateRequest, error: Exception) -> None:
        """Counts an allocation that was in order and found no node."""
        if isinstance(error, LinguaError) and not isinstance(error, InvalidMessageError):
            self._metrics.refused(error, request.criteria)

    async def run(self, name: str, request: Any, response: Any) -> Any:
        """The whole of it, with a span of Redis where there is one to be part of."""
        words = self.words[name](request)
        started = perf_counter()
        try:
            reply = await self._link.call(name, *words)
            if name == "allocate":
                self.selected(perf_counter() - started)
            self.fill[name](request, reply, response)
        except LinguaError as error:
            if name == "allocate":
                self.refused(request, error)
            raise
        return response

    def want(self, criteria: pool_pb2.NodeCriteria, tenant: str, session_id: str) -> Words:
        """The arguments of lua/lib/want.lua."""
        pair, excluded, stages = criteria.pair, criteria.exclude_node_ids, criteria.required_stages
        return (
            random.getrandbits(31),
            normal(pair.src),
            normal(pair.tgt),
            int(criteria.require_tts),
            stage_mask(stages) if stages else 0,
            criteria.preferred_node_id,
            int(criteria.strict),
            criteria.local_instance,
            tenant,
            session_id,
            *self._draw,
            len(excluded),
            *excluded,
        )

    # ---- before and after ----

    def _allocate(self, request: pool_pb2.AllocateRequest) -> Words:
        validate.criteria(request.criteria)
        limits = request.limits
        limited = limits.jobs or limits.audio_ms_per_minute
        return (
            *self.want(request.criteria, request.tenant, request.session_id),
            request.job_id,
            request.attempt,
            request.job_key,
            request.home_instance,
            request.utterance_index,
            request.session_epoch,
            request.reason,
            int(request.wait_for_bound_node),
            *self._placing,
            *(self._limits(request) if limited else ()),
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

    def _commit(self, request: pool_pb2.CommitRequest) -> Words:
        attempt = request.attempt
        return request.node_id, attempt.job_id, attempt.attempt, *self._committing

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

    def _release(self, request: pool_pb2.ReleaseRequest) -> Words:
        validate.final_state(request.final_state)
        attempt = request.attempt
        return (
            request.node_id,
            attempt.job_id,
            attempt.attempt,
            _why(codes.RELEASE_CAUSES[request.cause], request.detail),
            int(codes.RELEASE_FAULTS[request.cause]),
            codes.FINAL_STATES[request.final_state],
            *self._ejection,
            int(request.cause == pool_pb2.RELEASE_CAUSE_CONNECTION_LOST),
        )

    def _released(
        self,
        request: pool_pb2.ReleaseRequest,
        reply: Sequence[Any],
        response: pool_pb2.ReleaseResponse,
    ) -> None:
        self._metrics.releases[codes.RELEASE_CAUSES[request.cause]] += 1
        response.outcome = codes.RELEASE_OUTCOMES[reply[0]]

    def _complete(self, request: pool_pb2.CompleteRequest) -> Words:
        validate.complete(request)
        attempt = request.attempt
        return (
            request.node_id,
            attempt.job_id,
            attempt.attempt,
            codes.ATTEMPT_OUTCOMES[request.outcome],
            request.detail[:_DETAIL_CHARS],
            codes.FINAL_STATES[request.final_state],
            int(request.outcome in codes.FAULTS and not request.job_at_fault),
            *self._ejection,
            *self._record_ttl,
            request.steps,
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

    def _limits(self, request: pool_pb2.AllocateRequest) -> tuple[int, ...]:
        """What the script has to know of a tenant with limits."""
        limits = request.limits
        return limits.jobs, limits.audio_ms_per_minute, request.audio_ms, self._hold_ms


def direction(criteria: pool_pb2.NodeCriteria) -> str:
    """What a job needs, for messages."""
    text = "" if criteria.require_tts else " (text)"
    return f"{criteria.pair.src}->{criteria.pair.tgt}{text}"


def fill_placement(placement: pool_pb2.Placement, placed: Sequence[Any]) -> None:
    """Fills in what a script says of the node that it has chosen."""
    node_id, epoch, owner, address, path, binding, kind = placed
    placement.node_id = node_id.decode()
    placement.node_epoch = epoch
    placement.owner_instance = owner.decode()
    placement.owner_address = address.decode()
    placement.path = path
    placement.binding = binding
    placement.binding_kind = kind


def _words(*settings: float) -> tuple[bytes, ...]:
    return tuple(repr(each).encode() for each in settings)


def _why(cause: str, detail: str) -> str:
    """Why an attempt was given up, for its record."""
    return f"{cause}: {detail}"[:_DETAIL_CHARS] if detail else cause
