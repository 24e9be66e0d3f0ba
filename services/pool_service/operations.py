"""Each operation of the contract: check the request, call its script, read the reply.

Unary calls and the Operate stream both come through here.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

from lingua_scheduler.services.pool_service import codes, validate
from lingua_scheduler.services.pool_service.pool_metrics import PoolMetrics
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.pool_service.views import Views
from lingua_scheduler.services.runtime.capabilities import normal, stage_mask
from lingua_scheduler.services.runtime.errors import LinguaError, reason_name
from lingua_scheduler.services.runtime.redis_link import RedisLink
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

_OK = b"ok"
_DETAIL_CHARS = 200


class Operations:
    """The operations on leases, bindings and heartbeats: one script and one round trip each."""

    def __init__(
        self, *, link: RedisLink, settings: Settings, metrics: PoolMetrics, views: Views
    ) -> None:
        self._call = link.call
        self._link = link
        self._settings = settings
        self._metrics = metrics
        self._views = views
        self._ejection = (settings.eject_failures, settings.eject_ms, settings.eject_max_ms)
        self.by_name: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "select_node": self.select_node,
            "allocate": self.allocate,
            "reserve": self.reserve,
            "commit": self.commit,
            "release": self.release,
            "complete": self.complete,
            "bind_session": self.bind_session,
            "clear_session": self.clear_session,
            "heartbeat": self.heartbeat,
            "set_node_health": self.set_node_health,
        }

    async def reach_store(self) -> None:
        """Returns where an operation could be carried out; raises DependencyDownError."""
        await self._link.command("PING")

    async def select_node(self, request: pool_pb2.SelectNodeRequest) -> pool_pb2.SelectNodeResponse:
        """Chooses as `allocate` would, and changes nothing."""
        validate.select_node(request)
        criteria = request.criteria
        reply = await self._call("select_node", *self._want(criteria, request.session_id))
        if reply[0] != _OK:
            raise refusal(reply, _direction(criteria), criteria.preferred_node_id)
        return pool_pb2.SelectNodeResponse(placement=_placement(reply[1:]))

    async def allocate(self, request: pool_pb2.AllocateRequest) -> pool_pb2.AllocateResponse:
        """Chooses, reserves, records and binds."""
        validate.allocate(request)
        criteria, settings = request.criteria, self._settings
        started = perf_counter()
        try:
            reply = await self._call(
                "allocate",
                *self._want(criteria, request.session_id),
                request.job_id,
                request.attempt,
                request.job_key,
                request.tenant,
                request.home_instance,
                request.utterance_index,
                request.session_epoch,
                request.reason,
                int(request.wait_for_bound_node),
                settings.reservation_ttl_ms,
                settings.binding_ttl_ms,
                int(settings.timeout_binding == "always"),
                settings.job_record_ttl_ms,
                *self._limits(request),
            )
            self._metrics.selection_seconds.observe(perf_counter() - started)
            if reply[0] != _OK:
                raise refusal(reply, _direction(criteria), criteria.preferred_node_id)
        except LinguaError as error:
            self._metrics.refused(error, criteria)
            raise
        response = pool_pb2.AllocateResponse(
            attempt=common_pb2.AttemptRef(job_id=request.job_id, attempt=reply[2]),
            placement=_placement(reply[5:]),
            state=codes.JOB_STATES[reply[3]],
            existing=bool(reply[1]),
            lease_ends_ms=reply[4],
        )
        self._metrics.allocated(response)
        return response

    async def reserve(self, request: pool_pb2.ReserveRequest) -> pool_pb2.ReserveResponse:
        """Reserves a slot on the node that is named."""
        validate.attempt_on_node(request)
        settings = self._settings
        reply = await self._call(
            "reserve",
            request.node_id,
            request.attempt.job_id,
            request.attempt.attempt,
            settings.heartbeat_stale_ms,
            settings.reservation_ttl_ms,
            settings.job_record_ttl_ms,
        )
        if reply[0] != _OK:
            error = refusal(reply, f"node {request.node_id}", request.node_id)
            self._metrics.reserves.labels(reason_name(error.reason).lower()).inc()
            raise error
        self._metrics.reserves.labels("existing" if reply[1] else "reserved").inc()
        path, none = pool_pb2.PLACEMENT_PATH_NAMED, pool_pb2.BINDING_OUTCOME_NONE
        return pool_pb2.ReserveResponse(
            placement=_placement([*reply[3:], path, none, 0]),
            lease_ends_ms=reply[2],
            existing=bool(reply[1]),
        )

    async def commit(self, request: pool_pb2.CommitRequest) -> pool_pb2.CommitResponse:
        """Turns a reservation into a running lease."""
        validate.attempt_on_node(request)
        outcome, ends = await self._call(
            "commit",
            request.node_id,
            request.attempt.job_id,
            request.attempt.attempt,
            self._settings.running_lease_ms,
            self._settings.job_record_ttl_ms,
        )
        self._metrics.commits.labels(outcome.decode()).inc()
        return pool_pb2.CommitResponse(
            outcome=codes.COMMIT_OUTCOMES[outcome], lease_ends_ms=int(ends)
        )

    async def release(self, request: pool_pb2.ReleaseRequest) -> pool_pb2.ReleaseResponse:
        """Gives a reservation back."""
        validate.release(request)
        cause = pool_pb2.ReleaseCause.Name(request.cause).removeprefix("RELEASE_CAUSE_").lower()
        (outcome,) = await self._call(
            "release",
            request.node_id,
            request.attempt.job_id,
            request.attempt.attempt,
            cause,
            int(codes.RELEASE_FAULTS[request.cause]),
            codes.FINAL_STATES[request.final_state],
            *self._ejection,
        )
        self._metrics.releases.labels(cause).inc()
        return pool_pb2.ReleaseResponse(outcome=codes.RELEASE_OUTCOMES[outcome])

    async def complete(self, request: pool_pb2.CompleteRequest) -> pool_pb2.CompleteResponse:
        """Ends an attempt and frees its slot."""
        validate.complete(request)
        ended = codes.ATTEMPT_OUTCOMES[request.outcome]
        outcome, state = await self._call(
            "complete",
            request.node_id,
            request.attempt.job_id,
            request.attempt.attempt,
            ended,
            request.detail[:_DETAIL_CHARS],
            codes.FINAL_STATES[request.final_state],
            *self._ejection,
            self._settings.job_record_ttl_ms,
            request.steps,
        )
        self._metrics.completions.labels(ended).inc()
        return pool_pb2.CompleteResponse(
            outcome=codes.COMPLETE_OUTCOMES[outcome], state=codes.JOB_STATES[state]
        )

    async def bind_session(
        self, request: pool_pb2.BindSessionRequest
    ) -> pool_pb2.BindSessionResponse:
        """Binds a session's direction to the node that keeps its audio."""
        validate.bind_session(request)
        bound = await self._call(
            "bind_session",
            request.session_id,
            normal(request.pair.src),
            normal(request.pair.tgt),
            codes.BINDING_NAMES[request.kind],
            request.node_id,
            request.utterance_index,
            self._settings.binding_ttl_ms,
        )
        return pool_pb2.BindSessionResponse(bound=bool(bound))

    async def clear_session(
        self, request: pool_pb2.ClearSessionRequest
    ) -> pool_pb2.ClearSessionResponse:
        """Forgets bindings."""
        validate.clear_session(request)
        languages = [normal(code) for pair in request.pairs for code in (pair.src, pair.tgt)]
        cleared = await self._call("clear_session", request.session_id, *languages)
        return pool_pb2.ClearSessionResponse(cleared=cleared)

    async def heartbeat(self, request: pool_pb2.HeartbeatRequest) -> pool_pb2.HeartbeatResponse:
        """Renews nodes and what they run."""
        validate.heartbeat(request)
        args: list[str | int | float] = [self._settings.running_lease_ms]
        for beat in request.beats:
            load = max(beat.load.cpu, beat.load.gpu)
            args += (beat.node_id, beat.epoch, beat.health, load, len(beat.running))
            args += map(codes.lease_member, beat.running)
        problems = await self._call("heartbeat", *args) if request.beats else []
        self._metrics.beats.inc(len(request.beats))
        return pool_pb2.HeartbeatResponse(
            problems=[
                pool_pb2.BeatProblem(
                    node_id=node_id.decode(),
                    kind=codes.BEAT_PROBLEMS[kind],
                    attempts=map(codes.attempt_of, leases),
                )
                for node_id, kind, *leases in problems
            ]
        )

    async def set_node_health(
        self, request: pool_pb2.SetNodeHealthRequest
    ) -> pool_pb2.SetNodeHealthResponse:
        """Notes what a node, its dispatcher or an operator says of its health."""
        validate.set_node_health(request)
        reply = await self._call(
            "set_node_health",
            request.node_id,
            request.epoch,
            request.health,
            int(request.by_operator),
        )
        if reply[0] != _OK:
            raise refusal(reply, "", request.node_id)
        return pool_pb2.SetNodeHealthResponse(node=await self._views.node(request.node_id))

    def _limits(self, request: pool_pb2.AllocateRequest) -> tuple[int, ...]:
        """What the script has to know of a tenant with limits; nothing of one without."""
        limits, settings = request.limits, self._settings
        if not (limits.jobs or limits.audio_ms_per_minute):
            return ()
        # An attempt is acknowledged while it is reserved, or not at all, and then has its time.
        hold_ms = settings.reservation_ttl_ms + settings.job_timeout_ms
        return limits.jobs, limits.audio_ms_per_minute, request.audio_ms, hold_ms

    def _want(self, criteria: pool_pb2.NodeCriteria, session_id: str) -> list[str | int | float]:
        """The arguments of lua/lib/want.lua."""
        settings = self._settings
        return [
            random.getrandbits(31),
            normal(criteria.pair.src),
            normal(criteria.pair.tgt),
            int(criteria.require_tts),
            stage_mask(criteria.required_stages),
            criteria.preferred_node_id,
            int(criteria.strict),
            criteria.local_instance,
            session_id,
            settings.sample_k,
            settings.pool_size,
            settings.heartbeat_stale_ms,
            settings.load_threshold,
            len(criteria.exclude_node_ids),
            *criteria.exclude_node_ids,
        ]


def _direction(criteria: pool_pb2.NodeCriteria) -> str:
    text = "" if criteria.require_tts else " (text)"
    return f"{criteria.pair.src}->{criteria.pair.tgt}{text}"


def _placement(reply: Sequence[Any]) -> pool_pb2.Placement:
    node_id, epoch, owner, address, path, binding, binding_kind = reply
    return pool_pb2.Placement(
        node_id=node_id.decode(),
        node_epoch=epoch,
        owner_instance=owner.decode(),
        owner_address=address.decode(),
        path=path,
        binding=binding,
        binding_kind=binding_kind,
    )
