"""Rooms: a page of them, and one with its languages and members. Never what was said."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.pages import page_of
from lingua_scheduler.v1 import rooms_pb2

# The languages that a row of the list names.
_SHOWN_LANGUAGES = 6
# The speakers that the view of a room has; a room rarely has more than a few.
_SHOWN_SPEAKERS = 200
_POLICIES: Final = {rooms_pb2.SPEAK_POLICY_ANYONE: "anyone"}
_ROLES: Final = {rooms_pb2.ROOM_ROLE_SPEAKER: "speaker"}
_SORTS: dict[str, Callable[[rooms_pb2.Room], Any]] = {
    "created": lambda room: (room.created_ms, room.room_id),
    "name": lambda room: (room.options.name.lower(), room.room_id),
    "speakers": lambda room: (len(room.speakers), room.room_id),
    "listeners": lambda room: (room.listeners, room.room_id),
    "waiting": lambda room: (_waiting(room), room.room_id),
    "lag": lambda room: (_lag_ms(room), room.room_id),
}


async def rooms(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `rooms`."""
    search = query.text("search").lower()
    tenant = query.id("tenant")
    language = query.language("language")
    sort = query.choice("sort", _SORTS, "created")
    desc = query.flag("desc", True)
    offset, limit = query.offset(), query.limit()
    query.done()
    listed = await sources.rooms.list()
    found = [
        each
        for each in listed.rooms
        if tenant in ("", each.tenant)
        and (search in each.room_id.lower() or search in each.options.name.lower())
        and (not language or language in _languages(each))
    ]
    page = page_of(found, key=_SORTS[sort], desc=desc, offset=offset, limit=limit)
    return {
        "rows": {each.room_id: _row(each) for each in page},
        "order": [each.room_id for each in page],
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "partial": listed.is_partial,
    }


async def room(sources: Sources, room_id: str, query: Query) -> dict[str, Any]:
    """The document `rooms/<id>`: the members who came last first."""
    query.required_id("room_id", room_id)
    offset, limit = query.offset(), query.limit()
    query.done()
    found = await sources.rooms.get(room_id)
    members = await sources.rooms.members(room_id)
    page = page_of(members.members, key=_member_key, desc=True, offset=offset, limit=limit)
    rows = _member_rows(page)
    return {
        "room": {**_row(found), **_details(found)},
        "members": {
            "rows": rows,
            "order": list(rows),
            "total": len(members.members),
            "offset": offset,
            "limit": limit,
            "partial": members.is_partial,
        },
    }


def _row(room: rooms_pb2.Room) -> dict[str, Any]:
    return {
        "id": room.room_id,
        "name": room.options.name,
        "tenant": room.tenant,
        "created_ms": room.created_ms,
        "utterances": room.next_index,
        "speakers": len(room.speakers),
        "spoken": sorted({each.language for each in room.speakers})[:_SHOWN_LANGUAGES],
        "listeners": room.listeners,
        "languages": [each.language for each in room.languages[:_SHOWN_LANGUAGES]],
        "languages_total": len(room.languages),
        "waiting": _waiting(room),
        "lag_ms": _lag_ms(room),
    }


def _details(room: rooms_pb2.Room) -> dict[str, Any]:
    options = room.options
    return {
        "speak": _POLICIES.get(options.speak, "invited"),
        "allowed": list(options.languages),
        "max_members": options.max_members,
        "max_speakers": options.max_speakers,
        "max_languages": options.max_languages,
        "gateways": sorted(room.gateway_instances),
        "speaker_list": [
            {
                "session": each.session_id,
                "name": each.name,
                "language": each.language,
                "joined_ms": each.joined_ms,
            }
            for each in room.speakers[:_SHOWN_SPEAKERS]
        ],
        "language_list": [
            {
                "language": each.language,
                "listeners": each.listeners,
                "speech_listeners": each.speech_listeners,
                "waiting": each.waiting,
                "lag_ms": each.oldest_waiting_ms,
            }
            for each in room.languages
        ],
    }


def _waiting(room: rooms_pb2.Room) -> int:
    """Utterances that wait in the language that has most of them: many wait in several."""
    return max((each.waiting for each in room.languages), default=0)


def _lag_ms(room: rooms_pb2.Room) -> int:
    """How old the oldest utterance is that waits in any language."""
    return max((each.oldest_waiting_ms for each in room.languages), default=0)


def _languages(room: rooms_pb2.Room) -> set[str]:
    """The languages that are spoken or listened to."""
    spoken = (each.language.lower() for each in room.speakers)
    return {*spoken, *(each.language.lower() for each in room.languages)}


def _member_key(member: rooms_pb2.Member) -> tuple[int, str, bytes]:
    # Members have no id that others may know. Two that are the same in all can be exchanged.
    return member.joined_ms, member.name, member.SerializeToString(deterministic=True)


def _member_rows(page: Sequence[rooms_pb2.Member]) -> dict[str, Any]:
    """The rows by when they came, numbered if several came in the same millisecond."""
    rows = {}
    same: Counter[int] = Counter()
    for each in page:
        same[each.joined_ms] += 1
        number = same[each.joined_ms]
        key = f"{each.joined_ms}" if number == 1 else f"{each.joined_ms}-{number}"
        rows[key] = _member(key, each)
    return rows


def _member(key: str, member: rooms_pb2.Member) -> dict[str, Any]:
    listening = member.listening
    wanted = ("captions", "speech", "original_audio")
    return {
        "key": key,
        "name": member.name,
        "role": _ROLES.get(member.role, "listener"),
        "language": member.language,
        "gets": [name for name in wanted if getattr(listening, name)],
        "joined_ms": member.joined_ms,
        "gateway": member.gateway_instance,
    }
