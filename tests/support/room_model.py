"""What Redis holds of rooms, as plain Python: the scripts of lua/ without Redis. Pure.

`RoomModel` answers as `RoomStore` and `SessionStore.record_spoken` do, and raises the same errors.
The clock, and the gateway that calls, are arguments. tests/lua/test_room_model.py compares it with
the scripts; tests of the gateway's cores use it as their store.

    model = RoomModel(RoomRules())
    model.create(now=0, room_id="r", secret=b"s")
    model.join(now=0, gateway="g1", room_id="r", member=MemberRecord.speaker("s", language="en"))
    model.open_session("s")
    (spoken,) = model.record_spoken(now=0, session_id="s", room_id="r", cuts=[0], language="en")
    model.put(now=5, room_id="r", language="de", index=spoken.room_index, event=b"...")
    model.read(now=5, room_id="r", language="de", start=0, count=10)
    model.take_news()    # [("g1", "r de")]
"""

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    Entry,
    KeptRoom,
    MemberRecord,
    MemberRole,
)
from lingua_scheduler.services.session_gateway.store.room_basics import room_refusal
from lingua_scheduler.services.session_gateway.store.session_store import Spoken
from tests.support.room_state import Lane, Member, Room, RoomRules, Speaker


class RoomModel:
    """All rooms. Every method first removes what has expired."""

    def __init__(self, rules: RoomRules | None = None) -> None:
        self.rules = rules or RoomRules()
        self.rooms: dict[str, Room] = {}
        self.lanes: dict[tuple[str, str], Lane] = {}
        # By room: languages that may have a lane, and when this is forgotten.
        self.lane_names: dict[str, tuple[set[str], int]] = {}
        # Speech by room, language and index, original audio with the language ''; when it expires.
        self.audio: dict[tuple[str, str, int], tuple[bytes, int]] = {}
        self.speakers: dict[str, Speaker] = {}
        self._news: list[tuple[str, str]] = []

    def copy(self) -> "RoomModel":
        """A copy: what a failover restores."""
        return copy.deepcopy(self)

    def take_news(self) -> list[tuple[str, str]]:
        """The gateway and the text of every message since the last call."""
        news, self._news = self._news, []
        return news

    # ---- rooms ----

    def create(
        self,
        *,
        now: int,
        room_id: str,
        secret: bytes,
        tenant: str = "",
        created_ms: int = 0,
        next_index: int = 0,
        max_members: int = 2000,
        max_speakers: int = 8,
        max_languages: int = 16,
        most_rooms: int = 0,
    ) -> int:
        """Creates or restores a room. Returns when it was created."""
        self._expire(now)
        room = self.rooms.get(room_id)
        if room is not None:
            if room.is_closed or room.secret != secret:
                raise room_refusal(room_id, b"ROOM_CLOSED")
            room.next_index = max(room.next_index, next_index)
            return room.created_ms
        of_tenant = [
            each for each in self.rooms.values() if each.tenant == tenant and not each.is_closed
        ]
        if most_rooms and len(of_tenant) >= most_rooms:
            raise errors.QuotaExceededError(f"{most_rooms} rooms", metadata={"limit": "rooms"})
        self._delete_lanes(room_id)
        self.rooms[room_id] = Room(
            tenant=tenant,
            secret=secret,
            created_ms=created_ms or now,
            next_index=next_index,
            max_members=max_members,
            max_speakers=max_speakers,
            max_languages=max_languages,
            ends=now + self.rules.idle_ms,
        )
        return created_ms or now

    def close(self, *, now: int, room_id: str) -> int:
        """Closes a room. Returns how many utterances it had."""
        self._expire(now)
        room = self.rooms.get(room_id)
        if room is None:
            raise room_refusal(room_id, b"ROOM_NOT_FOUND")
        if not room.is_closed:
            self._tell(room_id, room)
            self._delete_lanes(room_id)
            room.is_closed, room.version = True, room.version + 1
            room.ends = now + self.rules.idle_ms
            room.members, room.leases = {}, {}
        return room.next_index

    # ---- members ----

    def join(
        self, *, now: int, gateway: str, room_id: str, member: MemberRecord, rejoin: bool = False
    ) -> Admission | None:
        """Adds, moves or changes a member. None: it is elsewhere, only for a `rejoin`."""
        room = self._room(now, room_id)
        self._settle(now, room_id, room, alive=gateway)
        before = room.members.get(member.member_id)
        is_same = False
        if before is not None and before.gateway != gateway and rejoin:
            return None
        if before is not None and before.gateway == gateway:
            is_same = _wish(before.record) == _wish(member)
            is_repeat = is_same and (rejoin or before.record.change == member.change)
            if is_repeat or before.record.change > member.change:
                return before.admission
        room.check_limits(room_id, member)
        last_open = -1
        if before is not None and _changes_language(before.record, member):
            last_open = max(self._lane(room_id, before.record.language).open, default=-1)
        admission = Admission(room.next_index, last_open)
        joined_ms = before.joined_ms if before is not None else member.joined_ms or now
        room.members[member.member_id] = Member(gateway, member, joined_ms, admission)
        room.leases[gateway] = now + self.rules.lease_ms
        self._renew(now, room_id, room)
        if not is_same or (before is not None and before.record.name != member.name):
            self._change(room_id, room)
        if before is not None:
            room.forget_lease(before.gateway)
        return admission

    def leave(self, *, now: int, gateway: str, room_id: str, member_id: str, change: int) -> None:
        """Removes a member, if it is still there."""
        self._expire(now)
        room = self.rooms.get(room_id)
        member = room.members.get(member_id) if room is not None else None
        if room is None or member is None:
            return
        if member.gateway == gateway and member.record.change <= change:
            del room.members[member_id]
            self._change(room_id, room)
            room.forget_lease(gateway)

    def keep(
        self, *, now: int, gateway: str, rooms: Sequence[tuple[str, int]], expire: bool
    ) -> list[KeptRoom]:
        """Renews the rooms of a gateway."""
        self._expire(now)
        return [self._keep(now, gateway, room_id, floor, expire) for room_id, floor in rooms]

    def _keep(self, now: int, gateway: str, room_id: str, floor: int, expire: bool) -> KeptRoom:
        room = self.rooms.get(room_id)
        if room is None:
            return KeptRoom("ROOM_NOT_FOUND", 0, 0, 0)
        if room.is_closed:
            return KeptRoom("ROOM_CLOSED", room.next_index, room.version, 0)
        self._settle(now, room_id, room, alive=gateway)
        room.next_index = max(room.next_index, floor)
        wanted = self.wants(room_id)
        if not wanted[f"@{gateway}"]:
            return KeptRoom("ok", room.next_index, room.version, 0)
        room.leases[gateway] = now + self.rules.lease_ms
        self._renew(now, room_id, room)
        names, _ = self.lane_names.get(room_id, (set(), 0))
        for language in sorted(names):
            lane = self._lane(room_id, language)
            is_open = bool(lane.open)
            if is_open:
                lane.open_ends = lane.waiting_ends = now + self.rules.idle_ms
            if is_open or wanted[language]:
                lane.said_ends = now + self.rules.idle_ms
            elif not lane.said:
                names.discard(language)
            if is_open and expire and lane.expire(now, self.rules):
                self._keep_released(now, room_id, language, lane)
                self._tell(room_id, room, language)
        if not names:
            self.lane_names.pop(room_id, None)
        return KeptRoom("ok", room.next_index, room.version, wanted[f"@{gateway}"])

    def wants(self, room_id: str) -> Counter[str]:
        """The counters of lua/lib/room_members.lua, counted from the members."""
        return self.rooms[room_id].wants()

    def _settle(self, now: int, room_id: str, room: Room, *, alive: str = "") -> None:
        if room.settle(now, self.rules.lease_ms, alive):
            self._change(room_id, room)

    # ---- utterances ----

    def open_session(self, session_id: str) -> int:
        """Opens the session of a speaker. Returns its epoch."""
        self.speakers[session_id] = Speaker()
        return 1

    def take_session(self, session_id: str) -> int:
        """Another gateway takes a session over. Returns the new epoch."""
        self.speakers[session_id].epoch += 1
        return self.speakers[session_id].epoch

    def record_spoken(
        self,
        *,
        now: int,
        session_id: str,
        room_id: str,
        cuts: Iterable[int],
        language: str,
        epoch: int = 1,
        first_index: int = 0,
        floor: int = 0,
        only: Mapping[int, Iterable[str]] | None = None,
    ) -> list[Spoken]:
        """Records cuts, by utterance index, and gives the new ones their room indexes."""
        self._expire(now)
        speaker, cuts = self.speakers.get(session_id), list(cuts)
        if speaker is None or speaker.epoch < epoch:
            raise errors.SessionNotFoundError(session_id)
        if speaker.epoch > epoch:
            raise errors.SessionTakenOverError(session_id)
        new = [index for index in cuts if index >= speaker.low and index not in speaker.said]
        if new:
            room = self._room(now, room_id)
            self._settle(now, room_id, room)
            room.next_index = max(room.next_index, floor)
            for index in dict.fromkeys(new):
                restricted = (only or {}).get(index)
                speaker.said[index] = self._enter(now, room_id, room, language, restricted)
        answers = [speaker.said.get(index, Spoken(-1, (), False)) for index in cuts]
        speaker.next_index = max([speaker.next_index, *(index + 1 for index in cuts)])
        speaker.low = max(
            speaker.low,
            min(first_index, speaker.next_index),
            speaker.next_index - self.rules.cuts_max,
        )
        speaker.said = {at: said for at, said in speaker.said.items() if at >= speaker.low}
        return answers

    def _enter(
        self, now: int, room_id: str, room: Room, spoken: str, only: Iterable[str] | None
    ) -> Spoken:
        wanted = self.wants(room_id)
        all_languages = {
            each.record.language
            for each in room.members.values()
            if each.record.role is MemberRole.LISTENER
        }
        restricted = set(only or ())
        languages = sorted(all_languages & restricted if restricted else all_languages)
        index, room.next_index = room.next_index, room.next_index + 1
        for language in languages:
            lane = self._lane(room_id, language)
            lane.open[index] = now + self.rules.due_ms
            lane.open_ends = now + self.rules.idle_ms
            self._name_lane(room_id, language)
            self._renew_lane_names(now, room_id)
        original = not restricted and bool(wanted["*"] or wanted[f"{spoken}+"])
        return Spoken(index, tuple((each, wanted[f"{each}+"] > 0) for each in languages), original)

    def put(
        self,
        *,
        now: int,
        room_id: str,
        language: str,
        index: int,
        event: bytes,
        speech: bytes = b"",
        original: bytes = b"",
    ) -> str:
        """Puts an outcome. Returns the word of lua/put_spoken.lua."""
        self._expire(now)
        lane, rules = self._lane(room_id, language), self.rules
        first = min(lane.open, default=None)
        if first != index:
            room = self.rooms.get(room_id)
            if room is None:
                return "ROOM_NOT_FOUND"
            if room.is_closed:
                return "ROOM_CLOSED"
            if index > lane.last and index not in lane.open:
                room.next_index = max(room.next_index, index + 1)
                self._name_lane(room_id, language)
        if index <= lane.last:
            same = any(at == index and said == event for at, _, said in lane.said)
            return "published" if same else "late"
        if first is not None and first < index:
            if index in lane.waiting:
                return "waiting" if lane.waiting[index] == event else "late"
            lane.open.setdefault(index, now)
            lane.waiting[index] = event
            lane.open_ends = lane.waiting_ends = now + rules.idle_ms
            self._renew_lane_names(now, room_id)
            ends = now + max(rules.speech_ms, rules.idle_ms)
            self._keep_audio(room_id, language, index, speech, original, ends)
            return "waiting"
        if not lane.said:
            self._renew_lane_names(now, room_id)
        lane.open.pop(index, None)
        self._keep_audio(room_id, language, index, speech, original, now + rules.speech_ms)
        lane.say(now, index, event, rules)
        lane.release(now, rules)
        self._keep_released(now, room_id, language, lane)
        self._tell(room_id, self.rooms.get(room_id), language)
        return "published"

    def left(
        self, *, now: int, room_id: str, pairs: Iterable[tuple[int, str]]
    ) -> set[tuple[int, str]]:
        """Those that have no outcome yet."""
        self._room(now, room_id)
        return {
            (index, language)
            for index, language in pairs
            if index > self._lane(room_id, language).last
            and index not in self._lane(room_id, language).waiting
        }

    def read(
        self,
        *,
        now: int,
        room_id: str,
        language: str,
        start: int,
        count: int,
        newest: bool = False,
        with_speech: bool = True,
    ) -> list[Entry]:
        """Outcomes in order."""
        self._expire(now)
        found = [each for each in self._lane(room_id, language).said if each[0] >= start]
        entries = []
        for index, previous, event in found[-count:] if newest else found[:count]:
            speech, _ = self.audio.get((room_id, language, index), (b"", 0))
            original, _ = self.audio.get((room_id, "", index), (b"", 0))
            heard = (speech, original) if with_speech else (b"", b"")
            entries.append(Entry(index, previous, event, *heard))
        return entries

    # ---- parts ----

    def _keep_released(self, now: int, room_id: str, language: str, lane: Lane) -> None:
        for index in lane.take_released():
            for key in ((room_id, language, index), (room_id, "", index)):
                if key in self.audio:
                    self.audio[key] = (self.audio[key][0], now + self.rules.speech_ms)

    def _keep_audio(
        self, room_id: str, language: str, index: int, speech: bytes, original: bytes, ends: int
    ) -> None:
        if speech:
            self.audio[room_id, language, index] = (speech, ends)
        if original:
            self.audio[room_id, "", index] = (original, ends)

    def _room(self, now: int, room_id: str) -> Room:
        self._expire(now)
        room = self.rooms.get(room_id)
        if room is None:
            raise room_refusal(room_id, b"ROOM_NOT_FOUND")
        if room.is_closed:
            raise room_refusal(room_id, b"ROOM_CLOSED")
        return room

    def _lane(self, room_id: str, language: str) -> Lane:
        return self.lanes.setdefault((room_id, language), Lane())

    def _name_lane(self, room_id: str, language: str) -> None:
        names, ends = self.lane_names.get(room_id, (set(), 0))
        self.lane_names[room_id] = (names | {language}, ends)

    def _renew_lane_names(self, now: int, room_id: str) -> None:
        names, _ = self.lane_names[room_id]
        self.lane_names[room_id] = (names, now + self.rules.idle_ms)

    def _delete_lanes(self, room_id: str) -> None:
        names, _ = self.lane_names.pop(room_id, (set(), 0))
        for language in names:
            lane = self.lanes.pop((room_id, language), Lane())
            for index in lane.waiting:
                self.audio.pop((room_id, language, index), None)
                self.audio.pop((room_id, "", index), None)

    def _renew(self, now: int, room_id: str, room: Room) -> None:
        room.ends = now + self.rules.idle_ms
        if room_id in self.lane_names:
            self.lane_names[room_id] = (self.lane_names[room_id][0], room.ends)

    def _change(self, room_id: str, room: Room) -> None:
        room.version += 1
        self._tell(room_id, room)

    def _tell(self, room_id: str, room: Room | None, language: str = "") -> None:
        text = f"{room_id} {language}" if language else room_id
        by_lease = sorted(room.leases, key=lambda each: (room.leases[each], each)) if room else []
        self._news += [(gateway, text) for gateway in by_lease]

    def _expire(self, now: int) -> None:
        self.rooms = {id_: each for id_, each in self.rooms.items() if each.ends > now}
        self.lane_names = {id_: each for id_, each in self.lane_names.items() if each[1] > now}
        self.audio = {key: each for key, each in self.audio.items() if each[1] > now}
        for lane in self.lanes.values():
            if lane.open_ends <= now:
                lane.open = {}
            if lane.waiting_ends <= now:
                lane.waiting = {}
            if lane.said_ends <= now:
                lane.said = []


def _wish(record: MemberRecord) -> tuple[MemberRole, str, str]:
    return record.role, record.language, record.flags


def _changes_language(before: MemberRecord, after: MemberRecord) -> bool:
    both_listen = before.role is after.role is MemberRole.LISTENER
    return both_listen and before.language != after.language
