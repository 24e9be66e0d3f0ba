"""What a listener's protocol asks its shell to do."""

from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Close
from lingua_scheduler.sdk.errors import RoomError
from lingua_scheduler.sdk.room.events import RoomEvent, RoomStatus
from lingua_scheduler.sdk.session.protocol.effects import Over, Retry


@dataclass(frozen=True, slots=True)
class Give:
    """Give this event to the app."""

    event: RoomEvent


@dataclass(frozen=True, slots=True)
class Show:
    """Tell the app who is in the room."""

    status: RoomStatus


@dataclass(frozen=True, slots=True)
class Fail:
    """The listener cannot continue."""

    error: RoomError


ListenerEffect = Give | Show | Close | Retry | Over | Fail
