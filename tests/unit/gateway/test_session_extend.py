"""`SessionCore.extend` does what `on_chunk` does, or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lingua_scheduler.services.session_gateway.session.core import SessionCore
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_record_pb2
from tests.unit.gateway.desk import AB, BA, BYTES_PER_MS, OPENED, RULES, Desk, specs

FIXED = session_pb2.NewSession(
    direction=common_pb2.LanguagePair(src="en", tgt="zh"), audio_format=OPENED.audio_format
)
RULES_OF = (
    RULES,
    replace(RULES, max_duration_ms=1500.0, session_utterances_max=3),
    replace(RULES, max_length_bytes=1200 * BYTES_PER_MS),
)
BEYOND_MS = 2**53

WALKS = 150
STEPS = 60


class Speaker(Desk):
    """A session that takes chunks with `on_chunk`, or with `extend` first."""

    def __init__(
        self, opened: session_pb2.NewSession, *, rules: SessionRules = RULES, extends: bool = True
    ) -> None:
        super().__init__(rules, opened=opened)
        self.extended = 0
        self._finished = 0
        self._opened = opened
        self._extends = extends

    def chunk(
        self,
        ms: float,
        direction: tuple[str, str],
        final: bool,
        off: int,
        clock: int | None,
        rest: bytes,
    ) -> None:
        # A chunk that was refused has to be sent again.
        seq = max(0, self.core._intake.expected_seq + off)
        data = bytes([seq % 256]) * int(ms * BYTES_PER_MS) + rest
        client_ms = 0 if clock is None else int(self.now) + clock
        is_fixed = self._opened.HasField("direction")
        named = AB if is_fixed else direction
        may_extend = self._extends and not final
        if may_extend and self.core.extend(self.now, seq, data, client_ms, Direction(*named)):
            self.extended += 1
            return
        self.say(
            direction=None if is_fixed else direction,
            final=final,
            seq=seq,
            data=data,
            client_ms=client_ms,
        )

    def late(self, ms: float) -> None:
        """Advances the clock without firing timers."""
        self.now += ms

    def finish(self) -> None:
        """All jobs end."""
        for effect in self.submitted[self._finished :]:
            utterance = effect.utterance
            self.accepted(utterance.index).delivered(utterance.index, utterance.direction)
        self._finished = len(self.submitted)

    def state(self) -> list[object]:
        """All that can be observed."""
        jobs = [dispatcher_pb2.JobSpec() for _ in self.submitted]
        for job, effect in zip(jobs, self.submitted, strict=True):
            self.specs.fill(job, effect.utterance, self.now)
        return [
            self.told(),
            self.sent,
            self.timers,
            [record.cuts for record in self.records],
            {name: count for name, count in self.counts.items() if count},
            [job.SerializeToString(deterministic=True) for job in jobs],
            self.core.phase,
            self.core.last_chunk_ms,
        ]


def walk(chance: random.Random) -> Iterator[tuple[object, ...]]:
    """What may happen to a session, mostly speech."""

    def one_of(usual: object, *others: object) -> object:
        return usual if chance.random() < 0.93 else chance.choice(others)

    for _ in range(STEPS):
        match chance.randrange(20):
            case 0:
                yield "playback", chance.random() < 0.4
            case 1 | 2:
                yield "silence", chance.choice([50.0, 200.0, 2950.0, 3100.0])
            case 3:
                yield "late", chance.choice([100.0, 3000.0, 3001.0])
            case 4 | 5:
                yield ("recorded",)
            case 6:
                yield ("finish",)
            case _:
                yield (
                    "chunk",
                    one_of(100.0, 0.0, 400.0, 1000.0, 5000.0),
                    one_of(AB, BA),
                    one_of(False, True),
                    # How far its sequence number is off.
                    one_of(0, 1, -1),
                    # How far the client's clock is off; None: it does not tell the time.
                    one_of(0, None, 3500, BEYOND_MS),
                    # Bytes that make it something else than whole samples.
                    one_of(b"", b"x"),
                )
                yield "silence", one_of(100.0, 0.0)
    yield (chance.choice(["close", "lost"]),)
    yield "chunk", 100.0, AB, False, 0, 0, b""
    yield ("recorded",)


@pytest.mark.parametrize("opened", [OPENED, FIXED], ids=["conversation", "fixed"])
def test_a_session_with_extend_is_the_same_as_one_without(opened: session_pb2.NewSession) -> None:
    extended = 0
    for seed in range(WALKS):
        rules = RULES_OF[seed % len(RULES_OF)]
        plain, extending = (
            Speaker(opened, rules=rules, extends=extends) for extends in (False, True)
        )
        for name, *values in walk(random.Random(seed)):
            for speaker in (plain, extending):
                getattr(speaker, str(name))(*values)
            assert extending.state() == plain.state(), (seed, name, values)
        extended += extending.extended
    # Otherwise this would be a test of nothing.
    assert extended > 5 * WALKS


def test_all_chunks_but_the_first_of_an_utterance_extend_it() -> None:
    speaker = Speaker(OPENED)

    for _ in range(10):
        speaker.chunk(100.0, AB, False, 0, 0, b"")
        speaker.silence(100.0)

    assert (speaker.extended, speaker.counts["chunk"]) == (9, 10)


def test_voice_detection_hears_every_chunk() -> None:
    heard = []

    def listen(_: Direction, data: bytes) -> float:
        heard.append(data)
        return 0.0

    core = SessionCore(
        rules=RULES,
        opened=FIXED,
        specs=specs(FIXED, RULES),
        past=Past(),
        counts=dict.fromkeys(("chunk",), 0),
        now=0.0,
        listen=listen,
    )
    for seq in range(3):
        assert not core.extend(0.0, seq, b"ab", 0, Direction(*AB))
        core.on_chunk(0.0, session_pb2.AudioChunk(seq=seq, data=b"ab"))

    assert heard == [b"ab"] * 3


def test_a_chunk_that_was_cut_before_the_session_was_resumed_is_not_new_speech() -> None:
    # The other side spoke in chunk 1, and its utterance is done.
    cut = session_record_pb2.Cut(chunks=[session_record_pb2.ChunkRange(first=1, end=2)])
    desk = Desk(past=Past(next_index=1, seen=1, cuts=(cut,)))
    desk.say(seq=0)

    assert not desk.core.extend(desk.now, 1, b"ab", 0, Direction(*AB))
    desk.say(seq=1)
    assert not desk.core.extend(desk.now, 1, b"ab", 0, Direction(*AB))
