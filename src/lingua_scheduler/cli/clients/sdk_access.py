"""TLS and tokens, from the settings, for commands that use the SDK."""

from pathlib import Path

from lingua_scheduler.sdk import Tls, Token
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

# The tenant of sessions without a tenant.
LOCAL_TENANT = "local"

# A stream ends when its token expires: short for people who speak, long for nodes.
_CLIENT_S = 3600.0
_NODE_S = 24 * 3600.0
# A day's work: a page cannot get a new token by itself.
PAGE_TOKEN_S = 12 * 3600


def tls_of(settings: Settings) -> Tls | None:
    """The TLS settings of calls; None if they use no TLS.

    Raises:
        SettingsError: the settings or the files do not fit together.
    """
    # Not at the top: it is slow to load.
    from lingua_scheduler.services.runtime.rpc.tls import client_tls

    if client_tls(settings) is None:
        return None
    cert, key = settings.tls_client_cert_file, settings.tls_client_key_file
    if not cert:
        cert, key = settings.tls_cert_file, settings.tls_key_file
    return Tls(
        ca=Path(settings.tls_ca_file).expanduser(),
        cert=Path(cert).expanduser() if cert else None,
        key=Path(key).expanduser() if key else None,
        server_name=settings.tls_server_name,
    )


def client_token(settings: Settings, tenant: str = "") -> Token | None:
    """An app's token: from the settings, or signed here; None if neither is configured."""
    return _token(settings, Role.CLIENT, tenant=tenant or LOCAL_TENANT, lifetime_s=_CLIENT_S)


def page_token(settings: Settings) -> str:
    """A client's token for the talk page; "" if none is needed, or it cannot be signed here."""
    if settings.auth != "on" or not settings.auth_secret_file:
        return ""
    from lingua_scheduler.services.runtime.auth.tokens import sign_token

    return sign_token(
        settings, role=Role.CLIENT, tenant=LOCAL_TENANT, name="talk page", lifetime_s=PAGE_TOKEN_S
    )


def node_token(settings: Settings, node_id: str) -> Token | None:
    """A node's token; otherwise as `client_token`."""
    return _token(settings, Role.NODE, node_id=node_id, lifetime_s=_NODE_S)


def _token(
    settings: Settings, role: Role, *, lifetime_s: float, tenant: str = "", node_id: str = ""
) -> Token | None:
    if settings.token_file:
        return Path(settings.token_file).expanduser()
    if not settings.auth_secret_file:
        return None
    from lingua_scheduler.services.runtime.auth.tokens import sign_token

    def sign() -> str:
        return sign_token(
            settings, role=role, tenant=tenant, node_id=node_id, lifetime_s=lifetime_s
        )

    # Report signing errors now instead of by a failed connection.
    sign()
    return sign


def may_not(reason: str, role: str) -> str:
    """What to set if a server refused the caller, as the end of a message; otherwise ""."""
    if reason not in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return ""
    return (
        f". It needs a token with role {role}: set {variable_name('token_file')} to a file with "
        f"one, or {variable_name('auth_secret_file')} to the secrets of the services"
    )
