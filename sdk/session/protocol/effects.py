"""What a session's protocol asks its shell to do."""

from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Close
from lingua_scheduler.sdk.errors import SessionError
from lingua_scheduler.sdk.session.events import Event


@dataclass(frozen=True, slots=True)
class Give:
    """The app is to hear this."""

    event: Event


@dataclass(frozen=True, slots=True)
class Retry:
    """Connect to the next gateway after so many seconds."""

    after: float


@dataclass(frozen=True, slots=True)
class Over:
    """The session is closed, and all has been given to the app."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The session cannot go on."""

    error: SessionError


SessionEffect = Give | Close | Retry | Over | Fail
