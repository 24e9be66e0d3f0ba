"""The rooms in Redis, which all gateways share: members, and outcomes in order."""

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Any, NoReturn

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth import quotas
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.cells.quotas import QuotaOverCells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    Entry,
    KeptRoom,
    MemberRecord,
    RoomFacts,
    applied_limits,
    next_change,
    parse_entries,
    parse_member,
)
from lingua_scheduler.services.session_gateway.store.room_basics import (
    cell_of_room,
    room_kept_ms,
    room_key,
    room_refusal,
)
from lingua_scheduler.v1 import rooms_pb2

# Rooms that one script renews. A room with 16 languages takes Redis about 60 commands.
_KEPT_AT_ONCE = 20
# First words of replies.
_OK, _MOVED = b"ok", b"MEMBER_MOVED"
_FACTS = ("tenant", "options", "secret", "created_ms", "next", "closed")


class RoomStore:
    """Reads and writes rooms, each in the cell that its id names.

    Every method raises DependencyDownError if Redis does not answer. The change may have happened;
    all methods can be repeated. Where a room is named, they raise

    - RoomNotFoundError if nobody was in it for `room_idle_ms`, Redis has lost it, or its id names a
      cell that does not exist,
    - RoomClosedError if it was closed.
    """

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        self._quota = QuotaOverCells(cells, "rooms")
        self._settings = settings
        self._gateway = settings.instance_id
        idle_ms, lease_ms = room_kept_ms(settings), settings.room_lease_ms
        captions_max, speech_ms = settings.room_captions_max, settings.room_speech_ms
        self._create_room = script_calls.CreateRoom(idle_ms=idle_ms).call
        self._join_room = script_calls.JoinRoom(
            gateway=self._gateway, lease_ms=lease_ms, idle_ms=idle_ms
        ).call
        self._leave_room = script_calls.LeaveRoom(gateway=self._gateway).call
        self._keep_rooms = script_calls.KeepRooms(
            gateway=self._gateway,
            lease_ms=lease_ms,
            idle_ms=idle_ms,
            captions_max=captions_max,
            speech_ms=speech_ms,
        ).call
        self._put_spoken = script_calls.PutSpoken(
            captions_max=captions_max, speech_ms=speech_ms, idle_ms=idle_ms
        ).call
        self._close_room = script_calls.CloseRoom(idle_ms=idle_ms).call

    # ---- rooms ----

    async def create(
        self,
        *,
        room_id: str,
        tenant: str,
        options: rooms_pb2.RoomOptions,
        secret: bytes,
        created_ms: int = 0,
        next_index: int = 0,
        most_rooms: int = 0,
    ) -> RoomFacts:
        """Writes the record of a room, unless it is there.

        Without `created_ms` and `next_index` the room is new. With them it is one that Redis has
        lost: then its members have to join again.

        Args:
            room_id: of the room.
            tenant: that it belongs to.
            options: limits that are 0 or too high become those of the settings.
            secret: signs the tokens of the room.
            created_ms: in ms since the epoch.
            next_index: at least the room index of the next utterance.
            most_rooms: how many rooms the tenant may have; 0 for any number.

        Raises:
            QuotaExceededError: the tenant has reached its quota of rooms.
        """
        options = applied_limits(options, self._settings)
        cell = self._cell(room_id)
        async with self._quota.elsewhere(tenant, most_rooms, cell) as elsewhere:
            reply = await cell.link.call(
                *self._create_room(
                    room=room_id,
                    tenant=tenant,
                    options=options.SerializeToString(),
                    secret=secret,
                    created_ms=created_ms,
                    next_index=next_index,
                    max_members=options.max_members,
                    max_speakers=options.max_speakers,
                    max_languages=options.max_languages,
                    max_rooms=most_rooms,
                    elsewhere=elsewhere,
                )
            )
        if reply[0] == quotas.REFUSED:
            raise quotas.quota_error(reply)
        check_reply(room_id, reply)
        return RoomFacts(
            room_id=room_id,
            tenant=tenant,
            options=options,
            secret=secret,
            created_ms=reply[1],
            next_index=next_index,
        )

    async def facts(self, room_id: str) -> RoomFacts:
        """Returns what a room is."""
        cell = self._cell(room_id)
        values = await cell.link.command("HMGET", room_key(cell, room_id), *_FACTS)
        tenant, options, secret, created_ms, next_index, closed = values
        if closed is not None:
            raise room_refusal(room_id, b"ROOM_CLOSED")
        if secret is None:
            raise room_refusal(room_id, b"ROOM_NOT_FOUND")
        return RoomFacts(
            room_id=room_id,
            tenant=tenant.decode(),
            options=rooms_pb2.RoomOptions.FromString(options),
            secret=secret,
            created_ms=int(created_ms),
            next_index=int(next_index),
        )

    async def secret_of_closed(self, room_id: str) -> bytes:
        """The secret of a room that was closed, for as long as that is known; else empty."""
        cell = self._cell(room_id)
        found = await cell.link.command("HGET", room_key(cell, room_id), "secret")
        return bytes(found or b"")

    async def close(self, room_id: str) -> int:
        """Closes a room and tells all its gateways. Returns how many utterances it had.

        It is not an error if the room is closed already.
        """
        reply = await self._cell(room_id).link.call(*self._close_room(room=room_id))
        check_reply(room_id, reply)
        return int(reply[1])

    # ---- members ----

    async def join(self, *, room_id: str, member: MemberRecord) -> Admission:
        """Adds a member, or moves it to this gateway.

        Raises:
            RoomFullError: the room would have too many members, speakers or languages. A member
                that is there stays as it was.
        """
        reply = await self._join(room_id, member, rejoin=False)
        return Admission(*reply[1:])

    async def change(self, *, room_id: str, member: MemberRecord) -> Admission:
        """Changes what a member of this gateway listens to.

        Raises:
            SessionTakenOverError: it is at another gateway by now, and stays there as it is.
            RoomFullError: as `join`.
        """
        reply = await self._join(room_id, member, rejoin=True)
        if reply[0] == _MOVED:
            raise errors.SessionTakenOverError("the listener has joined at another gateway")
        return Admission(*reply[1:])

    async def rejoin(self, *, room_id: str, member: MemberRecord) -> bool:
        """Adds a member of this gateway again if Redis has lost it.

        Returns False if the member is at another gateway by now, and stays there. Raises as `join`.
        """
        reply = await self._join(room_id, member, rejoin=True)
        return bool(reply[0] == _OK)

    async def _join(self, room_id: str, member: MemberRecord, *, rejoin: bool) -> Any:
        reply = await self._cell(room_id).link.call(
            *self._join_room(
                room=room_id,
                member=member.member_id,
                role=member.role,
                language=member.language,
                flags=member.flags,
                name=member.name,
                joined_ms=member.joined_ms,
                change=member.change,
                rejoin=rejoin,
            )
        )
        if reply[0] != _MOVED:
            check_reply(room_id, reply)
        return reply

    async def leave(self, *, room_id: str, member_id: str, change: int | None = None) -> None:
        """Removes a member, if it is still at this gateway. Otherwise, nothing happens.

        Args:
            room_id: of the room.
            member_id: of the member.
            change: to repeat a call, the `next_change` that it had.
        """
        change = next_change() if change is None else change
        await self._cell(room_id).link.call(
            *self._leave_room(room=room_id, member=member_id, change=change)
        )

    async def whereabouts(self, room_id: str) -> dict[str, str]:
        """The gateway of each member, by member id. The cost grows with the room."""
        cell = self._cell(room_id)
        flat = await cell.link.command("HGETALL", f"{room_key(cell, room_id)}:members")
        return {
            member_id.decode(): parse_member(packed).gateway
            for member_id, packed in zip(flat[::2], flat[1::2], strict=True)
        }

    async def leave_others(self, room_id: str, members: Container[str], *, change: int) -> None:
        """Removes members of this gateway that it does not have; the cost grows with the room.

        If `KeptRoom.members` is too high, a `leave` has failed, or a failover has undone it.

        Args:
            room_id: of the room.
            members: the ids of the members that are here.
            change: a `next_change` from a while ago. Who joined later may be about to come.
        """
        for member_id, gateway in (await self.whereabouts(room_id)).items():
            if gateway == self._gateway and member_id not in members:
                await self.leave(room_id=room_id, member_id=member_id, change=change)

    async def clock_ahead_ms(self, cell: Cell, own_ms: float) -> int:
        """How far the clock of a cell is ahead of a clock of the caller."""
        return int(await cell.link.call(*script_calls.compare_clock(own_ms=int(own_ms))))

    async def keep(
        self, cell: Cell, rooms: Sequence[tuple[str, int]], *, expire: bool
    ) -> list[KeptRoom]:
        """Renews the leases of this gateway in many rooms. Raises only DependencyDownError.

        Args:
            cell: of the rooms.
            rooms: each room's id, and the lowest room index that its next utterance may have.
            expire: utterances that are overdue become missing. False in the first seconds after
                Redis was unavailable, so that outcomes which wait for it come first.
        """
        parts = [rooms[at : at + _KEPT_AT_ONCE] for at in range(0, len(rooms), _KEPT_AT_ONCE)]
        replies = await asyncio.gather(
            *(cell.link.call(*self._keep_rooms(expire=expire, rooms=part)) for part in parts)
        )
        return [
            KeptRoom(word.decode(), next_index, version, members)
            for reply in replies
            for word, next_index, version, members in zip(
                *(reply[at::4] for at in range(4)), strict=True
            )
        ]

    # ---- outcomes ----

    def put(
        self,
        *,
        room_id: str,
        language: str,
        index: int,
        event: bytes,
        speech: bytes = b"",
        original: bytes = b"",
    ) -> asyncio.Future[bytes]:
        """Puts the outcome of an utterance in one language.

        Not a coroutine, as `SessionStore.record`. The future has one of these words, or
        DependencyDownError, which may also be raised at once:

        - published: all gateways can read it.
        - waiting: it will be published after earlier ones of its language.
        - late: the utterance had another outcome in this language.
        - ROOM_NOT_FOUND, ROOM_CLOSED: nothing has happened. After the first, it can be put again
          when a gateway has restored the room.

        Args:
            room_id: of the room.
            language: of the outcome.
            index: room index.
            event: a RoomEvent without audio.
            speech: translated speech.
            original: the speaker's audio, for listeners of all languages. It is kept from the
                latest call that brings it on, so the first one is enough unless others come late.
        """
        return self._cell(room_id).link.send(
            *self._put_spoken(
                room=room_id,
                language=language,
                index=index,
                entry=event,
                speech=speech,
                original=original,
            )
        )

    async def left(self, room_id: str, pairs: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
        """Returns those pairs of room index and language that have no outcome yet."""
        pairs = list(pairs)
        if not pairs:
            return set()
        reply = await self._cell(room_id).link.call(
            *script_calls.left_spoken(room=room_id, wanted=pairs)
        )
        check_reply(room_id, reply)
        return {pair for pair, is_left in zip(pairs, reply[1:], strict=True) if is_left}

    async def read(
        self,
        *,
        room_id: str,
        language: str,
        start: int,
        count: int,
        newest: bool = False,
        with_speech: bool = True,
    ) -> list[Entry]:
        """Reads outcomes of one language, in order. There are none if the room is gone.

        Args:
            room_id: of the room.
            language: of the outcomes.
            start: lower room indexes are left out.
            count: at most so many. With speech each may have hundreds of KB.
            newest: the last ones, not the first ones.
            with_speech: also read speech and original audio.
        """
        reply = await self._cell(room_id).link.call(
            *script_calls.read_spoken(
                room=room_id,
                language=language,
                start=start,
                count=count,
                newest=newest,
                with_speech=with_speech,
            )
        )
        return parse_entries(reply)

    def _cell(self, room_id: str) -> Cell:
        return cell_of_room(self._cells, room_id)


def news_channel(cell: Cell, gateway: str) -> str:
    """The Pub/Sub channel on which the scripts of a cell wake a gateway up.

    A message is `<room id> <language>`: there are new outcomes; or `<room id>`: the members have
    changed, or the room was closed.
    """
    return f"{cell.prefix}:news:{gateway}"


def check_reply(room_id: str, reply: Sequence[Any]) -> None:
    """Raises the error that the reply of a script of rooms stands for."""
    if reply[0] == _OK:
        return
    if reply[0] == b"ROOM_FULL":
        _refuse_full(room_id, reply[1].decode(), int(reply[2]))
    raise room_refusal(room_id, reply[0])


def _refuse_full(room_id: str, what: str, limit: int) -> NoReturn:
    raise errors.RoomFullError(
        f"the room has reached its limit of {limit} {what}",
        metadata={"room_id": room_id, "limit": what, "allowed": str(limit)},
    )
