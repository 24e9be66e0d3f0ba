"""Checks the arguments of rooms and listeners, by the rules of the contract. Errors: ValueError."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from lingua_scheduler.sdk.room.events import Listening, RoomRole, SpeakPolicy
from lingua_scheduler.sdk.validate import check_id, check_language, check_number, check_text
from lingua_scheduler.v1 import rooms_pb2

MAX_NAME = 100
MAX_MEMBER_NAME = 64
MAX_LANGUAGES = 64
MAX_TOKEN = 512
# Thirty days, in seconds.
MAX_LIFETIME_S = 30 * 86_400

_POLICIES = {
    SpeakPolicy.INVITED: rooms_pb2.SPEAK_POLICY_INVITED,
    SpeakPolicy.ANYONE: rooms_pb2.SPEAK_POLICY_ANYONE,
}
_ROLES = {
    RoomRole.LISTENER: rooms_pb2.ROOM_ROLE_LISTENER,
    RoomRole.SPEAKER: rooms_pb2.ROOM_ROLE_SPEAKER,
}

_Choice = TypeVar("_Choice", bound=StrEnum)


def check_token(name: str, token: object) -> str:
    """Returns a token of a room. Never names it: it is a secret."""
    if not isinstance(token, str) or not 1 <= len(token) <= MAX_TOKEN:
        raise ValueError(f"{name}: must be the text of a token, at most {MAX_TOKEN} characters")
    return token


def room_request(
    *,
    name: str,
    languages: Sequence[str],
    speak: SpeakPolicy | str,
    max_members: int,
    max_speakers: int,
    max_languages: int,
    tenant: str,
) -> rooms_pb2.CreateRoomRequest:
    """Returns the request for a room."""
    if isinstance(languages, str):
        raise ValueError(f"languages: must be a list such as [{languages!r}]")
    if len(languages) > MAX_LANGUAGES:
        raise ValueError(f"languages: has {len(languages)}; at most {MAX_LANGUAGES} are allowed")
    for limit, value, most in (
        ("max_members", max_members, 1_000_000),
        ("max_speakers", max_speakers, 10_000),
        ("max_languages", max_languages, 1000),
    ):
        check_number(limit, value, 0, most)
    return rooms_pb2.CreateRoomRequest(
        options=rooms_pb2.RoomOptions(
            name=check_text("name", name, MAX_NAME),
            languages=[check_language("languages", each) for each in languages],
            speak=_POLICIES[_one_of("speak", speak, SpeakPolicy)],
            max_members=int(max_members),
            max_speakers=int(max_speakers),
            max_languages=int(max_languages),
        ),
        tenant=check_id("tenant", tenant) if tenant else "",
    )


def token_request(
    *, room_id: str, host_token: str, role: RoomRole | str, lifetime_s: float
) -> rooms_pb2.CreateJoinTokenRequest:
    """Returns the request for a join token."""
    check_number("lifetime_s", lifetime_s, 0, MAX_LIFETIME_S)
    return rooms_pb2.CreateJoinTokenRequest(
        room_id=room_id,
        host_token=host_token,
        role=_ROLES[_one_of("role", role, RoomRole)],
        lifetime_s=int(lifetime_s),
    )


def checked_listening(
    *, language: str, captions: bool, speech: bool, original_audio: bool
) -> Listening:
    """Returns what a listener receives."""
    if not (captions or speech or original_audio):
        raise ValueError("captions: a listener needs captions, speech or original_audio")
    return Listening(
        language=check_language("language", language),
        captions=bool(captions),
        speech=bool(speech),
        original_audio=bool(original_audio),
    )


def _one_of(name: str, value: object, choices: type[_Choice]) -> _Choice:
    for each in choices:
        if value == each:
            return each
    allowed = " or ".join(repr(each.value) for each in choices)
    raise ValueError(f"{name}: {value!r} must be {allowed}")
