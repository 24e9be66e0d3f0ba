"""Tokens at a real service: those that do not hold, and keys that change under it."""

import secrets
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from lingua_scheduler.services.runtime.auth.token_claims import LEEWAY_S
from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc
from tests.conftest import Eventually
from tests.security.conftest import Services
from tests.security.issuer import Issuer, Metadata, bearer

_BEYOND_LEEWAY_S = LEEWAY_S + 5


async def asked(services: Services, metadata: Metadata) -> common_pb2.Error | None:
    """What an operator's question is answered with: None, or why it is not."""
    async with grpc.aio.insecure_channel(services.pool.address) as channel:
        stub: Any = pool_pb2_grpc.PoolServiceStub(channel)
        try:
            await stub.ListNodes(pool_pb2.ListNodesRequest(), metadata=metadata, timeout=10)
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error) or common_pb2.Error(message=repr(error))
    return None


async def refused(services: Services, metadata: Metadata) -> str:
    """Why a call is refused for what its token says of its caller."""
    said = await asked(services, metadata)
    assert said is not None, "it was answered"
    assert said.reason == common_pb2.ERROR_REASON_UNAUTHENTICATED, said
    for _, value in metadata:
        for part in value.removeprefix("Bearer ").split("."):
            assert len(part) < 8 or part not in str(said), "the message has a part of the token"
    return said.message


def _resigned(issuer: Issuer, **header: Any) -> str:
    return issuer.signed(issuer.claims(), issuer.secret, **header)


def _with(issuer: Issuer, **claims: Any) -> str:
    return issuer.signed({**issuer.claims(), **claims}, issuer.secret)


WRONG: dict[str, tuple[str, Callable[[Issuer], str]]] = {
    "garbage": ("not a JWT", lambda _: "garbage"),
    "garbage in three parts": ("not a JWT", lambda _: "a.b.c"),
    "not even base64": ("not a JWT", lambda _: "!!.??.=="),
    "a header without a bottom": ("not a JWT", lambda _: "W1tb" * 1500 + ".e30.e30"),
    "claims that are a list": ("not a JSON object", lambda i: i.signed([1], i.secret)),
    "expired": ("expired", lambda i: i.token(exp=int(time.time()) - _BEYOND_LEEWAY_S)),
    "no end": ("no exp", lambda i: i.token(exp=None)),
    "an end that is no time": ("exp must be", lambda i: i.token(exp="tomorrow")),
    "an endless end": ("exp must be", lambda i: i.token(exp=float("inf"))),
    "not yet valid": ("not valid yet", lambda i: i.token(nbf=int(time.time()) + 3600)),
    "issued in the future": ("not valid yet", lambda i: i.token(iat=int(time.time()) + 3600)),
    "another secret": ("signature", lambda i: i.signed(i.claims(), secrets.token_hex(32))),
    "no signature": ("signature", lambda i: i.token().rpartition(".")[0] + "."),
    "another audience": ("audience", lambda i: i.token(aud="billing")),
    "no audience": ("audience", lambda i: i.token(aud=None)),
    "another issuer": ("issuer", lambda i: i.token(iss="https://evil.example.com/")),
    "no issuer": ("issuer", lambda i: i.token(iss=None)),
    "alg none": ("alg must be", lambda i: _resigned(i, alg="none").rpartition(".")[0] + "."),
    "alg None, with a signature": ("alg must be", lambda i: _resigned(i, alg="None")),
    "no alg": ("alg must be", lambda i: _resigned(i, alg=None)),
    "a stronger alg with the secret": ("alg must be", lambda i: _resigned(i, alg="HS512")),
    "HS256 by the public key": ("signature", lambda i: i.signed(i.claims(), i.rsa_public())),
    "HS256 by the public key, with its kid": (
        "signature",
        lambda i: i.signed(i.claims(), i.rsa_public(), kid="rsa_1"),
    ),
    "RS256 in name only": ("signature", lambda i: _resigned(i, alg="RS256")),
    "a critical extension": ("crit", lambda i: _resigned(i, crit=["b64"], b64=True)),
    "an unknown kid": ("kid", lambda i: i.by_rsa(i.claims(), kid="rsa_9")),
    "the kid of another key": ("kid", lambda i: i.by_rsa(i.claims(), kid="ec_1")),
    "no role": ("no role", lambda i: i.token(role=None)),
    "an unknown role": ("role must be", lambda i: i.token(role="admin")),
    "roles in a list": ("role must be", lambda i: _with(i, role=["operator"])),
    "a client without a tenant": ("needs a tenant", lambda i: i.token("client", tenant=None)),
    "a client of an empty tenant": ("tenant must be", lambda i: i.token("client", tenant="")),
    "a client of two tenants": ("tenant must be", lambda i: i.token("client", tenant=["a", "b"])),
    "a node of no id": ("either a node_id or", lambda i: i.token("node", node_id=None)),
    "a node of id and owner": ("either a node_id or", lambda i: i.token("node", owner="acme")),
    "an owner with a dot": ("no dot", lambda i: i.token("node", node_id=None, owner="acme.eu")),
    "limits that nobody knows": (
        "limits must be",
        lambda i: i.token("client", limits={"session": 3}),
    ),
    "a limit that is no number": (
        "limits.jobs must be",
        lambda i: i.token("client", limits={"jobs": True}),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_token_that_does_not_hold_is_refused_with_the_reason(
    services: Services, issuer: Issuer, wrong: str
) -> None:
    why, make = WRONG[wrong]
    assert why in await refused(services, bearer(make(issuer)))


async def test_who_shows_no_token_is_told_how(services: Services, issuer: Issuer) -> None:
    how = "'authorization: Bearer <token>'"
    assert how in await refused(services, ())
    assert how in await refused(services, (("authorization", f"Basic {issuer.token()}"),))
    assert how in await refused(services, (("authorization", "Bearer "),))
    assert "more than one" in await refused(services, issuer.metadata() * 2)


async def test_tokens_of_every_algorithm_are_taken(services: Services, issuer: Issuer) -> None:
    claims = issuer.claims()
    for token in (
        issuer.signed(claims, issuer.secret),
        issuer.signed(claims, issuer.secret, kid="whatever"),
        issuer.by_rsa(claims),
        issuer.by_rsa(claims, kid=None),
        issuer.by_ec(claims),
        issuer.by_ec(claims, kid=None),
        issuer.signed(issuer.claims(aud=["others", "lingua-scheduler"]), issuer.secret),
        issuer.signed(issuer.claims(exp=int(time.time()) - 1), issuer.secret),
    ):
        # Twice: the second time it is known.
        assert await asked(services, bearer(token)) is None
        assert await asked(services, bearer(token)) is None


async def test_a_known_token_ends_when_it_expires(
    services: Services, issuer: Issuer, eventually: Eventually
) -> None:
    ends = time.time() + 2.5
    metadata = issuer.metadata(exp=ends - LEEWAY_S)
    assert await asked(services, metadata) is None
    await eventually(lambda: time.time() >= ends)
    assert "expired" in await refused(services, metadata)


async def test_rotated_keys_count_without_a_restart_and_removed_ones_no_more(
    services: Services, issuer: Issuer
) -> None:
    secret, key = secrets.token_urlsafe(48), ec.generate_private_key(ec.SECP256R1())
    old_secret = issuer.metadata()
    new_secret = bearer(issuer.signed(issuer.claims(), secret))
    former, issuer.ec = issuer.ec, key
    new_key = bearer(issuer.by_ec(issuer.claims(), kid="ec_2"))
    try:
        assert "signature" in await refused(services, new_secret)
        assert "kid" in await refused(services, new_key)
        issuer.write_secrets(issuer.secret, secret)
        issuer.write_jwks(rsa_1=issuer.rsa, ec_1=former, ec_2=key)
        await becomes(services, new_secret, held=True)
        await becomes(services, new_key, held=True)
        assert await asked(services, old_secret) is None

        issuer.write_secrets(issuer.secret)
        issuer.write_jwks(rsa_1=issuer.rsa, ec_1=former)
        await becomes(services, new_secret, held=False)
        await becomes(services, new_key, held=False)
        assert await asked(services, old_secret) is None
    finally:
        issuer.ec = former


async def test_a_broken_file_changes_nothing_and_is_told_once(
    services: Services, issuer: Issuer, eventually: Eventually
) -> None:
    def told() -> int:
        return services.pool.log().count("file reload failed")

    before = told()
    try:
        issuer.write_secrets("short")
        deadline = time.monotonic() + 10
        while told() == before:
            assert await asked(services, issuer.metadata()) is None
            assert time.monotonic() < deadline
        looked_again = time.monotonic() + 1.2
        while time.monotonic() < looked_again:
            assert await asked(services, issuer.metadata()) is None
        assert told() == before + 1
        assert "LINGUA_AUTH_SECRET_FILE" in services.pool.log()
    finally:
        issuer.write_secrets(issuer.secret)

    def reloaded() -> int:
        lines = services.pool.log().splitlines()
        return sum("file reloaded" in line and "LINGUA_AUTH_SECRET_FILE" in line for line in lines)

    count = reloaded()
    deadline = time.monotonic() + 10
    while reloaded() == count:
        assert await asked(services, issuer.metadata()) is None
        assert time.monotonic() < deadline


async def becomes(services: Services, metadata: Metadata, *, held: bool) -> None:
    """Returns when a token counts, or counts no more."""
    deadline = time.monotonic() + 10
    while (await asked(services, metadata) is None) != held:
        assert time.monotonic() < deadline, "the file was not read again"
