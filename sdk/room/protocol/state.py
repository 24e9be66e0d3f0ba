"""What a listener knows beyond any one stream. No I/O, no clock."""

from typing import NamedTuple

from lingua_scheduler.sdk.errors import ListenerLostError
from lingua_scheduler.sdk.room.events import Listening, RoomInfo
from lingua_scheduler.sdk.room.protocol.chain import Chain
from lingua_scheduler.v1 import common_pb2


class ListenerCounts(NamedTuple):
    """Totals of a listener.

    Attributes:
        said: utterances that were given to the app.
        not_said: utterances that were reported missing.
        repeated: utterances that arrived again after a reconnection and were dropped.
        rejoins: reconnections.
    """

    said: int
    not_said: int
    repeated: int
    rejoins: int


class ListenerState:
    """Facts that outlive a stream.

    Attributes:
        chain: the listener's position.
        wanted: what the app wants to receive.
        confirmed: what the server has confirmed; also what the next stream asks for at first.
        change_error: why the server refused the last change; None if it did not.
        member_id: empty until the listener is in the room, as is `room`.
        room: as the server described it last.
        resume_within_ms: how long the membership is kept after a stream has broken.
        leaving: whether the app has left the room.
        over: whether the listener has left, or the room is closed or lost.
        room_closed: whether the room was closed.
    """

    def __init__(self, listening: Listening) -> None:
        self.chain = Chain()
        self.wanted = listening
        self.confirmed = listening
        self.change_error: common_pb2.Error | None = None
        self.member_id = ""
        self.room: RoomInfo | None = None
        self.resume_within_ms = 0
        self.leaving = False
        self.over = False
        self.room_closed = False
        self.said = 0
        self.not_said = 0
        self.repeated = 0
        self.rejoins = 0

    @property
    def counts(self) -> ListenerCounts:
        """Totals so far."""
        return ListenerCounts(self.said, self.not_said, self.repeated, self.rejoins)

    @property
    def is_settled(self) -> bool:
        """Whether the server has confirmed or refused what the app wants to receive."""
        return self.wanted == self.confirmed or self.change_error is not None

    def lost(self, reason: str, message: str) -> ListenerLostError:
        """Returns the error that says from where on nothing is received."""
        return ListenerLostError(reason, message, position=self.chain.position)
