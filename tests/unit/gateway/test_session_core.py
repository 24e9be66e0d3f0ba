"""A session by example: chunks in, jobs out, results in order. The table has tests of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from lingua_scheduler.services.runtime.contract.audio import MAX_CHUNK_BYTES
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.core import (
    MAX_UNSEEN,
    SessionCore,
    SessionPhase,
)
from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    GOODBYE,
    HANGOVER,
    PAUSE,
    ClearTimer,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_record_pb2

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
    """A session's core with a clock, a shell that has its timers, and hands for everybody else."""

    def __init__(
        self,
        rules: SessionRules = RULES,
        past: Past | None = None,
        opened: session_pb2.NewSession = OPENED,
        now: float = 1000.0,
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
        )
        self.seq = past.next_seq if past else 0
        self.timers: dict[TimerKey, float] = {}
        self.effects: list[fx.Effect] = []
        # All that were ever sent, recorded or submitted.
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
        """What was to be done since the last time, but for timers."""
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
        """A chunk; the next one unless `seq` says another."""
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
        """Time goes by, and timers come when they are due."""
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

    # ---- in one go ----

    def cut(self, direction: tuple[str, str] = AB, ms: float = 500.0) -> Desk:
        """Speech that the speaker ends; its cut is to be written down."""
        return self.say(ms, direction, final=True).silence(200)

    def pause(self, direction: tuple[str, str] = AB, ms: float = 500.0) -> Desk:
        """Speech that a pause ends."""
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
        """Another gateway takes the session up, with the cuts of these indexes."""
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
    raise AssertionError(f"nobody sends {what}")


# ---- from speech to result ----


def test_an_utterance_is_written_down_then_submitted_then_safe_then_delivered_then_let_go() -> None:
    desk = Desk()

    assert desk.cut().told() == ["record 0"]
    assert desk.recorded().told() == ["send finalized 0", "submit 0"]
    assert desk.accepted().told() == ["send accepted 0", "send ack 1"]
    assert desk.delivered().told() == ["send result 0"]
    assert desk.seen(1).told() == ["taken 0"]


def test_what_is_written_down_says_how_it_was_cut() -> None:
    desk = Desk().say(300).say(0).say(200, final=True).silence(200)

    [cut] = desk.records[0].cuts

    assert cut == session_record_pb2.Cut(
        utterance_index=0,
        direction=common_pb2.LanguagePair(src="en", tgt="zh"),
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        chunks=[
            session_record_pb2.ChunkRange(first=0, end=1),
            session_record_pb2.ChunkRange(first=2, end=3),
        ],
        job_id=desk.job_id(0),
        audio_ms=500,
    )


@pytest.mark.parametrize(
    ("speak", "reason", "padding"),
    [
        (Desk.cut, common_pb2.FINALIZE_REASON_IS_FINAL, 200),
        (Desk.pause, common_pb2.FINALIZE_REASON_TIMEOUT, 150),
    ],
)
def test_the_job_of_an_utterance_has_its_audio_and_the_time_that_is_left(
    speak: Callable[[Desk], Desk], reason: int, padding: int
) -> None:
    desk = speak(Desk())
    cut_at = desk.now
    desk.silence(1000).recorded()

    [submit] = desk.submitted
    job = desk.specs.spec(submit.utterance, desk.now)

    assert job.audio == b"\0" * 500 * BYTES_PER_MS
    assert (job.reason, job.padding_ms) == (reason, padding)
    assert job.deadline_ms == 29_000
    assert (job.session_id, job.utterance_index, job.session_epoch) == ("s", 0, 1)
    assert submit.utterance.job_id == desk.job_id(0) == job_id(job_key(job))
    assert submit.utterance.deadline_ms == cut_at + 30_000


def test_results_come_in_the_order_of_their_utterances() -> None:
    desk = Desk().submit().submit().submit()
    desk.told()

    assert desk.delivered(2).told() == []
    assert desk.delivered(1).told() == []
    # The last two chunks are safe as well, but the client hears of it in order.
    assert desk.delivered(0).told() == [
        "send result 0",
        "send result 1",
        "send result 2",
        "send ack 3",
    ]


def test_a_result_tells_where_the_time_went() -> None:
    desk = Desk().say(500).say(0, final=True).silence(200)
    desk.silence(30).recorded().silence(20).accepted().silence(700)
    desk.cut(BA).recorded().silence(11).delivered(1, BA).silence(5).delivered(0).silence(1000)

    first, second = desk.results()

    def timings(result: session_pb2.Result) -> list[int]:
        told = result.timings
        spans = [told.audio_ms, told.hangover_ms, told.dispatch_ms, told.node_ms, told.deliver_ms]
        return [round(span) for span in spans]

    assert timings(first) == [500, 200, 50, 700 + 200 + 16, 0]
    # Never seen accepted: all of its time until the result was the node's.
    assert timings(second) == [500, 200, 0, 11, 5]
    assert (first.node_id, first.attempts, first.job_id) == ("n", 2, desk.job_id(0))
    assert (first.direction.src, second.direction.src) == ("en", "zh")


def test_cuts_are_written_down_one_call_at_a_time_and_in_order() -> None:
    desk = Desk().cut().cut().cut()
    assert desk.told() == ["record 0"]

    assert desk.recorded().told() == ["send finalized 0", "submit 0", "record 1 2"]


# ---- chunks that cannot be used ----


@pytest.mark.parametrize(
    ("wrong", "field", "reason"),
    [
        ({"seq": 7}, "audio.seq", "BAD_AUDIO"),
        ({"data": b"odd"}, "audio.data", "BAD_AUDIO"),
        ({"data": bytes(MAX_CHUNK_BYTES + 2)}, "audio.data", "INVALID_MESSAGE"),
        ({"direction": ("en", "fr")}, "audio.direction", "INVALID_MESSAGE"),
        ({"direction": ("en", "en")}, "audio.direction", "INVALID_MESSAGE"),
        ({"direction": None}, "audio.direction", "INVALID_MESSAGE"),
    ],
)
def test_a_chunk_that_cannot_be_used_is_refused_and_can_be_sent_again(
    wrong: dict[str, object], field: str, reason: str
) -> None:
    desk = Desk().say(300)
    sent: dict[str, object] = {"seq": 1, **wrong}
    desk.say(**sent)  # type: ignore[arg-type]

    assert desk.told() == [f"send error {reason}"]
    [refusal] = desk.errors()
    assert refusal.message.startswith(f"{field}: ")
    assert [each.field for each in refusal.field_violations] == [field]
    assert refusal.metadata["expected_seq"] == "1"
    assert refusal.metadata["seq"] == str(sent["seq"])
    assert desk.counts["refused_chunk"] == 1
    # Nothing is lost when it is sent again rightly.
    desk.say(200, final=True).silence(200).recorded()
    assert desk.submitted[0].utterance.ranges == [(0, 2)]
    assert desk.submitted[0].utterance.audio_ms == 500


def test_a_broken_opus_packet_is_refused() -> None:
    opus = session_pb2.NewSession()
    opus.CopyFrom(OPENED)
    opus.audio_format.encoding = common_pb2.AUDIO_ENCODING_OPUS
    desk = Desk(opened=opus).say(data=b"\x0b")
    assert desk.told() == ["send error BAD_AUDIO"]

    desk.say(data=b"\x08one", seq=0).say(data=b"\x08three", seq=1, final=True).silence(200)

    job = desk.recorded().specs.spec(desk.submitted[0].utterance, desk.now)
    assert job.audio == b"\0\4\x08one\0\6\x08three"


def test_a_chunk_that_comes_again_is_ignored() -> None:
    desk = Desk().say(300).say(200, seq=0).say(0, seq=0, final=True)

    assert desk.told() == []
    assert desk.counts["repeated_chunk"] == 2
    desk.end().silence(200)
    assert desk.records[0].cuts[0].audio_ms == 300


def test_a_gap_is_told_once() -> None:
    desk = Desk().say(100).say(seq=2).say(seq=3).say(seq=4)
    assert desk.told() == ["send error BAD_AUDIO"]
    assert desk.counts["gap"] == 3

    desk.say(100, seq=1).say(seq=5)

    assert desk.told() == ["send error BAD_AUDIO"]
    assert [each.metadata["expected_seq"] for each in desk.errors()] == ["1", "2"]


def test_languages_are_compared_without_regard_to_case() -> None:
    opened = session_pb2.NewSession()
    opened.CopyFrom(OPENED)
    opened.conversation.a, opened.conversation.b = "EN", "zh-Hant"

    desk = Desk(opened=opened).say(500, ("En", "ZH-hant"), final=True).silence(200)

    assert desk.told() == ["record 0"]
    assert desk.records[0].cuts[0].direction == common_pb2.LanguagePair(src="en", tgt="zh-hant")


def test_where_the_direction_is_fixed_a_chunk_need_not_say_it() -> None:
    opened = session_pb2.NewSession()
    opened.CopyFrom(OPENED)
    opened.direction.src, opened.direction.tgt = "en", "zh"

    desk = Desk(opened=opened).say(300, None).say(200, AB)
    assert desk.told() == []
    assert desk.say(200, BA).told() == ["send error INVALID_MESSAGE"]


# ---- what the client has seen ----


def test_a_client_cannot_have_seen_what_was_not_delivered() -> None:
    desk = Desk().submit().delivered()
    desk.told()

    assert desk.seen(2).told() == ["send error INVALID_MESSAGE"]
    assert desk.errors()[0].field_violations[0].field == "results_seen"
    assert desk.seen(1).told() == ["taken 0"]


def test_a_client_that_confirms_nothing_is_sent_away_and_may_go_on_when_it_does() -> None:
    past = Past(next_index=MAX_UNSEEN - 1)
    desk = Desk(past=past).submit()
    assert [each.WhichOneof("event") for each in desk.sent].count("missing") == MAX_UNSEEN - 1

    desk.cut()
    assert desk.errors()[-1].reason == common_pb2.ERROR_REASON_BACKPRESSURE
    assert desk.core.phase is SessionPhase.OVER

    again = Desk(past=Past(next_index=MAX_UNSEEN))
    again.seen(1).submit()
    assert again.core.phase is SessionPhase.OPEN


def test_a_session_that_ends_while_its_client_closes_it_stays_over() -> None:
    desk = Desk(past=Past(next_index=MAX_UNSEEN)).say(500)
    desk.told()

    assert desk.close().told()[-1] == "end BACKPRESSURE"
    assert desk.core.phase is SessionPhase.OVER
    assert desk.left().told() == []


def test_what_was_seen_before_changes_nothing() -> None:
    desk = Desk().submit().submit().delivered(0).delivered(1)
    desk.told()

    assert desk.seen(2).told() == ["taken 0", "taken 1"]
    assert desk.seen(1).seen(0).seen(2).told() == []


def test_of_results_that_nobody_says_to_have_seen_the_oldest_are_left_to_their_home() -> None:
    desk = Desk(replace(RULES, result_queue_max=2, session_utterances_max=2))
    for index in range(4):
        desk.submit().delivered(index)
    assert [each for each in desk.told() if each.startswith("leave")] == ["leave 0", "leave 1"]

    # One that comes again must stay there: the client may not have it.
    assert desk.delivered(0).told() == []
    assert desk.counts["late_result"] == 1
    assert desk.seen(4).told() == ["taken 2", "taken 3"]


# ---- the end ----


def test_a_session_in_which_nothing_was_said_closes_at_once() -> None:
    assert Desk().close().told() == ["send closed 0 0", "end done"]


def test_a_close_cuts_what_is_gathered_and_waits_for_every_result() -> None:
    desk = Desk().submit().say(100)
    desk.told()

    assert desk.close().told() == ["record 1"]
    assert desk.records[1].cuts[0].reason == common_pb2.FINALIZE_REASON_SESSION_CLOSE
    assert desk.recorded().delivered(1).told() == ["send finalized 1", "submit 1"]
    assert desk.delivered(0).told() == [
        "send result 0", "send result 1", "send ack 2", "send closed 2 0"
    ]  # fmt: skip
    assert desk.seen(2).told() == ["taken 0", "taken 1", "end done"]
    assert desk.core.phase is SessionPhase.OVER


def test_a_close_sends_fragments_too() -> None:
    desk = Desk().say(100, AB).say(100, BA).silence(4000).say(500, AB)
    desk.told()

    assert desk.close().told() == ["record 0 1"]
    assert [cut.direction.src for cut in desk.records[0].cuts] == ["en", "zh"]


def test_a_close_in_the_hangover_keeps_the_reason() -> None:
    desk = Desk().say(500, final=True).close()

    assert desk.records[0].cuts[0].reason == common_pb2.FINALIZE_REASON_IS_FINAL


def test_a_closed_session_waits_a_little_for_the_client_to_say_what_it_has_seen() -> None:
    desk = Desk().submit().delivered().close()
    desk.told()

    assert desk.silence(1999).told() == []
    # Its record stays: the client may come back for the result.
    assert desk.silence(1).told() == ["leave 0", "end left"]


def test_a_closed_session_tells_how_many_were_missing() -> None:
    desk = Desk().submit().submit().submit().failed(1).delivered(2).delivered(0).seen(2).close()

    assert desk.told()[-2:] == ["taken 0", "send closed 2 1"]


def test_a_client_that_stays_silent_is_closed() -> None:
    desk = Desk().submit().delivered().seen(1)
    desk.told()

    assert desk.silence(1_799_999).told() == []
    assert desk.silence(1).told() == ["send error DEADLINE_EXCEEDED", "send closed 1 0", "end done"]


@pytest.mark.parametrize(
    "sign",
    [
        lambda desk: desk.say(0),
        lambda desk: desk.playback(True),
        lambda desk: desk.seen(0),
        lambda desk: desk.say(0, seq=0),
    ],
)
def test_any_word_of_the_client_is_a_sign_of_life(sign: Callable[[Desk], Desk]) -> None:
    desk = Desk().say(0).silence(1_000_000)
    sign(desk).told()

    assert desk.silence(1_799_999).told() == []
    assert desk.silence(1).told()[0] == "send error DEADLINE_EXCEEDED"


def test_a_client_that_is_not_read_is_not_silent() -> None:
    desk = Desk(replace(RULES, session_utterances_max=1, session_idle_ms=20_000.0)).submit()
    assert "gate shut" in desk.told()

    desk.silence(25_000).delivered()
    assert desk.told() == ["send result 0", "send ack 1", "gate open"]

    assert desk.silence(19_999).told() == []
    assert desk.silence(1).told()[0] == "send error DEADLINE_EXCEEDED"


def test_a_session_that_leaves_says_so_of_its_jobs() -> None:
    desk = Desk().submit().submit().submit().delivered(0).delivered(2).cut()
    desk.told()

    # One is seen by nobody, one waits for another, which is under way; the last has no job.
    assert desk.left().told() == ["leave 0 2 1", "end left"]


@pytest.mark.parametrize("how", [Desk.lost, lambda desk: desk.failed(0, TAKEN_OVER)])
def test_a_session_that_was_taken_over_ends_here(how: Callable[[Desk], Desk]) -> None:
    desk = Desk().submit().cut()
    desk.told()

    how(desk)

    assert desk.told() == [
        "send error SESSION_TAKEN_OVER", "leave 0", "end SESSION_TAKEN_OVER"
    ]  # fmt: skip
    assert desk.timers == {}


def test_the_word_of_a_take_over_counts_for_an_utterance_that_is_over_as_well() -> None:
    desk = Desk().submit().delivered()
    desk.told()

    assert desk.failed(0, TAKEN_OVER).told()[-1] == "end SESSION_TAKEN_OVER"


def test_a_record_that_is_answered_after_the_end_changes_nothing() -> None:
    desk = Desk().cut().left()
    desk.told()
    desk.counts.clear()

    desk.recorded().record_failed().silence(60_000)

    assert desk.told() == []
    assert not desk.counts


# ---- timers ----


@pytest.mark.parametrize("key", [PAUSE, HANGOVER, FRAGMENT, GOODBYE, ("retry", 0), ("record", 0)])
def test_a_timer_of_an_old_generation_does_nothing(key: TimerKey) -> None:
    desk = Desk().say(500)
    desk.told()

    assert desk.timer(key).told() == []


def test_nothing_is_left_to_do_after_the_end() -> None:
    desk = Desk().submit().say(100, BA).say(500).failed(0, DOWN).cut().left()

    assert desk.timers == {}
    assert isinstance(desk.effects[-1], fx.End)
