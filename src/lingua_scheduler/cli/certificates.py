"""A certificate authority in a folder, and the certificates that it issues."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, Failure
from lingua_scheduler.cli.private_files import make_folder, write_new

CA = "ca"
# A name in the certificates of all services, for LINGUA_TLS_SERVER_NAME.
SERVER_NAME = "lingua.internal"
# Hosts of every server certificate, in addition to the requested ones.
LOCAL_HOSTS = (SERVER_NAME, "localhost", "127.0.0.1", "::1")
CA_LIFE = timedelta(days=3650)
# The longest lifetime of a server certificate that Apple's systems accept.
SERVER_LIFE = timedelta(days=825)

# Clocks of two machines differ.
_EARLIER = timedelta(minutes=5)


@dataclass(frozen=True)
class Wanted:
    """A certificate to be issued.

    Attributes:
        name: of its files, without the suffix.
        uri: identifies its holder, such as `lingua:client/acme`.
        hosts: names and addresses of a server; none for a certificate of a caller.
    """

    name: str
    uri: str
    life: timedelta
    hosts: Sequence[str] = ()


class Authority:
    """The authority of a folder: `ca.crt` and `ca.key`."""

    def __init__(
        self, folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> None:
        self.folder = folder
        self._certificate = certificate
        self._key = key

    @classmethod
    def made(cls, folder: Path) -> "Authority":
        """Create a new authority.

        Raises:
            Failure: the folder already has one.
        """
        check_free(folder, [CA])
        make_folder(folder)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lingua Scheduler CA")])
        usage = _key_usage(key_cert_sign=True, crl_sign=True)
        certificate = (
            _begun(name, name, key, CA_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        _write_pair(folder / CA, certificate, key)
        return cls(folder, certificate, key)

    @classmethod
    def found(cls, folder: Path) -> "Authority":
        """Load the existing authority.

        Raises:
            Failure: it does not exist, or cannot be read.
        """
        certificate = read_certificate(folder / f"{CA}.crt", hint=f"lingua certs init {folder}")
        path = folder / f"{CA}.key"
        try:
            key = load_pem_private_key(_read(path), None)
        except (ValueError, TypeError):
            raise Failure(
                f"{path} contains no private key in PEM format", reason="BAD_FILE"
            ) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise Failure(f"{path} is not a key from 'lingua certs init'", reason="BAD_FILE")
        if key.public_key() != certificate.public_key():
            raise Failure(f"{path} is not the key of {folder / CA}.crt", reason="BAD_FILE")
        return cls(folder, certificate, key)

    def issue(self, wanted: Wanted) -> Path:
        """Write the certificate and its key into the folder; returns the certificate's path.

        Raises:
            Failure: such a file already exists, or the authority expires too early.
        """
        check_free(self.folder, [wanted.name])
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wanted.name[:64])])
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(wanted.uri)]
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if wanted.hosts:
            names += map(_general_name, dict.fromkeys(wanted.hosts))
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = _begun(subject, self._certificate.subject, key, wanted.life)
        ends = self._certificate.not_valid_after_utc
        if datetime.now(UTC) + wanted.life > ends:
            raise Failure(
                f"the authority in {self.folder} expires before that, at {ends:%F}; use a shorter "
                "lifetime, or create a new authority in another folder",
                reason="AUTHORITY_EXPIRES",
            )
        certificate = (
            builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(self._key, hashes.SHA256())
        )
        return _write_pair(self.folder / wanted.name, certificate, key)


def check_free(folder: Path, names: Sequence[str]) -> None:
    """Check that no file would be overwritten.

    Raises:
        Failure: a certificate or key with such a name already exists.
    """
    for path in (folder / f"{name}.{end}" for name in names for end in ("crt", "key")):
        if path.exists():
            raise Failure(
                f"{path} already exists and is not overwritten; move it away first",
                reason="EXISTS",
            )


def read_certificate(path: Path, *, hint: str = "") -> x509.Certificate:
    """The first certificate of a file.

    Raises:
        Failure: there is none; `hint` is the command that creates it.
    """
    try:
        return x509.load_pem_x509_certificates(_read(path, hint))[0]
    except ValueError:
        raise Failure(f"{path} contains no certificate in PEM format", reason="BAD_FILE") from None


def names_of(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """Hosts, and URIs."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    hosts = [*found.get_values_for_type(x509.DNSName), *addresses]
    return hosts, found.get_values_for_type(x509.UniformResourceIdentifier)


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether that authority has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + life)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_pair(stem: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
    """Write the key first: a certificate without its key is useless."""
    paths = Path(f"{stem}.key"), Path(f"{stem}.crt")
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for path, content in zip(paths, (key_pem, certificate.public_bytes(Encoding.PEM)), strict=True):
        write_new(path, content)
    # The certificate is public.
    paths[1].chmod(0o644)
    return paths[1]


def _read(path: Path, hint: str = "") -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        how = f"; '{hint}' creates it" if hint else ""
        raise Failure(
            f"{path} does not exist{how}", reason="NO_FILE", exit_code=NOT_FOUND
        ) from None
    except OSError as error:
        raise Failure(
            f"cannot read {path}: {error.strerror}", reason="BAD_FILE", exit_code=FAILED
        ) from None
