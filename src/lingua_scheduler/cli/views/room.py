"""Text output for rooms."""

import time
from collections.abc import Iterable, Sequence

from lingua_scheduler.cli.views.output import (
    ago,
    duration,
    enum_name,
    moment,
    one_line,
    span,
)
from lingua_scheduler.cli.views.table import Column, fact_page, table
from lingua_scheduler.v1 import rooms_pb2

_POLICY = rooms_pb2.DESCRIPTOR.enum_types_by_name["SpeakPolicy"]
# At most this many languages of a room are named in the list.
_NAMED = 6


def room_list(rooms: Iterable[rooms_pb2.Room]) -> str:
    """One room per line."""
    now_ms = _now_ms()
    return table(
        (
            *(Column("ROOM"), Column("TENANT", 1), Column("SPEAKERS"), Column("LISTENERS")),
            *(Column("UTTERANCES", 2), Column("WAITING", 4), Column("AGE", 3)),
            *(Column("LANGUAGES", 5, folds=True), Column("NAME", 6, folds=True)),
        ),
        [
            (
                room.room_id,
                room.tenant or "-",
                str(len(room.speakers)),
                str(room.listeners),
                str(room.next_index),
                str(sum(each.waiting for each in room.languages)),
                span(now_ms - room.created_ms),
                _languages([each.language for each in room.languages]),
                one_line(room.options.name) or "-",
            )
            for room in rooms
        ],
    )


def room_page(room: rooms_pb2.Room, members: Sequence[rooms_pb2.Member] | None) -> str:
    """Everything about one room: facts, speakers, languages, members (None: may not be seen)."""
    now_ms, options = _now_ms(), room.options
    facts = [
        ("name", one_line(options.name) or "-"),
        ("tenant", room.tenant or "-"),
        ("created", f"{moment(room.created_ms)} ({ago(room.created_ms, now_ms)})"),
        ("utterances", str(room.next_index)),
        ("speakers", f"{len(room.speakers)} of at most {options.max_speakers}"),
        ("listeners", str(room.listeners)),
        ("members", f"at most {options.max_members}"),
        ("languages", f"{len(room.languages)} of at most {options.max_languages}"),
        ("allowed", " ".join(options.languages) or "any language"),
        ("may speak", _who_may_speak(options.speak)),
    ]
    if room.gateway_instances:
        facts.append(("gateways", " ".join(room.gateway_instances)))
    parts = [fact_page(("room", room.room_id), facts)]
    if room.speakers:
        parts.append(_speakers(room.speakers, now_ms))
    if room.languages:
        parts.append(_lanes(room.languages))
    if members:
        parts.append(_members(members, now_ms))
    return "\n\n".join(parts)


def _who_may_speak(policy: rooms_pb2.SpeakPolicy.ValueType) -> str:
    if policy == rooms_pb2.SPEAK_POLICY_ANYONE:
        return "anyone with a token of the room"
    if policy in (rooms_pb2.SPEAK_POLICY_INVITED, rooms_pb2.SPEAK_POLICY_UNSPECIFIED):
        return "the host, and who has a speaker's token"
    return enum_name(_POLICY, policy).lower()


def _speakers(speakers: Iterable[rooms_pb2.RoomSpeakerInfo], now_ms: int) -> str:
    return table(
        (Column("SPEAKER", folds=True), Column("SPEAKS"), Column("SINCE", 1), Column("SESSION")),
        [
            (
                one_line(each.name) or "-",
                each.language,
                span(now_ms - each.joined_ms),
                each.session_id,
            )
            for each in speakers
        ],
    )


def _lanes(languages: Iterable[rooms_pb2.RoomLanguage]) -> str:
    return table(
        (
            *(Column("LANGUAGE"), Column("LISTENERS"), Column("WANT SPEECH", 1)),
            *(Column("WAITING"), Column("OLDEST")),
        ),
        [
            (
                each.language,
                str(each.listeners),
                str(each.speech_listeners),
                str(each.waiting),
                duration(each.oldest_waiting_ms) if each.waiting else "-",
            )
            for each in languages
        ],
    )


def _members(members: Iterable[rooms_pb2.Member], now_ms: int) -> str:
    return table(
        (
            *(Column("MEMBER", folds=True), Column("ROLE"), Column("LANGUAGE")),
            *(Column("RECEIVES", 3), Column("SINCE", 2), Column("GATEWAY", 1)),
        ),
        [
            (
                one_line(each.name) or "-",
                "speaker" if each.role == rooms_pb2.ROOM_ROLE_SPEAKER else "listener",
                each.language,
                _receives(each),
                span(now_ms - each.joined_ms),
                each.gateway_instance or "-",
            )
            for each in members
        ],
    )


def _receives(member: rooms_pb2.Member) -> str:
    if not member.HasField("listening"):
        return "-"
    wanted = member.listening
    named = (
        ("captions", wanted.captions),
        ("speech", wanted.speech),
        ("original", wanted.original_audio),
    )
    return ",".join(name for name, is_wanted in named if is_wanted) or "-"


def _languages(languages: Sequence[str]) -> str:
    more = len(languages) - _NAMED
    return (",".join(languages[:_NAMED]) or "-") + (f" and {more} more" if more > 0 else "")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
