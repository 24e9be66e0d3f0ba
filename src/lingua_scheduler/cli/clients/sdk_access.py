"""How commands that use the SDK call: the TLS and the tokens that the settings give them."""

from pathlib import Path

from lingua_scheduler.sdk import Tls, Token
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

# Of those who do not say whose sessions theirs are.
LOCAL_TENANT = "local"

# A stream ends with its token. Of people who speak it may be short, nodes stay for long.
_CLIENT_S = 3600.0
_NODE_S = 24 * 3600.0


def tls_of(settings: Settings) -> Tls | None:
    """None where calls are made without TLS.

    Raises:
        SettingsError: the settings or the files do not fit together.
    """
    # Not at the top: it takes long to load.
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
    """Of an app: that of the settings, or one that is signed here; None where neither is set."""
    return _token(settings, Role.CLIENT, tenant=tenant or LOCAL_TENANT, lifetime_s=_CLIENT_S)


def node_token(settings: Settings, node_id: str) -> Token | None:
    """Of a node; otherwise as `client_token`."""
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

    # What cannot be signed is said at once, and not by a connection that fails.
    sign()
    return sign


def may_not(reason: str, role: str) -> str:
    """What to set where a server refused who called, as the end of a message; "" else."""
    if reason not in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return ""
    return (
        f". It takes a token of role {role}: set {variable_name('token_file')} to a file with one,"
        f" or {variable_name('auth_secret_file')} to the secrets of the services"
    )
