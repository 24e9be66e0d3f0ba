"""A synchronous driver for the scripts of rooms, on the clock that tests move.

Its methods are those of tests/support/room_model.py, without the clock.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import redis

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth import quotas
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    Entry,
    KeptRoom,
    MemberRecord,
    MemberRole,
    StoredMember,
    next_change,
    parse_entries,
    parse_member,
)
from lingua_scheduler.services.session_gateway.rooms.store import check_reply
from lingua_scheduler.services.session_gateway.store.room_basics import room_refusal
from lingua_scheduler.services.session_gateway.store.session_store import Spoken
from tests.support.room_state import RoomRules

from .scripts import clocked_scripts
from .session_scripts import TTL_MS, SessionScripts, cut

SECRET = b"\x00secret\xff"

# Counts the commands that a script gives, and copies its messages to a list.
_WATCHED = """
local real = redis
local redis = { sha1hex = real.sha1hex, call = function(command, ...)
  real.call('INCR', KEYS[1] .. ':test:commands')
  if command == 'PUBLISH' then
    real.call('RPUSH', KEYS[1] .. ':test:news', ...)
  end
  return real.call(command, ...)
end }
"""


def listener(
    member_id: str,
    language: str = "de",
    flags: str = "c",
    name: str = "",
    change: int | None = None,
) -> MemberRecord:
    """A listener, with the letters of what it receives."""
    return MemberRecord(
        member_id=member_id,
        role=MemberRole.LISTENER,
        language=language,
        captions="c" in flags,
        speech="s" in flags,
        original_audio="o" in flags,
        name=name,
        change=next_change() if change is None else change,
    )


def speaker(member_id: str, language: str = "en", change: int | None = None) -> MemberRecord:
    """A speaker."""
    return MemberRecord(
        member_id=member_id,
        role=MemberRole.SPEAKER,
        language=language,
        change=next_change() if change is None else change,
    )


class RoomScripts(SessionScripts):
    """The scripts of rooms; if nothing else is said, room r and gateway g1.

    With the real clock, lifetimes are real, and only the commands of the scripts are counted.
    """

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        rules: RoomRules | None = None,
        real_clock: bool = False,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        sources = sources or (load_scripts() if real_clock else clocked_scripts())
        watched = {name: _WATCHED + source for name, source in sources.items()}
        super().__init__(client, prefix, sources=watched)
        self.rules = rules or RoomRules()

    # ---- rooms ----

    def create(
        self,
        room_id: str = "r",
        *,
        secret: bytes = SECRET,
        tenant: str = "t1",
        created_ms: int = 0,
        next_index: int = 0,
        max_members: int = 2000,
        max_speakers: int = 8,
        max_languages: int = 16,
        most_rooms: int = 0,
        elsewhere: int = 0,
    ) -> int:
        """Creates a room. Returns when it was created."""
        reply = self.call(
            *script_calls.CreateRoom(idle_ms=self.rules.idle_ms).call(
                room=room_id,
                tenant=tenant,
                options=b"\x00options\xff",
                secret=secret,
                created_ms=created_ms,
                next_index=next_index,
                max_members=max_members,
                max_speakers=max_speakers,
                max_languages=max_languages,
                max_rooms=most_rooms,
                elsewhere=elsewhere,
            )
        )
        if reply[0] == quotas.REFUSED:
            raise quotas.quota_error(reply)
        check_reply(room_id, reply)
        return int(reply[1])

    def close(self, room_id: str = "r") -> int:
        """Closes a room. Returns how many utterances it had."""
        call = script_calls.CloseRoom(idle_ms=self.rules.idle_ms).call(room=room_id)
        reply = self.call(*call)
        check_reply(room_id, reply)
        return int(reply[1])

    # ---- members ----

    def join_room(
        self,
        member: MemberRecord,
        *,
        gateway: str = "g1",
        room_id: str = "r",
        rejoin: bool = False,
    ) -> Admission | None:
        """Adds, moves or changes a member; None if it has moved."""
        join = script_calls.JoinRoom(
            gateway=gateway, lease_ms=self.rules.lease_ms, idle_ms=self.rules.idle_ms
        )
        reply = self.call(
            *join.call(
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
        if rejoin and reply[0] == b"MEMBER_MOVED":
            return None
        check_reply(room_id, reply)
        return Admission(*reply[1:])

    def leave_room(
        self,
        member_id: str,
        *,
        gateway: str = "g1",
        room_id: str = "r",
        change: int | None = None,
    ) -> None:
        """Removes a member."""
        leave = script_calls.LeaveRoom(gateway=gateway)
        change = next_change() if change is None else change
        reply = self.call(*leave.call(room=room_id, member=member_id, change=change))
        assert reply == [b"ok"]

    def keep_rooms(
        self, *rooms: tuple[str, int], gateway: str = "g1", expire: bool = True
    ) -> list[KeptRoom]:
        """Renews rooms, each with its lowest next index; without any, room r."""
        rules = self.rules
        keep = script_calls.KeepRooms(
            gateway=gateway,
            lease_ms=rules.lease_ms,
            idle_ms=rules.idle_ms,
            captions_max=rules.captions_max,
            speech_ms=rules.speech_ms,
        )
        reply = self.call(*keep.call(expire=expire, rooms=rooms or [("r", 0)]))
        rows = zip(*(reply[at::4] for at in range(4)), strict=True)
        return [KeptRoom(word.decode(), *numbers) for word, *numbers in rows]

    # ---- utterances ----

    def record_spoken(
        self,
        *cuts: int,
        session_id: str = "s",
        room_id: str = "r",
        language: str = "en",
        epoch: int = 1,
        first_index: int = 0,
        floor: int = 0,
        only: Mapping[int, Iterable[str]] | None = None,
    ) -> list[Spoken]:
        """Records cuts, by utterance index."""
        rules = self.rules
        record = script_calls.RecordSpoken(
            ttl_ms=TTL_MS,
            keep=rules.cuts_max,
            due_ms=rules.due_ms,
            lease_ms=rules.lease_ms,
            idle_ms=rules.idle_ms,
        )
        reply = self.call(
            *record.call(
                session=session_id,
                epoch=epoch,
                seen=0,
                results=0,
                missing=0,
                last_chunk_ms=0,
                first=first_index,
                acked=0,
                room=room_id,
                src=language,
                floor=floor,
                cuts=[(at, cut(at), " ".join((only or {}).get(at, ()))) for at in cuts],
            )
        )
        match reply[0]:
            case b"SESSION_NOT_FOUND":
                raise errors.SessionNotFoundError(session_id)
            case b"SESSION_TAKEN_OVER":
                raise errors.SessionTakenOverError(session_id)
            case b"ROOM_NOT_FOUND" | b"ROOM_CLOSED":
                raise room_refusal(room_id, reply[0])
        return [spoken(index, words) for index, words in zip(reply[1::2], reply[2::2], strict=True)]

    def put(
        self,
        index: int,
        event: bytes | None = None,
        *,
        language: str = "de",
        room_id: str = "r",
        speech: bytes = b"",
        original: bytes = b"",
    ) -> str:
        """Puts an outcome. Returns the word."""
        rules = self.rules
        put = script_calls.PutSpoken(
            captions_max=rules.captions_max, speech_ms=rules.speech_ms, idle_ms=rules.idle_ms
        )
        reply = self.call(
            *put.call(
                room=room_id,
                language=language,
                index=index,
                entry=said(index) if event is None else event,
                speech=speech,
                original=original,
            )
        )
        return str(reply.decode())

    def left(self, *pairs: tuple[int, str], room_id: str = "r") -> set[tuple[int, str]]:
        """Those that have no outcome yet."""
        reply = self.call(*script_calls.left_spoken(room=room_id, wanted=pairs))
        check_reply(room_id, reply)
        return {pair for pair, is_left in zip(pairs, reply[1:], strict=True) if is_left}

    def read(
        self,
        language: str = "de",
        *,
        room_id: str = "r",
        start: int = 0,
        count: int = 1000,
        newest: bool = False,
        with_speech: bool = True,
    ) -> list[Entry]:
        """Outcomes in order."""
        call = script_calls.read_spoken(
            room=room_id,
            language=language,
            start=start,
            count=count,
            newest=newest,
            with_speech=with_speech,
        )
        return parse_entries(self.call(*call))

    # ---- what Redis holds ----

    def record_of(self, room_id: str = "r") -> dict[str, bytes]:
        """The record of a room."""
        return self._hash("room", room_id)

    def members(self, room_id: str = "r") -> dict[str, StoredMember]:
        """The members of a room."""
        found = self._hash("room", room_id, "members")
        return {name: parse_member(packed) for name, packed in found.items()}

    def wants(self, room_id: str = "r") -> dict[str, int]:
        """The counters of a room."""
        return {name: int(count) for name, count in self._hash("room", room_id, "wants").items()}

    def scores(self, *parts: str) -> dict[str, int]:
        """A sorted set."""
        found = self.client.zrange(self.key(*parts), 0, -1, withscores=True)
        return {name.decode(): int(score) for name, score in found}

    def keys(self, *parts: str) -> set[str]:
        """The keys that begin so, without the prefix."""
        found = self.client.scan_iter(f"{self.key(*parts)}*", count=10_000)
        return {key.decode().removeprefix(f"{self.prefix}:") for key in found}

    def take_news(self) -> list[tuple[str, str]]:
        """The gateway and the text of every message since the last call."""
        key = self.key("test", "news")
        words = [word.decode() for word in self.client.lrange(key, 0, -1)]
        self.client.delete(key)
        channels = (each.removeprefix(f"{self.prefix}:news:") for each in words[::2])
        return list(zip(channels, words[1::2], strict=True))

    def commands(self) -> int:
        """The commands of scripts since the last call."""
        return int(self.client.getdel(self.key("test", "commands")) or 0)

    def _hash(self, *parts: str) -> dict[str, bytes]:
        found = self.client.hgetall(self.key(*parts))
        return {name.decode(): value for name, value in found.items()}


def said(index: int) -> bytes:
    """What is said in an utterance; not text, as protobuf is not."""
    return b"\x00\xffsaid %d" % index


def spoken(room_index: int, languages: bytes) -> Spoken:
    """Reads an answer of record_spoken."""
    words: Sequence[str] = languages.decode().split()
    wanted: list[Any] = [(each.rstrip("+"), each.endswith("+")) for each in words if each != "*"]
    return Spoken(room_index, tuple(wanted), "*" in words)
