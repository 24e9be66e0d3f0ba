"""The jobs that this instance is the home of: the shell around their machines.

Everything happens on one event loop, in the order in which it arrives: an event goes into a job's
machine, and the effects that come out are carried out at once (job_actions). What an effect asks of
the outside (the pool service, a node, a gateway) is answered by another event later.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from opentelemetry.trace import SpanContext

from lingua_scheduler.services.dispatcher.home.actions import JobActions
from lingua_scheduler.services.dispatcher.home.job import Gateway, Job
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.orphans import Orphans
from lingua_scheduler.services.dispatcher.home.spans import new_timeline
from lingua_scheduler.services.dispatcher.home.waiting import WaitingRoom
from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.effects import Attempt
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import MAX_DETAIL, JobRules, Phase
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.responsible import Report
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract.job_ids import queue_name
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import span_writer_if_on
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# What follows from a rejection, by its cause; from any other one, as from a failure.
_REJECTIONS = {
    dispatcher_pb2.JobReject.CAUSE_FULL: endings.TURNED_AWAY,
    dispatcher_pb2.JobReject.CAUSE_DRAINING: endings.TURNED_AWAY,
    dispatcher_pb2.JobReject.CAUSE_BAD_JOB: endings.BAD_JOB,
}
# How often waiting jobs are tried without a sign.
_POLL_EVERY_S = 0.1
# A result that went to its client within this time was not held back by earlier ones: that is not
# worth a call.
_HELD_BACK_US = 5000
# At the end of the process: for results that still go to Redis.
_KEEP_WITHIN_S = 2.0


class Jobs(JobActions):
    """Takes jobs in, and feeds their machines with what gateways and nodes say."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: PoolClient,
        kept: KeptResults,
        metrics: DispatcherMetrics,
        waiting: WaitingRoom,
    ) -> None:
        super().__init__(settings=settings, pool=pool, kept=kept, metrics=metrics, waiting=waiting)
        self.is_draining = False
        """Set: no new job is begun; those that are known go on, and can be taken up."""
        self.orphans = Orphans(
            kept=kept, settings=settings, metrics=metrics, confirm=self._confirm_to
        )
        self._tickets = count(1)
        self._spans = span_writer_if_on()
        self._rules = JobRules(
            ack_timeout_ms=settings.ack_timeout_ms,
            job_timeout_ms=settings.job_timeout_ms,
            queue_wait_ms=settings.queue_wait_ms,
            affinity_wait_ms=settings.affinity_wait_ms,
            affinity_away_ms=settings.affinity_away_ms,
            grace_ms=settings.node_reconnect_grace_ms,
            hedge_after_ms=settings.hedge_after_ms,
            max_retry=settings.max_retry,
        )

    # ---- from gateways ----

    def submit(
        self,
        spec: dispatcher_pb2.JobSpec,
        gateway: Gateway | None,
        brought_by: SpanContext | None = None,
        *,
        key: str,
        wanted: str,
    ) -> Job:
        """Takes a job in that has this key, and this id.

        A job that is known already is taken up where it is; what it said last is said again. One
        that has failed because there was no node for it just then begins anew.

        Raises:
            SessionTakenOverError: a later epoch of the session has the job; nothing changes.
            DrainingError: it would have to begin, and this instance is draining.
        """
        known = self._jobs.get(wanted)
        earlier: Mapping[int, Attempt] = {}
        epoch = spec.session_epoch
        if known is not None:
            known.check_epoch(epoch)
            if not known.may_begin_anew(epoch):
                self._attach(known, gateway, epoch)
                return known
        if self.is_draining:
            raise errors.DrainingError("this dispatcher is draining; submit elsewhere")
        if known is not None:
            # The pool may still hear of the ends of its attempts, and nodes may speak of them.
            earlier, epoch = known.machine.attempts, max(epoch, known.epoch)
            self._forget(known)
        now = now_ms()
        deadline = now + spec.deadline_ms if spec.deadline_ms else None
        timeline = new_timeline(
            self._spans,
            wanted,
            spec,
            now=now,
            wall_us=time.time_ns() // 1000,
            earlier=known.timeline if known is not None else None,
            brought_by=brought_by,
        )
        # They are for the record, not for the node.
        spec.ClearField("steps")
        job = Job(
            job_id=wanted,
            key=key,
            spec=spec,
            machine=JobMachine(
                rules=self._rules,
                deadline_ms=deadline,
                earlier=earlier,
                held=spec.held_utterances,
            ),
            timeline=timeline,
            queue=queue_name(spec),
            ticket=next(self._tickets),
            submitted_ms=now,
            deadline_ms=deadline,
            gateway=gateway,
            epoch=epoch,
        )
        self._remember(job)
        # A job that needs what a node holds can go to that node only, and is next in line there.
        others_wait = self._waiting.must_wait(job.queue)
        is_behind = job.is_behind = others_wait and not spec.held_utterances
        self._feed(job, now, job.machine.start(now))
        if is_behind:
            self._waiting.has_come(job)
        return job

    def attach(self, wanted: str, gateway: Gateway, epoch: int = 0) -> bool:
        """Sends the events of a job to another gateway; False where the job is not known here.

        Raises:
            SessionTakenOverError: a later epoch of the session has the job; nothing changes.
        """
        job = self._jobs.get(wanted)
        if job is None:
            return False
        job.check_epoch(epoch)
        if job.spec.held_utterances:
            job.spec.ClearField("held_utterances")
            job.machine.go_alone()
            if job.may_begin_anew(epoch):
                self.submit(job.spec, gateway, key=job.key, wanted=wanted)
                return True
        self._attach(job, gateway, epoch)
        return True

    def _attach(self, job: Job, gateway: Gateway | None, epoch: int) -> None:
        job.gateway = gateway
        job.epoch = max(job.epoch, epoch)
        if job.last is not None and gateway is not None:
            gateway.put(job.last)

    def leave(self, wanted: str, gateway: Gateway) -> None:
        """The job's session has left that gateway. Of a job that another one has: nothing."""
        job = self._jobs.get(wanted)
        if job is not None and job.gateway is gateway:
            self._detach(job)

    def detach(self, gateway: Gateway) -> None:
        """A gateway is gone. Its jobs go on; results that it did not take are kept."""
        for job in self._jobs.values():
            if job.gateway is gateway:
                self._detach(job)

    def _detach(self, job: Job) -> None:
        job.gateway = None
        if job.machine.phase is Phase.OVER and not job.taken:
            self._keep(job)

    def taken(self, wanted: str, gateway: Gateway, delivered_after_us: int = 0) -> None:
        """The client has the result: nobody needs it. A gateway that lost the job is not heard."""
        job = self._jobs.get(wanted)
        if job is not None and job.gateway is gateway and job.machine.phase is Phase.OVER:
            if delivered_after_us and not job.taken:
                job.timeline.delivered(delivered_after_us)
                if delivered_after_us > _HELD_BACK_US:
                    self._record_steps(job)
            self._result_is_safe(job)

    def steps(self, job: Job) -> Sequence[common_pb2.JobStep]:
        """Where its time has gone so far."""
        return job.timeline.messages(now_ms()).steps

    def cancel(self, wanted: str, why: str, gateway: Gateway | None = None) -> bool:
        """Stops a job; False where it is not known here.

        A gateway's word counts as long as no other gateway has the job; nobody's is an operator's.
        """
        job = self._jobs.get(wanted)
        if job is not None and (gateway is None or job.gateway in (None, gateway)):
            now = now_ms()
            self._feed(job, now, job.machine.on_cancel(now, why or "cancelled"))
        return job is not None

    async def close(self) -> None:
        """Drops everything that is under way, but for results that are just being kept."""
        self._closed = True
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
            if isinstance(report, dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed):
                self.orphans.take(node_id, report)
            return
        now, machine, number = now_ms(), job.machine, report.attempt.attempt
        if number in machine.attempts and machine.attempts[number].node_id != node_id:
            # Another node's attempt is not its to speak of.
            self._metrics.orphans.inc()
            if isinstance(report, dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed):
                self._confirm_to(node_id, report.attempt)
            return
        match report:
            case dispatcher_pb2.JobAck():
                if number in job.sent_ms:
                    self._metrics.ack_seconds.observe((now - job.sent_ms[number]) / 1000)
                job.timeline.sent(now, number, report.sent_us)
                self._feed(job, now, machine.on_acked(now, number))
            case dispatcher_pb2.JobReject():
                self._metrics.rejected(report.cause)
                ending = _REJECTIONS.get(report.cause, endings.REJECTED)
                why, said = _why_rejected(report), report.detail[:MAX_DETAIL]
                self._feed(job, now, machine.on_rejected(now, number, why, ending, said))
            case dispatcher_pb2.JobPartial():
                self._feed(job, now, machine.on_partial(now, report))
            case dispatcher_pb2.JobResult():
                if not job.waits_to_be_taken(number):
                    job.timeline.result(now, number, report.timings)
                    self._feed(job, now, machine.on_result(now, report, node_id))
            case dispatcher_pb2.JobFailed():
                self._feed(job, now, machine.on_failed(now, report, node_id))

    def _confirm_to(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """Tells a node that is connected here that it may forget a report."""
        self.routes.confirm(pool_pb2.Placement(node_id=node_id), attempt)

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """An assignment did not get to its node."""
        job = self._jobs.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            job.not_sent[attempt.attempt] = node_id
            now = now_ms()
            self._feed(job, now, job.machine.on_send_failed(now, attempt.attempt, why))

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection of an attempt's node is gone."""
        job = self._jobs.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            job.cut_off.add(attempt.attempt)
            now = now_ms()
            self._feed(job, now, job.machine.on_node_lost(now, attempt.attempt))

    def on_connected(
        self, placement: pool_pb2.Placement, has: Iterable[common_pb2.AttemptRef]
    ) -> None:
        """A node is connected here: what it still has of our jobs goes on."""
        for attempt in has:
            job = self._jobs.get(attempt.job_id)
            if job is not None and job.is_on(attempt.attempt, placement.node_id):
                now = now_ms()
                self._feed(job, now, job.machine.on_node_back(now, attempt.attempt, placement))

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


def _why_rejected(reject: dispatcher_pb2.JobReject) -> str:
    causes = dispatcher_pb2.JobReject.Cause
    # A newer node may have causes that this dispatcher does not know.
    known = reject.cause in causes.values()
    return causes.Name(reject.cause).removeprefix("CAUSE_") if known else str(reject.cause)
