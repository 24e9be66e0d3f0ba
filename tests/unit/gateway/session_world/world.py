"""Runs one session to its end on a virtual clock; see the package for what may happen."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionCore
from lingua_scheduler.services.session_gateway.session.effects import (
    ClearTimer,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import session_pb2
from tests.unit.choices import Choices
from tests.unit.gateway.session_world.client import Client
from tests.unit.gateway.session_world.dispatcher import Dispatcher
from tests.unit.gateway.session_world.model import (
    LATE_MS,
    OPENED,
    Life,
    Message,
    plain,
    short,
)
from tests.unit.gateway.session_world.store import Store

Step = Callable[[], None]


class World(ABC):
    """Runs one session to its end; what must hold is for those who derive from it."""

    def __init__(self, choices: Choices, steps: int = 60) -> None:
        self.choices = choices
        self.now = 1000.0
        self._log: list[tuple[float, str, list[fx.Effect | str]]] = []
        self.seen: Counter[str] = Counter()
        self.rules = self._draw_rules()
        # Runs differ in how much goes wrong.
        self.calm = (30, 10, 4)[choices.pick(3)]
        self.with_client_ms = choices.one_in(2)
        self.benign_since: float | None = None
        self.store = Store(self)
        self.client = Client(self)
        self.dispatcher = Dispatcher(self)
        self.audio: dict[str, tuple[bytes, int]] = {}
        # Utterances that were reported as missing.
        self.declared: set[int] = set()
        self.lives: list[Life] = []
        self._heap: list[tuple[float, int, bool, Step]] = []
        self._seq = 0
        self._steps = steps
        self.life = self._open()

    def _draw_rules(self) -> SessionRules:
        pick = self.choices.pick
        return SessionRules(
            pause_ms=3000.0,
            voice_pause_ms=800.0,
            max_duration_ms=(2000.0, 1000.0)[pick(2)],
            max_length_bytes=(100_000, 1500)[pick(2)],
            hangover_manual_ms=(200.0, 0.0)[pick(2)],
            hangover_auto_ms=(150.0, 0.0)[pick(2)],
            padding_manual_ms=200,
            padding_auto_ms=150,
            short_merge_ms=(400.0, 0.0, 1500.0)[pick(3)],
            short_wait_ms=(10_000.0, 0.0, 2000.0)[pick(3)],
            result_deadline_ms=30_000.0,
            redis_outage_max_ms=(0.0, 20_000.0)[pick(2)],
            result_queue_max=(200, 4)[pick(2)],
            session_utterances_max=(16, 1, 3)[pick(3)],
            session_idle_ms=1e12,
            held_audio_max_bytes=1_500_000,
        )

    # ---- the run ----

    def run(self) -> None:
        for _ in range(self._steps):
            self._act()
            self.client.pump()
            if self.is_done:
                break
        self._become_benign()
        for _ in range(400):
            if self.is_done:
                break
            if self.life.is_over or self.life.is_dead:
                self._resume()
            if not self.client.closing:
                self.client.close()
            self._advance(500.0)
            self.client.pump(may_lag=False)
            self.client.say_seen()
        assert self.is_done, f"the session hangs in {self.life.core.phase}"
        self._advance(60_000.0)
        self.check_whole()

    def note(self, what: str, effects: list[fx.Effect] | None = None) -> None:
        # Utterances change; all other effects stay as they are.
        done = [short(each) if isinstance(each, fx.Submit) else each for each in effects or ()]
        self._log.append((self.now, what, done))

    def story(self) -> str:
        """What has happened, a line each."""
        lines = []
        for now, what, effects in self._log:
            lines.append(f"{now:9.1f} {what}")
            lines += [f"{'':14}{short(effect)}" for effect in effects]
        return "\n".join(lines)

    @property
    def is_done(self) -> bool:
        """The client has everything, and knows it."""
        return self.client.closed is not None and self.life.is_over

    def _act(self) -> None:
        one_in = self.choices.one_in
        way = self.choices.pick(24)
        if way < 12:
            self.client.speak()
            self._advance((0.0, 20.0, 100.0, 400.0)[self.choices.pick(4)])
        elif way < 14:
            self._advance((150.0, 250.0, 1000.0)[self.choices.pick(3)])
        elif way < 16:
            self._advance((3200.0, 2990.0, 3001.0, 4000.0)[self.choices.pick(4)])
        elif way == 16:
            self._advance((9000.0, 14_000.0, 31_000.0)[self.choices.pick(3)])
        elif way < 19:
            self.client.say_seen()
        elif way == 19:
            self.client.playback(on=one_in(2))
        elif way == 20:
            self._spurious_timer()
        elif way == 21 and one_in(self.calm // 2):
            self.store.down_until = self.now + (500.0, 5000.0, 40_000.0)[self.choices.pick(3)]
        elif way == 22 and one_in(self.calm // 4):
            self._lose_stream()
        elif way == 22:
            self.dispatcher.lose_node()
        elif way == 23 and one_in(4):
            self.client.close() if one_in(6) else self.client.say_nonsense()

    def _become_benign(self) -> None:
        """From here on nobody fails."""
        self.note("---- all is well from here on ----")
        self.benign_since = self.now
        self.store.down_until = 0.0
        # What is on its way for long comes soon.
        soon = [
            (at if is_timer else min(at, self.now + 10), seq, is_timer, step)
            for at, seq, is_timer, step in self._heap
        ]
        self._heap = sorted(soon, key=lambda each: each[:2])
        if not self.is_done and self.choices.one_in(3):
            self._lose_stream()
        for job in self.dispatcher.jobs.values():
            if job.state == "running":
                self.after(100.0, lambda job=job: self.dispatcher.finish(job))  # type: ignore[misc]

    @property
    def rough(self) -> bool:
        return self.benign_since is None and self.choices.one_in(self.calm // 2)

    # ---- time ----

    def after(self, delay: float, step: Step, *, is_timer: bool = False) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (self.now + delay, self._seq, is_timer, step))

    def _advance(self, ms: float) -> None:
        until = self.now + ms
        while self._heap and self._heap[0][0] <= until:
            at, _, _, step = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            step()
        self.now = until
        for life in self.lives:
            self.check_deadlines(life)

    def delay(self) -> float:
        if self.benign_since is not None:
            return 10.0
        return 40_000.0 if self.choices.one_in(60) else self.choices.delay()

    # ---- gateways ----

    def _open(self) -> Life:
        store, client = self.store, self.client
        store.epoch += 1
        cuts = tuple(store.cuts[index] for index in sorted(store.cuts))
        past = Past(
            next_index=store.next_index,
            seen=client.seen,
            next_seq=replay_from(
                cuts,
                most_cuts=self.rules.result_queue_max,
                seen=client.seen,
                kept_seq=client.kept,
                next_seq=max(client.acked, store.acked_seq),
            ),
            missing=store.missing,
            cuts=cuts,
        )
        specs = JobSpecs(session_id="s", opened=OPENED, epoch=store.epoch, rules=self.rules)
        core = SessionCore(
            rules=self.rules,
            opened=OPENED,
            specs=specs,
            past=past,
            counts=self.seen,
            now=self.now,
        )
        life = Life(core, specs, store.epoch, past.seen)
        life.cuts = {cut.utterance_index: plain(cut) for cut in past.cuts}
        life.since = dict.fromkeys(range(past.seen, past.next_index), self.now)
        life.over = {index for index in life.since if index not in life.cuts}
        life.given_up = set(self.declared)
        self.lives.append(life)
        self.life = life
        self.note(
            f"gateway {life.epoch} takes it: index {past.next_index}, "
            f"cuts {sorted(life.cuts)}, seen {past.seen}, from chunk {past.next_seq}"
        )
        self.seen["cuts taken up"] += len(past.cuts)
        # It is told so in Opened.
        client.acked = max(client.acked, past.next_seq)
        self.tell(life, "start", lambda life: life.core.start(self.now))
        for chunk in client.chunks[past.next_seq :]:
            self.client.write(lambda life, chunk=chunk: life.core.on_chunk(self.now, chunk))  # type: ignore[misc]
        if client.closing:
            self.client.close()
        return life

    def _lose_stream(self) -> None:
        """The client loses its stream with what is on its way, and comes back by and by."""
        old = self.life
        self.client.receive(len(old.down) - self.choices.pick(len(old.down) + 1))
        old.down.clear()
        old.wire.clear()
        if self.client.closed is not None:
            return  # it has everything, and does not come back
        way = ("leaves", "dies", "does not notice")[self.choices.pick(3)]
        self.seen[f"the gateway {way}"] += 1
        self.note(f"the stream is lost; gateway {old.epoch} {way}")
        if way == "leaves":
            self.tell(old, "left", lambda life: life.core.on_left(self.now))
        elif way == "dies":
            old.is_dead = True
            for job in self.dispatcher.jobs.values():
                job.subscriber = None if job.subscriber is old else job.subscriber
        self._advance((0.0, 50.0, 3000.0, 35_000.0)[self.choices.pick(4)])
        self._resume()
        if way == "does not notice":
            notices = (100.0, 3000.0, 20_000.0)[self.choices.pick(3)]
            self.after(notices, lambda: self._leave(old))

    def _leave(self, life: Life) -> None:
        if not life.is_dead:
            self.tell(life, "left", lambda life: life.core.on_left(self.now))

    def _resume(self) -> None:
        self.client.closed = None
        self._open()

    def tell(self, life: Life, what: str, event: Message) -> None:
        """An event for a core; its effects are carried out."""
        was_over = life.is_over
        effects = event(life)
        self.note(f"{life.epoch} {what} -> {life.core.phase.name}", effects)
        assert not (was_over and effects), f"after the end: {effects}"
        for effect in effects:
            assert not life.is_over, f"after the end: {effect}"
            self._carry_out(life, effect)
        if life.is_over:
            assert not life.timers, f"timers are left: {life.timers}"
        if life is self.life:
            self.client.read()

    # ---- effects ----

    def _carry_out(self, life: Life, effect: fx.Effect) -> None:  # noqa: C901 - one case an effect
        match effect:
            case fx.Send():
                for event in effect.message.events:
                    self._send(life, event)
            case fx.Record():
                self.store.record(life, effect)
            case fx.Submit():
                self.dispatcher.submit(life, effect.utterance)
            case fx.CancelJob():
                self.dispatcher.cancel(life, effect.job_id)
            case fx.Taken():
                self.dispatcher.taken(effect.job_id)
            case fx.Leave():
                self.check_leave(life, effect.job_ids)
                for job_id in effect.job_ids:
                    job = self.dispatcher.jobs.get(job_id)
                    if job is not None and job.subscriber is life:
                        job.subscriber = None
            case fx.Gate():
                self.seen["gate shut"] += not effect.is_open
                life.gate_open = effect.is_open
            case fx.End():
                life.is_over = True
                self.check_end(life, effect)
            case SetTimer():
                life.timers[effect.key] = effect.at_ms
                late = 0.0 if self.benign_since else (0.0, LATE_MS / 2, LATE_MS)[self._lateness()]
                wait = max(0.0, effect.at_ms - self.now) + late
                self.after(wait, lambda: self._due(life, effect), is_timer=True)
            case ClearTimer():
                del life.timers[effect.key]

    def _lateness(self) -> int:
        return self.choices.pick(3) if self.choices.one_in(3) else 0

    def _due(self, life: Life, timer: SetTimer) -> None:
        """A timer comes; now and then one that was moved or cleared comes all the same."""
        if life.timers.get(timer.key) == timer.at_ms or self.choices.one_in(5):
            self._fire(life, timer.key)

    def _fire(self, life: Life, key: TimerKey) -> None:
        if life.is_dead:
            return
        is_due = life.timers.get(key, self.now + 1) <= self.now
        if is_due:
            del life.timers[key]
            self.tell(life, f"timer {key}", lambda life: life.core.on_timer(self.now, key))
        else:
            self.seen["timer of an old generation"] += 1
            assert life.core.on_timer(self.now, key) == [], f"{key} was not due"

    def _spurious_timer(self) -> None:
        keys = [("pause", 0), ("hangover", 0), ("record", 0), ("retry", self.client.seen)]
        keys += [("fragment", 0), ("deadline", 0), ("goodbye", 0), ("idle", 0)]
        self._fire(self.life, keys[self.choices.pick(len(keys))])

    def _send(self, life: Life, event: session_pb2.ServerEvent) -> None:
        what = event.WhichOneof("event")
        if what in ("result", "missing"):
            index = getattr(event, what).utterance_index
            assert index == life.first + len(life.sent), f"{index} comes out of order"
            life.sent.add(index)
            life.over.add(index)
        if what == "missing":
            self.seen[f"missing {event.missing.why.reason}"] += 1
            self.declared.add(event.missing.utterance_index)
        if what == "audio_ack":
            self.check_ack(event.audio_ack.next_seq)
        if life is self.life:
            life.down.append(event)

    # ---- what is to be judged ----

    @abstractmethod
    def check_job(self, life: Life, utterance: Utterance) -> None:
        """A job goes to a dispatcher with its audio."""

    @abstractmethod
    def check_turn(self, life: Life, utterance: Utterance) -> None:
        """A job goes to a dispatcher, or is taken up; the dispatcher hears this gateway."""

    @abstractmethod
    def check_ack(self, next_seq: int) -> None:
        """The client may forget all chunks below."""

    @abstractmethod
    def check_deadlines(self, life: Life) -> None:
        """Time has passed."""

    @abstractmethod
    def check_leave(self, life: Life, job_ids: tuple[str, ...]) -> None:
        """A gateway says of these jobs that their session has left it."""

    @abstractmethod
    def check_end(self, life: Life, end: fx.End) -> None:
        """A session ends at a gateway."""

    @abstractmethod
    def check_missing(self, missing: session_pb2.Missing) -> None:
        """The client hears that there is no result."""

    @abstractmethod
    def check_whole(self) -> None:
        """All is over."""
