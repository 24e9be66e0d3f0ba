"""The state of one stream of a listener. No I/O, no clock."""

from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Lost, Moved, Refused
from lingua_scheduler.sdk.room.events import Listening
from lingua_scheduler.sdk.room.protocol.state import ListenerState
from lingua_scheduler.sdk.room.protocol.wire import listening_message
from lingua_scheduler.silence import Silence
from lingua_scheduler.v1 import common_pb2, rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import ListenerMessage


@dataclass(slots=True)
class ListenerStream:
    """One stream from its opening: what it has received, and what was written to it.

    As with sessions, what the listener wants is a fact of its state. `take` compares it with what
    this stream has asked for, so nothing depends on where the previous stream broke.

    Attributes:
        resumes: whether the listener has been in the room before.
        joined_by: when Joined must have arrived.
        closing: whether the stream is being ended. Events that still arrive are ignored.
        asked: the change that the gateway has not answered yet.
        leave_at: when the gateway wants the listener to have left.
        last_error: the gateway's last event, if that was an error.
        silence: tracks the gateway's silence; None if it does not promise to send something.
    """

    resumes: bool
    joined_by: float
    join_taken: bool = False
    joined: bool = False
    closing: bool = False
    leave_taken: bool = False
    asked: Listening | None = None
    leave_at: float | None = None
    leave_why: str = ""
    last_error: common_pb2.Error | None = None
    silence: Silence | None = None

    def next_deadline(self) -> float | None:
        """Returns when something is due on this stream; None: never."""
        if self.closing:
            return None
        due = None if self.joined else self.joined_by
        if self.silence is not None and (due is None or self.silence.due < due):
            due = self.silence.due
        if self.leave_at is not None and (due is None or self.leave_at < due):
            due = self.leave_at
        return due

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the gateway."""
        if self.last_error is not None:
            return Refused(self.last_error)
        if self.leave_at is not None:
            return Moved(max(0.0, self.leave_at - now), self.leave_why)
        return Lost("the stream ended")

    def take(self, state: ListenerState, join: rooms_pb2.JoinRoom) -> ListenerMessage | None:
        """Returns the next message to write; None if there is none now.

        Args:
            state: the listener's facts.
            join: who joins which room.
        """
        if not self.join_taken:
            return self._take_join(state, join)
        if not self.joined:
            return None
        if state.leaving:
            if self.leave_taken:
                return None
            self.leave_taken = True
            return ListenerMessage(leave=rooms_pb2.LeaveRoom())
        if self.closing or self.asked is not None or state.is_settled:
            return None
        self.asked = state.wanted
        change = rooms_pb2.ChangeListening(listening=listening_message(state.wanted))
        return ListenerMessage(change=change)

    def _take_join(self, state: ListenerState, join: rooms_pb2.JoinRoom) -> ListenerMessage:
        self.join_taken = True
        message = ListenerMessage(join=join)
        message.join.listening.CopyFrom(listening_message(state.confirmed))
        if self.resumes:
            message.join.member_id = state.member_id
            message.join.position = state.chain.position
        return message
