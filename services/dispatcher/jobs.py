"""The jobs that this instance is the home of: the shell around their machines.

Everything happens on one event loop, in the order in which it arrives: an event goes into a job's
machine, and the effects that come out are carried out at once. What an effect asks of the outside
(the pool service, a node, a gateway) is answered by another event later.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from itertools import count
from typing import Any

from lingua_scheduler.services.dispatcher import job_effects as effects
from lingua_scheduler.services.dispatcher.dispatcher_metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.job import Gateway, Job
from lingua_scheduler.services.dispatcher.job_effects import Attempt, Effect, Problem
from lingua_scheduler.services.dispatcher.job_machine import JobMachine, JobRules, Phase
from lingua_scheduler.services.dispatcher.job_rules import MAX_DETAIL
from lingua_scheduler.services.dispatcher.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.pool_client import PoolClient
from lingua_scheduler.services.dispatcher.responsible import Report
from lingua_scheduler.services.dispatcher.routes import Routes
from lingua_scheduler.services.dispatcher.waiting import WaitingRoom
from lingua_scheduler.services.dispatcher.waiting_rounds import WaitingRounds
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.job_ids import job_id, job_key, queue_name
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How long a job that is over stays known, to confirm and drop what still comes for it.
_REMEMBER_MS = 10_000.0
# A gateway that does not say in this time that it took a result is as good as gone: the result is
# kept in Redis, and the node may forget it.
_TAKEN_WITHIN_MS = 5_000.0
# How often a lost node's new place is asked for, and waiting jobs are tried without a sign.
_LOCATE_EVERY_S = 0.2
_POLL_EVERY_S = 0.1
# At the end of the process: for results that still go to Redis.
_KEEP_WITHIN_S = 2.0


class Jobs:
    """Takes jobs in, feeds their machines, and carries out what these ask for."""

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
        self._tickets = count(1)
        self._under_way = 0
        self.idle = asyncio.Event()
        """Set while no job is under way, and no result waits to be taken."""
        self.idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Task[None]] = set()
        self._timers = Timers(on_due=self._on_due, clock=self._now)
        self.routes: Routes  # set by whoever puts the dispatcher together
        self._rules = JobRules(
            ack_timeout_ms=settings.ack_timeout_ms,
            job_timeout_ms=settings.job_timeout_ms,
            queue_wait_ms=settings.queue_wait_ms,
            affinity_wait_ms=settings.affinity_wait_ms,
            grace_ms=settings.node_reconnect_grace_ms,
            hedge_after_ms=settings.hedge_after_ms,
            max_retry=settings.max_retry,
        )

    # ---- from gateways ----

    def submit(self, spec: dispatcher_pb2.JobSpec, gateway: Gateway | None) -> Job:
        """Takes a job in. A job that is known already is taken up where it is."""
        key = job_key(spec)
        known = self._jobs.get(job_id(key))
        if known is not None:
            self._attach(known, gateway)
            return known
        now = self._now()
        deadline = now + spec.deadline_ms if spec.deadline_ms else None
        job = Job(
            job_id=job_id(key),
            key=key,
            spec=spec,
            machine=JobMachine(rules=self._rules, deadline_ms=deadline),
            queue=queue_name(spec),
            ticket=next(self._tickets),
            submitted_ms=now,
            deadline_ms=deadline,
            gateway=gateway,
        )
        self._jobs[job.job_id] = job
        self._under_way += 1
        self.idle.clear()
        self._metrics.jobs.set(len(self._jobs))
        job.is_behind = self._waiting.must_wait(job.queue)
        self._feed(job, job.machine.start(now))
        self._waiting.has_come(job)
        return job

    def attach(self, wanted: str, gateway: Gateway) -> bool:
        """Sends the events of a job to another gateway; False where the job is not known here."""
        job = self._jobs.get(wanted)
        if job is not None:
            self._attach(job, gateway)
        return job is not None

    def _attach(self, job: Job, gateway: Gateway | None) -> None:
        job.gateway = gateway
        if job.last is not None and gateway is not None:
            gateway.put(job.last)

    def detach(self, gateway: Gateway) -> None:
        """A gateway is gone. Its jobs go on; results that it did not take are kept."""
        for job in self._jobs.values():
            if job.gateway is gateway:
                job.gateway = None
                if job.machine.phase is Phase.OVER and not job.taken:
                    self._keep(job)

    def taken(self, wanted: str) -> None:
        """The gateway has the result: nobody needs it any more."""
        job = self._jobs.get(wanted)
        if job is not None and job.machine.phase is Phase.OVER:
            self._result_is_safe(job)

    def cancel(self, wanted: str, why: str) -> bool:
        """Stops a job; False where it is not known here."""
        job = self._jobs.get(wanted)
        if job is not None:
            self._feed(job, job.machine.on_cancel(self._now(), why or "cancelled"))
        return job is not None

    def get(self, wanted: str) -> Job | None:
        """A job that this instance is the home of."""
        return self._jobs.get(wanted)

    async def close(self) -> None:
        """Drops everything that is under way, but for results that are just being kept."""
        self._timers.close()
        if self._keeping:
            await asyncio.wait(self._keeping, timeout=_KEEP_WITHIN_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- from nodes ----

    def on_report(self, node_id: str, report: Report) -> None:
        """A node has said something of an attempt."""
        job = self._jobs.get(report.attempt.job_id)
        if job is None:
            self._metrics.orphans.inc()
            return
        now, machine, number = self._now(), job.machine, report.attempt.attempt
        if number in machine.attempts and not job.is_on(number, node_id):
            self._metrics.orphans.inc()
            return  # another node's attempt is not its to speak of
        match report:
            case dispatcher_pb2.JobAck():
                self._measure_ack(job, number, now)
                self._feed(job, machine.on_acked(now, number))
            case dispatcher_pb2.JobReject():
                self._metrics.rejects.inc()
                self._feed(job, machine.on_rejected(now, number, _why_rejected(report)))
            case dispatcher_pb2.JobPartial():
                self._feed(job, machine.on_partial(now, report))
            case dispatcher_pb2.JobResult():
                if not job.waits_to_be_taken(number):
                    self._feed(job, machine.on_result(now, report, node_id))
            case dispatcher_pb2.JobFailed():
                self._feed(job, machine.on_failed(now, report, node_id))

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """An assignment did not get to its node."""
        job = self._jobs.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            job.not_sent[attempt.attempt] = node_id
            self._feed(job, job.machine.on_send_failed(self._now(), attempt.attempt, why))

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection of an attempt's node is gone."""
        job = self._jobs.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            self._feed(job, job.machine.on_node_lost(self._now(), attempt.attempt))

    def on_connected(
        self, placement: pool_pb2.Placement, has: Iterable[common_pb2.AttemptRef]
    ) -> None:
        """A node is connected here: what it still has of our jobs goes on."""
        for attempt in has:
            job = self._jobs.get(attempt.job_id)
            if job is not None and job.is_on(attempt.attempt, placement.node_id):
                now = self._now()
                self._feed(job, job.machine.on_node_back(now, attempt.attempt, placement))

    def unwanted(self, has: Iterable[common_pb2.AttemptRef]) -> list[common_pb2.AttemptRef]:
        """Of what a node says it has: attempts of our jobs that it should drop."""
        dropped = []
        for attempt in has:
            job = self._jobs.get(attempt.job_id)
            if job is not None and job.is_unwanted(attempt.attempt):
                dropped.append(attempt)
        return dropped

    def on_room(self, serves: frozenset[str]) -> None:
        """A slot may be free on a node that is in these pools: the first who waits is tried."""
        self._waiting.room_for(serves)

    async def run(self) -> None:
        """Tries waiting jobs now and then, without a sign."""
        while True:
            await asyncio.sleep(_POLL_EVERY_S)
            self._waiting.poll()

    def _ask_again(self, job: Job) -> None:
        self._feed(job, job.machine.on_room(self._now()))

    # ---- effects ----

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
                accepted = dispatcher_pb2.JobAccepted(
                    node_id=effect.attempt.node_id, attempt=effect.attempt.number
                )
                self._tell(job, dispatcher_pb2.JobEvent(accepted=accepted))
            case effects.Retrying():
                self._metrics.retries.labels(errors.reason_name(effect.why.reason)).inc()
                retrying = dispatcher_pb2.JobRetrying(attempt=effect.number, why=_error(effect.why))
                self._tell(job, dispatcher_pb2.JobEvent(retrying=retrying))
            case effects.PassPartial():
                event = dispatcher_pb2.JobEvent(partial=effect.partial)
                self._tell(job, event, droppable=True)
            case effects.Deliver():
                self._deliver(job, effect)
            case effects.Fail():
                self._metrics.finished(errors.reason_name(effect.why.reason).lower())
                self._over(job, dispatcher_pb2.JobEvent(failed=_error(effect.why)))

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
            session_epoch=spec.session_epoch,
            reason=spec.reason,
            wait_for_bound_node=effect.wait_for_bound_node,
            home_instance=settings.instance_id,
        )
        try:
            answer = await self._pool.allocate(request)
        except errors.LinguaError as error:
            job.is_asking = False
            problem = Problem(error.reason, error.message, error.retry_after_ms)
            job.is_particular = bool(
                effect.exclude
                or spec.strict
                or spec.required_stages
                or error.reason == common_pb2.ERROR_REASON_BOUND_NODE_FULL
            )
            self._feed(job, job.machine.on_refused(self._now(), problem))
            self._waiting.has_answer(job)
            return
        job.is_asking = False
        self._metrics.placed(answer.placement, settings.instance_id)
        self._waiting.leave(job)
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
        )
        job.sent_ms[attempt.number] = now
        self._metrics.dispatch_seconds.observe((now - job.submitted_ms) / 1000)
        self.routes.assign(attempt.placement, assign)

    async def _commit(self, job: Job, attempt: Attempt) -> None:
        request = pool_pb2.CommitRequest(attempt=job.ref(attempt.number), node_id=attempt.node_id)
        answer = await self._pool.persist("commit", request, self._settings.reservation_ttl_ms)
        if answer is not None:
            outcome = answer.outcome
            self._feed(job, job.machine.on_committed(self._now(), attempt.number, outcome))

    def _release(self, job: Job, effect: effects.Release) -> None:
        if effect.cause == pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT:
            self._metrics.ack_timeouts.inc()
        request = pool_pb2.ReleaseRequest(
            attempt=job.ref(effect.attempt.number),
            node_id=effect.attempt.node_id,
            cause=effect.cause,
            final_state=effect.final,
        )
        given_back = self._pool.persist("release", request, self._settings.reservation_ttl_ms)
        given_back.add_done_callback(lambda _: self._slot_is_free(job, effect.attempt))

    def _complete(self, job: Job, effect: effects.Complete) -> None:
        request = pool_pb2.CompleteRequest(
            attempt=job.ref(effect.attempt.number),
            node_id=effect.attempt.node_id,
            outcome=effect.outcome,
            detail=effect.detail,
            final_state=effect.final,
        )
        freed = self._pool.persist("complete", request, self._settings.running_lease_ms)
        freed.add_done_callback(lambda _: self._slot_is_free(job, effect.attempt))

    def _slot_is_free(self, job: Job, attempt: Attempt) -> None:
        """The pool has said so: only now do those that wait find room."""
        self._waiting.room_for(self.routes.serves(attempt.node_id) | {job.queue})

    async def _locate(self, job: Job, attempt: Attempt) -> None:
        """Looks for the node's new connection for as long as the job hopes for it."""
        request = pool_pb2.GetNodeRequest(node_id=attempt.node_id)
        while job.machine.phase is Phase.LOST:
            await asyncio.sleep(_LOCATE_EVERY_S)
            try:
                node = (await self._pool.get_node(request)).node
            except errors.LinguaError:
                continue
            lives = node.health != common_pb2.NODE_HEALTH_OFFLINE
            # The pool knows of a connection a little before its owner does, so that one may have
            # been asked too early.
            too_early = job.not_sent.pop(attempt.number, None) is not None
            if lives and (too_early or node.epoch != attempt.placement.node_epoch):
                placement = pool_pb2.Placement(
                    node_id=node.node_id,
                    node_epoch=node.epoch,
                    owner_instance=node.owner_instance,
                    owner_address=node.owner_address,
                )
                back = job.machine.on_node_back(self._now(), attempt.number, placement)
                self._feed(job, back)

    def _wait(self, job: Job) -> None:
        self._metrics.waits.inc()
        if not self._waiting.wait(job):
            # Too many wait already: for this one the wait is over.
            timeout = ("wait", 0)
            asyncio.get_running_loop().call_soon(self._on_due, job.job_id, timeout)

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
        self._over(job, dispatcher_pb2.JobEvent(delivered=delivered))

    def _over(self, job: Job, event: dispatcher_pb2.JobEvent) -> None:
        """The job is over: the gateway is told, or what it should hear is kept for the next."""
        self._waiting.leave(job)
        job.spec.ClearField("audio")
        if event.HasField("failed"):
            job.taken = True
            self._one_less()
        if not self._tell(job, event) and not job.taken:
            self._keep(job)
        elif not job.taken:
            self._timers.set(job.job_id, ("taken", 0), self._now() + _TAKEN_WITHIN_MS)
        self._timers.set(job.job_id, ("forget", 0), self._now() + _REMEMBER_MS)

    def _keep(self, job: Job) -> None:
        """No gateway has taken the result: it goes to Redis for the session's next one."""
        if job.last is not None and job.last.HasField("delivered"):
            self._metrics.kept.inc()
            keeping = self._spawn(self._keep_result(job, job.last.delivered.result))
            self._keeping.add(keeping)
            keeping.add_done_callback(self._keeping.discard)

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
                del self._jobs[wanted]
                self._timers.clear_all(wanted)
                self._metrics.jobs.set(len(self._jobs))
            case "taken":
                self._keep(job)
            case _:
                self._feed(job, job.machine.on_timer(self._now(), key))

    def _measure_ack(self, job: Job, number: int, now: float) -> None:
        sent = job.sent_ms.get(number)
        if sent is not None:
            self._metrics.ack_seconds.observe((now - sent) / 1000)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time() * 1000


def _why_rejected(reject: dispatcher_pb2.JobReject) -> str:
    causes = dispatcher_pb2.JobReject.Cause
    # A newer node may have causes that this dispatcher does not know.
    known = reject.cause in causes.values()
    cause = causes.Name(reject.cause).removeprefix("CAUSE_") if known else str(reject.cause)
    return f"{cause}: {reject.detail[:MAX_DETAIL]}" if reject.detail else cause


def _error(problem: Problem) -> common_pb2.Error:
    return common_pb2.Error(
        reason=problem.reason, message=problem.message, retry_after_ms=problem.retry_after_ms
    )
