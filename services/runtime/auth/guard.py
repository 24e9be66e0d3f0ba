"""Authenticates callers and checks whether they may call a method."""

import ipaddress
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.auth.access import is_open, may_call
from lingua_scheduler.services.runtime.auth.principals import Principal, Role, set_caller
from lingua_scheduler.services.runtime.auth.room_tokens import (
    BadRoomTokenError,
    is_room_token,
    parse,
)
from lingua_scheduler.services.runtime.auth.token_claims import BadClaimsError, principal_of_uri
from lingua_scheduler.services.runtime.errors import (
    PermissionDeniedError,
    SettingsError,
    UnauthenticatedError,
)
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier

AUTHORIZATION = "authorization"
_HOW = f"send metadata '{AUTHORIZATION}: Bearer <token>', or use a client certificate"

_log = logging.getLogger(__name__)


class Credentials(Protocol):
    """What a call says about its caller; the context of a gRPC call is one."""

    def invocation_metadata(self) -> Any:
        """Pairs of names and values, among them the token."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What the caller's certificate says."""


class Guard:
    """Admits or refuses calls.

    Args:
        verifier: checks tokens; None if callers are identified by certificates only.
    """

    def __init__(self, verifier: "TokenVerifier | None") -> None:
        self._verifier = verifier

    def admit(self, method: str, context: Credentials) -> Principal | None:
        """Admits a call of `package.Service/Method` and sets its `caller`.

        Returns:
            The caller; None if anyone may call the method.

        Raises:
            UnauthenticatedError: the caller has no token or certificate, or an invalid one.
            PermissionDeniedError: the caller may not call this method.
        """
        if is_open(method):
            return None
        principal = self.authenticate(context)
        # Also if the call is refused, so that the log names the caller.
        set_caller(principal)
        if not may_call(principal.role, method):
            service, _, name = method.rpartition(".")[2].partition("/")
            raise PermissionDeniedError(
                f"a caller of role {principal.role} may not call {service}/{name}"
            )
        return principal

    def authenticate(self, context: Credentials) -> Principal:
        """The caller, whatever it may do.

        Raises:
            UnauthenticatedError: the caller has no token or certificate, or an invalid one.
        """
        token = bearer_token(context.invocation_metadata() or ())
        if token is not None:
            if is_room_token(token):
                return member_of(token)
            if self._verifier is None:
                raise UnauthenticatedError(
                    "this server accepts only client certificates: send no token"
                )
            return self._verifier.verify(token)
        principal = certified(context.auth_context())
        if principal is None:
            raise UnauthenticatedError(f"no token: {_HOW}")
        return principal


def member_of(token: str) -> Principal:
    """The principal that the token of a room names. Its signature is for the handler to check.

    Raises:
        UnauthenticatedError: it is malformed or has expired.
    """
    try:
        claims = parse(token)
    except BadRoomTokenError as error:
        raise UnauthenticatedError(f"the token is not valid: {error}") from None
    if claims.has_expired(time.time()):
        raise UnauthenticatedError("the token is not valid: it has expired; get a new one")
    return Principal(
        role=Role.MEMBER,
        name=f"room {claims.room_id}",
        expires_s=claims.expires_s,
        room_token=token,
    )


def member_if_any(context: Credentials) -> Principal | None:
    """Sets the `caller` if auth is off: a member if it has a token of a room, else nobody.

    Raises:
        UnauthenticatedError: the token is malformed or has expired.
    """
    try:
        token = bearer_token(context.invocation_metadata() or ())
    except UnauthenticatedError:
        token = None
    member = member_of(token) if token is not None and is_room_token(token) else None
    set_caller(member)
    return member


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token in a call's metadata; None if there is none.

    Raises:
        UnauthenticatedError: the header is malformed, or there are several.
    """
    # At run time these are plain pairs, unlike their declared type.
    found = [value for key, value in metadata if key == AUTHORIZATION]
    if not found:
        return None
    if len(found) > 1:
        raise UnauthenticatedError(f"more than one '{AUTHORIZATION}' in the metadata: send one")
    value = found[0]
    scheme, _, token = (value.decode() if isinstance(value, bytes) else value).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(f"'{AUTHORIZATION}' contains no token: {_HOW}")
    return token.strip()


def certified(auth_context: Mapping[str, Iterable[bytes]]) -> Principal | None:
    """The principal that a caller's certificate names; None if it names none.

    Raises:
        UnauthenticatedError: it has a malformed `lingua:` URI, or several.
    """
    try:
        uris = [uri.decode("utf-8", "replace") for uri in auth_context.get("peer_uri") or ()]
        found = [each for each in map(principal_of_uri, uris) if each is not None]
    except BadClaimsError as error:
        raise UnauthenticatedError(f"the client certificate is not valid: {error}") from None
    if len(found) > 1:
        raise UnauthenticatedError("the client certificate has more than one URI with 'lingua:'")
    return found[0] if found else None


def guard_of(settings: Settings, service: str) -> Guard | None:
    """Makes the guard of a server; None if auth is off.

    Raises:
        SettingsError: nobody could call the server, or everybody on the network could.
    """
    reachable = _reachable_by_others(settings, service)
    if settings.auth == "off":
        if reachable and not settings.listen_without_auth:
            listen, address = reachable[0]
            raise SettingsError(
                f"{variable_name(listen)}={address!r}: without auth, everyone who can reach this "
                f"address could use and control the {service} service. Set "
                f"{variable_name('auth')}=on and {variable_name('auth_secret_file')} (or "
                f"{variable_name('auth_jwks_file')}, or {variable_name('tls_client_ca_file')}), "
                f"or, if the network keeps strangers out, "
                f"{variable_name('listen_without_auth')}=yes"
            )
        return None
    has_keys = settings.auth_secret_file or settings.auth_jwks_file
    if not has_keys and not settings.tls_client_ca_file:
        raise SettingsError(
            f"{variable_name('auth')}=on, but there is no way to identify callers. Set "
            f"{variable_name('auth_secret_file')} ('lingua token secret FILE' makes one), "
            f"{variable_name('auth_jwks_file')}, or {variable_name('tls_client_ca_file')} "
            "(mutual TLS)"
        )
    if not settings.tls_cert_file:
        for _, address in reachable:
            # Harmless if a proxy in front of this address terminates TLS.
            _log.warning(
                "auth is on without tls",
                extra={"address": address, "unset": variable_name("tls_cert_file")},
            )
    if not has_keys:
        return Guard(None)
    # Imported late because it takes long to load and is needed only with auth.
    from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier

    return Guard(TokenVerifier(settings))


def _reachable_by_others(settings: Settings, service: str) -> list[tuple[str, str]]:
    """The settings of addresses of a service that other machines can reach, with their values."""
    listens = [f"{service}_listen", f"{service}_web_listen"]
    found = [(name, str(getattr(settings, name, ""))) for name in listens]
    return [(name, address) for name, address in found if address and not is_loopback(address)]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `host:port`."""
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name may resolve to any address
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback
