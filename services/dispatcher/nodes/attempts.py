"""Attempts that nodes were given: who answers for them, and what is known of each."""

from dataclasses import dataclass
from typing import Protocol

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

AttemptKey = tuple[str, int]

# What a node may say of an attempt.
Report = (
    dispatcher_pb2.JobAck
    | dispatcher_pb2.JobReject
    | dispatcher_pb2.JobPartial
    | dispatcher_pb2.JobResult
    | dispatcher_pb2.JobFailed
)


def attempt_key(attempt: common_pb2.AttemptRef) -> AttemptKey:
    """An attempt as a key of a dict."""
    return attempt.job_id, attempt.attempt


class Responsible(Protocol):
    """Answers for attempts: the jobs of this dispatcher, or the relay stream of another home."""

    def on_report(self, node_id: str, report: Report) -> None:
        """The node has said something of an attempt."""

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """The assignment never got to the node."""

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection of a node that may have the attempt is gone."""


class PartialLimiter:
    """Lets at most one partial result through in each interval. The caller gives the time.

    A partial result that comes up to half an interval early passes too, because the one before it
    may have been delayed on its way; the next one then waits longer. So at most n + 1 pass in n
    intervals.

    Args:
        interval_ms: 0: no partial results are wanted, and none passes.
    """

    __slots__ = ("_due_ms", "_interval_ms")

    def __init__(self, interval_ms: float) -> None:
        self._interval_ms = interval_ms
        self._due_ms = float("-inf")

    def passes(self, now_ms: float) -> bool:
        """Whether a partial result that comes now is passed on."""
        if not self._interval_ms or now_ms < self._due_ms - self._interval_ms / 2:
            return False
        self._due_ms = max(now_ms, self._due_ms) + self._interval_ms
        return True


@dataclass(slots=True, eq=False)
class Assignment:
    """An attempt that a node was given, and who answers for it."""

    job: dispatcher_pb2.JobSpec
    responsible: Responsible | None
    # When it was written to the stream; 0: it has not been yet.
    sent_us: int = 0
    # Limits its partial results; made with the first of them.
    partials: PartialLimiter | None = None
    # Whether it has a slot of the node: from its sending until two heartbeats did not list it.
    has_slot: bool = True
    # Heartbeats in a row that did not list it.
    beats_without: int = 0

    def takes_partial(self, now_ms: float) -> bool:
        """Whether a partial result that comes now is passed on: see PartialLimiter."""
        if self.partials is None:
            self.partials = PartialLimiter(self.job.partial_interval_ms)
        return self.partials.passes(now_ms)
