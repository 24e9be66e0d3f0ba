"""A gatherer with a virtual clock and timers, driven by hand; the tests of cuts share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
    SessionTimers,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.gatherer import Gatherer
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Chunk, Cut, Direction
from lingua_scheduler.v1 import common_pb2
from tests.unit.gateway.desk import RULES as SESSION_RULES

AB, BA = Direction("en", "zh"), Direction("zh", "en")
LETTERS = {
    common_pb2.FINALIZE_REASON_IS_FINAL: "final",
    common_pb2.FINALIZE_REASON_TIMEOUT: "pause",
    common_pb2.FINALIZE_REASON_INTERRUPTED: "interrupted",
    common_pb2.FINALIZE_REASON_MAX_DURATION: "long",
    common_pb2.FINALIZE_REASON_MAX_LENGTH: "large",
    common_pb2.FINALIZE_REASON_SESSION_CLOSE: "close",
}
RULES = replace(SESSION_RULES, max_duration_ms=1000.0, max_length_bytes=1000)


class Rig:
    """A gatherer with a virtual clock and timers."""

    def __init__(self, rules: SessionRules = RULES, continues: Iterable[Direction] = ()) -> None:
        self.counts: Counter[str] = Counter()
        self.alarms = SessionTimers()
        self.gatherer = Gatherer(
            rules=rules, timers=self.alarms, counts=self.counts, continues=continues
        )
        self.now = 1000.0
        self.timers: dict[TimerKey, float] = {}
        self.cuts: list[Cut] = []
        self._seq = 0
        self._told = 0

    def say(
        self,
        ms: float = 100.0,
        direction: Direction = AB,
        *,
        final: bool = False,
        client_ms: int = 0,
        size: int = 1,
        data: bytes | None = None,
        quiet_ms: float | None = None,
    ) -> Rig:
        """Sends a chunk; 0 ms is one without data."""
        if data is None:
            data = bytes([self._seq % 256]) if ms else b""
        size = size if data else 0
        chunk = Chunk(self._seq, data, ms, size, final, direction, client_ms, quiet_ms)
        self._seq += 1
        return self._take(self.gatherer.on_chunk(self.now, chunk))

    def end(self, direction: Direction = AB) -> Rig:
        """Sends the end of an utterance without data."""
        return self.say(0, direction, final=True)

    def playback(self, on: bool) -> Rig:
        self.gatherer.on_playback(self.now, on=on)
        return self._take([])

    def hold(self, on: bool) -> Rig:
        self.gatherer.on_hold(self.now, on=on)
        return self._take([])

    def close(self) -> Rig:
        return self._take(self.gatherer.on_close(self.now))

    def silence(self, ms: float) -> Rig:
        """Advances the clock, and fires timers when they are due."""
        until = self.now + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now = max(self.now, at)
            self.fire(key)
        self.now = until
        return self

    def late(self, ms: float) -> Rig:
        """Advances the clock without firing timers: they are late."""
        self.now += ms
        return self

    def fire(self, key: TimerKey) -> Rig:
        """Fires a timer now, as a session's core does."""
        if self.alarms.take(self.now, key):
            self.timers.pop(key, None)
            self.call(key)
        return self

    def call(self, key: TimerKey) -> Rig:
        """Calls the handler of a timer, whether it is set or not."""
        call = {
            PAUSE: self.gatherer.on_pause_timer,
            HANGOVER: self.gatherer.on_hangover_timer,
            FRAGMENT: self.gatherer.on_fragment_timer,
        }[key]
        return self._take(call(self.now))

    def _take(self, cuts: list[Cut]) -> Rig:
        self.cuts += cuts
        for change in self.alarms.changes:
            if isinstance(change, SetTimer):
                self.timers[change.key] = change.at_ms
            else:
                self.timers.pop(change.key, None)
        self.alarms.changes = []
        return self

    def told(self) -> list[str]:
        """The cuts since the last call: their reasons and chunks."""
        new, self._told = self.cuts[self._told :], len(self.cuts)
        return [shown(cut) for cut in new]

    def timers_set(self) -> set[str]:
        assert all(at > self.now for at in self.timers.values())
        return {key[0] for key in self.timers}


def shown(cut: Cut) -> str:
    seqs = [seq for first, end in cut.speech.ranges for seq in range(first, end)]
    assert len(seqs) == len(cut.speech.chunks)
    return " ".join([LETTERS[cut.reason], *map(str, seqs)])


def idle() -> Rig:
    return Rig()


def fragment() -> Rig:
    """A gatherer that has kept chunk 0 as a fragment, and gathers nothing."""
    rig = Rig().say(100).silence(3000)
    assert rig.timers_set() == {"fragment"}
    return rig


def other_fragment() -> Rig:
    """The same as `fragment`, for the other direction."""
    return Rig().say(100, BA).silence(3000)


def gathering() -> Rig:
    return Rig().say(500)


def short() -> Rig:
    return Rig().say(100)


def full() -> Rig:
    return Rig().say(1000)


def ended() -> Rig:
    return Rig().say(500, final=True)


def paused() -> Rig:
    rig = Rig().say(500).silence(3000)
    assert rig.timers_set() == {"hangover"}
    return rig
