"""Runs one room to its end on a virtual clock; see the package for what may happen."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

from lingua_scheduler.services.session_gateway.rooms.records import MemberRecord
from lingua_scheduler.v1 import dispatcher_pb2, rooms_pb2
from tests.support.room_model import RoomModel, RoomRules
from tests.unit.choices import Choices
from tests.unit.gateway.desk import RULES
from tests.unit.gateway.room_world.speaker import Life, Speaker

# Everybody wants this language all the time; the others come and go.
ALWAYS = "de"
SOMETIMES = ("en", "fr", "ja")
GATEWAYS = ("g1", "g2")
HELD = dispatcher_pb2.JobResult.KIND_HELD


class World:
    """One room, two speakers, listeners, two gateways."""

    def __init__(self, choices: Choices, steps: int = 50) -> None:
        self.choices = choices
        self.now = 1000.0
        self.rough = True
        self.rules = replace(RULES, held_audio_max_bytes=(1_500_000, 0)[choices.pick(2)])
        self.model = RoomModel(RoomRules(lease_ms=10**9, idle_ms=10**12, due_ms=10**9))
        self.model.create(now=self.wall, room_id="r", secret=b"s")
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._steps = steps
        self._listeners: dict[str, str] = {}
        self.listen("always", ALWAYS)
        self.speakers = [Speaker(self, "a"), Speaker(self, "b")]

    @property
    def wall(self) -> int:
        return int(self.now)

    def gateway(self) -> str:
        return GATEWAYS[self.choices.pick(2)]

    def after(self, ms: float, step: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + ms, self._count, step))

    def is_open(self, room_index: int, language: str) -> bool:
        """Whether an utterance has no outcome in a language."""
        lane = self.model.lanes.get(("r", language))
        if lane is None:
            return False
        return room_index in lane.open and room_index not in lane.waiting

    # ---- the run ----

    def run(self) -> None:
        for _ in range(self._steps):
            self._act()
        self.rough = False
        for speaker in self.speakers:
            speaker.is_closing = True
        for _ in range(400):
            for speaker in self.speakers:
                if not speaker.life.is_connected and not speaker.is_closed:
                    speaker.resume()
                speaker.pump()
            self._advance(500.0)
            if all(each.is_closed and each.life.is_over for each in self.speakers):
                break
        assert all(each.is_closed for each in self.speakers), "a session hangs"
        self._advance(60_000.0)
        assert not any(
            life.timers for each in self.speakers for life in each.lives if not life.is_dead
        ), "a timer is left"

    def listen(self, member: str, language: str) -> None:
        listening = rooms_pb2.Listening(language=language, captions=True)
        self._listeners[member] = language
        record = MemberRecord.listener(member, listening)
        self.model.join(now=self.wall, gateway=self.gateway(), room_id="r", member=record)

    def _act(self) -> None:
        choices = self.choices
        speaker = self.speakers[choices.pick(2)]
        way = choices.pick(20)
        if way < 8:
            speaker.speak()
            speaker.pump()
        elif way < 11:
            self._advance((400.0, 3200.0, 35_000.0)[choices.pick(3)])
        elif way < 14:
            self.listen(f"m{choices.pick(3)}", SOMETIMES[choices.pick(3)])
        elif way == 14:
            self._leave(f"m{choices.pick(3)}")
        elif way == 15:
            speaker.lose_stream()
        elif way == 16:
            speaker.lose_gateway()
        elif way == 17:
            speaker.nodes.lose_held()
        else:
            self._resume(speaker)
        self._advance((0.0, 20.0, 250.0)[choices.pick(3)])
        speaker.pump()

    def _leave(self, member: str) -> None:
        room = self.model.rooms["r"]
        if member in room.members:
            there = room.members[member]
            self.model.leave(
                now=self.wall,
                gateway=there.gateway,
                room_id="r",
                member_id=member,
                change=there.record.change,
            )

    def _resume(self, speaker: Speaker) -> None:
        if not speaker.life.is_connected and not speaker.is_closed:
            speaker.resume()

    def _advance(self, ms: float) -> None:
        until = self.now + ms
        while True:
            timers = [
                (at, speaker, life, key)
                for speaker in self.speakers
                for life in speaker.lives
                if not life.is_dead and not life.is_over
                for key, at in life.timers.items()
            ]
            due = min(timers, key=lambda each: (each[0], each[3]), default=None)
            at = due[0] if due is not None else until + 1
            if self._heap and self._heap[0][0] <= min(at, until):
                self.now, _, step = heapq.heappop(self._heap)
                step()
            elif due is not None and at <= until:
                self.now = max(self.now, at)
                self._fire(due[1], due[2], due[3])
            else:
                break
        self.now = until

    def _fire(self, speaker: Speaker, life: Life, key: tuple[str, int]) -> None:
        del life.timers[key]
        speaker.do(life, life.core.on_timer(self.now, key))

    # ---- what came of it ----

    def events(self, language: str) -> list[rooms_pb2.RoomEvent]:
        """Everything that the room has in a language, in order."""
        lane = self.model.lanes.get(("r", language))
        said = lane.said if lane is not None else []
        return [rooms_pb2.RoomEvent.FromString(event) for _, _, event in said]
