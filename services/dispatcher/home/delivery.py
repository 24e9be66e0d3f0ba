"""Events for gateways, and what happens to a job after its end: kept, confirmed, forgotten."""

import asyncio
import logging

from lingua_scheduler.services.dispatcher.home.job import Gateway, Job, JobRegistry
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.job import effects
from lingua_scheduler.services.dispatcher.job.effects import FailureCause
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.routes import Routes
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.services.runtime.timers import Timers, now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How long a settled job stays known, to confirm and drop late reports about it.
_REMEMBER_MS = 10_000.0
# If a gateway does not take a result within this time, it counts as gone: the result is kept in
# Redis, and the node may forget it.
_TAKEN_WITHIN_MS = 5_000.0
# Times of reviews are rounded down to a multiple of this, so that many jobs share one alarm.
_REVIEW_STEP_MS = 250.0
# A result that reached its client within this time was not held back by earlier ones: its timeline
# is not worth another write.
_HELD_BACK_US = 5000
# When the process ends: time for results that are being written to Redis.
_KEEP_WITHIN_S = 2.0


class Delivery:
    """Tells gateways about their jobs, and makes sure that no result is lost.

    Args:
        timers: one for each job. While a job is under way it wakes the machine; after the job's end
            it calls for a `review`.
    """

    def __init__(
        self,
        *,
        registry: JobRegistry,
        kept: KeptResults,
        records: JobRecords,
        metrics: DispatcherMetrics,
        routes: Routes,
        timers: Timers[str, None],
    ) -> None:
        # Getting the running loop is a system call each time.
        self._loop = asyncio.get_running_loop()
        self._registry = registry
        self._kept = kept
        self._records = records
        self._metrics = metrics
        self._routes = routes
        self._timers = timers
        self._writing_steps = BackgroundTasks()
        self._keeping = BackgroundTasks()

    async def close(self) -> None:
        """Waits a short time for results that are being kept, and drops everything else."""
        await self._keeping.finish(_KEEP_WITHIN_S)
        await self._keeping.cancel()
        await self._writing_steps.cancel()

    # ---- events of a job that is under way ----

    def accepted(self, job: Job, effect: effects.Accepted, now: float) -> None:
        """A node runs the job."""
        job.timeline.acked(now, effect.attempt.number)
        job.begun = effect.attempt
        self._loop.call_soon(self._tell_begun, job)

    def _tell_begun(self, job: Job) -> None:
        """Says that a node runs the job, if that is not known yet and still worth saying."""
        if job.begun is not None:
            event = dispatcher_pb2.JobEvent()
            event.accepted.node_id = job.begun.node_id
            event.accepted.attempt = job.begun.number
            job.begun = None
            self._tell(job, event)

    def retrying(self, job: Job, effect: effects.Retrying, _: float) -> None:
        """An attempt ended without a result, and another one follows."""
        self._metrics.retried(effect.why.reason)
        retrying = dispatcher_pb2.JobRetrying(attempt=effect.number, why=_error(effect.why))
        self._tell(job, dispatcher_pb2.JobEvent(retrying=retrying))

    def partial(self, job: Job, effect: effects.PassPartial, _: float) -> None:
        """A node has sent a partial result."""
        self._tell(job, dispatcher_pb2.JobEvent(partial=effect.partial), droppable=True)

    def _tell(self, job: Job, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        if job.machine.phase is Phase.OVER:
            job.begun = None
        elif job.begun is not None:
            self._tell_begun(job)
        event.job_id = job.job_id
        event.session_id = job.session_id
        event.utterance_index = job.utterance_index
        if not droppable:
            job.last = event
        return job.gateway is not None and job.gateway.put(event, droppable=droppable)

    # ---- the end ----

    def deliver(self, job: Job, effect: effects.Deliver, now: float) -> None:
        """Sends the result."""
        self._metrics.done((now - job.submitted_ms) / 1000)
        event = dispatcher_pb2.JobEvent()
        delivered = event.delivered
        delivered.result.CopyFrom(effect.result)
        delivered.node_id = effect.attempt.node_id
        delivered.attempts = len(job.machine.attempts)
        if job.has_left_its_turn:
            delivered.turn_broken = True
            self._metrics.turns_broken.inc()
        job.timeline.won(effect.result, turn_broken=delivered.turn_broken)
        job.timeline.over(now)
        self._end(job, event, now)

    def fail(self, job: Job, effect: effects.Fail, now: float) -> None:
        """Says why there is no result."""
        reason = errors.reason_name(effect.why.reason)
        self._metrics.failed(reason.lower())
        job.timeline.over(now, reason)
        self._end(job, dispatcher_pb2.JobEvent(failed=_error(effect.why)), now)
        self._records.ended(job)

    def _end(self, job: Job, event: dispatcher_pb2.JobEvent, now: float) -> None:
        # A copy: a message does not free the memory of a field that is cleared.
        job.spec.ClearField("audio")
        spec, job.spec = job.spec, dispatcher_pb2.JobSpec()
        job.spec.CopyFrom(spec)
        if event.HasField("failed"):
            self._registry.settle(job)
        if not self._tell(job, event) and not job.is_settled:
            self._keep(job)
        self._review_later(job, now)

    # ---- gateways come and go ----

    def attach(self, job: Job, gateway: Gateway | None, epoch: int) -> None:
        """Sends the job's events to this gateway from now on, beginning with the last one."""
        job.gateway = gateway
        job.epoch = max(job.epoch, epoch)
        if job.last is not None and gateway is not None:
            gateway.put(job.last)

    def detach(self, job: Job) -> None:
        """Keeps the result, if there is one: the job's gateway is gone, or its session has left."""
        job.gateway = None
        if job.machine.phase is Phase.OVER and not job.is_settled:
            self._keep(job)

    def taken(self, job: Job, delivered_after_us: int) -> None:
        """The client has the result of a job that is over; nobody needs it any more."""
        if delivered_after_us and not job.is_settled:
            job.timeline.delivered(delivered_after_us)
            if delivered_after_us > _HELD_BACK_US:
                self._writing_steps.spawn(self._record_steps(job))
        self._settle(job)

    async def _record_steps(self, job: Job) -> None:
        """Writes the timeline again, now that the result has reached its client."""
        try:
            await self._kept.record_steps(job.job_id, job.timeline.record(now_ms()))
        except errors.LinguaError as error:
            facts = {"job_id": job.job_id, "reason": str(error)}
            _log.info("job timeline not recorded", extra=facts)

    def _keep(self, job: Job) -> None:
        """Writes a result that no gateway has taken to Redis, for the session's next gateway."""
        if job.last is not None and job.last.HasField("delivered"):
            self._metrics.kept.inc()
            self._keeping.spawn(self._keep_result(job, job.last.delivered.result))

    async def _keep_result(self, job: Job, result: dispatcher_pb2.JobResult) -> None:
        try:
            await self._kept.keep(job.job_id, result)
        except errors.LinguaError as error:
            _log.error("result not kept", extra={"job_id": job.job_id, "reason": str(error)})
        else:
            self._settle(job)

    def _settle(self, job: Job) -> None:
        """The result is safe: its node may forget it, and so may this instance after a while."""
        if job.is_settled:
            return
        self._registry.settle(job)
        self._review_later(job, now_ms())
        if job.last is not None and job.last.HasField("delivered"):
            delivered = job.last.delivered
            self.confirm(job, delivered.node_id, delivered.result.attempt.attempt)

    def confirm(self, job: Job, node_id: str, number: int) -> None:
        """Tells a node that it may forget its report about an attempt."""
        attempt = job.machine.attempts.get(number)
        placement = attempt.placement if attempt else pool_pb2.Placement(node_id=node_id)
        self._routes.confirm(placement, job.ref(number))

    # ---- after the end ----

    def _review_later(self, job: Job, now: float) -> None:
        within_ms = _REMEMBER_MS if job.is_settled else _TAKEN_WITHIN_MS
        self._timers.set(job.job_id, None, now - now % _REVIEW_STEP_MS + within_ms)

    def review(self, job: Job) -> None:
        """Forgets a job that is over, unless its result is not safe yet."""
        if job.is_settled:
            self._records.forgotten(job)
            self.forget(job)
        else:
            self._keep(job)
            self._review_later(job, now_ms())

    def forget(self, job: Job) -> None:
        """Forgets a job."""
        self._registry.remove(job)
        self._timers.clear(job.job_id, None)


def _error(cause: FailureCause) -> common_pb2.Error:
    return common_pb2.Error(
        reason=cause.reason,
        message=cause.message,
        retry_after_ms=cause.retry_after_ms,
        metadata=cause.metadata,
    )
