"""What nodes report about attempts, turned into events of their jobs' machines."""

from collections.abc import Callable, Iterable

from lingua_scheduler.services.dispatcher.home.job import Feed, JobRegistry
from lingua_scheduler.services.dispatcher.home.orphans import Orphans
from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.model import MAX_DETAIL
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.stream import Report
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# How an attempt ends that was rejected for this cause; for any other one, as REJECTED.
_REJECTIONS = {
    dispatcher_pb2.JobReject.CAUSE_FULL: endings.TURNED_AWAY,
    dispatcher_pb2.JobReject.CAUSE_DRAINING: endings.TURNED_AWAY,
    dispatcher_pb2.JobReject.CAUSE_BAD_JOB: endings.BAD_JOB,
}


class NodeReports:
    """Takes the reports of nodes, connected here or behind a relay.

    Args:
        feed: carries out the effects of an event.
        orphans: takes the reports about attempts that have no job here.
        confirm: tells a node that is connected here that it may forget a report.
    """

    def __init__(
        self,
        *,
        registry: JobRegistry,
        feed: Feed,
        orphans: Orphans,
        confirm: Callable[[str, common_pb2.AttemptRef], None],
        metrics: DispatcherMetrics,
    ) -> None:
        self._registry = registry
        self._feed = feed
        self._orphans = orphans
        self._confirm = confirm
        self._metrics = metrics

    def on_report(self, node_id: str, report: Report) -> None:
        """A node has reported something about an attempt."""
        job = self._registry.get(report.attempt.job_id)
        if job is None:
            self._metrics.orphans.inc()
            if isinstance(report, dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed):
                self._orphans.take(node_id, report)
            return
        now, machine, number = now_ms(), job.machine, report.attempt.attempt
        if number in machine.attempts and machine.attempts[number].node_id != node_id:
            # A node may not report about another node's attempt.
            self._metrics.orphans.inc()
            if isinstance(report, dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed):
                self._confirm(node_id, report.attempt)
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
                why, said = _cause_name(report), report.detail[:MAX_DETAIL]
                self._feed(job, now, machine.on_rejected(now, number, why, ending, said))
            case dispatcher_pb2.JobPartial():
                self._feed(job, now, machine.on_partial(now, report))
            case dispatcher_pb2.JobResult():
                if not job.waits_to_be_taken(number):
                    job.timeline.result(now, number, report.timings)
                    self._feed(job, now, machine.on_result(now, report, node_id))
            case dispatcher_pb2.JobFailed():
                self._feed(job, now, machine.on_failed(now, report, node_id))

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """An assignment did not reach its node."""
        job = self._registry.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            job.not_sent[attempt.attempt] = node_id
            now = now_ms()
            self._feed(job, now, job.machine.on_send_failed(now, attempt.attempt, why))

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection to an attempt's node was lost."""
        job = self._registry.get(attempt.job_id)
        if job is not None and job.is_on(attempt.attempt, node_id):
            job.cut_off.add(attempt.attempt)
            now = now_ms()
            self._feed(job, now, job.machine.on_node_lost(now, attempt.attempt))

    def on_connected(
        self, placement: pool_pb2.Placement, has: Iterable[common_pb2.AttemptRef]
    ) -> None:
        """A node has connected here: its attempts of our jobs go on."""
        for attempt in has:
            job = self._registry.get(attempt.job_id)
            if job is not None and job.is_on(attempt.attempt, placement.node_id):
                now = now_ms()
                todo = job.machine.on_node_back(now, attempt.attempt, placement)
                self._feed(job, now, todo)

    def unwanted(self, has: Iterable[common_pb2.AttemptRef]) -> list[common_pb2.AttemptRef]:
        """The attempts of our jobs, among those that a node has, that it should drop."""
        dropped = []
        for attempt in has:
            job = self._registry.get(attempt.job_id)
            if job is not None and job.is_unwanted(attempt.attempt):
                dropped.append(attempt)
        return dropped


def _cause_name(reject: dispatcher_pb2.JobReject) -> str:
    causes = dispatcher_pb2.JobReject.Cause
    # A newer node may have causes that this dispatcher does not know.
    known = reject.cause in causes.values()
    return causes.Name(reject.cause).removeprefix("CAUSE_") if known else str(reject.cause)
