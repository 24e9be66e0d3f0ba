"""The files of TLS: what is refused at the start, and what happens when they change."""

import logging
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from prometheus_client import CollectorRegistry

from lingua_scheduler.cli.certificates import read_certificate
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.tls import (
    ServerTls,
    TlsFiles,
    client_tls,
    export_expiry,
    server_tls,
)
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.security.certificates import EXPIRED, HOUR, Certificates, Pair, server_settings

NOT_AFTER = "lingua_tls_certificate_not_after_timestamp_seconds"


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def files_of(pair: Pair) -> TlsFiles:
    return ServerTls(Settings(**server_settings(pair))).files


def refusal(**settings: object) -> str:
    """Of who uses all files of the settings, as a service does."""
    given = Settings(**{name: str(value) for name, value in settings.items()})
    with pytest.raises(SettingsError) as caught:
        (server_tls(given), client_tls(given))
    return str(caught.value)


def encrypted_key(path: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = BestAvailableEncryption(b"hush")
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return path


def test_without_files_there_is_no_tls() -> None:
    assert server_tls(Settings()) is None
    assert client_tls(Settings()) is None


def test_what_belongs_together_must_be_set_together(certificates: Certificates) -> None:
    pair = certificates.issue()
    for settings, missing in (
        ({"tls_cert_file": pair.cert}, "LINGUA_TLS_KEY_FILE is not"),
        ({"tls_key_file": pair.key}, "LINGUA_TLS_CERT_FILE is not"),
        ({"tls_client_ca_file": pair.ca}, "LINGUA_TLS_CERT_FILE is not"),
        ({"metrics_tls": "on"}, "LINGUA_TLS_CERT_FILE is not"),
        (
            {"tls_ca_file": pair.ca, "tls_client_cert_file": pair.cert},
            "LINGUA_TLS_CLIENT_KEY_FILE is not",
        ),
        (
            {"tls_client_cert_file": pair.cert, "tls_client_key_file": pair.key},
            "LINGUA_TLS_CA_FILE is not",
        ),
    ):
        assert missing in refusal(**settings), settings


def test_a_file_that_does_not_hold_what_it_should_is_named_with_its_variable(
    certificates: Certificates, tmp_path: Path
) -> None:
    pair, other, nowhere = certificates.issue(), certificates.issue(), tmp_path / "nowhere"
    expired = certificates.issue(life=EXPIRED)
    locked = encrypted_key(tmp_path / "locked.key")
    for name, path, settings, problem in (
        ("cert", nowhere, {"tls_key_file": pair.key}, "cannot be read: No such file"),
        ("cert", tmp_path, {"tls_key_file": pair.key}, "cannot be read: Is a directory"),
        ("cert", pair.key, {"tls_key_file": pair.key}, "contains no PEM certificate"),
        ("cert", expired.cert, {"tls_key_file": expired.key}, "the certificate expired at 20"),
        ("key", nowhere, {"tls_cert_file": pair.cert}, "cannot be read: No such file"),
        ("key", pair.cert, {"tls_cert_file": pair.cert}, "contains no PEM private key"),
        ("key", other.key, {"tls_cert_file": pair.cert}, "is not the key of the certificate in"),
        ("key", locked, {"tls_cert_file": pair.cert}, "the private key must not be enc"),
        ("client_ca", pair.key, server_settings(pair), "contains no PEM certificate"),
        ("ca", nowhere, {}, "cannot be read: No such file"),
    ):
        told = refusal(**{**settings, f"tls_{name}_file": path})
        assert told.startswith(f"LINGUA_TLS_{name.upper()}_FILE={str(path)!r}: {problem}"), told


def test_where_none_is_set_for_calls_the_certificate_of_the_server_is_shown(
    certificates: Certificates,
) -> None:
    server, client = certificates.issue(), certificates.caller("lingua:operator/o")
    base = {**server_settings(server), "tls_ca_file": str(server.ca)}
    shown = client_tls(Settings(**base))
    assert shown is not None
    assert shown.files.current().chain == server.cert.read_bytes()
    own = {"tls_client_cert_file": str(client.cert), "tls_client_key_file": str(client.key)}
    shown = client_tls(Settings(**base, **own))
    assert shown is not None
    assert shown.files.current().chain == client.cert.read_bytes()


def test_a_new_pair_is_told_once_with_its_end_and_then_the_same(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    pair = certificates.issue()
    files = files_of(pair)
    old = files.current()
    assert files.current() is old
    with caplog.at_level(logging.INFO):
        pair.take(certificates.issue())
        new = files.current()
        assert files.current() is new
    assert new.chain == pair.cert.read_bytes() != old.chain
    (record,) = caplog.records
    assert record.message == "certificates reloaded"
    assert new.not_after is not None
    assert record.__dict__["not_after"] == new.not_after.isoformat()


def test_a_file_that_was_only_touched_is_no_news(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    pair = certificates.issue()
    files = files_of(pair)
    old = files.current()
    os.utime(pair.cert, (1, 1))
    with caplog.at_level(logging.INFO):
        assert files.current() is old
    assert not caplog.records


def test_files_that_do_not_fit_change_nothing_are_told_once_and_are_tried_again(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    pair, new = certificates.issue(), certificates.issue()
    files = files_of(pair)
    old = files.current()
    broken = (
        lambda: pair.cert.write_bytes(new.cert.read_bytes()[:100]),
        lambda: pair.cert.write_bytes(new.cert.read_bytes()),
        lambda: pair.key.unlink(),
        lambda: pair.take(certificates.issue(life=EXPIRED)),
    )
    for breaks in broken:
        breaks()
        caplog.clear()
        assert files.current() is old
        assert files.current() is old
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        reason = vars(record)["reason"]
        assert str(pair.cert) in reason or str(pair.key) in reason
    pair.take(new)
    assert files.current().chain == new.cert.read_bytes()


async def test_each_channel_knows_whether_its_certificates_have_changed(
    certificates: Certificates,
) -> None:
    pair = certificates.issue()
    dialer = Dialer(Settings(**server_settings(pair), tls_ca_file=str(pair.ca)))
    async with dialer.channel("127.0.0.1:1") as old:
        assert not dialer.certificates_changed(old)
        pair.take(certificates.issue())
        async with dialer.channel("127.0.0.1:1") as new:
            assert dialer.certificates_changed(old)
            assert not dialer.certificates_changed(new)


async def test_without_tls_no_certificate_ever_changes() -> None:
    dialer = Dialer(Settings())
    async with dialer.channel("127.0.0.1:1") as channel:
        assert not dialer.certificates_changed(channel)


def test_the_end_of_each_certificate_is_exported_and_follows_the_file(
    certificates: Certificates,
) -> None:
    pair = certificates.issue()
    settings = Settings(**server_settings(pair), tls_ca_file=str(pair.ca))
    server, client = server_tls(settings), client_tls(settings)
    registry = CollectorRegistry()
    export_expiry(registry, server, client)
    for other in (None, certificates.issue(life=10 * HOUR)):
        if other is not None:
            pair.take(other)
        end = read_certificate(pair.cert).not_valid_after_utc.timestamp()
        for kind in ("server", "client"):
            assert registry.get_sample_value(NOT_AFTER, {"kind": kind}) == end


def test_without_tls_no_end_is_exported() -> None:
    registry = CollectorRegistry()
    export_expiry(registry, None, None)
    assert [sample for family in registry.collect() for sample in family.samples] == []
