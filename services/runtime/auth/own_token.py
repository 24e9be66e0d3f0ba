"""The token that this process sends with its calls."""

import time
from typing import TYPE_CHECKING

from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.auth.watched_file import WatchedFile
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.auth.token_keys import Key

# A stream ends when the token that opened it expires, so the tokens of services live long. Whoever
# can read one from the memory of a service can also read its secret.
SERVICE_LIFETIME_S = 24 * 3600.0


class OwnToken:
    """The token of `token_file`, else one signed with the secret, else none.

    Raises:
        SettingsError: the file, or the secret, cannot be read.
    """

    def __init__(
        self, settings: Settings, *, role: Role, lifetime_s: float = SERVICE_LIFETIME_S
    ) -> None:
        self._settings = settings
        self._role = role
        self._lifetime_s = lifetime_s
        self._given: WatchedFile[str] | None = None
        self._secrets: WatchedFile[tuple[Key, ...]] | None = None
        self._signed = ""
        self._signed_by: Key | None = None
        self._renew_at = 0.0
        if settings.token_file:
            self._given = WatchedFile(
                path=settings.token_file, variable=variable_name("token_file"), parse=parse_token
            )
        elif settings.auth_secret_file:
            # Imported late because it takes long to load.
            from lingua_scheduler.services.runtime.auth.tokens import secret_file

            self._secrets = secret_file(settings)

    def get(self) -> str:
        """A token that is valid for a while; "" if there is none."""
        if self._given is not None:
            return self._given.get()
        return self._sign(self._secrets.get()[0]) if self._secrets is not None else ""

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The token as metadata of a call."""
        token = self.get()
        return (("authorization", f"Bearer {token}"),) if token else ()

    def _sign(self, secret: "Key") -> str:
        now = time.time()
        if now >= self._renew_at or secret is not self._signed_by:
            from lingua_scheduler.services.runtime.auth.tokens import sign

            self._signed = sign(
                secret,
                self._settings,
                lifetime_s=self._lifetime_s,
                role=str(self._role),
                sub=self._settings.instance_id,
            )
            self._signed_by = secret
            self._renew_at = now + self._lifetime_s / 2
        return self._signed


def parse_token(data: bytes) -> str:
    """Reads the token in a file. Raises ValueError that does not quote the file."""
    token = data.decode("ascii", "replace").strip()
    if not token:
        raise ValueError("contains no token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("must contain exactly one token")
    return token
