"""TLS for apps and nodes: its files, and hints about failed handshakes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import grpc

Pem = str | Path | bytes


class TlsFiles(NamedTuple):
    """The contents of the files when they were read."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None

    def credentials(self) -> grpc.ChannelCredentials:
        """Returns the credentials for a gRPC channel."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Verifies the server's certificate, and shows one of its own if `cert` is given. All PEM.

    Files are read at every new connection, so new ones take effect without a restart. Open
    connections are kept until they end.

    Args:
        ca: path or bytes: the authorities that may have signed the server's certificate; None:
            those that gRPC trusts by default (GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names others).
        cert: path or bytes: the certificate chain of this side, for mutual TLS; requires `key`.
        key: path or bytes: its private key.
        server_name: the name in the server's certificate, if it differs from the host in the
            address.

    Raises:
        ValueError: a file cannot be read, or one of `cert` and `key` is missing.
    """

    ca: Pem | None = field(default=None, repr=False)
    cert: Pem | None = field(default=None, repr=False)
    key: Pem | None = field(default=None, repr=False)
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert: needs its key, and the key its cert")
        # Reports a mistyped path here, before a connection fails because of it.
        self.read()

    def read(self) -> TlsFiles:
        """Reads the files. Raises ValueError if one cannot be read."""
        return TlsFiles(_read("ca", self.ca), _read("cert", self.cert), _read("key", self.key))

    def options(self) -> tuple[tuple[str, str], ...]:
        """Returns the options of a gRPC channel."""
        return (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()


def _read(name: str, pem: Pem | None) -> bytes | None:
    if pem is None or isinstance(pem, bytes):
        return pem
    try:
        return Path(pem).read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {str(pem)!r}: {error.strerror}") from None


# Parts of gRPC's messages about failed handshakes, and what to do about each. The first match wins.
_HINTS = (
    ("certificate has expired", "the server's certificate has expired, or a clock is wrong"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "Tls(ca=...) must be the authority that signed the server's certificate",
    ),
    (
        "Hostname Verification Check failed",
        "the server's certificate has another name than the address:"
        " pass that name as Tls(server_name=...)",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS at this address"),
    (
        "Failed to create security handshaker",
        "a file of Tls(...) is not PEM, or the key is not that of the cert",
    ),
)
_NOT_CONNECTED = "failed to connect to all addresses"


def tls_hint(details: str, tls: Tls | None) -> str:
    """Returns what to do about a failed connection; "" if TLS is not the cause.

    Args:
        details: of the status with which gRPC ended a call.
        tls: the TLS settings of the connection.
    """
    if _NOT_CONNECTED not in details:
        return ""
    for words, hint in _HINTS:
        if words in details:
            return hint
    # A server that rejects the handshake just closes the connection.
    if "Socket closed" not in details:
        return ""
    if tls is None:
        return "the server may require TLS: tls=Tls(...)"
    if tls.cert is None:
        return "the server may require a certificate: Tls(cert=..., key=...)"
    return "the server may have rejected the certificate of this side"
