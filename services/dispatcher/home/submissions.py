"""What gateways, and callers of the API, want of jobs: submit, attach, take the result, cancel."""

import time
from collections.abc import Mapping
from itertools import count

from opentelemetry.trace import SpanContext

from lingua_scheduler.services.dispatcher.home.executor import Executor
from lingua_scheduler.services.dispatcher.home.job import Gateway, Job, JobRegistry
from lingua_scheduler.services.dispatcher.home.spans import new_timeline
from lingua_scheduler.services.dispatcher.job.effects import Attempt
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import JobRules, Phase
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract.job_ids import queue_name
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import span_writer_if_on
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import dispatcher_pb2


class Submissions:
    """Begins jobs, and connects them to the gateways that wait for them."""

    def __init__(self, *, settings: Settings, registry: JobRegistry, executor: Executor) -> None:
        self._registry = registry
        self._executor = executor
        self._delivery = executor.delivery
        self.is_draining = False
        """Set: no new job begins. Known jobs go on, and gateways may attach to them."""
        self._tickets = count(1)
        self._spans = span_writer_if_on()
        self._rules = JobRules(
            ack_timeout_ms=settings.ack_timeout_ms,
            job_timeout_ms=settings.job_timeout_ms,
            queue_wait_ms=settings.queue_wait_ms,
            other_nodes_wait_ms=settings.other_nodes_wait_ms,
            affinity_wait_ms=settings.affinity_wait_ms,
            affinity_away_ms=settings.affinity_away_ms,
            grace_ms=settings.node_reconnect_grace_ms,
            hedge_after_ms=settings.hedge_after_ms,
            max_retry=settings.max_retry,
        )

    def submit(
        self,
        spec: dispatcher_pb2.JobSpec,
        gateway: Gateway | None,
        brought_by: SpanContext | None = None,
        *,
        key: str,
        job_id: str,
    ) -> Job:
        """Accepts a job that has this key and this id.

        If the job is known already, the gateway is attached to it, and gets its last event again.
        If it failed only because no node was available at the time, it begins anew.

        Raises:
            SessionTakenOverError: a later epoch of the session has the job; nothing changes.
            DrainingError: the job would have to begin, and this instance is draining.
        """
        known = self._registry.get(job_id)
        earlier: Mapping[int, Attempt] = {}
        epoch = spec.session_epoch
        if known is not None:
            known.check_epoch(epoch)
            if not known.may_begin_anew(epoch):
                self._delivery.attach(known, gateway, epoch)
                return known
        if self.is_draining:
            raise errors.DrainingError("this dispatcher is draining; submit elsewhere")
        if known is not None:
            # The ends of its attempts may still be on their way to the pool, and nodes may still
            # report about them.
            earlier, epoch = known.machine.attempts, max(epoch, known.epoch)
            self._delivery.forget(known)
        now = now_ms()
        deadline = now + spec.deadline_ms if spec.deadline_ms else None
        timeline = new_timeline(
            self._spans,
            job_id,
            spec,
            now=now,
            wall_us=time.time_ns() // 1000,
            earlier=known.timeline if known is not None else None,
            brought_by=brought_by,
        )
        # They are for the record, not for the node.
        spec.ClearField("steps")
        job = Job(
            job_id=job_id,
            key=key,
            spec=spec,
            machine=JobMachine(
                rules=self._rules,
                deadline_ms=deadline,
                earlier=earlier,
                held=spec.held_utterances,
                is_strict=spec.strict,
            ),
            timeline=timeline,
            queue=queue_name(spec),
            ticket=next(self._tickets),
            submitted_ms=now,
            deadline_ms=deadline,
            gateway=gateway,
            epoch=epoch,
        )
        self._registry.add(job)
        is_behind = job.is_behind = self._executor.leases.is_behind(job)
        self._executor.feed(job, now, job.machine.start(now))
        if is_behind:
            self._executor.leases.has_come(job)
        return job

    def attach(self, job_id: str, gateway: Gateway, epoch: int = 0) -> bool:
        """Sends the events of a job to another gateway; False: the job is not known here.

        Raises:
            SessionTakenOverError: a later epoch of the session has the job; nothing changes.
        """
        job = self._registry.get(job_id)
        if job is None:
            return False
        job.check_epoch(epoch)
        if job.spec.held_utterances:
            # This gateway does not have the audio that a node holds for the job.
            job.spec.ClearField("held_utterances")
            job.machine.drop_held_audio()
            if job.may_begin_anew(epoch):
                self.submit(job.spec, gateway, key=job.key, job_id=job_id)
                return True
        self._delivery.attach(job, gateway, epoch)
        return True

    def leave(self, job_id: str, gateway: Gateway) -> None:
        """The job's session has left this gateway. Ignored if another gateway has the job."""
        job = self._registry.get(job_id)
        if job is not None and job.gateway is gateway:
            self._delivery.detach(job)

    def detach(self, gateway: Gateway) -> None:
        """A gateway is gone. Its jobs go on; results that it did not take are kept."""
        for job in self._registry:
            if job.gateway is gateway:
                self._delivery.detach(job)

    def taken(self, job_id: str, gateway: Gateway, delivered_after_us: int = 0) -> None:
        """The client has the result. Ignored if another gateway has the job."""
        job = self._registry.get(job_id)
        if job is not None and job.gateway is gateway and job.machine.phase is Phase.OVER:
            self._delivery.taken(job, delivered_after_us)

    def cancel(self, job_id: str, why: str, gateway: Gateway | None = None) -> bool:
        """Cancels a job; False: it is not known here.

        A gateway's request is ignored if another gateway has the job. None stands for an operator.
        """
        job = self._registry.get(job_id)
        if job is not None and (gateway is None or job.gateway in (None, gateway)):
            now = now_ms()
            self._executor.feed(job, now, job.machine.on_cancel(now, why or "cancelled"))
        return job is not None
