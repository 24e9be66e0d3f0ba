"""Whom `lingua speak` speaks to: one language, or a room. Makes the session for it."""

from dataclasses import dataclass, field
from typing import Any

import click

from lingua_scheduler.cli.clients.sdk_access import client_token, may_not, tls_of
from lingua_scheduler.cli.failures import FAILED, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.speak.room_access import ROOM_VARIABLE, not_let_in
from lingua_scheduler.sdk import (
    AudioFormat,
    PauseDetection,
    Room,
    Session,
    SessionError,
    SessionLostError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.services.runtime.settings.settings import Settings

# Often enough to look alive on a terminal.
_PARTIAL_EVERY_MS = 200
_UNREACHABLE_REASONS = ("UNREACHABLE", "SCHEDULER_DEPENDENCY_DOWN")
_USAGE_REASONS = ("INVALID_MESSAGE", "UNAUTHENTICATED", "PERMISSION_DENIED")


@dataclass(frozen=True, kw_only=True)
class Target:
    """What the options say about it.

    Raises:
        UsageError: they do not go together.
    """

    src: str
    tgt: str | None
    room_id: str | None
    room_token: str = field(repr=False)
    name: str
    saves: bool
    text_only: bool
    tenant: str

    def __post_init__(self) -> None:
        if bool(self.tgt) == bool(self.room_id):
            raise click.UsageError("give one of --to and --room")
        if self.saves and self.text_only:
            raise click.UsageError("--save needs speech, but --text-only requests none")
        if self.name and not self.room_id:
            raise click.UsageError("--name needs --room")
        if self.room_id and not self.room_token:
            raise click.UsageError(f"--room needs --room-token or {ROOM_VARIABLE}")
        if self.room_id and (self.saves or self.text_only or self.tenant):
            raise click.UsageError("--save, --text-only and --tenant do not go with --room")

    def session(
        self,
        address: str,
        settings: Settings,
        *,
        audio_format: AudioFormat,
        mic: bool,
        live: bool,
        timeout_s: float,
    ) -> Session:
        """The session that speaks to it.

        Args:
            address: of the gateways.
            settings: for TLS and tokens.
            audio_format: of all audio.
            mic: whether the audio is that of a microphone, which never stops sending.
            live: whether partial texts are shown.
            timeout_s: how long to look for a gateway.

        Raises:
            Failure: an option is not valid.
        """
        common: dict[str, Any] = {
            "audio_format": audio_format,
            "pause_detection": PauseDetection.VOICE_ACTIVITY if mic else PauseDetection.GAPS,
            "reconnect_seconds": timeout_s,
        }
        tls = tls_of(settings)
        try:
            if self.room_id:
                room = Room(address, room_id=self.room_id, token=self.room_token, tls=tls)
                return room.speak(language=self.src, name=self.name, **common)
            return Session(
                address,
                src=self.src,
                tgt=self.tgt,
                require_tts=not self.text_only,
                partial_interval_ms=_PARTIAL_EVERY_MS if live else 0,
                tenant=self.tenant,
                tls=tls,
                token=client_token(settings, self.tenant),
                **common,
            )
        except ValueError as error:
            raise Failure(str(error), reason="USAGE", exit_code=USAGE) from None

    def failure(self, error: SessionError, address: str) -> Failure:
        """The failure for a session that could not be opened or was lost."""
        if self.room_id and isinstance(error, SessionRefusedError | SessionLostError):
            return not_let_in(error, room_id=self.room_id, role="speaker", address=address)
        return _failure(error, address)


def _failure(error: SessionError, address: str) -> Failure:
    """The failure for a session that could not be opened or was lost."""
    if error.reason == "QUOTA_EXCEEDED":
        message = f"the session gateway at {address} has no room for this tenant: {error.message}"
    elif error.reason == "SCHEDULER_DEPENDENCY_DOWN":
        message = f"the session gateway at {address} cannot serve now: {error.message}"
    elif isinstance(error, SessionUnavailableError):
        message = (
            f"no session at {address}: {error.message}. 'lingua up' starts a gateway; --gateway or "
            "LINGUA_GATEWAY_ADDRESS sets its address, --timeout allows more time"
        )
    elif isinstance(error, SessionRefusedError):
        message = f"the session gateway at {address} refuses this session: {error.message}"
    else:
        message = f"the session was lost: {error.message}"
    message += may_not(error.reason, "client")
    exit_code = FAILED
    if error.reason in _UNREACHABLE_REASONS:
        exit_code = UNREACHABLE
    elif error.reason in _USAGE_REASONS:
        exit_code = USAGE
    return Failure(message, reason=error.reason, exit_code=exit_code)
