"""Rooms and their members for people, read from Redis. No view has the secret of a room."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.services.runtime.redis.record_pages import (
    PAGE,
    Step,
    ids_of_members,
    read_page,
)
from lingua_scheduler.services.session_gateway.rooms.records import (
    MemberRole,
    StoredMember,
    parse_member,
    session_of,
)
from lingua_scheduler.services.session_gateway.store.room_basics import (
    cell_of_room,
    room_key,
    room_refusal,
)
from lingua_scheduler.v1 import rooms_pb2

# The fields of a record that a view shows.
_FIELDS = ("tenant", "closed", "options", "created_ms", "next")
_ROLES = {
    MemberRole.SPEAKER: rooms_pb2.ROOM_ROLE_SPEAKER,
    MemberRole.LISTENER: rooms_pb2.ROOM_ROLE_LISTENER,
}


class RoomViews:
    """Reads rooms. Every method raises DependencyDownError.

    The cost of a room depends on its languages and speakers, not on its listeners.
    """

    def __init__(self, *, cells: Cells) -> None:
        self._cells = cells

    async def get(self, room_id: str) -> rooms_pb2.Room:
        """Returns one room, with its gateways.

        Raises:
            RoomNotFoundError: it is gone.
            RoomClosedError: it was closed.
        """
        cell = cell_of_room(self._cells, room_id)
        now = await redis_now_ms(cell.link)
        record = await _record(cell, room_id)
        _check(room_id, record)
        return await _room(cell, room_id, record, now)

    async def list(
        self, tenant: str, page_size: int, page_token: str
    ) -> tuple[Sequence[rooms_pb2.Room], str]:
        """Returns a page of a tenant's rooms, newest first, and the token of the next page.

        The cost is proportional to the page, however many other rooms exist. Rooms of cells that
        are away are left out.

        Args:
            tenant: "" for all.
            page_size: about how many; 0 for the default.
            page_token: from the previous page; "" for the first.
        """
        now: dict[Cell, int] = {}
        # The indexes of lua/lib/quota.lua and lua/lib/room.lua.
        scan = ids_of_members(f"tenant:{tenant}:rooms" if tenant else "rooms", page_size)

        async def step(cell: Cell, cursor: str) -> tuple[str, list[str]]:
            if cell not in now:
                now[cell] = await redis_now_ms(cell.link)
            return await scan(cell, cursor)

        async def read(cell: Cell, room_id: str) -> rooms_pb2.Room | None:
            record = await _record(cell, room_id)
            is_open = record["tenant"] is not None and record["closed"] is None
            if not is_open or tenant not in ("", _text(record["tenant"])):
                return None
            return await _room(cell, room_id, record, now[cell])

        rooms, following = await read_page(
            cells=self._cells.all,
            step=step,
            read=read,
            page_token=page_token,
            page_size=page_size,
        )
        rooms.sort(key=lambda room: room.created_ms, reverse=True)
        return rooms, following

    async def members(
        self, room_id: str, page_size: int, page_token: str
    ) -> tuple[Sequence[rooms_pb2.Member], str]:
        """Returns a page of a room's members, in the order in which they came, as `list`.

        Raises:
            RoomNotFoundError: the room is gone.
            RoomClosedError: it was closed.
        """
        cell = cell_of_room(self._cells, room_id)
        record, now = await asyncio.gather(_record(cell, room_id), redis_now_ms(cell.link))
        _check(room_id, record)
        alive = set(await _gateways(cell, room_id, now))
        scanned: dict[str, StoredMember] = {}

        async def read(_: Cell, member_id: str) -> rooms_pb2.Member | None:
            member = scanned.pop(member_id)
            return _member(member) if member.gateway in alive else None

        members, following = await read_page(
            cells=[cell],
            step=_members_step(room_id, page_size, scanned),
            read=read,
            page_token=page_token,
            page_size=page_size,
        )
        members.sort(key=lambda member: member.joined_ms)
        return members, following


def _members_step(room_id: str, page_size: int, scanned: dict[str, StoredMember]) -> Step:
    """Scans the ids of members, about a page at a time; what it finds goes into `scanned`."""

    async def step(cell: Cell, cursor: str) -> tuple[str, list[str]]:
        following, flat = await cell.link.command(
            "HSCAN", f"{room_key(cell, room_id)}:members", cursor, "COUNT", page_size or PAGE
        )
        pairs = zip(flat[::2], flat[1::2], strict=True)
        found = {member_id.decode(): parse_member(packed) for member_id, packed in pairs}
        scanned.update(found)
        return following.decode(), list(found)

    return step


async def _record(cell: Cell, room_id: str) -> Mapping[str, bytes | None]:
    values = await cell.link.command("HMGET", room_key(cell, room_id), *_FIELDS)
    return dict(zip(_FIELDS, values, strict=True))


async def _gateways(cell: Cell, room_id: str, now: int) -> Sequence[str]:
    """The gateways whose lease has not ended."""
    key = f"{room_key(cell, room_id)}:gateways"
    found = await cell.link.command("ZRANGE", key, f"({now}", "+inf", "BYSCORE")
    return sorted(gateway.decode() for gateway in found)


async def _room(
    cell: Cell, room_id: str, record: Mapping[str, bytes | None], now: int
) -> rooms_pb2.Room:
    key = f"{room_key(cell, room_id)}:"
    gateways, wants, speakers = await asyncio.gather(
        _gateways(cell, room_id, now),
        cell.link.command("HGETALL", f"{key}wants"),
        cell.link.command("ZRANGE", f"{key}speakers", 0, -1),
    )
    room = rooms_pb2.Room(
        room_id=room_id,
        tenant=_text(record["tenant"]),
        options=rooms_pb2.RoomOptions.FromString(record["options"] or b""),
        created_ms=int(record["created_ms"] or 0),
        next_index=int(record["next"] or 0),
        gateway_instances=gateways,
    )
    # Members whose gateways are all gone are removed by whoever joins next.
    if gateways:
        counts = {
            field.decode(): int(count) for field, count in zip(wants[::2], wants[1::2], strict=True)
        }
        room.listeners = counts.get("#listeners", 0)
        languages, who = await asyncio.gather(
            _languages(cell, key, counts, now), _speakers(cell, key, speakers)
        )
        room.languages.extend(languages)
        room.speakers.extend(who)
    return room


async def _languages(
    cell: Cell, key: str, counts: Mapping[str, int], now: int
) -> Sequence[rooms_pb2.RoomLanguage]:
    """The languages that are listened to, most listeners first (lua/lib/room_members.lua)."""
    names = [field for field in counts if field[0].isalpha() and not field.endswith("+")]
    names.sort(key=lambda name: (-counts[name], name))
    return await asyncio.gather(
        *(
            _language(
                cell,
                key,
                rooms_pb2.RoomLanguage(
                    language=name,
                    listeners=counts[name],
                    speech_listeners=counts.get(f"{name}+", 0),
                ),
                now,
            )
            for name in names
        )
    )


async def _language(
    cell: Cell, key: str, language: rooms_pb2.RoomLanguage, now: int
) -> rooms_pb2.RoomLanguage:
    """Adds what waits in a language (lua/lib/room_lanes.lua)."""
    name = language.language
    cut, done, first = await asyncio.gather(
        cell.link.command("ZCARD", f"{key}lane:{name}"),
        cell.link.command("HLEN", f"{key}waiting:{name}"),
        cell.link.command("ZRANGE", f"{key}lane:{name}", 0, 0),
    )
    # The three answers may be from different moments.
    if first:
        language.waiting = max(0, cut - done)
        language.oldest_waiting_ms = max(0, now - int(first[0].split(b":")[2]))
    return language


async def _speakers(
    cell: Cell, key: str, member_ids: Sequence[bytes]
) -> Iterable[rooms_pb2.RoomSpeakerInfo]:
    if not member_ids:
        return ()
    packed = await cell.link.command("HMGET", f"{key}members", *member_ids)
    found = zip(member_ids, packed, strict=True)
    return [_speaker(member_id.decode(), parse_member(each)) for member_id, each in found if each]


def _check(room_id: str, record: Mapping[str, Any]) -> None:
    if record["closed"] is not None:
        raise room_refusal(room_id, b"ROOM_CLOSED")
    if record["tenant"] is None:
        raise room_refusal(room_id, b"ROOM_NOT_FOUND")


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _speaker(member_id: str, member: StoredMember) -> rooms_pb2.RoomSpeakerInfo:
    return rooms_pb2.RoomSpeakerInfo(
        session_id=session_of(member_id),
        name=member.name,
        language=member.language,
        joined_ms=member.joined_ms,
    )


def _member(member: StoredMember) -> rooms_pb2.Member:
    is_listener = member.role is MemberRole.LISTENER
    return rooms_pb2.Member(
        name=member.name,
        role=_ROLES[member.role],
        language=member.language,
        listening=member.listening if is_listener else None,
        joined_ms=member.joined_ms,
        gateway_instance=member.gateway,
    )
