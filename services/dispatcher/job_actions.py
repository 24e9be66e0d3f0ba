"""What the machines of jobs ask for, carried out: the outer half of the shell around them."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Any

from lingua_scheduler.services.dispatcher import job_effects as effects
from lingua_scheduler.services.dispatcher.dispatcher_metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.job import Job
from lingua_scheduler.services.dispatcher.job_effects import Attempt, Effect, Problem
from lingua_scheduler.services.dispatcher.job_machine import Phase
from lingua_scheduler.services.dispatcher.job_steps import BY_BINDING
from lingua_scheduler.services.dispatcher.job_timeline import cause_name, moment, outcome_name
from lingua_scheduler.services.dispatcher.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.pool_client import PoolClient
from lingua_scheduler.services.dispatcher.routes import Routes
from lingua_scheduler.services.dispatcher.waiting import WaitingRoom
from lingua_scheduler.services.dispatcher.waiting_rounds import WaitingRounds
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How long a job that is over stays known, to confirm and drop what still comes for it.
_REMEMBER_MS = 10_000.0
# A gateway that does not say in this time that it took a result is as good as gone: the result is
# kept in Redis, and the node may forget it.
_TAKEN_WITHIN_MS = 5_000.0
# How often a lost node's new place is asked for.
_LOCATE_EVERY_S = 0.2


class JobActions:
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
        self._settings = settings
        self._pool = pool
        self._kept = kept
        self._metrics = metrics
        self._waiting = WaitingRounds(room=waiting, job=self.get, ask=self._ask_again)
        self._jobs: dict[str, Job] = {}
        self._under_way = 0
        self.idle = asyncio.Event()
        """Set while no job is under way, and no result waits to be taken."""
        self.idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Task[None]] = set()
        self._timers = Timers(on_due=self._on_due, clock=self._now)
        self.routes: Routes  # set by whoever puts the dispatcher together

    def get(self, wanted: str) -> Job | None:
        """A job that this instance is the home of."""
        return self._jobs.get(wanted)

    def _remember(self, job: Job) -> None:
        self._jobs[job.job_id] = job
        self._under_way += 1
        self.idle.clear()
        self._metrics.jobs.set(len(self._jobs))

    def _forget(self, job: Job) -> None:
        del self._jobs[job.job_id]
        self._timers.clear_all(job.job_id)
        self._metrics.jobs.set(len(self._jobs))

    def _ask_again(self, job: Job) -> None:
        self._feed(job, job.machine.on_room(self._now()))

    def _feed(self, job: Job, todo: Iterable[Effect]) -> None:
        for effect in todo:
            self._carry_out(job, effect)

    def _carry_out(self, job: Job, effect: Effect) -> None:  # noqa: C901 - one line an effect
        match effect:
            case effects.Allocate():
                self._ask_pool(job, effect)
            case effects.Send():
                self._send(job, effect.attempt)
            case effects.Commit():
                self._spawn(self._commit(job, effect.attempt))
            case effects.Release():
                self._release(job, effect)
            case effects.Complete():
                self._complete(job, effect)
            case effects.CancelOnNode():
                ref = job.ref(effect.attempt.number)
                cancel = dispatcher_pb2.JobCancel(attempt=ref, why=effect.why)
                self.routes.cancel(effect.attempt.placement, cancel)
            case effects.Confirm():
                self._confirm(job, effect.node_id, effect.number)
            case effects.Locate():
                self._spawn(self._locate(job, effect.attempt))
            case effects.Wait():
                self._wait(job)
            case effects.SetTimer():
                self._timers.set(job.job_id, effect.key, effect.at_ms)
            case effects.ClearTimer():
                self._timers.clear(job.job_id, effect.key)
            case effects.FetchKept():
                self._spawn(self._fetch_kept(job))
            case effects.Accepted():
                job.timeline.acked(moment(), effect.attempt.number)
                accepted = dispatcher_pb2.JobAccepted(
                    node_id=effect.attempt.node_id, attempt=effect.attempt.number
                )
                self._tell(job, dispatcher_pb2.JobEvent(accepted=accepted))
            case effects.Retrying():
                self._metrics.retried(effect.why.reason)
                retrying = dispatcher_pb2.JobRetrying(attempt=effect.number, why=_error(effect.why))
                self._tell(job, dispatcher_pb2.JobEvent(retrying=retrying))
            case effects.PassPartial():
                event = dispatcher_pb2.JobEvent(partial=effect.partial)
                self._tell(job, event, droppable=True)
            case effects.Deliver():
                self._deliver(job, effect)
            case effects.Fail():
                reason = errors.reason_name(effect.why.reason)
                self._metrics.finished(reason.lower())
                job.timeline.over(moment(), reason)
                self._over(job, dispatcher_pb2.JobEvent(failed=_error(effect.why)))
                self._record_steps(job)

    def _ask_pool(self, job: Job, effect: effects.Allocate) -> None:
        if job.is_behind:
            # Others wait for the same pool, and came first: there is no need to ask.
            job.is_behind = False
            behind = Problem(
                common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED, "others wait for room too"
            )
            self._feed(job, job.machine.on_refused(self._now(), behind))
        else:
            job.is_asking = True
            self._spawn(self._allocate(job, effect))

    async def _allocate(self, job: Job, effect: effects.Allocate) -> None:
        spec, settings = job.spec, self._settings
        request = pool_pb2.AllocateRequest(
            job_id=job.job_id,
            attempt=effect.number,
            criteria=pool_pb2.NodeCriteria(
                pair=spec.pair,
                require_tts=spec.require_tts,
                required_stages=spec.required_stages,
                exclude_node_ids=job.excluded(effect),
                preferred_node_id=job.preferred(effect),
                strict=spec.strict,
                local_instance=settings.instance_id,
            ),
            job_key=job.key,
            tenant=spec.tenant,
            session_id=spec.session_id,
            utterance_index=spec.utterance_index,
            # The epoch says who may begin a job; one that has begun goes on, whoever waits for it.
            session_epoch=0 if job.has_begun else job.epoch,
            reason=spec.reason,
            wait_for_bound_node=effect.wait_for_bound_node,
            home_instance=settings.instance_id,
            limits=spec.limits if spec.HasField("limits") else None,
            audio_ms=spec.audio_ms,
        )
        is_hedge = job.machine.phase is Phase.PLACED
        asking = job.timeline.asks(moment(), effect.number, hedge=is_hedge)
        try:
            answer = await self._pool.allocate(request, asking)
        except errors.LinguaError as error:
            job.is_asking = False
            job.timeline.refused(moment(), errors.reason_name(error.reason))
            job.is_over_quota = error.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
            facts = error.metadata if job.is_over_quota else {}
            problem = Problem(error.reason, error.message, error.retry_after_ms, facts)
            job.is_particular = not job.is_over_quota and bool(
                effect.exclude
                or spec.strict
                or spec.required_stages
                or error.reason == common_pb2.ERROR_REASON_BOUND_NODE_FULL
            )
            self._feed(job, job.machine.on_refused(self._now(), problem))
            self._waiting.has_answer(job)
            return
        job.is_asking = False
        job.has_begun = True
        self._metrics.placed(answer.placement, settings.instance_id)
        job.timeline.placed(moment(), answer.attempt.attempt, answer.placement.node_id)
        self._leave_queue(job, placed=True)
        job.is_over_quota = False
        self._feed(job, job.machine.on_allocated(self._now(), answer))
        self._waiting.has_answer(job)

    def _send(self, job: Job, attempt: Attempt) -> None:
        now, settings = self._now(), self._settings
        left = settings.job_timeout_ms
        if job.deadline_ms is not None:
            left = max(1, min(left, int(job.deadline_ms - now)))
        assign = dispatcher_pb2.JobAssign(
            attempt=job.ref(attempt.number),
            job=job.spec,
            time_left_ms=left,
            ack_within_ms=settings.ack_timeout_ms,
            begins_turn=attempt.placement.path not in BY_BINDING,
        )
        # Whose node it is has no business with what the tenant may use.
        assign.job.ClearField("limits")
        if traceparent := job.timeline.traceparent(attempt.number):
            assign.job.traceparent = traceparent
        job.sent_ms[attempt.number] = now
        by_relay = not self.routes.is_here(attempt.placement)
        job.timeline.sends(moment(), attempt.number, attempt.node_id, by_relay=by_relay)
        self._metrics.dispatch_seconds.observe((now - job.submitted_ms) / 1000)
        self.routes.assign(attempt.placement, assign)

    async def _commit(self, job: Job, attempt: Attempt) -> None:
        request = pool_pb2.CommitRequest(attempt=job.ref(attempt.number), node_id=attempt.node_id)
        give_up_ms, trace = self._settings.reservation_ttl_ms, job.timeline
        answer = await self._pool.persist(
            "commit", request, give_up_ms, trace.traceparent(attempt.number)
        )
        if answer is not None:
            outcome, number = answer.outcome, attempt.number
            already = outcome == pool_pb2.CommitResponse.OUTCOME_ALREADY
            is_over = already and answer.lease_ends_ms == 0
            fed = job.machine.on_committed(self._now(), number, outcome, is_over=is_over)
            self._feed(job, fed)

    def _release(self, job: Job, effect: effects.Release) -> None:
        if effect.cause == pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT:
            self._metrics.ack_timeouts.inc()
        request = pool_pb2.ReleaseRequest(
            attempt=job.ref(effect.attempt.number),
            node_id=effect.attempt.node_id,
            cause=effect.cause,
            final_state=effect.final,
        )
        number, timeline = effect.attempt.number, job.timeline
        timeline.ends(moment(), number, cause_name(effect.cause))
        give_up_ms = self._settings.reservation_ttl_ms
        given_back = self._pool.persist(
            "release", request, give_up_ms, timeline.traceparent(number)
        )
        given_back.add_done_callback(lambda _: self._slot_is_free(job, effect.attempt))

    def _complete(self, job: Job, effect: effects.Complete) -> None:
        request = pool_pb2.CompleteRequest(
            attempt=job.ref(effect.attempt.number),
            node_id=effect.attempt.node_id,
            outcome=effect.outcome,
            detail=effect.detail,
            final_state=effect.final,
        )
        number, timeline = effect.attempt.number, job.timeline
        if effect.outcome == pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED:
            request.steps = timeline.record(moment())
        else:
            timeline.ends(moment(), number, outcome_name(effect.outcome))
        give_up_ms = self._settings.running_lease_ms
        freed = self._pool.persist("complete", request, give_up_ms, timeline.traceparent(number))
        freed.add_done_callback(lambda _: self._slot_is_free(job, effect.attempt))

    def _slot_is_free(self, job: Job, attempt: Attempt) -> None:
        """The pool has said so: only now do those that wait find room."""
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
                back = job.machine.on_node_back(self._now(), attempt.number, placement)
                self._feed(job, back)

    def _wait(self, job: Job) -> None:
        if not job.is_over_quota:
            self._metrics.waits.inc()
        job.timeline.waits(moment(), max(job.machine.attempts, default=0) + 1)
        if job.waits_since_ms is None:
            job.waits_since_ms = self._now()
        if not self._waiting.wait(job):
            # Too many wait already: for this one the wait is over.
            asyncio.get_running_loop().call_soon(self._wait_is_over, job)

    def _leave_queue(self, job: Job, *, placed: bool) -> None:
        self._waiting.leave(job)
        if job.waits_since_ms is not None:
            # More nodes would not have helped those over their quota.
            if not job.is_over_quota:
                self._metrics.waited((self._now() - job.waits_since_ms) / 1000, placed=placed)
            job.waits_since_ms = None

    def _wait_is_over(self, job: Job) -> None:
        self._feed(job, job.machine.on_timer(self._now(), ("wait", 0)))

    async def _fetch_kept(self, job: Job) -> None:
        try:
            result = await self._kept.fetch(job.job_id)
        except errors.LinguaError as error:
            _log.warning("a kept result could not be read: %s", error, extra={"job_id": job.job_id})
            result = None
        self._feed(job, job.machine.on_kept(self._now(), result))

    def _deliver(self, job: Job, effect: effects.Deliver) -> None:
        now = self._now()
        self._metrics.finished("done")
        self._metrics.job_seconds.observe((now - job.submitted_ms) / 1000)
        delivered = dispatcher_pb2.JobDelivered(
            result=effect.result,
            node_id=effect.attempt.node_id,
            attempts=len(job.machine.attempts),
        )
        job.timeline.over(moment())
        self._over(job, dispatcher_pb2.JobEvent(delivered=delivered))

    def _over(self, job: Job, event: dispatcher_pb2.JobEvent) -> None:
        """The job is over: the gateway is told, or what it should hear is kept for the next."""
        self._leave_queue(job, placed=False)
        job.spec.ClearField("audio")
        if event.HasField("failed"):
            job.taken = True
            self._one_less()
        if not self._tell(job, event) and not job.taken:
            self._keep(job)
        elif not job.taken:
            self._timers.set(job.job_id, ("taken", 0), self._now() + _TAKEN_WITHIN_MS)
        self._timers.set(job.job_id, ("forget", 0), self._now() + _REMEMBER_MS)

    def _record_steps(self, job: Job) -> None:
        """Writes down where the time went, where there is a record that does not have it."""

        async def record() -> None:
            try:
                await self._kept.record_steps(job.job_id, job.timeline.record(moment()))
            except errors.LinguaError as error:
                _log.info("steps are not recorded: %s", error, extra={"job_id": job.job_id})

        if job.has_begun:
            self._spawn(record())

    def _keep(self, job: Job) -> None:
        """No gateway has taken the result: it goes to Redis for the session's next one."""
        if job.last is not None and job.last.HasField("delivered"):
            self._metrics.kept.inc()
            keeping = self._spawn(self._keep_result(job, job.last.delivered.result))
            self._keeping.add(keeping)
            keeping.add_done_callback(self._keeping.discard)

    def _keep_orphan(self, result: dispatcher_pb2.JobResult, node_id: str) -> None:
        """A node has a result for which nobody here answers: somebody may ask for it."""

        async def keep() -> None:
            job_id = result.attempt.job_id
            try:
                await self._kept.keep_orphan(job_id, result, node_id)
            except errors.LinguaError as error:
                _log.info("a result could not be kept: %s", error, extra={"job_id": job_id})

        self._spawn(keep())

    async def _keep_result(self, job: Job, result: dispatcher_pb2.JobResult) -> None:
        try:
            await self._kept.keep(job.job_id, result)
        except errors.LinguaError as error:
            _log.error("a result could not be kept: %s", error, extra={"job_id": job.job_id})
        else:
            self._result_is_safe(job)

    def _one_less(self) -> None:
        self._under_way -= 1
        if self._under_way == 0:
            self.idle.set()

    def _result_is_safe(self, job: Job) -> None:
        if job.taken:
            return
        job.taken = True
        self._one_less()
        self._timers.clear(job.job_id, ("taken", 0))
        if job.last is not None and job.last.HasField("delivered"):
            delivered = job.last.delivered
            self._confirm(job, delivered.node_id, delivered.result.attempt.attempt)

    def _confirm(self, job: Job, node_id: str, number: int) -> None:
        attempt = job.machine.attempts.get(number)
        self.routes.confirm(
            attempt.placement if attempt else pool_pb2.Placement(node_id=node_id), job.ref(number)
        )

    def _tell(self, job: Job, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        event.job_id = job.job_id
        event.session_id = job.spec.session_id
        event.utterance_index = job.spec.utterance_index
        if not droppable:
            job.last = event
        return job.gateway is not None and job.gateway.put(event, droppable=droppable)

    # ---- time ----

    def _on_due(self, wanted: str, key: tuple[str, int]) -> None:
        job = self._jobs.get(wanted)
        if job is None:
            return
        match key[0]:
            case "forget" if not job.taken:
                # Redis did not keep the result. As long as it is not safe, it is not forgotten.
                self._keep(job)
                self._timers.set(wanted, key, self._now() + _REMEMBER_MS)
            case "forget":
                self._forget(job)
            case "taken":
                self._keep(job)
            case _:
                self._feed(job, job.machine.on_timer(self._now(), key))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time() * 1000


def _error(problem: Problem) -> common_pb2.Error:
    return common_pb2.Error(
        reason=problem.reason,
        message=problem.message,
        retry_after_ms=problem.retry_after_ms,
        metadata=problem.metadata,
    )
