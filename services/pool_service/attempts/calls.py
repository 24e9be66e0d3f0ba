"""Packs the script calls of Allocate, Commit, Release and Complete."""

import random
from collections.abc import Callable
from typing import Any

from lingua_scheduler.services.pool_service import codes, validate
from lingua_scheduler.services.pool_service.attempts.elsewhere import AskOwnCell, Look, Take, Taken
from lingua_scheduler.services.runtime.contract.capabilities import normal, stage_mask
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.script_calls import Call, Words
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

_DETAIL_CHARS = 200
_AT_FIRST = AskOwnCell()
# Other cells than the job's own do not log what becomes of it.
_NO_LOG = 0


class AttemptCalls:
    """The script calls, with the settings that they need."""

    def __init__(self, settings: Settings) -> None:
        self._pack_want = script_calls.Want(
            sample_k=settings.sample_k,
            pool_size=settings.pool_size,
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
            load_threshold=settings.load_threshold,
            eject_max_share=settings.eject_max_share,
        ).call
        # A node acknowledges an attempt while it is reserved, and then has job_timeout_ms.
        hold_ms = settings.reservation_ttl_ms + settings.job_timeout_ms
        self._pack_allocate = script_calls.Allocate(
            hold_ms=hold_ms,
            many_cells=settings.cells > 1,
            reservation_ttl_ms=settings.reservation_ttl_ms,
            binding_ttl_ms=settings.binding_ttl_ms,
            timeout_binds=settings.timeout_binding == "always",
            job_record_ttl_ms=settings.job_record_ttl_ms,
            job_log_max=settings.job_log_max,
        ).call
        self._pack_take = script_calls.Take(
            reservation_ttl_ms=settings.reservation_ttl_ms,
            job_record_ttl_ms=settings.job_record_ttl_ms,
        ).call
        self._pack_admit = script_calls.Admit(hold_ms=hold_ms).call
        self._pack_commit = script_calls.Commit(
            running_lease_ms=settings.running_lease_ms,
            job_record_ttl_ms=settings.job_record_ttl_ms,
        ).call

        def pack_release(job_log_max: int) -> Callable[..., Call]:
            return script_calls.Release(
                eject_failures=settings.eject_failures,
                eject_ms=settings.eject_ms,
                eject_max_ms=settings.eject_max_ms,
                job_log_max=job_log_max,
            ).call

        def pack_complete(job_log_max: int) -> Callable[..., Call]:
            return script_calls.Complete(
                eject_failures=settings.eject_failures,
                eject_ms=settings.eject_ms,
                eject_max_ms=settings.eject_max_ms,
                job_record_ttl_ms=settings.job_record_ttl_ms,
                job_log_max=job_log_max,
            ).call

        self._pack_release = pack_release(settings.job_log_max)
        self._pack_release_there = pack_release(_NO_LOG)
        self._pack_complete = pack_complete(settings.job_log_max)
        self._pack_complete_there = pack_complete(_NO_LOG)
        self.of: dict[str, Callable[[Any], Call]] = {
            "allocate": self.allocate,
            "commit": self._commit,
            "release": self._release,
            "complete": self._complete,
        }
        """The call of a request in the job's own cell, by the contract's name of the operation.
        Raises InvalidMessageError."""

    def want(
        self,
        criteria: pool_pb2.NodeCriteria,
        tenant: str,
        session_id: str,
        *,
        preferred: str,
        strict: bool,
    ) -> Words:
        """Packs the arguments of lua/lib/want.lua."""
        pair, excluded, stages = criteria.pair, criteria.exclude_node_ids, criteria.required_stages
        return self._pack_want(
            seed=random.getrandbits(31),
            src=normal(pair.src),
            tgt=normal(pair.tgt),
            require_tts=criteria.require_tts,
            stages=stage_mask(stages) if stages else 0,
            preferred=preferred,
            strict=strict,
            instance=criteria.local_instance,
            tenant=tenant,
            session=session_id,
            excluded=excluded,
        )

    def allocate(self, request: pool_pb2.AllocateRequest, step: AskOwnCell = _AT_FIRST) -> Call:
        """Asks the job's own cell for a node, or to confirm what was taken in another one."""
        criteria, limits, taken = request.criteria, request.limits, step.taken
        validate.criteria(criteria)
        return self._pack_allocate(
            job=request.job_id,
            attempt=taken.attempt if taken else request.attempt,
            key=request.job_key,
            home=request.home_instance,
            utterance=request.utterance_index,
            session_epoch=request.session_epoch,
            reason=request.reason,
            may_wait=request.wait_for_bound_node,
            max_jobs=limits.jobs,
            max_audio_ms=limits.audio_ms_per_minute,
            audio_ms=request.audio_ms,
            unbound=step.unbound,
            taken_node=taken.node if taken else "",
            taken_cell=str(taken.cell) if taken else "",
            taken_path=taken.path if taken else 0,
            want=self.want(
                criteria,
                request.tenant,
                request.session_id,
                preferred=criteria.preferred_node_id if step.prefers else "",
                strict=criteria.strict and step.prefers,
            ),
        )

    def take(self, request: pool_pb2.AllocateRequest, step: Take | Look) -> Call:
        """Asks another cell for a slot, or whether it has given one."""
        take = step if isinstance(step, Take) else Take(step.cell, step.attempt)
        return self._pack_take(
            job=request.job_id,
            attempt=step.attempt,
            look=isinstance(step, Look),
            bound=take.bound,
            bound_path=take.path,
            may_wait=request.wait_for_bound_node,
            want=self.want(
                request.criteria,
                request.tenant,
                request.session_id,
                preferred=request.criteria.preferred_node_id if take.preferred else "",
                strict=take.preferred,
            ),
        )

    def admit(self, request: pool_pb2.AllocateRequest) -> Call:
        """Counts a job in the cell of its tenant."""
        return self._pack_admit(
            job=request.job_id,
            tenant=request.tenant,
            max_jobs=request.limits.jobs,
            max_audio_ms=request.limits.audio_ms_per_minute,
            audio_ms=request.audio_ms,
        )

    def give_back(self, job_id: str, taken: Taken) -> Call:
        """Releases a slot in another cell that the job's own did not confirm."""
        return self._pack_release_there(
            node_id=taken.node,
            job=job_id,
            attempt=taken.attempt,
            why="not confirmed",
            is_fault=False,
            final="",
            may_run=False,
        )

    def superseded(self, request: pool_pb2.CommitRequest) -> Call:
        """Ends an attempt in the cell of its node that must not win."""
        return self._pack_complete_there(
            node_id=request.node_id,
            job=request.attempt.job_id,
            attempt=request.attempt.attempt,
            outcome="cancelled",
            why="superseded",
            final="",
            is_fault=False,
            steps=b"",
            kind=0,
        )

    def release_there(self, request: pool_pb2.ReleaseRequest) -> Call:
        """As the call of the job's own cell, for the cell of the node."""
        return self._release(request, self._pack_release_there)

    def complete_there(self, request: pool_pb2.CompleteRequest) -> Call:
        """As the call of the job's own cell, for the cell of the node."""
        return self._complete(request, self._pack_complete_there)

    def _commit(self, request: pool_pb2.CommitRequest) -> Call:
        attempt = request.attempt
        return self._pack_commit(
            node_id=request.node_id, job=attempt.job_id, attempt=attempt.attempt
        )

    def _release(
        self, request: pool_pb2.ReleaseRequest, pack: Callable[..., Call] | None = None
    ) -> Call:
        validate.final_state(request.final_state)
        attempt = request.attempt
        return (pack or self._pack_release)(
            node_id=request.node_id,
            job=attempt.job_id,
            attempt=attempt.attempt,
            why=_why(codes.RELEASE_CAUSES[request.cause], request.detail),
            is_fault=codes.RELEASE_FAULTS[request.cause],
            final=codes.FINAL_STATES[request.final_state],
            may_run=request.cause == pool_pb2.RELEASE_CAUSE_CONNECTION_LOST,
        )

    def _complete(
        self, request: pool_pb2.CompleteRequest, pack: Callable[..., Call] | None = None
    ) -> Call:
        validate.complete(request)
        attempt = request.attempt
        return (pack or self._pack_complete)(
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


def _why(cause: str, detail: str) -> str:
    """Describes why an attempt was given up, for its record."""
    return f"{cause}: {detail}"[:_DETAIL_CHARS] if detail else cause
