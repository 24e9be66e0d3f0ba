"""Partial results: the latest wins, and each attempt has a rate. No I/O, no clock."""

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
    """One waiting partial for each attempt at most, so a slow dispatcher costs no memory."""

    def __init__(self) -> None:
        self._flows: dict[Ref, _Flow] = {}
        self._waiting: dict[Ref, _Flow] = {}

    def open(self, ref: Ref, interval: float) -> None:
        """An attempt starts; its partials are `interval` seconds apart, 0: none are wanted."""
        if interval > 0:
            self._flows[ref] = _Flow(interval)

    def close(self, ref: Ref) -> None:
        """The attempt is over, and what waits is of no use."""
        self._flows.pop(ref, None)
        self._waiting.pop(ref, None)

    def put(self, ref: Ref, texts: dispatcher_pb2.Texts) -> None:
        """The newest partial; it replaces one that waits."""
        flow = self._flows.get(ref)
        if flow is not None:
            flow.texts = texts
            self._waiting[ref] = flow

    def due(self, now: float) -> Iterator[Ref]:
        """Attempts whose partial may be sent."""
        return iter([ref for ref, flow in self._waiting.items() if flow.due <= now])

    def take(self, ref: Ref, now: float) -> dispatcher_pb2.NodeEvent:
        """The partial of an attempt that is due; the next one has to wait its time."""
        flow = self._waiting.pop(ref)
        flow.seq += 1
        flow.due = now + flow.interval
        texts, flow.texts = flow.texts, None
        partial = dispatcher_pb2.JobPartial(attempt=attempt_of(ref), texts=texts, seq=flow.seq)
        return dispatcher_pb2.NodeEvent(job_partial=partial)

    def next_due(self, now: float) -> float | None:
        """When the next one may be sent, of those that may not be sent yet."""
        later = (flow.due for flow in self._waiting.values() if flow.due > now)
        return min(later, default=None)
