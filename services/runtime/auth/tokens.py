"""Tokens (JWT): signing with the first secret, and checking with all keys."""

import json
import time
from collections.abc import Mapping
from typing import Any

import jwt

from lingua_scheduler.services.runtime.auth.principals import Principal, Role
from lingua_scheduler.services.runtime.auth.token_claims import (
    BadClaimsError,
    ClaimRules,
    principal_of,
)
from lingua_scheduler.services.runtime.auth.token_keys import (
    Key,
    candidates,
    parse_jwks,
    parse_secrets,
)
from lingua_scheduler.services.runtime.auth.watched_file import WatchedFile
from lingua_scheduler.services.runtime.errors import SettingsError, UnauthenticatedError
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

# More than any issuer needs; gRPC accepts about twice as much.
_MAX_TOKEN_CHARS = 8192
# Verified tokens that are remembered; if there are more, the oldest are checked again.
_MAX_KNOWN = 4096

_JWS = jwt.PyJWS()


def sign_token(
    settings: Settings,
    *,
    role: Role | str,
    tenant: str = "",
    node_id: str = "",
    owner: str = "",
    limits: Mapping[str, int] | None = None,
    name: str = "",
    lifetime_s: float,
) -> str:
    """Signs a token with the first secret of `auth_secret_file`.

    Args:
        settings: the secret file, audience and issuer.
        role: of the holder.
        tenant: of a client.
        node_id: of a node.
        owner: of nodes, for a token that all nodes of the owner may use.
        limits: of a client: sessions, jobs, audio_s_per_minute, rooms. The settings apply to the
            others.
        name: of the holder, for logs.
        lifetime_s: seconds from now.

    Raises:
        SettingsError: there is no secret to sign with.
        BadClaimsError: the token would be refused.
    """
    if not settings.auth_secret_file:
        raise SettingsError(
            f"{variable_name('auth_secret_file')} is not set: only a secret can sign tokens "
            "('lingua token secret FILE' makes one)"
        )
    return sign(
        secret_file(settings).get()[0],
        settings,
        lifetime_s=lifetime_s,
        sub=name,
        role=str(role),
        tenant=tenant,
        node_id=node_id,
        owner=owner,
        limits=limits or None,
    )


def secret_file(settings: Settings) -> WatchedFile[tuple[Key, ...]]:
    """The secrets that the settings name. Raises SettingsError if they cannot be read."""
    return WatchedFile(
        path=settings.auth_secret_file,
        variable=variable_name("auth_secret_file"),
        parse=parse_secrets,
    )


def sign(secret: Key, settings: Settings, *, lifetime_s: float, **said: Any) -> str:
    """Signs a token with these claims, leaving out empty ones; see `sign_token`."""
    now = time.time()
    said |= {
        "iss": settings.auth_issuer,
        "aud": settings.auth_audience,
        "iat": int(now),
        "exp": int(now + lifetime_s),
    }
    claims = {name: value for name, value in said.items() if value not in ("", None)}
    principal_of(claims, ClaimRules.of(settings), now)
    return _JWS.encode(json.dumps(claims).encode(), secret.key, algorithm=secret.algorithm)


class TokenVerifier:
    """Checks tokens with the keys of the settings, which are reloaded if they change.

    Raises:
        SettingsError: a file of keys cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._rules = ClaimRules.of(settings)
        self._files: list[WatchedFile[tuple[Key, ...]]] = []
        if settings.auth_secret_file:
            self._files.append(secret_file(settings))
        if path := settings.auth_jwks_file:
            variable = variable_name("auth_jwks_file")
            self._files.append(WatchedFile(path=path, variable=variable, parse=parse_jwks))
        self._known: dict[str, Principal] = {}
        self._version = 0

    def verify(self, token: str) -> Principal:
        """The principal that a token names.

        Raises:
            UnauthenticatedError: the token is invalid. The message quotes nothing of the token.
        """
        keys = [key for file in self._files for key in file.get()]
        version = sum(file.version for file in self._files)
        if version != self._version:
            # A key that signed a remembered token may have been removed.
            self._version = version
            self._known.clear()
        now = time.time()
        known = self._known.get(token)
        if known is not None and (known.expires_s is None or now < known.expires_s):
            return known
        try:
            principal = principal_of(_verified_claims(token, keys), self._rules, now)
        except BadClaimsError as error:
            self._known.pop(token, None)
            raise UnauthenticatedError(f"the token is not valid: {error}") from None
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[token] = principal
        return principal


def read_claims(token: str) -> tuple[dict[str, object], dict[str, object]]:
    """Header and claims of a token, without checking its signature. Raises BadClaimsError."""
    if len(token) > _MAX_TOKEN_CHARS:
        raise BadClaimsError(f"it has over {_MAX_TOKEN_CHARS} characters")
    try:
        decoded = _JWS.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError):
        raise BadClaimsError("it is not a JWT (three base64url parts separated by dots)") from None
    return decoded["header"], _claims(decoded["payload"])


def _verified_claims(token: str, keys: list[Key]) -> dict[str, object]:
    header, _ = read_claims(token)
    if "crit" in header:
        raise BadClaimsError("its header has crit, which is not supported")
    algorithm, key_id = header.get("alg"), header.get("kid")
    fit = candidates(keys, algorithm, key_id)
    if not fit:
        served = sorted({key.algorithm for key in keys})
        if algorithm in served:
            raise BadClaimsError("no key of the key set has its kid")
        raise BadClaimsError(f"its alg must be {' or '.join(served)}")
    for key in fit:
        try:
            return _claims(_JWS.decode(token, key.key, algorithms=[key.algorithm]))
        except jwt.PyJWTError:
            continue
    raise BadClaimsError("its signature matches none of the configured keys")


def _claims(payload: bytes) -> dict[str, object]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise BadClaimsError("its claims are not a JSON object")
    return claims
