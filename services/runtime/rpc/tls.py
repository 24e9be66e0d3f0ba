"""TLS of servers and of calls to other services, from files that may change.

Files are checked whenever a connection is made. A new certificate is used from the next connection
on. Files that do not belong together, such as half of a new pair, are ignored.
"""

import logging
import os
import ssl
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name

if TYPE_CHECKING:
    from cryptography import x509
    from prometheus_client import CollectorRegistry

# Modification time, size and inode of each file; None for a file that does not exist.
Stamp = tuple[tuple[int, int, int] | None, ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of the files, in PEM; None for files that are not set."""

    authorities: bytes | None
    chain: bytes | None
    key: bytes | None
    not_after: datetime | None
    uris: tuple[bytes, ...] = ()
    """Alternative names of the certificate that are URIs, such as `lingua:service/NAME`."""


class TlsFiles:
    """The files of one side of a connection: certificate chain, key, and trusted authorities.

    Args:
        settings: have the paths.
        kind: server or client.
        authorities: name of the setting for the trusted authorities.
        certificate: name of the setting for the chain.
        key: name of the setting for the key.

    Raises:
        SettingsError: a file is missing or malformed, or they do not belong together.
    """

    def __init__(
        self, settings: Settings, *, kind: str, authorities: str, certificate: str, key: str
    ) -> None:
        self.kind = kind
        self._authorities = _File(settings, authorities)
        self._certificate = _File(settings, certificate)
        self._key = _File(settings, key)
        _check_pair(self._certificate, self._key)
        # gRPC makes handshakes in several threads.
        self._lock = threading.Lock()
        self._told = ""
        self._seen: Stamp | None = self.stamp()
        self._loaded = self._load()

    def stamp(self) -> Stamp:
        """Differs if a file has changed."""
        return tuple(file.stamp() for file in (self._authorities, self._certificate, self._key))

    def current(self) -> Loaded:
        """The last valid content of the files; the same object until it changes."""
        with self._lock:
            stamp = self.stamp()
            if stamp != self._seen:
                self._seen = stamp if self._reload() else None
            return self._loaded

    def not_after_s(self) -> float:
        """When the certificate in use expires, in seconds since the epoch."""
        end = self.current().not_after
        return end.timestamp() if end else 0.0

    def _reload(self) -> bool:
        try:
            loaded = self._load()
        except SettingsError as error:
            if str(error) != self._told:
                self._told = str(error)
                _log.error("certificate reload failed", extra={"reason": str(error)})
            return False
        self._told = ""
        if loaded != self._loaded:
            self._loaded = loaded
            facts = {"kind": self.kind, "file": self._certificate.path or self._authorities.path}
            if loaded.not_after is not None:
                facts["not_after"] = loaded.not_after.isoformat()
            _log.info("certificates reloaded", extra=facts)
        return True

    def _load(self) -> Loaded:
        authorities = chain = key = not_after = None
        uris: tuple[bytes, ...] = ()
        if self._authorities.path:
            authorities, _ = self._authorities.certificates()
        if self._certificate.path:
            chain, leaf = self._certificate.certificates()
            key = self._key.key_of(leaf, self._certificate)
            not_after, uris = leaf.not_valid_after_utc, _uris(leaf)
            if not_after <= datetime.now(UTC):
                raise self._certificate.error(f"the certificate expired at {not_after:%F %T} UTC")
        return Loaded(authorities, chain, key, not_after, uris)


class ServerTls:
    """TLS of a server; mutual if `tls_client_ca_file` is set."""

    def __init__(self, settings: Settings) -> None:
        self.files = TlsFiles(
            settings,
            kind="server",
            authorities="tls_client_ca_file",
            certificate="tls_cert_file",
            key="tls_key_file",
        )
        self._paths = settings.tls_cert_file, settings.tls_key_file
        self._mutual = bool(settings.tls_client_ca_file)
        self._given = self.files.current()
        self._context_of: Loaded | None = None
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server, which asks for new certificates at every handshake."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._given),
            self._changed,  # type: ignore[arg-type]  # None is for "unchanged"
            require_client_authentication=self._mutual,
        )

    def context(self) -> ssl.SSLContext:
        """For one connection of any other server."""
        loaded = self.files.current()
        if loaded is not self._context_of:
            try:
                self._context, self._context_of = self._new_context(loaded), loaded
            except OSError:
                # The files changed again and are incomplete; the next connection tries again.
                if self._context_of is None:
                    raise
        return self._context

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        loaded = self.files.current()
        if loaded is self._given:
            return None
        self._given = loaded
        return _configuration(loaded)

    def _new_context(self, loaded: Loaded) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(os.path.expanduser, self._paths))
        if loaded.authorities is not None:
            context.load_verify_locations(cadata=loaded.authorities.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class ClientTls:
    """TLS of calls to other services."""

    def __init__(self, settings: Settings) -> None:
        own = bool(settings.tls_client_cert_file or settings.tls_client_key_file)
        self.files = TlsFiles(
            settings,
            kind="client",
            authorities="tls_ca_file",
            certificate="tls_client_cert_file" if own else "tls_cert_file",
            key="tls_client_key_file" if own else "tls_key_file",
        )
        self.options: tuple[tuple[str, str], ...] = ()
        if settings.tls_server_name:
            self.options = (("grpc.ssl_target_name_override", settings.tls_server_name),)

    def credentials(self) -> grpc.ChannelCredentials:
        """For a new channel."""
        loaded = self.files.current()
        return grpc.ssl_channel_credentials(loaded.authorities, loaded.key, loaded.chain)


def server_tls(settings: Settings) -> ServerTls | None:
    """TLS of this server; None if it is off.

    Raises:
        SettingsError: the settings contradict each other, or a file is not valid.
    """
    if settings.tls_cert_file or settings.tls_key_file:
        return ServerTls(settings)
    for name, needs in (
        ("tls_client_ca_file", settings.tls_client_ca_file),
        ("metrics_tls", settings.metrics_tls == "on"),
    ):
        if needs:
            raise SettingsError(
                f"{variable_name(name)} is set, but {variable_name('tls_cert_file')} is not: "
                "a server with TLS needs a certificate"
            )
    return None


def client_tls(settings: Settings) -> ClientTls | None:
    """TLS of calls to other services; None if it is off.

    Raises:
        SettingsError: the settings contradict each other, or a file is not valid.
    """
    if settings.tls_ca_file:
        return ClientTls(settings)
    for name in ("tls_client_cert_file", "tls_client_key_file"):
        if getattr(settings, name):
            raise SettingsError(
                f"{variable_name(name)} is set, but {variable_name('tls_ca_file')} is not: a "
                "client certificate is used only with TLS"
            )
    return None


def export_expiry(
    registry: "CollectorRegistry", server: ServerTls | None, client: ClientTls | None
) -> None:
    """Exports when the certificates in use expire; each scrape checks the files."""
    # Not at the top: those who only call have no metrics.
    from prometheus_client import Gauge

    gauge = Gauge(
        "lingua_tls_certificate_not_after_timestamp_seconds",
        "When a certificate of this process expires, by kind: server (shown to callers), client "
        "(shown where it calls).",
        ["kind"],
        registry=registry,
    )

    for tls in (server, client):
        if tls is not None and tls.files.current().not_after is not None:
            gauge.labels(tls.files.kind).set_function(tls.files.not_after_s)


class _File:
    def __init__(self, settings: Settings, name: str) -> None:
        self.variable = variable_name(name)
        self.path = os.path.expanduser(getattr(settings, name))

    def stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self.path) if self.path else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None

    def certificates(self) -> tuple[bytes, "x509.Certificate"]:
        """The content of the file, and its first certificate."""
        # Imported late, here and below, because it takes long to load and is needed only with TLS.
        from cryptography import x509

        content = self._read()
        try:
            found = x509.load_pem_x509_certificates(content)
        except ValueError:
            raise self.error("contains no PEM certificate") from None
        return content, found[0]

    def key_of(self, leaf: "x509.Certificate", certificate: "_File") -> bytes:
        """The content of the file, which must be the key of the certificate."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            PublicFormat,
            load_pem_private_key,
        )

        content = self._read()
        try:
            key = load_pem_private_key(content, None)
        except TypeError:
            raise self.error("the private key must not be encrypted") from None
        except ValueError:
            raise self.error("contains no PEM private key") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if key.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
            raise self.error(
                f"is not the key of the certificate in {certificate.variable}={certificate.path!r}"
            )
        return content

    def error(self, problem: str) -> SettingsError:
        return SettingsError(f"{self.variable}={self.path!r}: {problem}")

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from None


def _uris(leaf: "x509.Certificate") -> tuple[bytes, ...]:
    from cryptography import x509

    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(uri.encode() for uri in names.get_values_for_type(x509.UniformResourceIdentifier))


def _check_pair(certificate: _File, key: _File) -> None:
    for one, other in ((certificate, key), (key, certificate)):
        if one.path and not other.path:
            raise SettingsError(
                f"{one.variable} is set, but {other.variable} is not: a certificate and its "
                "private key go together"
            )


def _configuration(loaded: Loaded) -> grpc.ServerCertificateConfiguration:
    assert loaded.key is not None
    assert loaded.chain is not None
    return grpc.ssl_server_certificate_configuration(
        [(loaded.key, loaded.chain)], root_certificates=loaded.authorities
    )
