"""TLS of apps and nodes: which files, read when, and what a failed handshake means."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import grpc

Pem = str | Path | bytes


class TlsFiles(NamedTuple):
    """What the files held when they were read."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None

    def credentials(self) -> grpc.ChannelCredentials:
        """As gRPC wants it."""
        return grpc.ssl_channel_credentials(self.ca, self.key, self.cert)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the server proves who it is, and with `cert` how this side does. All of it is PEM.

    Files are read at every new connection, so new ones are taken up without a restart. Those that
    were connected before keep their connection until it ends.

    Args:
        ca: path or bytes: the authorities that may have signed the server's certificate; None:
            those that gRPC trusts by itself (GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names others).
        cert: path or bytes: the certificate chain that this side shows, for mutual TLS; with `key`.
        key: path or bytes: its private key.
        server_name: that the server's certificate must have, where it is not the host that is
            called.

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
        # Whoever mistypes a path learns it here, and not by a connection that fails.
        self.read()

    def read(self) -> TlsFiles:
        """The files as they are now. Raises ValueError where one cannot be read."""
        return TlsFiles(_read("ca", self.ca), _read("cert", self.cert), _read("key", self.key))

    def options(self) -> tuple[tuple[str, str], ...]:
        """Of the channel."""
        return (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()


def _read(name: str, pem: Pem | None) -> bytes | None:
    if pem is None or isinstance(pem, bytes):
        return pem
    try:
        return Path(pem).read_bytes()
    except OSError as error:
        raise ValueError(f"{name}: cannot read {str(pem)!r}: {error.strerror}") from None


# What gRPC says of a handshake that failed, and what to do then. The first that fits counts.
_HINTS = (
    ("certificate has expired", "the server's certificate has expired, or a clock is wrong"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "Tls(ca=...) has to be the authority that signed the server's certificate",
    ),
    (
        "Hostname Verification Check failed",
        "the server's certificate is for another name than the one that was called:"
        " Tls(server_name=...) says which",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS at this address"),
    (
        "Failed to create security handshaker",
        "a file of Tls(...) is not PEM, or the key is not that of the cert",
    ),
)
_NOT_CONNECTED = "failed to connect to all addresses"


def tls_hint(details: str, tls: Tls | None) -> str:
    """What to do about a connection that failed with these words; "" where TLS is not why.

    Args:
        details: of the status with which gRPC ended a call.
        tls: as it was used.
    """
    if _NOT_CONNECTED not in details:
        return ""
    for words, hint in _HINTS:
        if words in details:
            return hint
    # A server that does not like the handshake says nothing and leaves.
    if "Socket closed" not in details:
        return ""
    if tls is None:
        return "the server may want TLS: tls=Tls(...)"
    if tls.cert is None:
        return "the server may want a certificate: Tls(cert=..., key=...)"
    return "the server may not accept the certificate that was shown"
