"""A session's core with a virtual clock and timers, driven by hand; the tests share it."""

from __future__ import annotations

from collections import Counter

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import (
    SessionCore,
)
from lingua_scheduler.services.session_gateway.session.effects import (
    ClearTimer,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.lane import Speaker
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

AB, BA = ("en", "zh"), ("zh", "en")
# 8 kHz, 16 bit, one channel.
BYTES_PER_MS = 16
RULES = SessionRules(
    pause_ms=3000.0,
    voice_pause_ms=800.0,
    max_duration_ms=10_000.0,
    max_length_bytes=500_000,
    hangover_manual_ms=200.0,
    hangover_auto_ms=150.0,
    padding_manual_ms=200,
    padding_auto_ms=150,
    short_merge_ms=400.0,
    short_wait_ms=10_000.0,
    result_deadline_ms=30_000.0,
    redis_outage_max_ms=300_000.0,
    result_queue_max=200,
    session_utterances_max=16,
    session_idle_ms=1_800_000.0,
    held_audio_max_bytes=1_500_000,
)
OPENED = session_pb2.NewSession(
    conversation=session_pb2.LanguageSet(a="en", b="zh"),
    audio_format=common_pb2.AudioFormat(
        encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=8000, channels=1
    ),
    tenant="t",
)
_REASON = common_pb2.ErrorReason
DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
FOR_GOOD = common_pb2.ERROR_REASON_JOB_FAILED
TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
HELD_AUDIO_NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
RETRYABLE = (
    common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
    common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
    common_pb2.ERROR_REASON_BOUND_NODE_FULL,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
    common_pb2.ERROR_REASON_DRAINING,
    common_pb2.ERROR_REASON_BACKPRESSURE,
)


def specs(opened: session_pb2.NewSession, rules: SessionRules, epoch: int = 1) -> JobSpecs:
    return JobSpecs(session_id="s", opened=opened, epoch=epoch, rules=rules)


class Desk:
    """A session's core with a virtual clock and timers; its methods are the events."""

    def __init__(
        self,
        rules: SessionRules = RULES,
        past: Past | None = None,
        opened: session_pb2.NewSession = OPENED,
        now: float = 1000.0,
        speaker: Speaker | None = None,
    ) -> None:
        self.now = now
        self.rules = rules
        self.specs = specs(opened, rules)
        self.counts: Counter[str] = Counter()
        self.core = SessionCore(
            rules=rules,
            opened=opened,
            specs=self.specs,
            past=past or Past(),
            counts=self.counts,
            now=now,
            speaker=speaker,
        )
        self.seq = past.next_seq if past else 0
        self.timers: dict[TimerKey, float] = {}
        self.effects: list[fx.Effect] = []
        # Everything that was ever sent, recorded or submitted.
        self.sent: list[session_pb2.ServerEvent] = []
        self.records: list[fx.Record] = []
        self.submitted: list[fx.Submit] = []
        self.do(self.core.start(self.now))

    def do(self, effects: list[fx.Effect]) -> Desk:
        self.effects += effects
        for effect in effects:
            match effect:
                case fx.Send():
                    self.sent.extend(effect.message.events)
                case fx.Record():
                    self.records.append(effect)
                case fx.Submit():
                    self.submitted.append(effect)
                case SetTimer():
                    self.timers[effect.key] = effect.at_ms
                case ClearTimer():
                    self.timers.pop(effect.key, None)
        return self

    def told(self) -> list[str]:
        """The effects since the last call, except for timers."""
        effects, self.effects = self.effects, []
        told: list[str] = []
        for effect in effects:
            if isinstance(effect, fx.Send):
                told += [f"send {event_shown(event)}" for event in effect.message.events]
            elif shown := self._shown(effect):
                told.append(shown)
        return told

    def _shown(self, effect: fx.Effect) -> str:
        match effect:
            case fx.Record():
                return " ".join(["record", *(str(cut.utterance_index) for cut in effect.cuts)])
            case fx.Submit():
                how = "attach" if effect.utterance.is_attached else "submit"
                return f"{how} {effect.utterance.index}"
            case fx.CancelJob():
                return f"cancel {self.index_of(effect.job_id)}"
            case fx.Taken():
                return f"taken {self.index_of(effect.job_id)}"
            case fx.Leave():
                jobs = (str(self.index_of(each)) for each in effect.job_ids)
                return " ".join(["leave", *jobs])
            case fx.Gate():
                return "gate open" if effect.is_open else "gate shut"
            case fx.End():
                if effect.why is not None:
                    assert not effect.forget
                    return f"end {_REASON.Name(effect.why.reason)[13:]}"
                return "end done" if effect.forget else "end left"
        return ""

    def index_of(self, job_id: str) -> int:
        return next(
            index
            for index in range(1000)
            for direction in (AB, BA)
            if self.job_id(index, direction) == job_id
        )

    def job_id(self, index: int, direction: tuple[str, str] = AB) -> str:
        return self.specs.job_id(index, Direction(*direction))

    # ---- the client ----

    def say(
        self,
        ms: float = 500.0,
        direction: tuple[str, str] | None = AB,
        *,
        final: bool = False,
        seq: int | None = None,
        data: bytes | None = None,
        client_ms: int = 0,
    ) -> Desk:
        """Sends a chunk: the next one, unless `seq` is given."""
        if seq is None:
            seq = self.seq
            self.seq += 1
        if data is None:
            data = bytes([seq % 256]) * int(ms * BYTES_PER_MS)
        chunk = session_pb2.AudioChunk(seq=seq, data=data, is_final=final, client_ms=client_ms)
        if direction is not None:
            chunk.direction.src, chunk.direction.tgt = direction
        return self.do(self.core.on_chunk(self.now, chunk))

    def end(self, direction: tuple[str, str] = AB) -> Desk:
        return self.say(0, direction, final=True)

    def playback(self, on: bool) -> Desk:
        return self.do(self.core.on_playback(self.now, on=on))

    def close(self) -> Desk:
        return self.do(self.core.on_close(self.now))

    def seen(self, seen: int) -> Desk:
        return self.do(self.core.on_seen(self.now, seen))

    def left(self) -> Desk:
        return self.do(self.core.on_left(self.now))

    # ---- the store ----

    def recorded(self) -> Desk:
        return self.do(self.core.on_recorded(self.now))

    def record_failed(self) -> Desk:
        return self.do(self.core.on_record_failed(self.now, error(DOWN)))

    def lost(self) -> Desk:
        return self.do(self.core.on_lost(self.now, error(TAKEN_OVER)))

    # ---- the dispatcher ----

    def accepted(self, index: int = 0) -> Desk:
        accepted = dispatcher_pb2.JobAccepted(node_id="n", attempt=1)
        return self.do(self.core.on_accepted(self.now, index, accepted))

    def retrying(self, index: int = 0) -> Desk:
        retrying = dispatcher_pb2.JobRetrying(attempt=1, why=error(FOR_GOOD))
        return self.do(self.core.on_retrying(self.now, index, retrying))

    def partial(self, index: int = 0) -> Desk:
        partial = dispatcher_pb2.JobPartial(texts=dispatcher_pb2.Texts(source="hel"))
        return self.do(self.core.on_partial(self.now, index, partial))

    def delivered(self, index: int = 0, direction: tuple[str, str] = AB) -> Desk:
        result = dispatcher_pb2.JobResult(
            kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
            texts=dispatcher_pb2.Texts(source="hello"),
        )
        delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=2)
        job_id = self.job_id(index, direction)
        return self.do(self.core.on_delivered(self.now, index, job_id, delivered))

    def failed(
        self, index: int = 0, reason: _REASON.ValueType = FOR_GOOD, after_ms: int = 0
    ) -> Desk:
        why = error(reason)
        why.retry_after_ms = after_ms
        return self.do(self.core.on_failed(self.now, index, why))

    # ---- time ----

    def silence(self, ms: float) -> Desk:
        """Advances the clock, and fires timers when they are due."""
        until = self.now + ms
        while due := [(at, key) for key, at in self.timers.items() if at <= until]:
            at, key = min(due)
            self.now = max(self.now, at)
            del self.timers[key]
            self.timer(key)
        self.now = until
        return self

    def timer(self, key: TimerKey) -> Desk:
        return self.do(self.core.on_timer(self.now, key))

    # ---- several events at once ----

    def cut(self, direction: tuple[str, str] = AB, ms: float = 500.0) -> Desk:
        """Sends speech and its end; the cut waits to be recorded."""
        return self.say(ms, direction, final=True).silence(200)

    def pause(self, direction: tuple[str, str] = AB, ms: float = 500.0) -> Desk:
        """Sends speech that a pause ends."""
        return self.say(ms, direction).silence(3150)

    def submit(self, direction: tuple[str, str] = AB) -> Desk:
        return self.cut(direction).recorded()

    def errors(self) -> list[common_pb2.Error]:
        return [each.error for each in self.sent if each.HasField("error")]

    def acked(self) -> list[int]:
        return [each.audio_ack.next_seq for each in self.sent if each.HasField("audio_ack")]

    def results(self) -> list[session_pb2.Result]:
        return [each.result for each in self.sent if each.HasField("result")]

    def resumed(self, seen: int, next_seq: int, cuts: tuple[int, ...], next_index: int) -> Desk:
        """The session as another gateway resumes it, with the cuts of these indexes."""
        known = {cut.utterance_index: cut for each in self.records for cut in each.cuts}
        past = Past(
            next_index=next_index,
            seen=seen,
            next_seq=next_seq,
            cuts=tuple(known[index] for index in cuts),
        )
        return Desk(self.rules, past, now=self.now)


def error(reason: _REASON.ValueType) -> common_pb2.Error:
    return common_pb2.Error(reason=reason, message="why")


def event_shown(event: session_pb2.ServerEvent) -> str:
    what = event.WhichOneof("event")
    match what:
        case "audio_ack":
            return f"ack {event.audio_ack.next_seq}"
        case "utterance":
            kind = event.utterance.WhichOneof("event")
            return f"{kind} {event.utterance.utterance_index}"
        case "partial":
            return f"partial {event.partial.utterance_index}"
        case "result":
            return f"result {event.result.utterance_index}"
        case "missing":
            return f"missing {event.missing.utterance_index}"
        case "error":
            return f"error {_REASON.Name(event.error.reason)[13:]}"
        case "closed":
            return f"closed {event.closed.results} {event.closed.missing}"
    raise AssertionError(f"unexpected event: {what}")
