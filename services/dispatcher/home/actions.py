"""What the machines of jobs ask for, carried out: the outer half of the shell around them."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from lingua_scheduler.services.dispatcher.home.job import Job, node_line
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.outcomes import JobOutcomes
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.home.waiting import WaitingRoom
from lingua_scheduler.services.dispatcher.home.waiting_bytes import WaitingBytes
from lingua_scheduler.services.dispatcher.home.waiting_rounds import WaitingRounds
from lingua_scheduler.services.dispatcher.job import effects
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Attempt,
    AttemptState,
    Effect,
    FailureCause,
)
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.job.timeline import cause_name, outcome_name
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import Timers, now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How often a lost node's new place is asked for.
_LOCATE_EVERY_S = 0.2

_Allocation = asyncio.Future[pool_pb2.AllocateResponse]


class JobActions(JobOutcomes):
    """Carries out effects of jobs, and feeds back what comes of them. Who feeds first is Jobs.

    An action holds on to its job, not to the job's id: a job that was forgotten and begins anew is
    another one, which nothing of the old one can touch.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        pool: PoolClient,
        kept: KeptResults,
        metrics: DispatcherMetrics,
        waiting: WaitingRoom,
    ) -> None:
        timers: Timers[str, None] = Timers(on_due=self._on_due, clock=now_ms)
        records = JobRecords(pool=pool, settings=settings)
        super().__init__(kept=kept, records=records, metrics=metrics, timers=timers)
        self._settings = settings
        self._pool = pool
        self._waiting = WaitingRounds(
            room=waiting,
            job=self.get,
            ask=self._ask_again,
            audio=WaitingBytes(settings.waiting_bytes_max),
        )
        self._closed = False
        self._carry_out: dict[type[Effect], Callable[[Job, Any, float], object]] = {
            effects.Allocate: self._ask_pool,
            effects.Send: self._send,
            effects.Commit: self._commit_soon,
            effects.Release: self._release,
            effects.Complete: self._complete,
            effects.CancelOnNode: self._cancel_on_node,
            effects.Confirm: lambda job, effect, _: self._confirm(
                job, effect.node_id, effect.number
            ),
            effects.Locate: lambda job, effect, _: self._spawn(self._locate(job, effect.attempt)),
            effects.Wait: self._wait,
            effects.Wake: lambda job, effect, _: self._timers.set(job.job_id, None, effect.at_ms),
            effects.FetchKept: lambda job, _effect, _: self._spawn(self._fetch_kept(job)),
            effects.Accepted: self._tell_accepted,
            effects.Retrying: self._tell_retrying,
            effects.PassPartial: self._pass_partial,
            effects.Deliver: self._deliver,
            effects.Fail: self._fail,
        }

    def _ask_again(self, job: Job) -> None:
        now = now_ms()
        self._feed(job, now, job.machine.on_room(now))

    def _feed(self, job: Job, now: float, todo: Iterable[Effect]) -> None:
        if not self._closed:
            for effect in todo:
                self._carry_out[type(effect)](job, effect, now)

    def _cancel_on_node(self, job: Job, effect: effects.CancelOnNode, _: float) -> None:
        ref = job.ref(effect.attempt.number)
        cancel = dispatcher_pb2.JobCancel(attempt=ref, why=effect.why)
        self.routes.cancel(effect.attempt.placement, cancel)

    def _ask_pool(self, job: Job, effect: effects.Allocate, now: float) -> None:
        if job.is_behind:
            # Others wait for the same pool, and came first: there is no need to ask.
            job.is_behind = False
            behind = FailureCause(
                common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED, "others wait for room too"
            )
            self._feed(job, now, job.machine.on_refused(now, behind))
        else:
            job.is_asking = True
            self._allocate(job, effect, now)

    def _allocate(self, job: Job, effect: effects.Allocate, now: float) -> None:
        spec, settings = job.spec, self._settings
        request = pool_pb2.AllocateRequest(
            job_id=job.job_id,
            attempt=effect.number,
            job_key=job.key,
            tenant=spec.tenant,
            session_id=job.session_id,
            utterance_index=job.utterance_index,
            # The epoch says who may begin a job; one that has begun goes on, whoever waits for it.
            session_epoch=0 if job.has_begun else job.epoch,
            reason=spec.reason,
            wait_for_bound_node=effect.wait_for_bound_node,
            home_instance=settings.instance_id,
            audio_ms=spec.audio_ms,
        )
        if spec.HasField("limits"):
            request.limits.CopyFrom(spec.limits)
        criteria, pair = request.criteria, spec.pair
        criteria.pair.src, criteria.pair.tgt = pair.src, pair.tgt
        criteria.require_tts, criteria.strict = spec.require_tts, spec.strict
        if spec.required_stages:
            criteria.required_stages.extend(spec.required_stages)
        if effect.exclude:
            criteria.exclude_node_ids.extend(job.excluded(effect))
        if spec.preferred_node_id:
            criteria.preferred_node_id = job.preferred(effect)
        criteria.local_instance = settings.instance_id
        is_hedge = job.machine.phase is Phase.PLACED
        asking = job.timeline.asks(now, effect.number, hedge=is_hedge)
        try:
            answer = self._pool.allocate(request, asking)
        except errors.LinguaError as error:
            # Later: whoever asks is in the middle of something.
            self._loop.call_soon(self._refused, job, effect, error)
        else:
            epoch = request.session_epoch
            answer.add_done_callback(partial(self._allocated, job, effect, epoch))

    def _allocated(
        self, job: Job, effect: effects.Allocate, epoch: int, answered: _Allocation
    ) -> None:
        if answered.cancelled():
            return
        error = answered.exception()
        if isinstance(error, errors.SessionTakenOverError) and 0 < epoch < job.epoch:
            # The gateway that took the session over has taken the job up since it was asked.
            self._allocate(job, effect, now_ms())
            return
        if isinstance(error, errors.LinguaError):
            self._refused(job, effect, error)
            return
        answer, now = answered.result(), now_ms()
        job.is_asking = False
        job.is_taken_up = job.is_taken_up or (answer.existing and not job.has_begun)
        job.has_begun = True
        if answer.attempt.attempt:  # none: the job had ended without a node
            self._metrics.placed(answer.placement, self._settings.instance_id)
            job.timeline.placed(now, answer.attempt.attempt, answer.placement.node_id)
        if job.waits_since_ms is not None:
            self._leave_queue(job, now - job.waits_since_ms, placed=True)
        job.is_over_quota, job.turn_node = False, ""
        self._feed(job, now, job.machine.on_allocated(now, answer))
        self._waiting.has_answer(job)

    def _refused(self, job: Job, effect: effects.Allocate, error: errors.LinguaError) -> None:
        spec, now = job.spec, now_ms()
        job.is_asking = False
        job.timeline.refused(now, errors.reason_name(error.reason))
        job.is_over_quota = error.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
        waits_for_turn = error.reason == common_pb2.ERROR_REASON_BOUND_NODE_FULL
        job.turn_node = error.metadata.get("node_id", "") if waits_for_turn else ""
        problem = FailureCause(error.reason, error.message, error.retry_after_ms, error.metadata)
        job.is_particular = not (job.is_over_quota or waits_for_turn) and bool(
            effect.exclude or spec.strict or spec.required_stages
        )
        self._feed(job, now, job.machine.on_refused(now, problem))
        self._waiting.has_answer(job)

    def _send(self, job: Job, effect: effects.Send, now: float) -> None:
        settings, attempt = self._settings, effect.attempt
        left = settings.job_timeout_ms
        if job.deadline_ms is not None:
            left = max(1, min(left, int(job.deadline_ms - now)))
        # Made in its place: a message that is given to the constructor of another is serialized and
        # parsed for that, with its audio.
        message = dispatcher_pb2.DispatcherMessage()
        assign = message.events.add().job_assign
        assign.job.CopyFrom(job.spec)
        assign.time_left_ms = left
        assign.ack_within_ms = settings.ack_timeout_ms
        is_whole = bool(job.spec.included_utterances)
        assign.begins_turn = is_whole or attempt.placement.path not in BY_BINDING
        assign.attempt.job_id = job.job_id
        assign.attempt.attempt = attempt.number
        _hide_the_session(assign.job, attempt.placement.turn_id or job.job_id)
        if attempt.state is AttemptState.KEPT or attempt.is_result_only:
            assign.only_if_known = True
            assign.job.ClearField("audio")
        if traceparent := job.timeline.traceparent(attempt.number):
            assign.job.traceparent = traceparent
        job.sent_ms[attempt.number] = now
        by_relay = not self.routes.is_here(attempt.placement)
        job.timeline.sends(now, attempt.number, attempt.node_id, by_relay=by_relay)
        self._metrics.dispatch_seconds.observe((now - job.submitted_ms) / 1000)
        self.routes.assign(attempt.placement, message)

    def _commit_soon(self, job: Job, effect: effects.Commit, _: float) -> None:
        # A node that says in one message that it has begun and that it is done costs one operation.
        self._loop.call_soon(self._commit, job, effect.attempt)

    def _commit(self, job: Job, attempt: Attempt) -> None:
        if attempt.state is not AttemptState.ACKED:
            return  # Complete, or Release, has ended what this would have begun
        number = attempt.number
        request = pool_pb2.CommitRequest(attempt=job.ref(number), node_id=attempt.node_id)

        def committed(answer: pool_pb2.CommitResponse | None) -> None:
            if answer is not None:
                already = answer.outcome == pool_pb2.CommitResponse.OUTCOME_ALREADY
                is_over = already and answer.lease_ends_ms == 0
                now = now_ms()
                fed = job.machine.on_committed(now, number, answer.outcome, is_over=is_over)
                self._feed(job, now, fed)

        give_up_ms = self._settings.reservation_ttl_ms
        traceparent = job.timeline.traceparent(number)
        # Nobody waits for that, but for one that is sent again when it is there.
        patient = job.machine.phase is not Phase.LOST
        self._pool.persistently(
            "commit", request, give_up_ms, committed, traceparent, patient=patient
        )

    def _release(self, job: Job, effect: effects.Release, now: float) -> None:
        if effect.cause == pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT:
            self._metrics.ack_timeouts.inc()
        request = pool_pb2.ReleaseRequest(
            attempt=job.ref(effect.attempt.number),
            node_id=effect.attempt.node_id,
            cause=effect.cause,
            final_state=effect.final,
            detail=effect.detail,
        )
        number, timeline = effect.attempt.number, job.timeline
        timeline.ends(now, number, cause_name(effect.cause))
        self._pool.persistently(
            "release",
            request,
            self._settings.reservation_ttl_ms,
            partial(self._slot_is_free, job, effect.attempt),
            timeline.traceparent(number),
            patient=self._waiting.is_empty,
        )

    def _complete(self, job: Job, effect: effects.Complete, now: float) -> None:
        number, timeline = effect.attempt.number, job.timeline
        request = pool_pb2.CompleteRequest(
            node_id=effect.attempt.node_id,
            outcome=effect.outcome,
            detail=effect.detail,
            final_state=effect.final,
            job_at_fault=effect.job_at_fault,
        )
        request.attempt.job_id, request.attempt.attempt = job.job_id, number
        if effect.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED:
            request.steps = timeline.record(now)
        else:
            timeline.ends(now, number, outcome_name(effect.outcome))
        self._pool.persistently(
            "complete",
            request,
            self._settings.running_lease_ms,
            partial(self._slot_is_free, job, effect.attempt),
            timeline.traceparent(number),
            patient=self._waiting.is_empty,
        )

    def _slot_is_free(self, job: Job, attempt: Attempt, _: object) -> None:
        """The pool has said so: only now do those that wait find room."""
        if self._waiting.is_empty:
            return
        # Those whose turn is on that node come first: the pool keeps the slot for them.
        self._waiting.room_in([node_line(attempt.node_id)])
        self._waiting.room_for(self.routes.serves(attempt.node_id) | {job.queue})
        if job.spec.limits.jobs:
            self._waiting.room_in([job.tenant_line])

    async def _locate(self, job: Job, attempt: Attempt) -> None:
        """Looks for the node's new connection for as long as the job hopes for it."""
        request = pool_pb2.GetNodeRequest(node_id=attempt.node_id)
        while job.machine.phase is Phase.LOST:
            await asyncio.sleep(_LOCATE_EVERY_S)
            try:
                node = (await self._pool.get_node(request)).node
            except errors.LinguaError:
                continue
            if node.health == common_pb2.NODE_HEALTH_OFFLINE:
                continue
            # The pool knows of a connection a little before its owner does, so that one may have
            # been asked too early.
            too_early = job.not_sent.pop(attempt.number, None) is not None
            # Nor may the node have been away at all: it was the way to its dispatcher that broke.
            by_relay = not self.routes.is_here(attempt.placement)
            cut_off = by_relay and attempt.number in job.cut_off
            if too_early or cut_off or node.epoch != attempt.placement.node_epoch:
                job.cut_off.discard(attempt.number)
                placement = pool_pb2.Placement(
                    node_id=node.node_id,
                    node_epoch=node.epoch,
                    owner_instance=node.owner_instance,
                    owner_address=node.owner_address,
                )
                now = now_ms()
                back = job.machine.on_node_back(now, attempt.number, placement)
                self._feed(job, now, back)

    def _wait(self, job: Job, _: effects.Wait, now: float) -> None:
        if not job.is_over_quota:
            self._metrics.waits.inc()
        job.timeline.waits(now, max(job.machine.attempts, default=0) + 1)
        if job.waits_since_ms is None:
            job.waits_since_ms = now
        if not self._waiting.wait(job):
            # Too many wait already: for this one the wait is over.
            self._loop.call_soon(self._wait_is_over, job)

    def _leave_queue(self, job: Job, waited_ms: float, *, placed: bool) -> None:
        self._waiting.leave(job)
        job.waits_since_ms = None
        # More nodes would not have helped those over their quota.
        if not job.is_over_quota:
            self._metrics.waited(waited_ms / 1000, placed=placed)

    def _over(self, job: Job, event: dispatcher_pb2.JobEvent, now: float) -> None:
        if job.waits_since_ms is not None:
            self._leave_queue(job, now - job.waits_since_ms, placed=False)
        super()._over(job, event, now)

    def _wait_is_over(self, job: Job) -> None:
        now = now_ms()
        self._feed(job, now, job.machine.on_timer(now, ("wait", 0)))

    async def _fetch_kept(self, job: Job) -> None:
        try:
            result = await self._kept.fetch(job.job_id)
        except errors.LinguaError as error:
            _log.warning("a kept result could not be read: %s", error, extra={"job_id": job.job_id})
            result = None
        now = now_ms()
        self._feed(job, now, job.machine.on_kept(now, result))

    # ---- time ----

    def _on_due(self, wanted: str, _: None) -> None:
        job = self._jobs.get(wanted)
        if job is None:
            return
        if job.machine.phase is Phase.OVER:
            self._forget_if_safe(job)
        else:
            now = now_ms()
            self._feed(job, now, job.machine.on_wake(now))


def _hide_the_session(spec: dispatcher_pb2.JobSpec, turn_id: str) -> None:
    """Leaves out what tells a node's owner whose job it is, and which turns belong together."""
    spec.session_id = turn_id
    spec.ClearField("tenant")
    spec.ClearField("limits")
    spec.ClearField("session_epoch")
    spec.ClearField("steps")
    spec.ClearField("first_chunk_client_ms")
