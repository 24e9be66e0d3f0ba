"""What nodes say of their attempts: checked, and passed on to whoever answers for each."""

import asyncio
import logging
from typing import Any

from lingua_scheduler.services.dispatcher.job.model import MAX_DETAIL
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes, node_message
from lingua_scheduler.services.dispatcher.nodes.held_audio import HeldAudio, may_be_held
from lingua_scheduler.services.dispatcher.nodes.stream import (
    NodeStream,
    Report,
    Responsible,
    attempt_key,
)
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import dispatcher_pb2

# The cause of an attempt whose node broke the contract.
INVALID = "INVALID_MESSAGE"
# A pool service that does not answer in this time is down; a result must not wait for it.
_BOUND_WITHIN_S = 1.0

_log = logging.getLogger(__name__)


class IncomingReports:
    """Takes reports of nodes.

    Args:
        fallback: hears of attempts that nobody else answers for.
    """

    def __init__(
        self,
        *,
        metrics: DispatcherMetrics,
        nodes: ConnectedNodes,
        held: HeldAudio,
        fallback: Responsible,
    ) -> None:
        self._metrics = metrics
        self._nodes = nodes
        self._held = held
        self._fallback = fallback
        self._tasks = BackgroundTasks()

    def take(self, stream: NodeStream, kind: str, report: Report) -> None:
        """Takes a report. `kind` is its field in NodeEvent.

        Raises:
            InvalidMessageError: it breaks a limit and does not even name its attempt.
        """
        failed = _failure_of(kind, report) or _failure_of_holding(stream, report)
        if failed is not None:
            self._fail(stream, kind, failed)
        else:
            self._pass_on(stream, kind, report)

    def take_held(self, stream: NodeStream, held: dispatcher_pb2.AudioHeld) -> None:
        """A node says that it holds the audio of an attempt. Raises as `take`."""
        if (failed := _failure_of("audio_held", held)) is not None:
            self._fail(stream, "audio_held", failed)
        else:
            self._held.take(stream, held)

    def _pass_on(self, stream: NodeStream, kind: str, report: Report) -> None:
        key = attempt_key(report.attempt)
        if kind == "job_result" and key in stream.binding:
            self._tasks.spawn(self._pass_on_when_bound(stream, report, stream.binding[key]))
            return
        assignment = stream.assigned.get(key)
        if kind == "job_partial" and not (assignment and assignment.takes_partial(now_ms())):
            self._metrics.partials_dropped.inc()
            return
        if type(report) is dispatcher_pb2.JobAck:
            report.sent_us = assignment.sent_us if assignment else 0
            if assignment:
                # The node's heartbeat may have been on the way before the node had this.
                assignment.has_slot, assignment.beats_without = True, 0
        elif kind in ("job_reject", "job_result", "job_failed"):
            stream.drop(key)
        # If nobody here answers for the attempt, it may still be of a job of ours that is over.
        # Otherwise it stays unconfirmed, and whoever takes up the job will ask for it.
        responsible = assignment.responsible if assignment else None
        (responsible or self._fallback).on_report(stream.node_id, report)

    async def _pass_on_when_bound(
        self, stream: NodeStream, result: Report, bound: asyncio.Future[Any]
    ) -> None:
        """Waits for the binding: who has the result may submit what follows, which needs it."""
        await asyncio.wait((bound,), timeout=_BOUND_WITHIN_S)
        stream.binding.pop(attempt_key(result.attempt), None)
        self._pass_on(stream, "job_result", result)

    def _fail(self, stream: NodeStream, kind: str, failed: dispatcher_pb2.JobFailed) -> None:
        """Fails the attempt of a report that breaks a limit, and tells the node why."""
        self._metrics.invalid_reports.labels(kind).inc()
        # Of other attempts a node may say what it wants.
        if attempt_key(failed.attempt) in stream.assigned:
            facts = {
                "node_id": stream.node_id,
                "job_id": failed.attempt.job_id,
                "reason": failed.detail,
            }
            _log.warning("node broke the contract", extra=facts)
            cancel = dispatcher_pb2.JobCancel(attempt=failed.attempt, why=failed.detail)
            self._nodes.send(stream, node_message(job_cancel=cancel))
        self._pass_on(stream, "job_failed", failed)


def too_large(report: Report, most: int) -> dispatcher_pb2.JobFailed:
    """The failure of an attempt whose report is too large for a message between dispatchers."""
    size = report.ByteSize()
    return _broken(report, f"the report has {size} bytes; at most {most} can be passed on")


def _failure_of(
    kind: str, report: Report | dispatcher_pb2.AudioHeld
) -> dispatcher_pb2.JobFailed | None:
    """The failure of an attempt whose report breaks a limit; None if the report is valid.

    Raises:
        InvalidMessageError: the report does not even name its attempt.
    """
    if limits.fits(report):
        return None
    found = limits.violations(report, f"{kind}.")
    if limits.violations(report.attempt):
        limits.refuse(found)
    field, problem = found[0]
    return _broken(report, f"{field}: {problem}")


def _failure_of_holding(stream: NodeStream, report: Report) -> dispatcher_pb2.JobFailed | None:
    """The failure of an attempt whose node keeps the audio of a sentence that is over.

    The next job of the session does not wait for such a node (decision 12), so nothing would join
    the audio. None if the report is no such result.
    """
    if type(report) is not dispatcher_pb2.JobResult:
        return None
    is_held = report.kind == dispatcher_pb2.JobResult.KIND_HELD
    if not (is_held or report.held_audio_bytes):
        return None
    assignment = stream.assigned.get(attempt_key(report.attempt))
    if assignment is None or may_be_held(assignment.job):
        return None
    field = "kind" if is_held else "held_audio_bytes"
    return _broken(
        report,
        f"job_result.{field}: the speaker ended the sentence (JobSpec.reason), so no audio of it "
        "may be held",
    )


def _broken(report: Report | dispatcher_pb2.AudioHeld, detail: str) -> dispatcher_pb2.JobFailed:
    """The failure of an attempt whose report breaks the contract; another node may do better."""
    return dispatcher_pb2.JobFailed(
        attempt=report.attempt, cause=INVALID, detail=detail[:MAX_DETAIL], worth_retry=True
    )
