"""Partial results: the latest wins, at a limited rate per attempt. No I/O, no clock."""

from collections.abc import Iterator
from dataclasses import dataclass

from lingua_scheduler.sdk.node.protocol.wire import Ref, attempt_of
from lingua_scheduler.v1 import dispatcher_pb2


@dataclass(slots=True)
class _Flow:
    interval: float
    seq: int = 0
    due: float = 0.0
    texts: dispatcher_pb2.Texts | None = None


class Partials:
    """At most one waiting partial result per attempt, so a slow dispatcher costs no memory."""

    def __init__(self) -> None:
        self._flows: dict[Ref, _Flow] = {}
        self._waiting: dict[Ref, _Flow] = {}

    def open(self, ref: Ref, interval: float) -> None:
        """Starts an attempt with `interval` seconds between its partials; 0: none are wanted."""
        if interval > 0:
            self._flows[ref] = _Flow(interval)

    def close(self, ref: Ref) -> None:
        """Ends an attempt and drops its waiting partial."""
        self._flows.pop(ref, None)
        self._waiting.pop(ref, None)

    def put(self, ref: Ref, texts: dispatcher_pb2.Texts) -> None:
        """Adds the latest partial; it replaces a waiting one."""
        flow = self._flows.get(ref)
        if flow is not None:
            flow.texts = texts
            self._waiting[ref] = flow

    def due(self, now: float) -> Iterator[Ref]:
        """Iterates over the attempts whose partial may be sent now."""
        return iter([ref for ref, flow in self._waiting.items() if flow.due <= now])

    def take(self, ref: Ref, now: float) -> dispatcher_pb2.NodeEvent:
        """Returns the due partial of an attempt, and starts the interval until its next one."""
        flow = self._waiting.pop(ref)
        flow.seq += 1
        flow.due = now + flow.interval
        texts, flow.texts = flow.texts, None
        partial = dispatcher_pb2.JobPartial(attempt=attempt_of(ref), texts=texts, seq=flow.seq)
        return dispatcher_pb2.NodeEvent(job_partial=partial)

    def next_due(self, now: float) -> float | None:
        """Returns when the next waiting partial may be sent; ignores those that are due."""
        if not self._waiting:
            return None
        later = (flow.due for flow in self._waiting.values() if flow.due > now)
        return min(later, default=None)
