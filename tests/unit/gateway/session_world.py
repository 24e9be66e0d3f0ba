"""A world for one session on a virtual clock: a client, gateways, a store and a dispatcher.

Everything that may go one way or another is a choice (see job_world): the same choices give the
same run, and a failing run is made shorter by leaving some out. Choice 0 is the harmless one.

The client does what the SDK does: it keeps chunks until they are acknowledged, counts the results
that it has seen, and resumes with both. A gateway is a `SessionCore` and what its shell would do;
it may leave, die without a word, or go on for a while after another has the session. The store
forgets cuts as it is told to, heeds nobody with an old epoch, and may do what it said to have
failed to do. The dispatcher has its jobs by id.

What is promised is in test_session_properties.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import SessionCore, SessionPhase
from lingua_scheduler.services.session_gateway.session.effects import ClearTimer, SetTimer, TimerKey
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_record_pb2
from tests.unit.dispatcher.job_world import Choices

AB, BA = ("en", "zh"), ("zh", "en")
# Timers come at most this much late, and an index is never open for longer after its deadline.
LATE_MS = 60.0
# One byte a ms: audio is as long as it has bytes.
OPENED = session_pb2.NewSession(
    conversation=session_pb2.LanguageSet(a="en", b="zh"),
    audio_format=common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=500, channels=1
    ),
    tenant="t",
)
_DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_FAILED = common_pb2.ERROR_REASON_JOB_FAILED
_CANCELLED = common_pb2.ERROR_REASON_JOB_CANCELLED
_NOT_FOUND = common_pb2.ERROR_REASON_JOB_NOT_FOUND
_HELD_AUDIO_NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
_TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER

Step = Callable[[], None]
Message = Callable[["Life"], list[fx.Effect]]


@dataclass
class Life:
    """A session at one gateway, from its start to its end, and beyond."""

    core: SessionCore
    specs: JobSpecs
    epoch: int
    first: int
    # What the client has written and the gateway not read, and the other way round.
    wire: list[Message] = field(default_factory=list)
    down: list[session_pb2.ServerEvent] = field(default_factory=list)
    timers: dict[TimerKey, float] = field(default_factory=dict)
    gate_open: bool = True
    is_dead: bool = False
    is_over: bool = False
    # How each index was cut, since when it is known to be, and those that need no more.
    cuts: dict[int, session_record_pb2.Cut] = field(default_factory=dict)
    since: dict[int, float] = field(default_factory=dict)
    sent: set[int] = field(default_factory=set)
    # Those that an earlier gateway has given up.
    given_up: set[int] = field(default_factory=set)
    over: set[int] = field(default_factory=set)


@dataclass
class Store:
    """The session's record."""

    epoch: int = 0
    next_index: int = 0
    low: int = 0
    acked_seq: int = 0
    missing: int = 0
    cuts: dict[int, session_record_pb2.Cut] = field(default_factory=dict)
    # All that were ever there.
    ever: dict[int, session_record_pb2.Cut] = field(default_factory=dict)
    down_until: float = 0.0

    def apply(self, record: fx.Record) -> None:
        self.low = max(self.low, record.first_index)
        self.acked_seq = max(self.acked_seq, record.acked_seq)
        self.missing = record.missing
        for cut in record.cuts:
            index = cut.utterance_index
            self.next_index = max(self.next_index, index + 1)
            known = self.ever.setdefault(index, plain(cut))
            assert known == plain(cut), f"index {index} means two things"
            self.cuts[index] = cut
        self.cuts = {index: cut for index, cut in self.cuts.items() if index >= self.low}


@dataclass
class Job:
    """A job as the dispatcher knows it."""

    index: int
    job_id: str
    subscriber: Life | None
    # Its node keeps the audio for what comes next: drawn by its id, so that it is the same again.
    is_held: bool = False
    pair: tuple[str, str] = AB
    # Earlier utterances that its node has to hold, and those that came with it.
    needs: tuple[int, ...] = ()
    brings: tuple[int, ...] = ()
    joined: tuple[int, ...] = ()
    # Whether it went to the node that holds what was said before.
    is_bound: bool = False
    # running, done, failed, cancelled, or given back for want of held audio.
    state: str = "running"
    accepted: bool = False
    forgotten: bool = False


@dataclass
class Client:
    """What the SDK knows."""

    chunks: list[session_pb2.AudioChunk] = field(default_factory=list)
    acked: int = 0
    kept: int = 0
    seen: int = 0
    outcomes: list[str] = field(default_factory=list)
    # Indexes that a later result has joined, and those that were told to be lost, as often.
    joined: Counter[int] = field(default_factory=Counter)
    told_lost: Counter[int] = field(default_factory=Counter)
    closing: bool = False
    closed: session_pb2.Closed | None = None
    direction: tuple[str, str] = AB


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
        self.store = Store()
        self.client = Client()
        self.jobs: dict[str, Job] = {}
        # What nodes hold, by direction: an utterance, and all that is in its audio.
        self.held: dict[tuple[str, str], dict[int, set[int]]] = {}
        # Directions whose next job goes to the node that holds audio.
        self.bound: set[tuple[str, str]] = set()
        # Indexes whose jobs were given back. What was said of them may come late.
        self.given_back: set[int] = set()
        self.audio: dict[str, tuple[bytes, int]] = {}
        # Indexes that were told missing, and those whose job the dispatcher lost: with the epoch of
        # the gateway that still has the audio, or 0.
        self.declared: set[int] = set()
        self.lost: dict[int, int] = {}
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
            self._pump()
            if self.is_done:
                break
        self._become_benign()
        for _ in range(400):
            if self.is_done:
                break
            if self.life.is_over or self.life.is_dead:
                self._resume()
            if not self.client.closing:
                self._close()
            self._advance(500.0)
            self._pump(may_lag=False)
            self._say_seen()
        assert self.is_done, f"the session hangs in {self.life.core.phase}"
        self._advance(60_000.0)
        self.check_whole()

    def _note(self, what: str, effects: list[fx.Effect] | None = None) -> None:
        # Utterances change; all other effects stay as they are.
        done = [_short(each) if isinstance(each, fx.Submit) else each for each in effects or ()]
        self._log.append((self.now, what, done))

    def story(self) -> str:
        """What has happened, a line each."""
        lines = []
        for now, what, effects in self._log:
            lines.append(f"{now:9.1f} {what}")
            lines += [f"{'':14}{_short(effect)}" for effect in effects]
        return "\n".join(lines)

    @property
    def is_done(self) -> bool:
        """The client has everything, and knows it."""
        return self.client.closed is not None and self.life.is_over

    def _act(self) -> None:
        one_in = self.choices.one_in
        way = self.choices.pick(24)
        if way < 12:
            self._speak()
            self._advance((0.0, 20.0, 100.0, 400.0)[self.choices.pick(4)])
        elif way < 14:
            self._advance((150.0, 250.0, 1000.0)[self.choices.pick(3)])
        elif way < 16:
            self._advance((3200.0, 2990.0, 3001.0, 4000.0)[self.choices.pick(4)])
        elif way == 16:
            self._advance((9000.0, 14_000.0, 31_000.0)[self.choices.pick(3)])
        elif way < 19:
            self._say_seen()
        elif way == 19:
            self._playback(on=one_in(2))
        elif way == 20:
            self._spurious_timer()
        elif way == 21 and one_in(self.calm // 2):
            self.store.down_until = self.now + (500.0, 5000.0, 40_000.0)[self.choices.pick(3)]
        elif way == 22 and one_in(self.calm // 4):
            self._lose_stream()
        elif way == 22:
            self._lose_node()
        elif way == 23 and one_in(4):
            self._close() if one_in(6) else self._say_nonsense()

    def _become_benign(self) -> None:
        """From here on nobody fails."""
        self._note("---- all is well from here on ----")
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
        for job in self.jobs.values():
            if job.state == "running":
                self._after(100.0, lambda job=job: self._finish(job))  # type: ignore[misc]

    @property
    def _rough(self) -> bool:
        return self.benign_since is None and self.choices.one_in(self.calm // 2)

    # ---- time ----

    def _after(self, delay: float, step: Step, *, is_timer: bool = False) -> None:
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

    def _delay(self) -> float:
        if self.benign_since is not None:
            return 10.0
        return 40_000.0 if self.choices.one_in(60) else self.choices.delay()

    # ---- the client ----

    def _speak(self) -> None:
        client, pick = self.client, self.choices.pick
        if client.closing:
            return
        if self.choices.one_in(7):
            client.direction = BA if client.direction == AB else AB
        ms = (100, 300, 500, 20, 160, 0, 1000, 1400)[pick(8)]
        seq = len(client.chunks)
        data = seq.to_bytes(2, "big").ljust(ms, b"\0") if ms else b""
        chunk = session_pb2.AudioChunk(seq=seq, data=data, is_final=self.choices.one_in(6))
        chunk.direction.src, chunk.direction.tgt = client.direction
        if self.with_client_ms and pick(8) < 7:
            chunk.client_ms = int(self.now)
        client.chunks.append(chunk)
        self._write(lambda life: life.core.on_chunk(self.now, chunk))

    def _say_seen(self) -> None:
        seen = self.client.seen
        self._write(lambda life: life.core.on_seen(self.now, seen))

    def _playback(self, *, on: bool) -> None:
        self._write(lambda life: life.core.on_playback(self.now, on=on))

    def _close(self) -> None:
        self.client.closing = True
        self._write(lambda life: life.core.on_close(self.now))

    def _say_nonsense(self) -> None:
        """A chunk that must be refused, and change nothing."""
        seq = len(self.client.chunks)
        wrong = (
            session_pb2.AudioChunk(seq=seq + 3, data=b"ab"),
            session_pb2.AudioChunk(seq=seq, data=b"odd"),
            session_pb2.AudioChunk(seq=seq, data=b"ab"),
        )[self.choices.pick(3)]
        self._write(lambda life: life.core.on_chunk(self.now, wrong))

    def _write(self, message: Message) -> None:
        self.life.wire.append(message)
        self._read()

    def _read(self) -> None:
        life = self.life
        while life.wire and life.gate_open and not life.is_over and not life.is_dead:
            self._tell(life, "message", life.wire.pop(0))

    def _pump(self, *, may_lag: bool = True) -> None:
        """What was sent to the client comes to it, now or later."""
        self._read()
        if not may_lag or not self.choices.one_in(4):
            self._receive(len(self.life.down))

    def _receive(self, count: int) -> None:
        client = self.client
        for _ in range(count):
            event = self.life.down.pop(0)
            match event.WhichOneof("event"):
                case "result":
                    is_held = event.result.kind == dispatcher_pb2.JobResult.KIND_HELD
                    self._see(event.result.utterance_index, "held" if is_held else "result")
                    client.joined.update(event.result.joined_utterances)
                    client.told_lost.update(event.result.lost_utterances)
                case "missing":
                    self._see(event.missing.utterance_index, "missing")
                    client.told_lost.update(event.missing.lost_utterances)
                    self.check_missing(event.missing)
                case "audio_ack":
                    ack = event.audio_ack
                    client.acked = max(client.acked, ack.next_seq)
                    keep = ack.keep_seq if ack.HasField("keep_seq") else ack.next_seq
                    client.kept = max(client.kept, keep)
                case "closed":
                    client.closed = event.closed

    def _see(self, index: int, what: str) -> None:
        assert index == self.client.seen, f"the client sees {index}, not {self.client.seen}"
        self.client.seen += 1
        self.client.outcomes.append(what)

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
        self._note(
            f"gateway {life.epoch} takes it: index {past.next_index}, "
            f"cuts {sorted(life.cuts)}, seen {past.seen}, from chunk {past.next_seq}"
        )
        self.seen["cuts taken up"] += len(past.cuts)
        # It is told so in Opened.
        client.acked = max(client.acked, past.next_seq)
        self._tell(life, "start", lambda life: life.core.start(self.now))
        for chunk in client.chunks[past.next_seq :]:
            self._write(lambda life, chunk=chunk: life.core.on_chunk(self.now, chunk))  # type: ignore[misc]
        if client.closing:
            self._close()
        return life

    def _lose_stream(self) -> None:
        """The client loses its stream with what is on its way, and comes back by and by."""
        old = self.life
        self._receive(len(old.down) - self.choices.pick(len(old.down) + 1))
        old.down.clear()
        old.wire.clear()
        if self.client.closed is not None:
            return  # it has everything, and does not come back
        way = ("leaves", "dies", "does not notice")[self.choices.pick(3)]
        self.seen[f"the gateway {way}"] += 1
        self._note(f"the stream is lost; gateway {old.epoch} {way}")
        if way == "leaves":
            self._tell(old, "left", lambda life: life.core.on_left(self.now))
        elif way == "dies":
            old.is_dead = True
            for job in self.jobs.values():
                job.subscriber = None if job.subscriber is old else job.subscriber
        self._advance((0.0, 50.0, 3000.0, 35_000.0)[self.choices.pick(4)])
        self._resume()
        if way == "does not notice":
            notices = (100.0, 3000.0, 20_000.0)[self.choices.pick(3)]
            self._after(notices, lambda: self._leave(old))

    def _leave(self, life: Life) -> None:
        if not life.is_dead:
            self._tell(life, "left", lambda life: life.core.on_left(self.now))

    def _resume(self) -> None:
        self.client.closed = None
        self._open()

    def _tell(self, life: Life, what: str, event: Message) -> None:
        """An event for a core; its effects are carried out."""
        was_over = life.is_over
        effects = event(life)
        self._note(f"{life.epoch} {what} -> {life.core.phase.name}", effects)
        assert not (was_over and effects), f"after the end: {effects}"
        for effect in effects:
            assert not life.is_over, f"after the end: {effect}"
            self._carry_out(life, effect)
        if life.is_over:
            assert not life.timers, f"timers are left: {life.timers}"
        if life is self.life:
            self._read()

    # ---- effects ----

    def _carry_out(self, life: Life, effect: fx.Effect) -> None:  # noqa: C901 - one case an effect
        match effect:
            case fx.Send():
                for event in effect.message.events:
                    self._send(life, event)
            case fx.Record():
                self._record(life, effect)
            case fx.Submit():
                self._submit(life, effect.utterance)
            case fx.CancelJob():
                self._cancel(life, effect.job_id)
            case fx.Taken():
                self._taken(effect.job_id)
            case fx.Leave():
                self.check_leave(life, effect.job_ids)
                for job_id in effect.job_ids:
                    job = self.jobs.get(job_id)
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
                self._after(wait, lambda: self._due(life, effect), is_timer=True)
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
            self._tell(life, f"timer {key}", lambda life: life.core.on_timer(self.now, key))
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

    # ---- the store ----

    def _record(self, life: Life, record: fx.Record) -> None:
        for cut in record.cuts:
            index = cut.utterance_index
            life.since.setdefault(index, self.now)
            known = life.cuts.setdefault(index, plain(cut))
            assert known == plain(cut), f"index {index} is cut in another way"
            self.seen[f"cut {cut.reason}"] += 1
            self.seen["cut in parts"] += len(cut.chunks) > 1
        is_down = self.now < self.store.down_until
        way = self.choices.pick(4) if self._rough or is_down else 0
        if is_down and way == 0:
            way = 1
        arrives = self.choices.delay()
        answers = arrives + self.choices.delay()
        if way == 0:  # all goes well
            self._after(arrives, lambda: self._apply(life, record))
            self._after(answers, lambda: self._recorded(life))
        elif way == 1:  # it never arrives
            self._after(answers, lambda: self._record_failed(life))
        elif way == 2:  # the answer is lost
            self._after(arrives, lambda: self._apply(life, record))
            self._after(answers, lambda: self._record_failed(life))
        else:  # it arrives after all
            self._after(arrives, lambda: self._record_failed(life))
            self._after(answers, lambda: self._apply(life, record))

    def _apply(self, life: Life, record: fx.Record) -> None:
        if life.epoch == self.store.epoch:
            self.store.apply(record)
            self._note(f"store: has {sorted(self.store.cuts)}")
        else:
            self.seen["record of an old epoch"] += 1

    def _recorded(self, life: Life) -> None:
        if life.is_dead:
            return
        if life.epoch == self.store.epoch:
            self._tell(life, "recorded", lambda life: life.core.on_recorded(self.now))
        else:
            why = common_pb2.Error(reason=_TAKEN_OVER)
            self._tell(life, "lost", lambda life: life.core.on_lost(self.now, why))
            assert life.core.phase is SessionPhase.OVER

    def _record_failed(self, life: Life) -> None:
        if not life.is_dead:
            why = common_pb2.Error(reason=_DOWN)
            self.seen["record failed"] += 1
            self._tell(
                life, "record failed", lambda life: life.core.on_record_failed(self.now, why)
            )

    # ---- the dispatcher ----

    def _submit(self, life: Life, utterance: Utterance) -> None:
        index, job_id = utterance.index, utterance.job_id
        if not utterance.is_attached:
            self.check_job(life, utterance)
        if life.epoch == self.store.epoch:
            self.check_turn(life, utterance)
        again = " again" if utterance.is_resumed else ""
        self.seen["attach" if utterance.is_attached else f"submit{again}"] += 1
        job = self.jobs.get(job_id)
        if life.epoch < self.store.epoch:
            self.seen["submit of an old epoch"] += 1
            self._failed(life, index, _TAKEN_OVER)
        elif self._rough:
            # It never came there; or the stream breaks, and twice is told what is lost.
            for _ in range(1 + self.choices.one_in(3)):
                self._failed(life, index, (_DOWN, _FULL, _QUOTA)[self.choices.pick(3)])
        elif job is None and utterance.is_attached:
            self._failed(life, index, _NOT_FOUND)
        elif job is not None and job.state == "given back" and utterance.is_attached:
            # Nobody has what it needs, so it is done without.
            job.state, job.needs, job.subscriber = "running", (), life
            self._begin(job)
        elif job is None or job.state == "given back":
            is_held = utterance.reason in MAY_CONTINUE and int(job_id[:2], 16) < 100
            job = self.jobs[job_id] = Job(
                index,
                job_id,
                life,
                is_held,
                pair=(utterance.direction.src, utterance.direction.tgt),
                needs=utterance.held,
                brings=utterance.included,
            )
            job.is_bound = job.pair in self.bound
            self.bound.discard(job.pair)
            self.seen["held audio brought along"] += bool(utterance.included)
            self.seen["rest"] += utterance.is_flush
            self._begin(job)
        else:
            self.seen[f"found {job.state}"] += 1
            job.subscriber = life
            if utterance.is_attached:
                # Nobody can bring what it needs, so it is done without if it has to be.
                job.needs = ()
            self._answer(job)

    def _answer(self, job: Job) -> None:
        """Whoever asks for a job hears how it is."""
        life = job.subscriber
        if life is None:
            return
        if job.state == "done" and not job.forgotten:
            for _ in range(1 + (self.benign_since is None and self.choices.one_in(6))):
                self._deliver(life, job)
        elif job.state == "running":
            if job.accepted:
                self._accept(life, job)
        else:
            why = {
                "failed": _FAILED,
                "cancelled": _CANCELLED,
                "done": _NOT_FOUND,
                "given back": _HELD_AUDIO_NEEDED,
            }[job.state]
            self._failed(life, job.index, why)

    def _begin(self, job: Job) -> None:
        way = self.choices.pick(6) if self._rough else 0
        if way == 1:
            return  # it hangs
        accepts = self._delay()
        self._after(accepts, lambda: self._accepted(job))
        if way == 2:
            self._after(accepts + self._delay(), lambda: self._fail(job))
        elif way == 3:
            self._after(self._delay(), lambda: self._lose(job))
        else:
            self._after(accepts + self._delay(), lambda: self._finish(job))
        if way == 4:
            self._after(self._delay(), lambda: self._show(job))

    def _accepted(self, job: Job) -> None:
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            job.accepted = True
            self._answer(job)

    def _finish(self, job: Job) -> None:
        if job.state != "running" or self.jobs.get(job.job_id) is not job:
            return
        holds = self.held.setdefault(job.pair, {})
        earlier = set(job.brings)
        if job.is_bound and not job.brings:
            earlier |= {each for index in holds if index < job.index for each in holds[index]}
        if not earlier.issuperset(job.needs):
            job.state, job.accepted = "given back", True
            self.given_back.add(job.index)
            self.seen["held audio needed"] += 1
            if job.subscriber is not None:
                self._failed(job.subscriber, job.index, _HELD_AUDIO_NEEDED)
            return
        job.state, job.accepted = "done", True
        for index in [index for index in holds if index < job.index]:
            del holds[index]
        if job.is_held:
            holds[job.index] = earlier | {job.index}
            self.bound.add(job.pair)
        else:
            job.joined = tuple(sorted(earlier))
        self._answer(job)

    def _lose_node(self) -> None:
        """The nodes that hold audio die."""
        self.seen["node lost"] += any(self.held.values())
        self._note("the nodes that hold audio are lost")
        self.held.clear()

    def _fail(self, job: Job) -> None:
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            job.state = "failed"
            self._answer(job)

    def _lose(self, job: Job) -> None:
        """Its dispatcher dies."""
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            del self.jobs[job.job_id]
            self.seen["job lost"] += 1
            self.lost[job.index] = self.life.epoch if job.subscriber is self.life else 0
            if job.subscriber is not None:
                self._failed(job.subscriber, job.index, _DOWN)

    def _show(self, job: Job) -> None:
        """Events for the app's display, at any time."""
        life = job.subscriber
        if life is not None and not life.is_dead:
            why = common_pb2.Error(reason=_FAILED)
            retrying = dispatcher_pb2.JobRetrying(attempt=1, why=why)
            partial = dispatcher_pb2.JobPartial()
            now, index = self.now, job.index
            self._tell(life, "retrying", lambda life: life.core.on_retrying(now, index, retrying))
            self._tell(life, "partial", lambda life: life.core.on_partial(now, index, partial))

    def _accept(self, life: Life, job: Job) -> None:
        accepted = dispatcher_pb2.JobAccepted(node_id="n", attempt=1)
        self._post(
            life, "accepted", lambda life: life.core.on_accepted(self.now, job.index, accepted)
        )

    def _deliver(self, life: Life, job: Job) -> None:
        kinds = dispatcher_pb2.JobResult
        kind = kinds.KIND_HELD if job.is_held else kinds.KIND_TRANSLATED
        result = dispatcher_pb2.JobResult(kind=kind, joined_utterances=job.joined)
        delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=1)

        def tell(life: Life) -> list[fx.Effect]:
            life.over.add(job.index)
            return life.core.on_delivered(self.now, job.index, job.job_id, delivered)

        self._post(life, f"delivered {job.index}", tell)

    def _failed(self, life: Life, index: int, reason: common_pb2.ErrorReason.ValueType) -> None:
        why = common_pb2.Error(reason=reason, message="why")

        def tell(life: Life) -> list[fx.Effect]:
            if reason not in (_DOWN, _FULL, _QUOTA, _TAKEN_OVER, _HELD_AUDIO_NEEDED):
                life.over.add(index)
                self.declared.add(index)
            return life.core.on_failed(self.now, index, why)

        self._post(life, f"failed {index}", tell)

    def _post(self, life: Life, what: str, event: Message) -> None:
        def arrive() -> None:
            if not life.is_dead:
                self._tell(life, what, event)

        self._after(self._delay(), arrive)

    def _cancel(self, life: Life, job_id: str) -> None:
        """A gateway's word counts as long as no other gateway has the job."""
        self.seen["cancel"] += 1
        job = self.jobs.get(job_id)
        if job is not None and job.state == "running" and job.subscriber in (None, life):
            job.state = "cancelled"
            self._answer(job)

    def _taken(self, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None:
            known = job.index < self.client.seen or job.index in self.declared
            assert known, f"the result of {job.index} is let go, and nobody has seen it"
            self.seen["taken"] += 1
            job.forgotten = True

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


def plain(cut: session_record_pb2.Cut) -> session_record_pb2.Cut:
    """A cut as it was written first."""
    first = session_record_pb2.Cut()
    first.CopyFrom(cut)
    for field_name in ("is_held", "held_audio_bytes", "is_missing", "kept_seq"):
        first.ClearField(field_name)
    return first


def seqs_of(cut: session_record_pb2.Cut | None) -> list[int]:
    """The chunks of a cut."""
    return (
        [] if cut is None else [seq for span in cut.chunks for seq in range(span.first, span.end)]
    )


def _short(effect: fx.Effect | str) -> str:
    match effect:
        case fx.Send():
            return "send " + str(effect.message).replace("\n", " ")
        case fx.Record():
            cuts = [
                f"{cut.utterance_index}: {cut.direction.src} {cut.reason} {seqs_of(cut)}"
                for cut in effect.cuts
            ]
            return f"record {cuts} first {effect.first_index} acked {effect.acked_seq}"
        case fx.Submit():
            how = "attach" if effect.utterance.is_attached else "submit"
            return f"{how} {effect.utterance.index}"
    return str(effect)
