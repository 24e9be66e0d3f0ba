"""The client in the world of a session: it does what the SDK does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lingua_scheduler.v1 import dispatcher_pb2, session_pb2
from tests.unit.gateway.session_world.model import AB, BA, Message

if TYPE_CHECKING:
    from tests.unit.gateway.session_world.world import World


class Client:
    """Keeps chunks until they are acknowledged, and counts the results that it has seen."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.chunks: list[session_pb2.AudioChunk] = []
        self.acked = 0
        self.kept = 0
        self.seen = 0
        self.outcomes: list[str] = []
        # How often each utterance was joined by a later result, or reported as lost.
        self.joined: Counter[int] = Counter()
        self.told_lost: Counter[int] = Counter()
        self.closing = False
        self.closed: session_pb2.Closed | None = None
        self.direction = AB

    def speak(self) -> None:
        pick = self._world.choices.pick
        if self.closing:
            return
        if self._world.choices.one_in(7):
            self.direction = BA if self.direction == AB else AB
        ms = (100, 300, 500, 20, 160, 0, 1000, 1400)[pick(8)]
        seq = len(self.chunks)
        data = seq.to_bytes(2, "big").ljust(ms, b"\0") if ms else b""
        chunk = session_pb2.AudioChunk(seq=seq, data=data, is_final=self._world.choices.one_in(6))
        chunk.direction.src, chunk.direction.tgt = self.direction
        if self._world.with_client_ms and pick(8) < 7:
            chunk.client_ms = int(self._world.now)
        self.chunks.append(chunk)
        self.write(lambda life: life.core.on_chunk(self._world.now, chunk))

    def say_seen(self) -> None:
        seen = self.seen
        self.write(lambda life: life.core.on_seen(self._world.now, seen))

    def playback(self, *, on: bool) -> None:
        self.write(lambda life: life.core.on_playback(self._world.now, on=on))

    def close(self) -> None:
        self.closing = True
        self.write(lambda life: life.core.on_close(self._world.now))

    def say_nonsense(self) -> None:
        """Sends a chunk that must be refused and change nothing."""
        seq = len(self.chunks)
        wrong = (
            session_pb2.AudioChunk(seq=seq + 3, data=b"ab"),
            session_pb2.AudioChunk(seq=seq, data=b"odd"),
            session_pb2.AudioChunk(seq=seq, data=b"ab"),
        )[self._world.choices.pick(3)]
        self.write(lambda life: life.core.on_chunk(self._world.now, wrong))

    def write(self, message: Message) -> None:
        self._world.life.wire.append(message)
        self.read()

    def read(self) -> None:
        """Has the gateway read what the client has written."""
        life = self._world.life
        while life.wire and life.gate_open and not life.is_over and not life.is_dead:
            self._world.tell(life, "message", life.wire.pop(0))

    def pump(self, *, may_lag: bool = True) -> None:
        """Lets the client read what was sent to it, now or later."""
        self.read()
        if not may_lag or not self._world.choices.one_in(4):
            self.receive(len(self._world.life.down))

    def receive(self, count: int) -> None:
        for _ in range(count):
            event = self._world.life.down.pop(0)
            match event.WhichOneof("event"):
                case "result":
                    is_held = event.result.kind == dispatcher_pb2.JobResult.KIND_HELD
                    self._see(event.result.utterance_index, "held" if is_held else "result")
                    self.joined.update(event.result.joined_utterances)
                    self.told_lost.update(event.result.lost_utterances)
                case "missing":
                    self._see(event.missing.utterance_index, "missing")
                    self.told_lost.update(event.missing.lost_utterances)
                    self._world.check_missing(event.missing)
                case "audio_ack":
                    ack = event.audio_ack
                    self.acked = max(self.acked, ack.next_seq)
                    keep = ack.keep_seq if ack.HasField("keep_seq") else ack.next_seq
                    self.kept = max(self.kept, keep)
                case "closed":
                    self.closed = event.closed

    def _see(self, index: int, what: str) -> None:
        assert index == self.seen, f"the client sees {index}, not {self.seen}"
        self.seen += 1
        self.outcomes.append(what)
