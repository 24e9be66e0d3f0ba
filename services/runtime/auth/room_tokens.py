"""Tokens of rooms: who may do what in one room (rooms.proto: join tokens and host tokens). Pure.

A token is `room.<room id>.<role>.<expires_s>.<nonce>.<mac>`. The mac is an HMAC-SHA256 of all that
is before it, with the secret of the room, which only gateways know. So any gateway can check a
token, and no token has to be stored; all are void when the room is gone.
"""

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from enum import StrEnum

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S

PREFIX = "room."
_SECRET_BYTES = 32
_NONCE_BYTES = 9
# Of the parts only the id may have dots, as ids that name a cell do, so there is one way to read a
# token. The mac is 32 bytes in base64.
_TOKEN = re.compile(
    r"room\.(?P<room>[A-Za-z0-9._-]{1,128})\.(?P<role>[hsl])\.(?P<expires>[0-9]{1,12})"
    r"\.(?P<nonce>[A-Za-z0-9_-]{1,64})\.(?P<mac>[A-Za-z0-9_-]{43})"
)


class RoomTokenRole(StrEnum):
    """What the holder of a token may do in its room."""

    HOST = "h"
    SPEAKER = "s"
    LISTENER = "l"


class BadRoomTokenError(ValueError):
    """A text is not the token of a room. The message quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class RoomClaims:
    """What a token says. It is true only if `is_signed` says so."""

    room_id: str
    role: RoomTokenRole
    # Seconds since the epoch, clocks that differ included; None: as long as the room exists.
    expires_s: float | None

    def has_expired(self, now_s: float) -> bool:
        """Whether the token is no longer valid."""
        return self.expires_s is not None and now_s >= self.expires_s


def new_secret() -> bytes:
    """A secret for a new room."""
    return secrets.token_bytes(_SECRET_BYTES)


def sign(room_id: str, secret: bytes, role: RoomTokenRole, expires_s: int = 0) -> str:
    """Makes a token.

    Args:
        room_id: of the room.
        secret: of the room.
        role: of the holder.
        expires_s: when it expires, in seconds since the epoch; 0: with the room.
    """
    body = f"{PREFIX}{room_id}.{role}.{expires_s}.{secrets.token_urlsafe(_NONCE_BYTES)}"
    return f"{body}.{_mac(body, secret)}"


def is_room_token(token: str) -> bool:
    """Whether a token claims to be one of a room."""
    return token.startswith(PREFIX)


def parse(token: str) -> RoomClaims:
    """Reads the claims of a token, without checking them. Raises BadRoomTokenError."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        raise BadRoomTokenError("it is not the token of a room, or a part of it is missing")
    expires_s = int(parts["expires"])
    return RoomClaims(
        room_id=parts["room"],
        role=RoomTokenRole(parts["role"]),
        expires_s=float(expires_s + LEEWAY_S) if expires_s else None,
    )


def is_signed(token: str, secret: bytes) -> bool:
    """Whether a token was made with this secret. Takes equally long if not."""
    body, _, mac = token.rpartition(".")
    return hmac.compare_digest(_mac(body, secret).encode(), mac.encode())


def _mac(body: str, secret: bytes) -> str:
    digest = hmac.digest(secret, body.encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
