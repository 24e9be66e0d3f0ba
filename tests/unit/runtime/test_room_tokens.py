"""Tokens of rooms: what they say, and who may have made them."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime.auth import room_tokens
from lingua_scheduler.services.runtime.auth.guard import Guard, member_of
from lingua_scheduler.services.runtime.auth.principals import Role, caller, set_caller, tenant_for
from lingua_scheduler.services.runtime.auth.room_tokens import (
    BadRoomTokenError,
    RoomTokenRole,
    is_room_token,
    is_signed,
    new_secret,
    parse,
    sign,
)
from lingua_scheduler.services.runtime.auth.token_claims import (
    LEEWAY_S,
    BadClaimsError,
    ClaimRules,
    principal_of,
    principal_of_uri,
)
from lingua_scheduler.services.runtime.errors import PermissionDeniedError, UnauthenticatedError
from lingua_scheduler.services.runtime.web.credentials import WebCredentials

ROOM, SECRET = "a1b2-c3_d4", new_secret()
LISTEN = "lingua_scheduler.v1.SessionGateway/Listen"


@pytest.fixture(autouse=True)
def _nobody_calls() -> Iterator[None]:
    """Resets the caller after each test."""
    yield
    set_caller(None)


@pytest.mark.parametrize("role", list(RoomTokenRole))
@pytest.mark.parametrize("expires_s", [0, 1_900_000_000])
def test_a_token_says_what_it_was_made_with(role: RoomTokenRole, expires_s: int) -> None:
    token = sign(ROOM, SECRET, role, expires_s)
    claims = parse(token)
    assert (claims.room_id, claims.role) == (ROOM, role)
    assert claims.expires_s == (expires_s + LEEWAY_S if expires_s else None)
    assert is_room_token(token)
    assert is_signed(token, SECRET)


@pytest.mark.parametrize("room_id", ["a1.c7", "a.l.0.b", ".", "room.a1.s.0.n.c12"])
def test_an_id_with_dots_is_read_as_a_whole(room_id: str) -> None:
    token = sign(room_id, SECRET, RoomTokenRole.SPEAKER)
    claims = parse(token)
    assert (claims.room_id, claims.role, claims.expires_s) == (room_id, RoomTokenRole.SPEAKER, None)
    assert is_signed(token, SECRET)


def test_no_two_tokens_are_the_same() -> None:
    assert sign(ROOM, SECRET, RoomTokenRole.HOST) != sign(ROOM, SECRET, RoomTokenRole.HOST)


def test_the_secret_of_another_room_signs_nothing() -> None:
    assert not is_signed(sign(ROOM, new_secret(), RoomTokenRole.HOST), SECRET)


def test_whatever_is_changed_in_a_token_breaks_it() -> None:
    token = sign(ROOM, SECRET, RoomTokenRole.LISTENER, 1_900_000_000)
    for at, was in enumerate(token):
        for other in ("A", "h", "9", "."):
            if other == was:
                continue
            changed = token[:at] + other + token[at + 1 :]
            try:
                parse(changed)
            except BadRoomTokenError:
                continue
            # The last character has two bits that do not count, but a digest has no two spellings.
            assert not is_signed(changed, SECRET), changed


@given(st.text(max_size=80))
def test_any_other_text_is_refused_without_being_quoted(text: str) -> None:
    for given_text in (text, room_tokens.PREFIX + text):
        with pytest.raises(BadRoomTokenError) as refused:
            parse(given_text)
        assert len(text) < 3 or text not in str(refused.value)
        assert not is_signed(given_text, SECRET)


def test_a_token_is_valid_until_its_time_and_a_little_longer() -> None:
    claims = parse(sign(ROOM, SECRET, RoomTokenRole.SPEAKER, 1000))
    assert not claims.has_expired(1000 + LEEWAY_S - 1)
    assert claims.has_expired(1000 + LEEWAY_S)
    assert not parse(sign(ROOM, SECRET, RoomTokenRole.HOST)).has_expired(9e9)


def test_the_guard_takes_a_token_of_a_room_for_a_member_until_it_expires() -> None:
    expires_s = int(time.time()) + 100
    token = sign(ROOM, SECRET, RoomTokenRole.LISTENER, expires_s)
    # Also if all others need a certificate: a gateway checks this token, not a key.
    principal = Guard(None).admit(LISTEN, WebCredentials(f"Bearer {token}", None))
    assert principal is not None
    assert (principal.role, principal.room_token) == (Role.MEMBER, token)
    assert principal.expires_s == expires_s + LEEWAY_S
    assert caller() is principal
    assert token not in repr(principal)


@pytest.mark.parametrize(
    "token",
    ["room.", "room.x", sign(ROOM, SECRET, RoomTokenRole.HOST, 1)],
    ids=["empty", "cut", "expired"],
)
def test_the_guard_refuses_what_is_no_token_or_has_expired(token: str) -> None:
    with pytest.raises(UnauthenticatedError):
        member_of(token)


def test_a_member_may_call_nothing_but_what_is_about_its_room() -> None:
    credentials = WebCredentials(f"Bearer {sign(ROOM, SECRET, RoomTokenRole.HOST)}", None)
    for method in ("SessionGateway/CreateRoom", "SessionGateway/ListRooms", "PoolService/GetNode"):
        with pytest.raises(PermissionDeniedError):
            Guard(None).admit(f"lingua_scheduler.v1.{method}", credentials)


def test_no_other_token_or_certificate_makes_a_member() -> None:
    claims = {"aud": "lingua", "exp": 1000, "role": "member"}
    with pytest.raises(BadClaimsError, match="role"):
        principal_of(claims, ClaimRules("lingua", "", {}), 0)
    with pytest.raises(BadClaimsError, match="URI"):
        principal_of_uri("lingua:member/x")


def test_a_member_speaks_for_no_tenant() -> None:
    set_caller(member_of(sign(ROOM, SECRET, RoomTokenRole.HOST)))
    for tenant in ("", "acme"):
        with pytest.raises(PermissionDeniedError):
            tenant_for(tenant, "open.new.tenant")
