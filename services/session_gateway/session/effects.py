"""Effects: what a session's core asks its shell to do, and the timers that it sets."""

from dataclasses import dataclass, field
from typing import Protocol

from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, rooms_pb2, session_pb2, session_record_pb2

# The purpose of a timer, and the index of the utterance if the timer belongs to one.
TimerKey = tuple[str, int]

PAUSE: TimerKey = ("pause", 0)
HANGOVER: TimerKey = ("hangover", 0)
FRAGMENT: TimerKey = ("fragment", 0)
RECORD: TimerKey = ("record", 0)
DEADLINE: TimerKey = ("deadline", 0)
IDLE: TimerKey = ("idle", 0)
GOODBYE: TimerKey = ("goodbye", 0)


def retry_timer(index: int) -> TimerKey:
    """The timer for the next submission of an utterance's job."""
    return ("retry", index)


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call the core with this key at this time. A timer with the same key is moved."""

    key: TimerKey
    at_ms: float


@dataclass(frozen=True, slots=True)
class ClearTimer:
    """Cancel this timer."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the client. It has one or more events, and at most one result."""

    message: session_pb2.ServerMessage


@dataclass(frozen=True, slots=True)
class Record:
    """Record cuts in the store; answer with on_recorded, on_record_failed or on_lost."""

    cuts: tuple[session_record_pb2.Cut, ...]
    # Cuts below this index are no longer needed, and chunks below this sequence number are safe.
    first_index: int
    acked_seq: int
    seen: int
    results: int
    missing: int
    last_chunk_ms: float


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit an utterance's job, or attach to it if a dispatcher already has its audio."""

    utterance: Utterance


@dataclass(frozen=True, slots=True)
class Publish:
    """Put an outcome into its room; answer with on_published or on_publish_failed.

    Attributes:
        lane: the language.
        utterance: whose outcome it is.
        event: for listeners, without speech and times.
        speech: translated speech; may be empty.
        original: the audio of the speaker; empty if nobody wants it, or the room has it.
    """

    lane: str
    utterance: Utterance
    event: rooms_pb2.RoomEvent
    speech: bytes
    original: bytes


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel a job whose result is no longer needed."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Taken:
    """The client has confirmed this job's result, which had waited here for earlier results."""

    job_id: str
    held_back_ms: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Leave:
    """The session leaves this gateway: the results of these jobs are for its next gateway."""

    job_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gate:
    """Start or stop reading the client's messages."""

    is_open: bool


@dataclass(frozen=True, slots=True)
class End:
    """End the stream.

    Attributes:
        why: the error that ends it; None if the session is complete or its client has left.
        forget: whether the session is complete and its record can be deleted.
    """

    why: common_pb2.Error | None
    forget: bool


Effect = (
    Send
    | Record
    | Submit
    | Publish
    | CancelJob
    | Taken
    | Leave
    | Gate
    | End
    | SetTimer
    | ClearTimer
)


class Timers(Protocol):
    """Where a part of a core sets its timers."""

    def set(self, key: TimerKey, at_ms: float) -> None:
        """Sets or moves a timer."""

    def clear(self, key: TimerKey) -> None:
        """Clears a timer if it is set."""


class SessionTimers:
    """The timers that a session has set, and when each is due.

    A shell may still report a timer that was cleared or moved: `take` returns False for it.
    """

    def __init__(self) -> None:
        self._due: dict[TimerKey, float] = {}
        self.changes: list[SetTimer | ClearTimer] = []
        """Changes that the shell has not been told of yet."""

    def set(self, key: TimerKey, at_ms: float) -> None:
        """Sets or moves a timer."""
        if self._due.get(key) != at_ms:
            self._due[key] = at_ms
            self.changes.append(SetTimer(key, at_ms))

    def set_by(self, key: TimerKey, at_ms: float) -> None:
        """Sets a timer unless it is due by then anyway. Its handler has to check the time."""
        if self._due.get(key, at_ms + 1) > at_ms:
            self.set(key, at_ms)

    def clear(self, key: TimerKey) -> None:
        """Clears a timer if it is set."""
        if self._due.pop(key, None) is not None:
            self.changes.append(ClearTimer(key))

    def clear_all(self) -> None:
        """Clears every timer."""
        for key in list(self._due):
            self.clear(key)

    def take(self, now: float, key: TimerKey) -> bool:
        """Unsets a timer that the shell reports; returns whether it was set and due."""
        if self._due.get(key, now + 1) > now:
            return False
        del self._due[key]
        return True

    def __contains__(self, key: TimerKey) -> bool:
        """Whether a timer is set."""
        return key in self._due

    def __len__(self) -> int:
        """The number of timers that are set."""
        return len(self._due)


class Effects(Protocol):
    """Where a part of a core adds its effects."""

    @property
    def timers(self) -> Timers:
        """Where it sets its timers."""

    def add(self, effect: Effect) -> None:
        """Adds an effect."""

    def error(self, error: common_pb2.Error) -> None:
        """Adds an error for the client."""

    def utterance_event(self, utterance: Utterance) -> session_pb2.UtteranceEvent:
        """Adds an event about the progress of an utterance, and returns it to be filled in."""


class EffectBuffer:
    """The effects of the event that the core handles now, in order."""

    def __init__(self) -> None:
        self.timers = SessionTimers()
        self._effects: list[Effect] = []
        # The message to which the next event for the client is added.
        self._message: session_pb2.ServerMessage | None = None

    def add(self, effect: Effect) -> None:
        """Adds an effect."""
        self._effects.append(effect)

    def event(self, *, is_large: bool = False) -> session_pb2.ServerEvent:
        """Adds an event for the client, and returns it to be filled in.

        All events of one moment share a message, except that a large one starts a new message.
        The event is created inside its message to avoid a copy.
        """
        if is_large or self._message is None:
            self._message = session_pb2.ServerMessage()
            self._effects.append(Send(self._message))
        return self._message.events.add()

    def utterance_event(self, utterance: Utterance) -> session_pb2.UtteranceEvent:
        """Adds an event about the progress of an utterance, and returns it to be filled in."""
        event = self.event().utterance
        event.utterance_index = utterance.index
        event.direction.src, event.direction.tgt = utterance.direction
        return event

    def error(self, error: common_pb2.Error) -> None:
        """Adds an error for the client."""
        self.event().error.CopyFrom(error)

    def take(self) -> list[Effect]:
        """Returns and forgets all effects.

        Timers come first: the shell does nothing more after an `End`.
        """
        effects, self._effects, self._message = self._effects, [], None
        if self.timers.changes:
            effects = [*self.timers.changes, *effects]
            self.timers.changes = []
        return effects
