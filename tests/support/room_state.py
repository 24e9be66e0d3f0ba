"""What a room, a language of it, and a speaker are in the model of rooms. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    MemberRecord,
    MemberRole,
)
from lingua_scheduler.services.session_gateway.store.session_store import Spoken


@dataclass(frozen=True, kw_only=True)
class RoomRules:
    """The settings that scripts take as arguments."""

    lease_ms: int = 15_000
    idle_ms: int = 3_600_000
    due_ms: int = 60_000
    speech_ms: int = 30_000
    captions_max: int = 200
    # Cuts of a session that are kept.
    cuts_max: int = 200


@dataclass
class Member:
    """A member, and what `join` answered."""

    gateway: str
    record: MemberRecord
    joined_ms: int
    admission: Admission


@dataclass
class Room:
    """A room that is not gone."""

    tenant: str
    secret: bytes
    created_ms: int
    next_index: int
    max_members: int
    max_speakers: int
    max_languages: int
    ends: int
    version: int = 0
    is_closed: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)

    def wants(self) -> Counter[str]:
        """The counters of lua/lib/room_members.lua, counted from the members."""
        counts: Counter[str] = Counter()
        for member in self.members.values():
            record = member.record
            counts[f"@{member.gateway}"] += 1
            if record.role is MemberRole.SPEAKER:
                counts["#speakers"] += 1
                continue
            counts["#listeners"] += 1
            counts[record.language] += 1
            counts[f"{record.language}+"] += record.speech
            counts["*"] += record.original_audio
        return +counts

    def check_limits(self, room_id: str, member: MemberRecord) -> None:
        """Raises RoomFullError if this member does not fit in beside the others."""
        others = [each.record for id_, each in self.members.items() if id_ != member.member_id]
        speakers = sum(each.role is MemberRole.SPEAKER for each in others)
        languages = {each.language for each in others if each.role is MemberRole.LISTENER}
        if len(others) >= self.max_members:
            raise full(room_id, "members", self.max_members)
        if member.role is MemberRole.SPEAKER and speakers >= self.max_speakers:
            raise full(room_id, "speakers", self.max_speakers)
        is_new = member.role is MemberRole.LISTENER and member.language not in languages
        if is_new and len(languages) >= self.max_languages:
            raise full(room_id, "languages", self.max_languages)

    def settle(self, now: int, lease_ms: int, alive: str) -> bool:
        """Drops gateways whose lease has ended; if all have, they get another one.

        Returns whether the members have changed.
        """
        ended = {gateway for gateway, ends in self.leases.items() if ends <= now}
        if len(ended) == len(self.leases):
            self.leases = dict.fromkeys(ended, now + lease_ms)
            return False
        ended.discard(alive)
        kept = {id_: each for id_, each in self.members.items() if each.gateway not in ended}
        self.members = kept
        self.leases = {each: ends for each, ends in self.leases.items() if each not in ended}
        return bool(ended)

    def forget_lease(self, gateway: str) -> None:
        """Drops the lease of a gateway if it has no members."""
        if all(each.gateway != gateway for each in self.members.values()):
            self.leases.pop(gateway, None)


@dataclass
class Lane:
    """One language of a room. Its parts expire on their own."""

    # By room index: when it is due.
    open: dict[int, int] = field(default_factory=dict)
    open_ends: int = 0
    waiting: dict[int, bytes] = field(default_factory=dict)
    waiting_ends: int = 0
    # Room index, previous, event.
    said: list[tuple[int, int | None, bytes]] = field(default_factory=list)
    said_ends: int = 0
    _released: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        """The room index of the last outcome; -1 if there is none."""
        return self.said[-1][0] if self.said else -1

    def say(self, now: int, index: int, event: bytes, rules: RoomRules) -> None:
        """Appends an outcome."""
        assert index > self.last
        if not self.said:
            self.said_ends = now + rules.idle_ms
        self.said.append((index, self.last if self.said else None, event))
        del self.said[: -rules.captions_max]

    def release(self, now: int, rules: RoomRules) -> None:
        """Appends the outcomes that have waited for nothing but the last one."""
        while self.open and min(self.open) in self.waiting:
            index = min(self.open)
            del self.open[index]
            self.say(now, index, self.waiting.pop(index), rules)
            self._released.append(index)

    def expire(self, now: int, rules: RoomRules) -> bool:
        """Makes overdue utterances missing. Returns whether there are new outcomes."""
        is_news = False
        while self.open and self.open[min(self.open)] <= now:
            index = min(self.open)
            del self.open[index]
            self.say(now, index, b"", rules)
            self.release(now, rules)
            is_news = True
        return is_news

    def take_released(self) -> list[int]:
        """The room indexes of outcomes that were released since the last call."""
        released, self._released = self._released, []
        return released


@dataclass
class Speaker:
    """The record of a session, as far as rooms change it."""

    epoch: int = 1
    next_index: int = 0
    low: int = 0
    said: dict[int, Spoken] = field(default_factory=dict)


def full(room_id: str, what: str, limit: int) -> errors.RoomFullError:
    """The error of a room that has reached a limit."""
    return errors.RoomFullError(
        f"the room has reached its limit of {limit} {what}",
        metadata={"room_id": room_id, "limit": what, "allowed": str(limit)},
    )
