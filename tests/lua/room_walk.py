"""Random walks through the scripts of rooms, each step compared with the model and with Redis.

A step is data, as in walk.py, so a walk can be printed, repeated, and cut down to what it needs.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis

from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.session_gateway.rooms.records import MemberRole
from tests.support.room_model import RoomModel
from tests.support.room_state import Lane, Room

from .conftest import batched
from .model import Broken
from .room_chance import LANGUAGES, ROOMS, RULES, SPEAKERS, Step
from .room_scripts import RoomScripts


class Saved(NamedTuple):
    """What a replica has."""

    keys: Mapping[bytes, bytes]
    model: RoomModel


class RoomWalk:
    """Does steps in Redis and in the model, and compares them."""

    def __init__(self, client: redis.Redis, prefix: str, sources: Mapping[str, str] | None) -> None:
        self._client = client
        self._prefix = prefix
        self._forget()
        self._scripts = RoomScripts(client, prefix, rules=RULES, sources=sources)
        self._model = RoomModel(RULES)
        self._saved: Saved | None = None
        # All room indexes so far are below this one.
        self._indexes = 1

    def run(self, steps: Sequence[Step]) -> None:
        """Raises Broken."""
        for step in steps:
            self._do(*step)

    def _do(self, kind: str, args: Mapping[str, Any]) -> None:
        if kind in ("advance", "snapshot", "failover", "open_session", "take_session"):
            getattr(self, f"_{kind}")(**args)
        else:
            there = self._outcome(getattr(self, f"_call_{kind}"), args)
            here = self._outcome(
                getattr(self._model, {"record": "record_spoken"}.get(kind, kind)),
                {"now": self._scripts.now, **args},
            )
            self._same("answer", there, here)
            self._same("news", sorted(self._scripts.take_news()), sorted(self._model.take_news()))
        self._compare()

    def _outcome(self, call: Any, args: Mapping[str, Any]) -> Any:
        try:
            return call(**args)
        except LinguaError as error:
            return type(error).__name__, dict(error.metadata).get("limit")

    # The scripts with the arguments of the model.

    def _call_create(self, **args: Any) -> Any:
        return self._scripts.create(**args)

    def _call_join(self, member: Any, **args: Any) -> Any:
        return self._scripts.join_room(member, **args)

    def _call_leave(self, member_id: str, **args: Any) -> Any:
        return self._scripts.leave_room(member_id, **args)

    def _call_keep(self, rooms: Any, **args: Any) -> Any:
        return self._scripts.keep_rooms(*rooms, **args)

    def _call_record(self, cuts: Any, **args: Any) -> Any:
        return self._scripts.record_spoken(*cuts, **args)

    def _call_put(self, index: int, event: bytes, **args: Any) -> Any:
        return self._scripts.put(index, event, **args)

    def _call_read(self, language: str, **args: Any) -> Any:
        return self._scripts.read(language, **args)

    def _call_left(self, pairs: Any, **args: Any) -> Any:
        return self._scripts.left(*pairs, **args)

    def _call_close(self, **args: Any) -> Any:
        return self._scripts.close(**args)

    # What happens around them.

    def _advance(self, ms: int) -> None:
        self._scripts.advance(ms)

    def _open_session(self, session_id: str) -> None:
        if session_id not in self._model.speakers:
            self._scripts.open_session(session_id)
            # Rooms are walked through here, not the lifetimes of sessions.
            self._client.zrem(
                self._scripts.key("test", "expires"), self._scripts.key("session", session_id)
            )
            self._model.open_session(session_id)

    def _take_session(self, session_id: str) -> None:
        if session_id in self._model.speakers:
            taken = self._scripts.taken(session_id)
            self._same("epoch", taken.epoch, self._model.take_session(session_id))

    def _snapshot(self) -> None:
        keys = {
            key: self._client.dump(key)
            for key in self._client.scan_iter(f"{self._prefix}:*", count=10_000)
            if b":test:now_ms" not in key and b":test:commands" not in key
        }
        self._saved = Saved(keys, self._model.copy())

    def _failover(self) -> None:
        if self._saved is None:
            return
        now = self._scripts.now
        self._forget()
        for key, value in self._saved.keys.items():
            self._client.restore(key, 0, value)
        self._client.set(self._scripts.key("test", "now_ms"), now)
        self._scripts.advance(0)
        self._model = self._saved.model.copy()

    # The state.

    def _compare(self) -> None:
        model, now = self._model, self._scripts.now
        model.read(now=now, room_id="", language="", start=0, count=0)
        used = (room.next_index for room in model.rooms.values())
        self._indexes = max([self._indexes, *used])
        found = iter(self._dump())
        for room_id in ROOMS:
            self._compare_room(room_id, model.rooms.get(room_id), found)
            names, _ = model.lane_names.get(room_id, (set(), 0))
            self._same("lanes", {name.decode() for name in next(found)}, names)
            for language in LANGUAGES:
                lane = model.lanes.get((room_id, language), Lane())
                self._compare_lane(f"{room_id} {language}", lane, found)
            audio = zip(self._audio_keys(room_id), next(found), strict=True)
            expected = {key: heard for key, (heard, _) in model.audio.items() if key[0] == room_id}
            self._same("audio", {key: heard for key, heard in audio if heard}, expected)
        listed = {room_id: room.ends for room_id, room in model.rooms.items() if not room.is_closed}
        for index in ("rooms", "rooms of the tenant"):
            kept = {name.decode(): int(ends) for name, ends in next(found) if ends > now}
            self._same(index, kept, listed)
        for session_id in SPEAKERS:
            speaker = model.speakers.get(session_id)
            wanted = {f"said:{index}" for index in speaker.said} if speaker else set()
            names = {name.decode() for name in next(found)}
            self._same("said", {each for each in names if each.startswith("said:")}, wanted)
            cuts = {each.replace("said", "cut") for each in wanted}
            self._same("cuts", {each for each in names if each.startswith("cut:")}, cuts)

    def _dump(self) -> list[Any]:
        pipeline, key = self._client.pipeline(transaction=False), self._scripts.key
        for room_id in ROOMS:
            pipeline.hgetall(key("room", room_id))
            pipeline.hgetall(key("room", room_id, "members"))
            pipeline.hgetall(key("room", room_id, "wants"))
            pipeline.zrange(key("room", room_id, "gateways"), 0, -1, withscores=True)
            pipeline.zrange(key("room", room_id, "speakers"), 0, -1, withscores=True)
            pipeline.smembers(key("room", room_id, "lanes"))
            for language in LANGUAGES:
                pipeline.zrange(key("room", room_id, "lane", language), 0, -1)
                pipeline.hgetall(key("room", room_id, "waiting", language))
                pipeline.xrange(key("room", room_id, "said", language))
            pipeline.mget(
                [
                    key("room", room_id, "speech", language, index)
                    if language
                    else key("room", room_id, "original", index)
                    for _, language, index in self._audio_keys(room_id)
                ]
            )
        pipeline.zrange(key("rooms"), 0, -1, withscores=True)
        pipeline.zrange(key("tenant", "t1", "rooms"), 0, -1, withscores=True)
        for session_id in SPEAKERS:
            pipeline.hkeys(key("session", session_id))
        return list(pipeline.execute())

    def _audio_keys(self, room_id: str) -> list[tuple[str, str, int]]:
        indexes = range(self._indexes)
        return [(room_id, language, at) for language in (*LANGUAGES, "") for at in indexes]

    def _compare_room(self, room_id: str, room: Room | None, found: Any) -> None:
        record, members, wants, gateways, speakers = (next(found) for _ in range(5))
        self._same(f"{room_id} is there", bool(record), room is not None)
        if room is not None:
            there = (int(record[b"next"]), int(record[b"version"]), b"closed" in record)
            self._same(room_id, there, (room.next_index, room.version, room.is_closed))
        expected = {
            id_: "\n".join(
                [
                    *(each.gateway, each.record.role, each.record.language, each.record.flags),
                    *(str(each.joined_ms), str(each.record.change)),
                    *(*map(str, each.admission), each.record.name),
                ]
            )
            for id_, each in (room.members if room else {}).items()
        }
        there = {id_.decode(): packed.decode() for id_, packed in members.items()}
        self._same(f"members of {room_id}", there, expected)
        counts = {name.decode(): int(count) for name, count in wants.items()}
        self._same(f"wants of {room_id}", counts, dict(self._model.wants(room_id)) if room else {})
        leases = {name.decode(): int(ends) for name, ends in gateways}
        self._same(f"gateways of {room_id}", leases, room.leases if room else {})
        who_speaks = {
            id_: each.joined_ms
            for id_, each in (room.members if room else {}).items()
            if each.record.role is MemberRole.SPEAKER
        }
        there = {name.decode(): int(since) for name, since in speakers}
        self._same(f"speakers of {room_id}", there, who_speaks)

    def _compare_lane(self, name: str, lane: Lane, found: Any) -> None:
        opened, waiting, said = (next(found) for _ in range(3))
        there = {int(index): int(due) for index, due, _ in (each.split(b":") for each in opened)}
        self._same(f"lane {name}", there, lane.open)
        there = {int(index): event for index, event in waiting.items()}
        self._same(f"waiting {name}", there, lane.waiting)
        entries = [
            (int(id_.split(b"-")[0]) - 1, int(each[b"p"]) if each[b"p"] else None, each[b"e"])
            for id_, each in said
        ]
        self._same(f"said {name}", entries, lane.said)
        for (before, *_), (_, previous, _) in itertools.pairwise(entries):
            self._same(f"the chain of {name}", previous, before)

    def _same(self, what: str, there: Any, here: Any) -> None:
        if there != here:
            raise Broken(f"{what}: Redis has {there}, the model has {here}")

    def _forget(self) -> None:
        keys = self._client.scan_iter(f"{self._prefix}:*", count=10_000)
        for some in batched(keys, 1_000):
            self._client.unlink(*some)
