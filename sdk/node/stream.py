"""What belongs to one stream and goes with it. No I/O, no clock."""

import random
from collections.abc import Iterable

from lingua_scheduler.sdk._transport.wire import MAX_MESSAGE_BYTES
from lingua_scheduler.sdk.node.wire import Ref
from lingua_scheduler.silence import Silence, Verdict
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent, Welcome

# Left free in each message for framing, and for the heartbeat that shares it.
SPARE_BYTES = 128 * 1024
# Left free in each message for the heartbeat and for Bye.
SPARE_EVENTS = 8
# Events of one message; a dispatcher takes no more.
MAX_EVENTS = 1000
# So many heartbeats without a word, and the stream is dead.
SILENT_BEATS = 3
# Sixths of the silence that a dispatcher may keep, after which a node with jobs asks.
ASK_BEATS = 3
# A dispatcher that takes longer than this to answer Hello is as good as none.
WELCOME_WITHIN_S = 10.0
# What Welcome may ask for; 0, or none, is the default.
DEFAULT_BEAT_S = 5.0
BEAT_RANGE_S = (0.05, 60.0)
# Answers that wait for a dispatcher that does not read. More than that: it is broken.
MAX_ANSWERS = 4096


class StreamState:
    """One stream, from its opening: who was heard when, and what waits to be said."""

    def __init__(self, now: float) -> None:
        self.hello_taken = False
        self.welcomed = False
        self.beat_seq = 0
        self.beat_due = False
        self.message_bytes = MAX_MESSAGE_BYTES - SPARE_BYTES
        # Attempts of which this stream has heard that their audio is held.
        self.said_held: set[Ref] = set()
        # The last thing that the dispatcher said, if that was an error.
        self.last_error: common_pb2.Error | None = None
        self.leave_at: float | None = None
        self.leave_why = ""
        self.closing = False
        self.bye: NodeEvent | None = None
        self._heard = now
        # None where the dispatcher does not say how long it may be silent.
        self._silence: Silence | None = None
        self._beat_s = 0.0
        self._next_beat = now
        # By kind and attempt, so that a repeated question waits for one answer.
        self._answers: dict[tuple[str, Ref], NodeEvent] = {}

    def hear(self, now: float) -> None:
        """The dispatcher lives."""
        self._heard = now
        if self._silence is not None:
            self._silence.heard = True

    def welcome(
        self, now: float, welcome: Welcome, rng: random.Random, silence_s: float = 0.0
    ) -> None:
        """The dispatcher has taken the node in. The first beat is spread over the interval.

        Args:
            now: the time.
            welcome: what it said.
            rng: spreads.
            silence_s: it is frozen if it is silent for so long; 0: if it misses three heartbeats.
        """
        low, high = BEAT_RANGE_S
        self._beat_s = min(high, max(low, welcome.heartbeat_interval_ms / 1000 or DEFAULT_BEAT_S))
        self._next_beat = now + self._beat_s * rng.uniform(0.1, 1.0)
        if welcome.max_message_bytes:
            limit = min(MAX_MESSAGE_BYTES, welcome.max_message_bytes)
            self.message_bytes = max(limit // 2, limit - SPARE_BYTES)
        if silence_s:
            self._silence = Silence(now, silence_s, ask_beats=ASK_BEATS)
        self.welcomed = True

    def deadlines(self, *, busy: bool) -> Iterable[float]:
        """When `beat` or `silence` has something to say, or the node is to leave.

        Args:
            busy: whether there are jobs, or results that are not confirmed.
        """
        if self.closing:
            return
        if self._silence is not None and (busy or self._silence.awaits_answer):
            yield self._silence.due
        yield self._heard + self._patience()
        if self.welcomed:
            yield self._next_beat
        if self.leave_at is not None:
            yield self.leave_at

    def beat(self, now: float) -> None:
        """Notes that a heartbeat is due, if it is."""
        if self.welcomed and self._next_beat <= now:
            self.beat_due = True
            self._next_beat = now + self._beat_s

    def asked(self, now: float) -> None:
        """A heartbeat was sent."""
        if self._silence is not None:
            self._silence.asked(now)

    def silence(self, now: float, *, busy: bool) -> str:
        """Why the stream is to be given up, or "". A heartbeat may become due.

        Args:
            now: the time.
            busy: whether there are jobs, or results that are not confirmed. Without them the
                dispatcher has time until the next heartbeat.
        """
        silence = self._silence
        if silence is not None and silence.due <= now and (busy or silence.awaits_answer):
            verdict = silence.beat(now, ask=busy)
            if verdict is Verdict.SILENT:
                return f"the dispatcher has said nothing for {silence.silence_s:g} s"
            self.beat_due = self.beat_due or verdict is Verdict.ASK
        patience = self._patience()
        late = now - self._heard - patience
        if late < 0:
            return ""
        if late > max(self._beat_s, 1.0):
            # It was this process that slept: messages may lie unread, so listen for once.
            self._heard = now - patience + max(self._beat_s, 0.1)
            return ""
        what = "nothing was heard" if self.welcomed else "Hello was not answered"
        return f"{what} for {patience:g} s"

    def answer(self, kind: str, ref: Ref, event: NodeEvent) -> None:
        """Something to say about an attempt."""
        self._answers[kind, ref] = event

    def unsay(self, kind: str, ref: Ref) -> None:
        """Takes an answer back that has not been sent."""
        self._answers.pop((kind, ref), None)

    def pop_answer(self) -> NodeEvent | None:
        """The oldest answer."""
        if not self._answers:
            return None
        kind, ref = next(iter(self._answers))
        if kind == "held":
            self.said_held.add(ref)
        return self._answers.pop((kind, ref))

    @property
    def unread(self) -> bool:
        """Whether more answers wait than any dispatcher that reads would leave."""
        return len(self._answers) > MAX_ANSWERS

    def _patience(self) -> float:
        return SILENT_BEATS * self._beat_s if self.welcomed else WELCOME_WITHIN_S


class Batch:
    """Events that share a message."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.events: list[NodeEvent] = []
        self.full = False
        self._bytes = 0

    def has_room(self, size: int) -> bool:
        """Whether an event of this size fits."""
        return self._bytes + size <= self.limit and not self.full

    def add(self, event: NodeEvent) -> None:
        """Adds an event, which has to fit or be small."""
        self.events.append(event)
        self._bytes += event.ByteSize()
        self.full = (
            self.full or self._bytes >= self.limit or len(self.events) >= MAX_EVENTS - SPARE_EVENTS
        )
