"""What becomes of a job: who is told, what is kept for whom, and when it is forgotten."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from lingua_scheduler.services.dispatcher.home.job import Job
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.job import effects
from lingua_scheduler.services.dispatcher.job.effects import FailureCause
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.routes import Routes
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.timers import Timers, now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How long a job whose result is safe stays known, to confirm and drop what still comes for it.
_REMEMBER_MS = 10_000.0
# A gateway that does not say in this time that it took a result is as good as gone: the result is
# kept in Redis, and the node may forget it.
_TAKEN_WITHIN_MS = 5_000.0
# Jobs are looked after in steps of this: many have one alarm then.
_STEP_MS = 250.0


class JobOutcomes:
    """The jobs of this instance, and the way of their events to gateways."""

    def __init__(
        self,
        *,
        kept: KeptResults,
        records: JobRecords,
        metrics: DispatcherMetrics,
        timers: Timers[str, None],
    ) -> None:
        # To ask for it is a system call each time.
        self._loop = asyncio.get_running_loop()
        self._kept = kept
        self._records = records
        self._metrics = metrics
        # One for each job: when its machine is to be woken, and after the end, to forget it.
        self._timers = timers
        self._jobs: dict[str, Job] = {}
        metrics.jobs.set_function(lambda: len(self._jobs))
        self._under_way = 0
        self.idle = asyncio.Event()
        """Set while no job is under way, and no result waits to be taken."""
        self.idle.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeping: set[asyncio.Task[None]] = set()
        self.routes: Routes  # set by whoever puts the dispatcher together

    def get(self, wanted: str) -> Job | None:
        """A job that this instance is the home of."""
        return self._jobs.get(wanted)

    def _remember(self, job: Job) -> None:
        self._jobs[job.job_id] = job
        self._under_way += 1
        self.idle.clear()

    def _forget(self, job: Job) -> None:
        del self._jobs[job.job_id]
        self._timers.clear(job.job_id, None)

    def _forget_if_safe(self, job: Job) -> None:
        if job.taken:
            self._records.forgotten(job)
            self._forget(job)
        else:
            # As long as the result is not safe, it is not forgotten.
            self._keep(job)
            self._look_after(job, now_ms())

    def _look_after(self, job: Job, now: float) -> None:
        """Has a job that is over looked at again: to be forgotten, or first to be made safe."""
        within_ms = _REMEMBER_MS if job.taken else _TAKEN_WITHIN_MS
        self._timers.set(job.job_id, None, now - now % _STEP_MS + within_ms)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- events for the gateway ----

    def _tell_accepted(self, job: Job, effect: effects.Accepted, now: float) -> None:
        job.timeline.acked(now, effect.attempt.number)
        job.begun = effect.attempt
        self._loop.call_soon(self._tell_begun, job)

    def _tell_begun(self, job: Job) -> None:
        """Tells that a node runs the job, if that has not been said, and is still worth saying."""
        if job.begun is not None:
            event = dispatcher_pb2.JobEvent()
            event.accepted.node_id = job.begun.node_id
            event.accepted.attempt = job.begun.number
            job.begun = None
            self._tell(job, event)

    def _tell_retrying(self, job: Job, effect: effects.Retrying, _: float) -> None:
        self._metrics.retried(effect.why.reason)
        retrying = dispatcher_pb2.JobRetrying(attempt=effect.number, why=_error(effect.why))
        self._tell(job, dispatcher_pb2.JobEvent(retrying=retrying))

    def _pass_partial(self, job: Job, effect: effects.PassPartial, _: float) -> None:
        self._tell(job, dispatcher_pb2.JobEvent(partial=effect.partial), droppable=True)

    def _tell(self, job: Job, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        if job.machine.phase is Phase.OVER:
            job.begun = None
        else:
            self._tell_begun(job)
        event.job_id = job.job_id
        event.session_id = job.session_id
        event.utterance_index = job.utterance_index
        if not droppable:
            job.last = event
        return job.gateway is not None and job.gateway.put(event, droppable=droppable)

    # ---- the end ----

    def _deliver(self, job: Job, effect: effects.Deliver, now: float) -> None:
        self._metrics.done((now - job.submitted_ms) / 1000)
        event = dispatcher_pb2.JobEvent()
        delivered = event.delivered
        delivered.result.CopyFrom(effect.result)
        delivered.node_id = effect.attempt.node_id
        delivered.attempts = len(job.machine.attempts)
        if job.has_left_its_turn:
            delivered.turn_broken = True
            self._metrics.turns_broken.inc()
        job.timeline.over(now)
        self._over(job, event, now)

    def _fail(self, job: Job, effect: effects.Fail, now: float) -> None:
        reason = errors.reason_name(effect.why.reason)
        self._metrics.failed(reason.lower())
        job.timeline.over(now, reason)
        self._over(job, dispatcher_pb2.JobEvent(failed=_error(effect.why)), now)
        self._records.ended(job)

    def _over(self, job: Job, event: dispatcher_pb2.JobEvent, now: float) -> None:
        """The job is over: the gateway is told, or what it should hear is kept for the next."""
        # A copy: of a field that is cleared, the message keeps the memory.
        job.spec.ClearField("audio")
        spec, job.spec = job.spec, dispatcher_pb2.JobSpec()
        job.spec.CopyFrom(spec)
        if event.HasField("failed"):
            job.taken = True
            self._one_less()
        if not self._tell(job, event) and not job.taken:
            self._keep(job)
        self._look_after(job, now)

    def _record_steps(self, job: Job) -> None:
        """Writes down where the time went, once more: the result has reached its client."""

        async def record() -> None:
            try:
                await self._kept.record_steps(job.job_id, job.timeline.record(now_ms()))
            except errors.LinguaError as error:
                _log.info("steps are not recorded: %s", error, extra={"job_id": job.job_id})

        self._spawn(record())

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
        self._look_after(job, now_ms())
        if job.last is not None and job.last.HasField("delivered"):
            delivered = job.last.delivered
            self._confirm(job, delivered.node_id, delivered.result.attempt.attempt)

    def _confirm(self, job: Job, node_id: str, number: int) -> None:
        attempt = job.machine.attempts.get(number)
        self.routes.confirm(
            attempt.placement if attempt else pool_pb2.Placement(node_id=node_id), job.ref(number)
        )


def _error(problem: FailureCause) -> common_pb2.Error:
    return common_pb2.Error(
        reason=problem.reason,
        message=problem.message,
        retry_after_ms=problem.retry_after_ms,
        metadata=problem.metadata,
    )
