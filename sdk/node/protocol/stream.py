"""The state of one stream of a node. No I/O, no clock."""

import random

from lingua_scheduler.sdk._transport.endings import Lost, Moved, Refused
from lingua_scheduler.sdk._transport.wire import MAX_MESSAGE_BYTES
from lingua_scheduler.sdk.node.protocol.wire import Ref
from lingua_scheduler.silence import Silence, Verdict
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent, Welcome

# Room that is left in each message for framing and for the heartbeat that shares it.
SPARE_BYTES = 128 * 1024
# The stream is dead after this many heartbeat intervals without a message.
SILENT_BEATS = 3
# A node with jobs asks a dispatcher that has been silent for this many sixths of its limit.
ASK_BEATS = 3
# How long a dispatcher may take to answer Hello.
WELCOME_WITHIN_S = 10.0
# The heartbeat interval if Welcome gives none, and the range that Welcome may choose from.
DEFAULT_BEAT_S = 5.0
BEAT_RANGE_S = (0.05, 60.0)
# How many answers may wait for a dispatcher that does not read before the stream is ended.
MAX_ANSWERS = 4096


class NodeStream:
    """One stream from its opening: when the dispatcher was last heard, and what waits to be sent.

    Attributes:
        message_bytes: how large a message may be.
        said_held: attempts for which this stream has carried AudioHeld.
        last_error: the dispatcher's last event, if that was an error.
        leave_at: when the dispatcher wants the node to have left.
        closing: whether the stream is being ended.
        bye: Bye, if it has yet to be sent.
    """

    def __init__(self, now: float) -> None:
        self.hello_taken = False
        self.welcomed = False
        self.beat_seq = 0
        self.beat_due = False
        self.message_bytes = MAX_MESSAGE_BYTES - SPARE_BYTES
        self.said_held: set[Ref] = set()
        self.last_error: common_pb2.Error | None = None
        self.leave_at: float | None = None
        self.leave_why = ""
        self.closing = False
        self.bye: NodeEvent | None = None
        self._heard = now
        # None if the dispatcher does not say how long it may be silent.
        self._silence: Silence | None = None
        self._beat_s = 0.0
        self._next_beat = now
        # By kind and attempt, so that a repeated question gets one answer.
        self._answers: dict[tuple[str, Ref], NodeEvent] = {}

    def hear(self, now: float) -> None:
        """Notes that the dispatcher is alive."""
        self._heard = now
        if self._silence is not None:
            self._silence.heard = True

    def welcome(
        self, now: float, welcome: Welcome, rng: random.Random, silence_s: float = 0.0
    ) -> None:
        """The dispatcher has registered the node. The first heartbeat comes at a random time.

        Args:
            now: the time.
            welcome: the dispatcher's answer.
            rng: randomizes the first heartbeat, so that nodes do not send theirs together.
            silence_s: how long the dispatcher may be silent; 0: for three heartbeat intervals.
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

    def next_deadline(self, *, busy: bool) -> float | None:
        """Returns when something is due on this stream; None: never. Called for each job.

        Args:
            busy: whether there are jobs or unconfirmed results.
        """
        if self.closing:
            return None
        due = self._heard + self._patience()
        if self.welcomed and self._next_beat < due:
            due = self._next_beat
        silence = self._silence
        if silence is not None and silence.due < due and (busy or silence.awaits_answer):
            due = silence.due
        if self.leave_at is not None and self.leave_at < due:
            due = self.leave_at
        return due

    def beat(self, now: float) -> None:
        """Marks a heartbeat as due if its time has come."""
        if self.welcomed and self._next_beat <= now:
            self.beat_due = True
            self._next_beat = now + self._beat_s

    def next_seq(self) -> int:
        """Returns the sequence number of the heartbeat that is sent now."""
        self.beat_due = False
        self.beat_seq += 1
        return self.beat_seq

    def asked(self, now: float) -> None:
        """Notes that a heartbeat is being sent, which the dispatcher has to answer."""
        if self._silence is not None:
            self._silence.asked(now)

    def silence(self, now: float, *, busy: bool) -> str:
        """Returns why the stream is dead, or "". May make a heartbeat due.

        Args:
            now: the time.
            busy: whether there are jobs or unconfirmed results. Without them, the dispatcher is
                not asked before the next heartbeat.
        """
        silence = self._silence
        if silence is not None and silence.due <= now and (busy or silence.awaits_answer):
            verdict = silence.beat(now, ask=busy)
            if verdict is Verdict.SILENT:
                return f"the dispatcher sent nothing for {silence.silence_s:g} s"
            self.beat_due = self.beat_due or verdict is Verdict.ASK
        patience = self._patience()
        late = now - self._heard - patience
        if late < 0:
            return ""
        if late > max(self._beat_s, 1.0):
            # This process was suspended, so messages may lie unread: give them time.
            self._heard = now - patience + max(self._beat_s, 0.1)
            return ""
        what = "the dispatcher sent nothing" if self.welcomed else "Hello was not answered"
        return f"{what} for {patience:g} s"

    def answer(self, kind: str, ref: Ref, event: NodeEvent) -> None:
        """Queues an event about an attempt; replaces one of the same kind."""
        self._answers[kind, ref] = event

    def unsay(self, kind: str, ref: Ref) -> None:
        """Drops a queued event."""
        self._answers.pop((kind, ref), None)

    def pop_answer(self) -> NodeEvent | None:
        """Returns the oldest queued event; None if there is none."""
        if not self._answers:
            return None
        kind, ref = next(iter(self._answers))
        if kind == "held":
            self.said_held.add(ref)
        return self._answers.pop((kind, ref))

    @property
    def unread(self) -> bool:
        """Whether so many events are queued that the dispatcher cannot be reading."""
        return len(self._answers) > MAX_ANSWERS

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the dispatcher."""
        if self.last_error is not None:
            return Refused(self.last_error)
        if self.leave_at is not None:
            return Moved(max(0.0, self.leave_at - now), self.leave_why)
        return Lost("the stream ended")

    def _patience(self) -> float:
        return SILENT_BEATS * self._beat_s if self.welcomed else WELCOME_WITHIN_S
