"""Who calls, and whether it may: what a server asks before it looks at a call."""

import ipaddress
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.auth.access import is_open, may_call
from lingua_scheduler.services.runtime.auth.principals import Principal, set_caller
from lingua_scheduler.services.runtime.auth.token_claims import BadClaimsError, principal_of_uri
from lingua_scheduler.services.runtime.errors import (
    PermissionDeniedError,
    SettingsError,
    UnauthenticatedError,
)
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

if TYPE_CHECKING:
    from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

AUTHORIZATION = "authorization"
_HOW = f"send metadata '{AUTHORIZATION}: Bearer <token>', or use a client certificate"

_log = logging.getLogger(__name__)


class Guard:
    """Lets a call in, or says why not.

    Args:
        verifier: None where certificates alone say who calls.
    """

    def __init__(self, verifier: "TokenVerifier | None") -> None:
        self._verifier = verifier

    def admit(self, method: str, context: Context) -> Principal | None:
        """Who calls `package.Service/Method`, also by `caller`; None where anyone may.

        Raises:
            UnauthenticatedError: it does not say who it is, or not so that it holds.
            PermissionDeniedError: that one may not call this.
        """
        if is_open(method):
            return None
        principal = self._principal(context)
        # Also of one that is refused, so that it is known who tried.
        set_caller(principal)
        if not may_call(principal.role, method):
            service, _, name = method.rpartition(".")[2].partition("/")
            raise PermissionDeniedError(
                f"a caller of role {principal.role} may not call {service}/{name}"
            )
        return principal

    def _principal(self, context: Context) -> Principal:
        token = bearer_token(context.invocation_metadata() or ())
        if token is not None:
            if self._verifier is None:
                raise UnauthenticatedError(
                    "tokens do not count here, only client certificates: send none"
                )
            return self._verifier.verify(token)
        principal = certified(context.auth_context())
        if principal is None:
            raise UnauthenticatedError(f"no token: {_HOW}")
        return principal


def bearer_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token in a call's metadata; None where there is none.

    Raises:
        UnauthenticatedError: there is something else, or more than one.
    """
    # At run time these are plain pairs, whatever their type says.
    found = [value for key, value in metadata if key == AUTHORIZATION]
    if not found:
        return None
    if len(found) > 1:
        raise UnauthenticatedError(f"more than one '{AUTHORIZATION}' in the metadata: send one")
    value = found[0]
    scheme, _, token = (value.decode() if isinstance(value, bytes) else value).partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError(f"'{AUTHORIZATION}' holds no token: {_HOW}")
    return token.strip()


def certified(auth_context: Mapping[str, Iterable[bytes]]) -> Principal | None:
    """Whom a caller's certificate names; None where there is none, or it names nobody.

    Raises:
        UnauthenticatedError: it names somebody in a form that is not known, or several.
    """
    try:
        uris = [uri.decode("utf-8", "replace") for uri in auth_context.get("peer_uri") or ()]
        found = [each for each in map(principal_of_uri, uris) if each is not None]
    except BadClaimsError as error:
        raise UnauthenticatedError(f"the client certificate does not hold: {error}") from None
    if len(found) > 1:
        raise UnauthenticatedError("the client certificate has more than one URI with 'lingua:'")
    return found[0] if found else None


def guard_of(settings: Settings, service: str) -> Guard | None:
    """The guard of a server that is about to start; None where auth is off.

    Raises:
        SettingsError: nobody could call it, or everybody could.
    """
    listen = f"{service}_listen"
    address = getattr(settings, listen)
    if settings.auth == "off":
        if not is_loopback(address) and not settings.listen_without_auth:
            raise SettingsError(
                f"{variable_name(listen)}={address!r}: without auth, everyone who can reach this "
                f"address could use and control the {service} service. Set "
                f"{variable_name('auth')}=on and {variable_name('auth_secret_file')} (or "
                f"{variable_name('auth_jwks_file')}, or {variable_name('tls_client_ca_file')}), "
                f"or, where something else keeps strangers out, "
                f"{variable_name('listen_without_auth')}=yes"
            )
        return None
    has_keys = settings.auth_secret_file or settings.auth_jwks_file
    if not has_keys and not settings.tls_client_ca_file:
        raise SettingsError(
            f"{variable_name('auth')}=on, but nothing tells who calls. Set "
            f"{variable_name('auth_secret_file')} ('lingua token secret FILE' makes one), "
            f"{variable_name('auth_jwks_file')}, or {variable_name('tls_client_ca_file')} "
            "(mutual TLS)"
        )
    if not settings.tls_cert_file and not is_loopback(address):
        # Harmless if a proxy in front of this address terminates TLS.
        _log.warning(
            "auth is on without tls",
            extra={"address": address, "unset": variable_name("tls_cert_file")},
        )
    if not has_keys:
        return Guard(None)
    # Not at the top: it loads for a while, and without auth nobody needs it.
    from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier

    return Guard(TokenVerifier(settings))


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches what listens at `host:port`."""
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        ip = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False  # a name may stand for any address
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback
