"""Tokens, keys and the URIs of certificates, without a service."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from lingua_scheduler.services.runtime.auth import principals, tokens, watched_file
from lingua_scheduler.services.runtime.auth.guard import Guard, certified
from lingua_scheduler.services.runtime.auth.own_token import OwnToken
from lingua_scheduler.services.runtime.auth.principals import (
    Principal,
    Role,
    caller,
    own_tenant,
    set_caller,
    tenant_for,
)
from lingua_scheduler.services.runtime.auth.token_claims import (
    LEEWAY_S,
    BadClaimsError,
    ClaimRules,
    principal_of,
)
from lingua_scheduler.services.runtime.auth.token_keys import parse_jwks, parse_secrets
from lingua_scheduler.services.runtime.auth.tokens import TokenVerifier, sign_token
from lingua_scheduler.services.runtime.errors import (
    PermissionDeniedError,
    SettingsError,
    UnauthenticatedError,
)
from lingua_scheduler.services.runtime.settings.settings import Settings

SECRET, OTHER = "s" * 32, "o" * 40
RULES = ClaimRules(
    "lingua", "", {"sessions": 7, "jobs": 8, "audio_s_per_minute": 10_000_000, "rooms": 9}
)
CLAIMS = {"aud": "lingua", "exp": 1000, "role": "operator"}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Auth with one secret."""
    (tmp_path / "secrets").write_text(f"# ours\n\n {SECRET} \n{OTHER}\n")
    return Settings(auth="on", auth_secret_file=str(tmp_path / "secrets"), instance_id="here")


@pytest.fixture
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are checked whenever their content is requested."""
    monkeypatch.setattr(watched_file, "_CHECK_EVERY_S", 0.0)


@pytest.fixture(autouse=True)
def _nobody_calls() -> Iterator[None]:
    """Resets the caller after each test."""
    yield
    principals._caller.set(None)


def said(role: str, **claims: Any) -> Principal:
    return principal_of({**CLAIMS, "role": role, **claims}, RULES, 0)


def test_the_claims_of_a_token_become_a_principal() -> None:
    assert said("operator", sub="ann") == Principal(
        role=Role.OPERATOR, name="ann", expires_s=1000 + LEEWAY_S
    )
    assert said("service", tenant="ignored").tenant == ""
    assert said("client", tenant="acme").tenant == "acme"
    assert said("client", tenant="acme").limits is None
    assert said("node", node_id="n1").may_be_node("n1")
    assert said("node", owner="acme").may_be_node("acme.gpu-1")


def test_a_token_is_valid_from_start_to_expiry_with_a_leeway() -> None:
    claims = {**CLAIMS, "nbf": 500, "iat": 500.5}
    for now in (501 - LEEWAY_S, 500, 999.9, 999.9 + LEEWAY_S):
        principal_of(claims, RULES, now)
    for now in (499 - LEEWAY_S, 1000 + LEEWAY_S):
        with pytest.raises(BadClaimsError):
            principal_of(claims, RULES, now)


def test_limits_that_a_token_does_not_name_are_those_of_the_settings() -> None:
    limits = said("client", tenant="t", limits={"sessions": 0, "jobs": 3}).limits
    assert limits is not None
    assert (limits.sessions, limits.jobs) == (0, 3)
    # As many as the contract can say.
    assert limits.audio_ms_per_minute == 4_000_000_000


@pytest.mark.parametrize("value", ["a b", "", "x" * 129, 7, None, ["acme"], "ü"])
def test_a_malformed_tenant_is_refused(value: object) -> None:
    with pytest.raises(BadClaimsError, match="tenant"):
        said("client", tenant=value)


@pytest.mark.parametrize("value", [True, "1000", float("nan"), float("inf"), -1, 10**15])
def test_a_malformed_expiry_is_refused(value: object) -> None:
    with pytest.raises(BadClaimsError, match="exp"):
        principal_of({**CLAIMS, "exp": value}, RULES, 0)


def test_secrets_are_lines_and_errors_do_not_quote_them() -> None:
    keys = parse_secrets(f"# {OTHER}\r\n\r\n{SECRET}\r\n{OTHER}".encode())
    assert [key.key for key in keys] == [SECRET.encode(), OTHER.encode()]
    with pytest.raises(ValueError, match="line 2") as caught:
        parse_secrets(f"{SECRET}\nnot-long-enough\n".encode())
    assert "not-long-enough" not in str(caught.value)


def test_only_keys_for_signatures_of_a_key_set_are_used() -> None:
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    small = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    p256, p384 = (ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1()))
    by_rsa, by_ec = jwt.get_algorithm_by_name("RS256"), jwt.get_algorithm_by_name("ES256")
    good = by_rsa.to_jwk(rsa_key.public_key(), as_dict=True)
    curve = by_ec.to_jwk(p256.public_key(), as_dict=True)
    longer = jwt.get_algorithm_by_name("ES384").to_jwk(p384.public_key(), as_dict=True)
    entries = [
        good | {"kid": "1", "alg": "RS256"},
        good | {"kid": "2", "alg": "RS512"},
        good | {"kid": "3", "use": "enc"},
        curve | {"kid": "4"},
        longer | {"kid": "5"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "6"},
    ]
    keys = parse_jwks(json.dumps({"keys": entries}).encode())
    assert [(key.id, key.algorithm) for key in keys] == [("1", "RS256"), ("4", "ES256")]
    weak = by_rsa.to_jwk(small.public_key(), as_dict=True)
    with pytest.raises(ValueError, match="1024 bits"):
        parse_jwks(json.dumps({"keys": [weak]}).encode())


def test_signed_tokens_are_valid_and_invalid_ones_are_not_signed(settings: Settings) -> None:
    verifier = TokenVerifier(settings)
    token = sign_token(
        settings, role=Role.CLIENT, tenant="acme", limits={"jobs": 2}, name="app", lifetime_s=60
    )
    principal = verifier.verify(token)
    assert (principal.role, principal.tenant, principal.name) == (Role.CLIENT, "acme", "app")
    assert principal.limits is not None
    assert principal.limits.jobs == 2
    assert verifier.verify(token) is principal
    with pytest.raises(BadClaimsError, match="tenant"):
        sign_token(settings, role="client", lifetime_s=60)
    with pytest.raises(BadClaimsError, match="role"):
        sign_token(settings, role="admin", lifetime_s=60)
    with pytest.raises(SettingsError, match="LINGUA_AUTH_SECRET_FILE"):
        sign_token(Settings(), role="service", lifetime_s=60)


def test_both_secrets_check_and_the_first_one_signs(settings: Settings) -> None:
    verifier = TokenVerifier(settings)
    token = sign_token(settings, role="service", lifetime_s=60)
    jwt.decode(token, SECRET, ["HS256"], audience=settings.auth_audience)
    claims = {"aud": settings.auth_audience, "exp": time.time() + 60, "role": "operator"}
    assert verifier.verify(jwt.encode(claims, OTHER)).role is Role.OPERATOR


def test_the_number_of_remembered_tokens_is_limited(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_MAX_KNOWN", 2)
    verifier = TokenVerifier(settings)
    shown = [sign_token(settings, role="service", name=n, lifetime_s=60) for n in "abc"]
    first, second, third = (verifier.verify(token) for token in shown)
    assert verifier.verify(shown[1]) is second
    assert verifier.verify(shown[2]) is third
    assert verifier.verify(shown[0]) is not first


@pytest.mark.usefixtures("_look_always")
def test_a_token_whose_secret_was_removed_is_refused(settings: Settings) -> None:
    verifier, token = TokenVerifier(settings), sign_token(settings, role="service", lifetime_s=60)
    verifier.verify(token)
    Path(settings.auth_secret_file).write_text(f"{OTHER}\n")
    with pytest.raises(UnauthenticatedError, match="signature"):
        verifier.verify(token)


@pytest.mark.usefixtures("_look_always")
def test_a_process_signs_a_new_token_if_its_secret_changes(settings: Settings) -> None:
    own = OwnToken(settings, role=Role.SERVICE)
    token = own.get()
    assert own.get() == token
    principal = TokenVerifier(settings).verify(token)
    assert (principal.role, principal.name) == (Role.SERVICE, "here")
    Path(settings.auth_secret_file).write_text(f"{OTHER}\n")
    anew = own.get()
    assert anew != token
    TokenVerifier(settings).verify(anew)


def test_a_process_signs_a_new_token_after_half_its_lifetime(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, now = OwnToken(settings, role=Role.SERVICE, lifetime_s=100), time.time()
    token = own.get()
    monkeypatch.setattr(time, "time", lambda: now + 49)
    assert own.get() == token
    monkeypatch.setattr(time, "time", lambda: now + 51)
    assert own.get() != token


@pytest.mark.usefixtures("_look_always")
def test_a_token_from_a_file_is_sent_and_reloaded(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    own = OwnToken(
        settings.model_copy(update={"token_file": str(file)}),
        role=Role.SERVICE,
    )
    assert own.metadata() == (("authorization", "Bearer one"),)
    file.write_text("another\n")
    assert own.get() == "another"
    file.write_text("two tokens\n")
    assert own.get() == "another"
    os.remove(file)
    assert own.get() == "another"


def test_a_process_without_token_and_secret_sends_no_token() -> None:
    assert OwnToken(Settings(), role=Role.SERVICE).metadata() == ()


@pytest.mark.parametrize(
    ("uri", "principal"),
    [
        ("lingua:service/pool", Principal(role=Role.SERVICE)),
        ("lingua:operator/ann", Principal(role=Role.OPERATOR)),
        ("lingua:viewer/bob", Principal(role=Role.VIEWER)),
        ("lingua:client/acme", Principal(role=Role.CLIENT, tenant="acme")),
        ("lingua:node/acme.gpu-1", Principal(role=Role.NODE, node_id="acme.gpu-1")),
        ("lingua:owner/acme", Principal(role=Role.NODE, owner="acme")),
    ],
)
def test_the_uri_of_a_certificate_names_its_holder(uri: str, principal: Principal) -> None:
    found = certified({"peer_uri": [b"spiffe://others/x", uri.encode()]})
    assert found is not None
    assert found.name == uri
    for name in ("role", "tenant", "node_id", "owner", "limits", "expires_s"):
        assert getattr(found, name) == getattr(principal, name)


def test_a_certificate_without_a_lingua_uri_names_no_principal() -> None:
    assert certified({}) is None
    assert certified({"peer_uri": [b"https://example.com"], "x509_common_name": [b"a"]}) is None


@pytest.mark.parametrize(
    "uris",
    [
        [b"lingua:admin/ann"],
        [b"lingua:client/"],
        [b"lingua:client/a b"],
        [b"lingua:client/a/b"],
        [b"lingua:owner/acme.eu"],
        [b"lingua:service"],
        [b"lingua:service/a", b"lingua:operator/a"],
    ],
)
def test_a_certificate_with_a_malformed_uri_is_refused(uris: list[bytes]) -> None:
    with pytest.raises(UnauthenticatedError, match="certificate"):
        certified({"peer_uri": uris})


class _Call:
    """What a call's context says of its caller; with real certificates it has tests of its own."""

    def __init__(self, token: str = "", uri: str = "") -> None:
        self._token = token
        self._uri = uri

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    def auth_context(self) -> Any:
        return {"peer_uri": [self._uri.encode()]} if self._uri else {}


def test_a_token_takes_precedence_over_a_certificate_and_a_bad_one_is_refused(
    settings: Settings,
) -> None:
    guard, method = Guard(TokenVerifier(settings)), "lingua_scheduler.v1.PoolService/ListNodes"
    client = sign_token(settings, role="client", tenant="acme", lifetime_s=60)
    call: Any = _Call(uri="lingua:operator/ann")
    assert guard.admit(method, call) == caller()
    call = _Call(client, "lingua:operator/ann")
    with pytest.raises(PermissionDeniedError, match="role client may not call PoolService"):
        guard.admit(method, call)
    call = _Call("bad", "lingua:operator/ann")
    with pytest.raises(UnauthenticatedError, match="is not valid"):
        guard.admit(method, call)
    call = _Call(client)
    with pytest.raises(UnauthenticatedError, match="only client certificates"):
        Guard(None).admit(method, call)
    call = _Call(uri="lingua:operator/ann")
    with pytest.raises(PermissionDeniedError):
        guard.admit("lingua_scheduler.v1.PoolService/NotInTheTable", call)


def test_a_client_is_restricted_to_its_tenant() -> None:
    set_caller(Principal(role=Role.CLIENT, tenant="acme"))
    assert own_tenant() == "acme"
    assert tenant_for("", "tenant") == tenant_for("acme", "tenant") == "acme"
    with pytest.raises(PermissionDeniedError, match=r"job\.tenant: 'globex'"):
        tenant_for("globex", "job.tenant")


def test_without_auth_callers_may_name_any_tenant() -> None:
    assert (own_tenant(), tenant_for("", "tenant"), tenant_for("x", "tenant")) == ("", "", "x")
