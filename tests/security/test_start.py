"""What a service refuses to start with, and what it warns of."""

from pathlib import Path
from typing import Any

import pytest

from lingua_scheduler.services.runtime.auth.guard import guard_of, is_loopback
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.security.issuer import Issuer
from tests.support.services import PoolProcess


def refusal(service: str = "pool", **settings: Any) -> str:
    """Why a service with these settings does not start."""
    given = Settings(**settings)
    with pytest.raises(SettingsError) as caught:
        guard_of(given, service)
    return str(caught.value)


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("127.8.9.10:1", True),
        ("localhost:1", True),
        ("LocalHost:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.7:1", False),
        ("[::ffff:10.0.0.7]:1", False),
        ("localhost.example.com:1", False),
        ("pool:1", False),
    ],
)
def test_only_addresses_that_no_other_machine_reaches_are_loopback(
    address: str, loopback: bool
) -> None:
    assert is_loopback(address) == loopback


def test_without_auth_a_service_listens_on_loopback_only_unless_told_otherwise() -> None:
    said = refusal(pool_listen="0.0.0.0:7710")
    for word in (
        "LINGUA_POOL_LISTEN='0.0.0.0:7710'",
        "everyone",
        "LINGUA_AUTH=on",
        "LINGUA_AUTH_SECRET_FILE",
        "LINGUA_LISTEN_WITHOUT_AUTH=yes",
    ):
        assert word in said
    # The address of another service is that one's affair.
    assert guard_of(Settings(pool_listen="0.0.0.0:7710"), "gateway") is None
    assert guard_of(Settings(pool_listen="0.0.0.0:1", listen_without_auth="yes"), "pool") is None


def test_the_web_entry_of_a_gateway_is_no_exception() -> None:
    settings = Settings(gateway_web_listen="0.0.0.0:7740")
    with pytest.raises(SettingsError, match=r"LINGUA_GATEWAY_WEB_LISTEN='0\.0\.0\.0:7740'"):
        guard_of(settings, "gateway")
    assert guard_of(settings, "dispatcher") is None
    assert guard_of(Settings(gateway_web_listen=""), "gateway") is None


def test_the_process_says_so_and_ends(redis_url: str, prefix: str) -> None:
    process = PoolProcess(redis_url=redis_url, prefix=prefix, pool_listen="0.0.0.0:0")
    process.start()
    try:
        assert process.wait_end() != 0
        assert "LINGUA_LISTEN_WITHOUT_AUTH=yes" in process.log()
        assert "Traceback" not in process.log()
    finally:
        process.stop()


def test_auth_needs_something_that_tells_who_calls() -> None:
    said = refusal(auth="on")
    for name in ("AUTH_SECRET_FILE", "AUTH_JWKS_FILE", "TLS_CLIENT_CA_FILE"):
        assert f"LINGUA_{name}" in said
    assert guard_of(Settings(auth="on", tls_client_ca_file="ca.pem"), "pool") is not None


def test_tokens_in_the_clear_are_warned_of(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    with_secret = {"auth": "on", "auth_secret_file": str(issuer.secret_file)}
    guard_of(Settings(**with_secret), "pool")
    guard_of(Settings(**with_secret, pool_listen="0.0.0.0:1", tls_cert_file="a.pem"), "pool")
    assert not caplog.records
    guard_of(Settings(**with_secret, pool_listen="0.0.0.0:1"), "pool")
    assert "auth is on without tls" in caplog.text


@pytest.mark.parametrize(
    ("setting", "content", "problem"),
    [
        ("auth_secret_file", None, "No such file"),
        ("auth_secret_file", "", "contains no secret"),
        ("auth_secret_file", "# only a comment\n\n", "contains no secret"),
        ("auth_secret_file", "# one\nmuch-too-short\n", "line 2 has 14 bytes"),
        ("auth_jwks_file", None, "No such file"),
        ("auth_jwks_file", "no json", "is not JSON"),
        ("auth_jwks_file", "[]", "not a JSON Web Key Set"),
        ("auth_jwks_file", '{"keys": []}', "no key for RS256 or ES256"),
        ("auth_jwks_file", '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no key for RS256"),
        ("auth_jwks_file", '{"keys": [{"kty": "RSA", "n": "!", "e": "AQAB"}]}', "keys[0]"),
        ("auth_jwks_file", '{"keys": [{"kty": "RSA", "d": "AQAB"}]}', "private key"),
    ],
)
def test_a_bad_file_is_named_with_its_variable_and_what_is_wrong(
    tmp_path: Path, setting: str, content: str | None, problem: str
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
    said = refusal(auth="on", **{setting: str(path)})
    assert f"LINGUA_{setting.upper()}={str(path)!r}: " in said
    assert problem in said
    assert "much-too-short" not in said
