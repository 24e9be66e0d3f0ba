"""Settings of security: who may call, how connections are encrypted."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from lingua_scheduler.services.runtime.settings.field_types import OffOrOn, field, lower


def _path(description: str) -> Any:
    return field("", description, "must be the path of a file, or empty")


class SecurityFields(BaseModel):
    """Who may call, and how connections are encrypted."""

    auth: Annotated[OffOrOn, BeforeValidator(lower)] = field(
        "off",
        "whether callers must authenticate, and may call only the methods of their role",
        "must be off or on",
    )
    listen_without_auth: bool = field(
        False,
        "whether to listen on addresses that other machines can reach if auth is off",
        "must be yes or no",
    )
    auth_secret_file: str = _path(
        "secrets that sign and check HS256 tokens, one per line; the first one signs"
    )
    auth_jwks_file: str = _path("JSON Web Key Set that checks RS256 and ES256 tokens")
    auth_issuer: str = field(
        "", "issuer (iss) that every token must name (empty: any)", "must be text or empty"
    )
    auth_audience: str = field(
        "lingua-scheduler",
        "audience (aud) that every token must name",
        "must be 1 to 256 characters",
        min_length=1,
        max_length=256,
    )
    token_file: str = _path(
        "token that this process sends with its calls (empty: it signs one if it has a secret)"
    )
    tls_cert_file: str = _path("certificate chain of this server, PEM (empty: no TLS)")
    tls_key_file: str = _path("private key of this server")
    tls_client_ca_file: str = _path(
        "authorities of callers' certificates; if set, every caller needs one (mutual TLS)"
    )
    tls_ca_file: str = _path(
        "authorities of the servers that this process calls (empty: calls without TLS)"
    )
    tls_client_cert_file: str = _path(
        "certificate chain for calls to other services (empty: that of the server)"
    )
    tls_client_key_file: str = _path("private key for calls to other services")
    tls_server_name: str = field(
        "",
        "name in the certificates of the other services (empty: the host called)",
        "must be a host name or empty",
    )
    metrics_tls: Annotated[OffOrOn, BeforeValidator(lower)] = field(
        "off", "whether /metrics uses TLS as well, with the same files", "must be off or on"
    )
