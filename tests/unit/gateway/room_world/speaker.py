"""A speaker in the world of a room: its client, and the core of its session at a gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.session_gateway.rooms.records import MemberRecord
from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionCore
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.speaking import lane as lanes
from lingua_scheduler.services.session_gateway.session.speaking.lane_turns import cuts_in_lanes
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import Place
from lingua_scheduler.services.session_gateway.store.session_record import SpokenTo
from lingua_scheduler.services.session_gateway.store.session_store import Spoken
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2
from tests.unit.gateway.room_desk import ROOM
from tests.unit.gateway.room_world.nodes import TAG, Nodes, error, tags

if TYPE_CHECKING:
    from tests.unit.gateway.room_world.world import World

# Half a second at 8 kHz, 16 bit.
_CHUNK_BYTES = 500 * 16
_LOST = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
T = TypeVar("T")

_PLACE = SpokenTo(room_id="r", language="en", floor=lambda: 0).place


class Life:
    """The session at one gateway."""

    def __init__(self, core: SessionCore, specs: JobSpecs, epoch: int) -> None:
        self.core = core
        self.specs = specs
        self.epoch = epoch
        self.timers: dict[fx.TimerKey, float] = {}
        self.is_connected = True
        self.is_over = False
        self.is_dead = False


class Speaker:
    """One speaker. What Redis knows of its session is here, but for the places of its cuts."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.nodes = Nodes(world, self)
        self.chunks: list[session_pb2.AudioChunk] = []
        self.receipts: list[session_pb2.RoomReceipt] = []
        self.is_closing = self.is_closed = False
        self.lives: list[Life] = []
        # What the client has sent on this connection, and what it may drop.
        self._sent = self._acked = 0
        # The record: cuts that are kept, all cuts ever, and how far the client has got.
        self._cuts: dict[int, session_record_pb2.Cut] = {}
        self.ever: dict[int, session_record_pb2.Cut] = {}
        self._low = self._next_index = self._acked_seq = 0
        world.model.open_session(name)
        self._join()
        self.life = self._start(Past(), self.epoch)

    @property
    def epoch(self) -> int:
        return self.world.model.speakers[self.name].epoch

    def said_in(self, index: int) -> list[str]:
        """What was said in an utterance."""
        seqs = [seq for each in self.ever[index].chunks for seq in range(each.first, each.end)]
        return tags(b"".join(self.chunks[seq].data for seq in seqs))

    # ---- the client ----

    def speak(self) -> None:
        """Says something, ended by a button or by a pause."""
        ends = not self.world.choices.one_in(3)
        many = 1 + self.world.choices.pick(2)
        for last in [*[False] * (many - 1), ends]:
            seq = len(self.chunks)
            tag = f"{self.name}{seq}".encode().ljust(TAG, b".")
            data = tag * (_CHUNK_BYTES // TAG)
            self.chunks.append(session_pb2.AudioChunk(seq=seq, data=data, is_final=last))

    def pump(self) -> None:
        """Sends and confirms what it can."""
        life, now = self.life, self.world.now
        while life.is_connected and self._sent < len(self.chunks):
            chunk = self.chunks[self._sent]
            self._sent += 1
            self.do(life, life.core.on_chunk(now, chunk))
        if life.is_connected and self.is_closing:
            self.do(life, life.core.on_close(now))
        if life.is_connected and self.receipts:
            self.do(life, life.core.on_seen(now, len(self.receipts)))

    def lose_stream(self) -> None:
        """The connection breaks; the gateway lives."""
        if self.life.is_connected:
            self.life.is_connected = False
            self.do(self.life, self.life.core.on_left(self.world.now))

    def lose_gateway(self) -> None:
        """Its gateway is killed."""
        self.life.is_dead, self.life.is_connected = True, False

    def resume(self) -> None:
        """Connects again, to some gateway."""
        epoch = self.world.model.take_session(self.name)
        self._join()
        cuts = [self._cuts[index] for index in sorted(self._cuts)]
        unplaced = [cut for cut in cuts if not cut.HasField("room_index")]
        for cut, spoken in zip(unplaced, self._placed(unplaced, epoch, 0), strict=True):
            _PLACE(cut, spoken)
        left = frozenset(
            (cut.utterance_index, each.language)
            for cut in cuts
            for each in cut.languages
            if self.world.is_open(cut.room_index, each.language)
        )
        seen = len(self.receipts)
        next_seq = replay_from(
            cuts_in_lanes(tuple(cuts)),
            most_cuts=200,
            seen=seen,
            kept_seq=0,
            next_seq=max(self._acked, self._acked_seq),
        )
        next_index = max(self._next_index, seen)
        lost = {
            (cut.utterance_index, each.language): event.missing.why
            for cut in cuts
            for each in cut.languages
            for event in self.world.events(each.language)
            if event.HasField("missing") and event.missing.room_index == cut.room_index
        }
        past = Past(next_index, seen, next_seq, 0, tuple(cuts), left, lost)
        self.life, self._sent = self._start(past, epoch), next_seq

    def _join(self) -> None:
        member = MemberRecord.speaker(self.name, language="en")
        gateway = self.world.gateway()
        self.world.model.join(now=self.world.wall, gateway=gateway, room_id="r", member=member)

    def _start(self, past: Past, epoch: int) -> Life:
        rules = self.world.rules
        specs = JobSpecs(session_id=self.name, opened=ROOM, epoch=epoch, rules=rules)
        core = SessionCore(
            rules=rules,
            opened=ROOM,
            specs=specs,
            past=past,
            counts=Counter(),
            now=self.world.now,
            speaker=lanes.Speaker(self.name, self.name, "en"),
        )
        life = Life(core, specs, epoch)
        self.lives.append(life)
        self.do(life, core.start(self.world.now))
        return life

    # ---- effects ----

    def do(self, life: Life, todo: Iterable[fx.Effect]) -> None:
        for effect in todo:
            if life.is_over:
                return
            match effect:
                case fx.SetTimer():
                    life.timers[effect.key] = effect.at_ms
                case fx.ClearTimer():
                    life.timers.pop(effect.key, None)
                case fx.Send():
                    self._receive(life, effect.message)
                case fx.Record():
                    self._record(life, effect)
                case fx.Submit():
                    self.nodes.submit(life, effect.utterance)
                case fx.Publish():
                    self._publish(life, effect)
                case fx.Taken():
                    self.nodes.taken.add(effect.job_id)
                case fx.End():
                    life.is_over, life.is_connected = True, False

    def _receive(self, life: Life, message: session_pb2.ServerMessage) -> None:
        if not life.is_connected:
            return
        for event in message.events:
            match event.WhichOneof("event"):
                case "audio_ack":
                    self._acked = max(self._acked, event.audio_ack.next_seq)
                case "result":
                    index = event.result.utterance_index
                    assert index <= len(self.receipts), "a receipt is left out"
                    if index == len(self.receipts):
                        self.receipts.append(event.result.room)
                case "closed":
                    self.is_closed = True
                case "missing":
                    raise AssertionError(f"the speaker is told: {event.missing}")

    def _record(self, life: Life, record: fx.Record) -> None:
        def apply() -> list[Place]:
            cuts = [*record.cuts]
            spoken = self._placed(cuts, life.epoch, record.first_index)
            self._low = max(self._low, record.first_index)
            self._acked_seq = max(self._acked_seq, record.acked_seq)
            for cut in cuts:
                copy = session_record_pb2.Cut.FromString(cut.SerializeToString())
                self._cuts[cut.utterance_index] = copy
                self.ever.setdefault(cut.utterance_index, copy)
                self._next_index = max(self._next_index, cut.utterance_index + 1)
            self._cuts = {at: cut for at, cut in self._cuts.items() if at >= self._low}
            return [_PLACE(cut, each) for cut, each in zip(cuts, spoken, strict=True)]

        self._ask(
            life,
            apply,
            lambda places: life.core.on_recorded(self.world.now, places),
            lambda: life.core.on_record_failed(self.world.now, error(_DOWN)),
        )

    def _placed(
        self, cuts: list[session_record_pb2.Cut], epoch: int, first_index: int
    ) -> list[Spoken]:
        return self.world.model.record_spoken(
            now=self.world.wall,
            session_id=self.name,
            room_id="r",
            cuts=[cut.utterance_index for cut in cuts],
            language="en",
            epoch=epoch,
            first_index=first_index,
            only={
                cut.utterance_index: [each.language for each in cut.languages]
                for cut in cuts
                if cut.languages and not cut.HasField("room_index")
            },
        )

    def _publish(self, life: Life, effect: fx.Publish) -> None:
        event, index = effect.event, effect.utterance.index
        told = event.result if event.HasField("result") else event.missing

        def apply() -> str:
            return self.world.model.put(
                now=self.world.wall,
                room_id="r",
                language=effect.lane,
                index=told.room_index,
                event=event.SerializeToString(),
            )

        self._ask(
            life,
            apply,
            lambda _: life.core.on_published(self.world.now, effect.lane, index),
            lambda: life.core.on_publish_failed(self.world.now, effect.lane, index),
        )

    def _ask(
        self,
        life: Life,
        apply: Callable[[], T],
        done: Callable[[T], list[fx.Effect]],
        failed: Callable[[], list[fx.Effect]],
    ) -> None:
        """Asks Redis: it may happen without an answer, or after the answer was given up."""
        choices, world = self.world.choices, self.world
        way = choices.pick(8) if world.rough else 0
        first, second = choices.delay(), choices.delay()

        def answer(react: Callable[[], list[fx.Effect]]) -> None:
            if not life.is_dead and not life.is_over:
                self.do(life, react())

        def happen(answered: bool) -> None:
            try:
                outcome = apply()
            except errors.SessionTakenOverError:
                react = partial(life.core.on_lost, world.now, error(_LOST))
            else:
                react = partial(done, outcome)
            if answered:
                world.after(second, lambda: answer(react))

        if way in (5, 6):
            world.after(first, lambda: happen(answered=False))
        elif way == 7:
            world.after(first + second, lambda: happen(answered=False))
        elif way != 4:
            world.after(first, lambda: happen(answered=True))
            return
        world.after(first + second / 2, lambda: answer(failed))
