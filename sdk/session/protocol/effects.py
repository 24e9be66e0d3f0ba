"""What a session's protocol asks its shell to do."""

from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Close
from lingua_scheduler.sdk.errors import SessionError
from lingua_scheduler.sdk.session.events import Event


@dataclass(frozen=True, slots=True)
class Give:
    """Give this event to the app."""

    event: Event


@dataclass(frozen=True, slots=True)
class Retry:
    """Connect to the next gateway after this many seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Over:
    """The session is closed, and the app has been given everything."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The session cannot continue."""

    error: SessionError


SessionEffect = Give | Close | Retry | Over | Fail
