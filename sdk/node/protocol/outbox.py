"""Composes a node's messages from what it has to say. No I/O, no clock."""

from collections.abc import Callable

from lingua_scheduler.sdk.node.protocol.attempts import Attempts
from lingua_scheduler.sdk.node.protocol.stream import NodeStream
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.node.protocol.wire import Ref, attempt_of, failed_event
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import Heartbeat, Hello, NodeEvent, NodeMessage

# The most events that a dispatcher takes in one message.
MAX_EVENTS = 1000
# Room that is left in each message for the heartbeat and for Bye.
SPARE_EVENTS = 8


class Outbox:
    """Puts answers, results, a heartbeat, partial results and Bye into one message, in that order.

    Args:
        attempts: running attempts, with their partial results.
        unconfirmed: unconfirmed results.
        on_too_large: called with a result that no message can carry, and why. The failure that is
            reported instead replaces it.
    """

    def __init__(
        self,
        *,
        attempts: Attempts,
        unconfirmed: UnconfirmedResults,
        on_too_large: Callable[[Ref, str], None],
    ) -> None:
        self._attempts = attempts
        self._unconfirmed = unconfirmed
        self._on_too_large = on_too_large

    def take_hello(
        self, stream: NodeStream, introduction: Hello, load: common_pb2.NodeLoad
    ) -> NodeMessage | None:
        """Returns the first message of a stream; None if it was taken already."""
        if stream.hello_taken:
            return None
        stream.hello_taken = True
        hello = Hello()
        hello.CopyFrom(introduction)
        hello.load.CopyFrom(load)
        hello.running.extend(attempt_of(attempt.ref) for attempt in self._attempts)
        hello.unconfirmed.extend(attempt_of(ref) for ref in self._unconfirmed)
        return NodeMessage(events=[NodeEvent(hello=hello)])

    def take(
        self,
        now: float,
        stream: NodeStream,
        health: common_pb2.NodeHealth.ValueType,
        load: common_pb2.NodeLoad,
    ) -> NodeMessage | None:
        """Returns everything that is ready and fits into a message; None if nothing is ready."""
        batch = _Batch(stream.message_bytes)
        self._add_answers(stream, batch)
        self._add_results(stream, batch)
        if stream.beat_due:
            beat = Heartbeat(
                seq=stream.next_seq(), health=health, load=load, running=self._running()
            )
            batch.add(NodeEvent(heartbeat=beat))
            stream.asked(now)
        self._add_partials(now, batch)
        if stream.bye is not None and not batch.full:
            batch.add(stream.bye)
            stream.bye = None
        return NodeMessage(events=batch.events) if batch.events else None

    def _running(self) -> list[common_pb2.AttemptRef]:
        refs = [*(attempt.ref for attempt in self._attempts), *self._unconfirmed.unsent()]
        return [attempt_of(ref) for ref in refs[: self._attempts.slots]]

    def _add_answers(self, stream: NodeStream, batch: "_Batch") -> None:
        while not batch.full and (event := stream.pop_answer()) is not None:
            batch.add(event)

    def _add_results(self, stream: NodeStream, batch: "_Batch") -> None:
        while (unsent := self._unconfirmed.first_unsent()) is not None:
            ref, events, size = unsent
            if size > batch.limit:
                why = f"the result has {size} bytes; a message has room for {batch.limit}"
                failed = failed_event(ref, "RESULT_TOO_LARGE", why, worth_retry=True)
                self._unconfirmed.add(ref, [failed])
                self._on_too_large(ref, why)
            elif batch.has_room(size):
                for event in events:
                    if not event.HasField("audio_held"):
                        batch.add(event)
                    elif ref not in stream.said_held:
                        stream.said_held.add(ref)
                        batch.add(event)
                self._unconfirmed.sent(ref)
            else:
                batch.full = True
                return

    def _add_partials(self, now: float, batch: "_Batch") -> None:
        for ref in self._attempts.partials.due(now):
            event = self._attempts.partials.take(ref, now)
            # Partial results are dropped first if a dispatcher reads slowly, and if too large.
            if batch.has_room(event.ByteSize()):
                batch.add(event)


class _Batch:
    """The events of one message."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.events: list[NodeEvent] = []
        self.full = False
        self._bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether an event of this size fits."""
        return self._bytes + size <= self.limit and not self.full

    def add(self, event: NodeEvent) -> None:
        """Adds an event. The caller has checked that it fits, or it is small."""
        self.events.append(event)
        self._bytes += event.ByteSize()
        self.full = (
            self.full or self._bytes >= self.limit or len(self.events) >= MAX_EVENTS - SPARE_EVENTS
        )
