"""Rooms and their members, read while somebody asks for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.runtime.errors import (
    LinguaError,
    RoomClosedError,
    RoomNotFoundError,
)
from lingua_scheduler.v1 import rooms_pb2

# How many rooms are read at most, and how old a list may be.
MAX_ROOMS = 1000
LIST_EVERY_S = 5.0
# A room has its speakers and languages with it, so a page of rooms is larger than one of sessions.
_PAGE = 200
# As for sessions, these bound the calls for one list, and so does the time.
_MAX_PAGES = 20
_ROOM_S = 2.0
_KEPT_ROOMS = 500
# The members of a room that are read at most, how old they may be, and of how many rooms.
MAX_MEMBERS = 2000
_MEMBERS_PAGE = 500
_MEMBERS_S = 5.0
_KEPT_MEMBERS = 50


@dataclass(frozen=True, slots=True)
class RoomList:
    """The rooms that were read, and whether there are more."""

    rooms: Sequence[rooms_pb2.Room] = ()
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The members of a room that were read, and whether there are more."""

    members: Sequence[rooms_pb2.Member] = ()
    is_partial: bool = False


class RoomReads:
    """Reads rooms: a list for all who look, one room, or its members.

    Args:
        calls: makes the calls.
        problems: get a problem of "rooms" while gateways cannot be asked.
    """

    def __init__(self, *, calls: ServiceCalls, problems: Problems) -> None:
        self._calls = calls
        self._problems = problems
        self._list = RoomList()
        self._listed_at: float | None = None
        self._reading = asyncio.Lock()
        self._rooms = Kept(self._get, keep_s=lambda _: _ROOM_S, most=_KEPT_ROOMS)
        self._members = Kept(self._read_members, keep_s=lambda _: _MEMBERS_S, most=_KEPT_MEMBERS)

    async def list(self) -> RoomList:
        """All rooms, as they were at most 5 s ago; an older list if gateways do not answer."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._listed_at is None or now - self._listed_at >= LIST_EVERY_S:
                self._listed_at = now
                try:
                    self._list = await self._read_all()
                    self._problems.solved("rooms")
                except LinguaError as error:
                    self._problems.found("rooms", error)
            return self._list

    def listed(self) -> RoomList:
        """The list that was read last; reads nothing."""
        return self._list

    async def get(self, room_id: str) -> rooms_pb2.Room:
        """One room. Raises LinguaError; RoomNotFoundError also if it was closed."""
        return await self._rooms.get(room_id)

    async def members(self, room_id: str) -> Members:
        """The members of a room, as they were at most 5 s ago. Raises LinguaError, as `get`."""
        return await self._members.get(room_id)

    async def _get(self, room_id: str) -> rooms_pb2.Room:
        request = rooms_pb2.GetRoomRequest(room_id=room_id)
        try:
            response = await self._calls.call("gateway", "GetRoom", request)
        except RoomClosedError as error:
            raise RoomNotFoundError(error.message) from error
        room: rooms_pb2.Room = response.room
        return room

    async def _read_all(self) -> RoomList:
        found: dict[str, rooms_pb2.Room] = {}
        request = rooms_pb2.ListRoomsRequest(page_size=_PAGE)
        loop = asyncio.get_running_loop()
        until = loop.time() + LIST_EVERY_S
        for _ in range(_MAX_PAGES):
            page = await self._calls.call("gateway", "ListRooms", request)
            found.update((each.room_id, each) for each in page.rooms)
            request.page_token = page.next_page_token
            if not request.page_token or len(found) >= MAX_ROOMS or loop.time() >= until:
                break
        rooms = list(found.values())
        is_partial = bool(request.page_token) or len(rooms) > MAX_ROOMS
        return RoomList(rooms[:MAX_ROOMS], is_partial)

    async def _read_members(self, room_id: str) -> Members:
        found: list[rooms_pb2.Member] = []
        request = rooms_pb2.ListMembersRequest(room_id=room_id, page_size=_MEMBERS_PAGE)
        loop = asyncio.get_running_loop()
        until = loop.time() + _MEMBERS_S
        for _ in range(_MAX_PAGES):
            try:
                page = await self._calls.call("gateway", "ListMembers", request)
            except RoomClosedError as error:
                raise RoomNotFoundError(error.message) from error
            found += page.members
            request.page_token = page.next_page_token
            if not request.page_token or len(found) >= MAX_MEMBERS or loop.time() >= until:
                break
        is_partial = bool(request.page_token) or len(found) > MAX_MEMBERS
        return Members(found[:MAX_MEMBERS], is_partial)
