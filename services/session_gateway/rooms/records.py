"""What rooms, members and outcomes look like in Redis (lua/lib/room.lua)."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import rooms_pb2

# Rise with every change that this process makes. They begin at the time, in microseconds, so that
# they are higher than those of an earlier process with the same instance id.
_changes = itertools.count(time.time_ns() // 1000)

_SPEAKER = "speaker:"


def next_change() -> int:
    """A number for a change of a member, higher than all before."""
    return next(_changes)


def speaker_id(session_id: str) -> str:
    """The member id of a session that speaks.

    No listener can have it, because ids in messages have no colon: listeners choose the member id
    with which they resume, and the ids of sessions are in results that all can read.
    """
    return _SPEAKER + session_id


def session_of(member_id: str) -> str:
    """The session of a speaker."""
    return member_id.removeprefix(_SPEAKER)


class MemberRole(StrEnum):
    """What a member does in a room."""

    SPEAKER = "s"
    LISTENER = "l"


@dataclass(frozen=True, kw_only=True)
class RoomFacts:
    """What does not change in a room, and how far it has got.

    The secret signs the tokens of the room: it must not leave the gateway.
    """

    room_id: str
    tenant: str
    # With the limits that apply.
    options: rooms_pb2.RoomOptions
    secret: bytes = field(repr=False)
    created_ms: int
    # The room index of the next utterance.
    next_index: int


@dataclass(frozen=True, kw_only=True)
class MemberRecord:
    """A member as its gateway announces it.

    Attributes:
        member_id: of a speaker, the `speaker_id` of its session.
        role: whether it speaks or listens.
        language: that it speaks or listens to.
        captions, speech, original_audio: what a listener receives.
        name: for the roster.
        joined_ms: in ms since the epoch; 0 for now. A member that is there keeps its time.
        change: tells a repeat from a change. `changed` gives a new one; to repeat a call that may
            have happened, use the same record again.
    """

    member_id: str
    role: MemberRole
    language: str
    captions: bool = False
    speech: bool = False
    original_audio: bool = False
    name: str = ""
    joined_ms: int = 0
    change: int = field(default_factory=next_change)

    @classmethod
    def speaker(cls, session_id: str, *, language: str, name: str = "") -> "MemberRecord":
        """A speaker."""
        return cls(
            member_id=speaker_id(session_id),
            role=MemberRole.SPEAKER,
            language=language,
            name=name,
        )

    @classmethod
    def listener(
        cls, member_id: str, listening: rooms_pb2.Listening, *, name: str = ""
    ) -> "MemberRecord":
        """A listener."""
        return cls(
            member_id=member_id,
            role=MemberRole.LISTENER,
            language=listening.language,
            captions=listening.captions,
            speech=listening.speech,
            original_audio=listening.original_audio,
            name=name,
        )

    def changed(self, **fields: Any) -> "MemberRecord":
        """The same member with other fields, as a change of its own."""
        return replace(self, **{"change": next_change(), **fields})

    @property
    def flags(self) -> str:
        """What a listener receives, as letters."""
        chosen = zip("cso", (self.captions, self.speech, self.original_audio), strict=True)
        return "".join(letter for letter, wanted in chosen if wanted)


class Admission(NamedTuple):
    """A member is in the room.

    Attributes:
        next_index: the room index from which on its language is translated for it.
        last_open: the highest room index in the language that it listened to before that has no
            outcome yet; -1 if none.
    """

    next_index: int
    last_open: int = -1


class KeptRoom(NamedTuple):
    """The answer to the renewal of a room.

    Attributes:
        word: "ok", "ROOM_NOT_FOUND" or "ROOM_CLOSED".
        next_index: the room index of the next utterance.
        version: differs if the members have changed.
        members: how many members, speakers and listeners, Redis knows at this gateway. If there
            are not as many, the lease had ended, a failover lost changes, or members have moved
            to other gateways: see `RoomStore.rejoin` and `RoomStore.leave_others`.
    """

    word: str
    next_index: int
    version: int
    members: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of an utterance in one language.

    Attributes:
        index: room index.
        previous: room index of the previous utterance in this language; None if there is none.
        event: a RoomEvent without audio; empty: missing, because no outcome came in time.
        speech: empty if there is none, it is no longer kept, or it was not asked for.
        original: the speaker's audio; empty likewise.
    """

    index: int
    previous: int | None
    event: bytes
    speech: bytes
    original: bytes


class StoredMember(NamedTuple):
    """A member as Redis knows it."""

    gateway: str
    role: MemberRole
    language: str
    flags: str
    joined_ms: int
    name: str

    @property
    def listening(self) -> rooms_pb2.Listening:
        """What a listener receives."""
        return rooms_pb2.Listening(
            language=self.language,
            captions="c" in self.flags,
            speech="s" in self.flags,
            original_audio="o" in self.flags,
        )


def parse_member(packed: bytes) -> StoredMember:
    """Reads a field of P:room:<id>:members. The name is last, because it may contain anything."""
    gateway, role, language, flags, joined_ms, _, _, _, name = packed.decode().split("\n", 8)
    return StoredMember(gateway, MemberRole(role), language, flags, int(joined_ms), name)


def parse_entries(reply: Sequence[Any]) -> list[Entry]:
    """Reads the reply of lua/read_spoken.lua."""
    return [
        Entry(index, int(previous) if previous else None, event, speech, original)
        for index, previous, event, speech, original in zip(
            *(reply[at::5] for at in range(5)), strict=True
        )
    ]


def applied_limits(options: rooms_pb2.RoomOptions, settings: Settings) -> rooms_pb2.RoomOptions:
    """The options with the limits that apply: at most those of the settings, which 0 stands for."""
    applied = rooms_pb2.RoomOptions()
    applied.CopyFrom(options)
    applied.max_members = _lower(options.max_members, settings.room_members_max)
    applied.max_speakers = _lower(options.max_speakers, settings.room_speakers_max)
    applied.max_languages = _lower(options.max_languages, settings.room_languages_max)
    return applied


def _lower(wanted: int, most: int) -> int:
    return min(wanted or most, most)
