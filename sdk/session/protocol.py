"""The client's side of Converse: what to say on which event. No I/O, no clock, no logging.

A method is an event; what it returns is what the shell has to do. Every event of a stream carries
the time, in seconds of a clock that only goes up. `take` gives the next message to write, and
`next_deadline` says when `on_timer` is to be called. A session over its streams:

    a stream opens        Open: new, or resume once a gateway has said Opened
    Opened                all that is not acknowledged, from where it says; then what is new
    AudioAck              chunks below are forgotten, and never before; but those that a node holds
                          are kept
    Result, Missing       the next index: to the app, and confirmed soon
                          an earlier one: a repeat, dropped
                          a later one: the stream is given up, so that all come again
    GoAway                the stream is given up when its time has come
    the stream ends       another is tried, until one is open or the time is over
    close                 Close after the last chunk, on every stream until Closed
    Closed                a last confirmation, and the end

What has to be said again on every stream is kept as a fact (the chunks, whether speech is played,
whether the app has closed) and compared with what this stream has heard of it. So nothing depends
on where a stream broke.
"""

import random

from lingua_scheduler.sdk._transport.endings import Close, Ending, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import Patience
from lingua_scheduler.sdk.errors import (
    SessionError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk.session.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.events import (
    Missing,
    Outcome,
    Problem,
    Reconnecting,
    Result,
    Resumed,
)
from lingua_scheduler.sdk.session.retry import Retries
from lingua_scheduler.sdk.session.state import SessionState
from lingua_scheduler.sdk.session.stream import SessionStream
from lingua_scheduler.sdk.session.wire import (
    fields_of,
    limits_from,
    missing_from,
    partial_from,
    problem_from,
    progress_from,
    result_from,
)
from lingua_scheduler.silence import Silence, Verdict
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage

# So many streams in a row that break the contract, and the session is given up.
MAX_FAULTS = 5
# A gateway says something at least every half of its silence while it hears something, so it is
# asked after that.
ASK_BEATS = 3
# How long a gateway that was asked to resume, and did not answer, may still take the session.
LATE_RESUME_S = 60.0

_INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE
_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_DRAINING = common_pb2.ERROR_REASON_DRAINING
# No other try would help: whoever calls may not, or the session was forgotten.
_FATAL = frozenset(
    {
        common_pb2.ERROR_REASON_UNAUTHENTICATED,
        common_pb2.ERROR_REASON_PERMISSION_DENIED,
        common_pb2.ERROR_REASON_SESSION_NOT_FOUND,
    }
)
_BEFORE_OPENED = frozenset({"opened", "error", "go_away"})


class SessionProtocol(SessionState):
    """One session, over all its streams.

    Args:
        new: what is asked for.
        rng: spreads the waits between tries.
        reconnect_seconds: how long to try before it is given up; None: what the server allows.
    """

    def __init__(
        self,
        *,
        new: session_pb2.NewSession,
        rng: random.Random | None = None,
        reconnect_seconds: float | None = None,
    ) -> None:
        super().__init__()
        self._new = new
        self._faults = 0
        # Why a gateway last refused Open, since the session was last open.
        self._refusal: common_pb2.Error | None = None
        self._late_resume_until = 0.0
        self._retries = Retries(rng=rng or random.Random(), seconds=reconnect_seconds)
        self._patience = Patience()
        self._stream: SessionStream | None = None
        self._effects: list[SessionEffect] = []

    # ---- what the shell asks ----

    @property
    def opened(self) -> bool:
        """Whether a gateway has the session on the present stream."""
        return self._stream is not None and self._stream.opened

    def next_deadline(self) -> float | None:
        """When `on_timer` has something to do."""
        return None if self._stream is None else min(self._stream.deadlines(), default=None)

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Why the stream ended, if it just did: what the gateway said last, if anything."""
        return Lost("the stream ended") if self._stream is None else self._stream.ending(now)

    # ---- the app ----

    def close(self) -> None:
        """The app has sent all that it will send."""
        self.closing = True

    # ---- the stream ----

    def on_connecting(self, now: float) -> float:
        """The next stream is being made ready; until when that may take."""
        self._retries.away(now)
        return self._retries.answer_by(now)

    def on_connected(self, now: float) -> None:
        """A new stream is there; its first message is Open."""
        opened_by = self.on_connecting(now)
        self._stream = SessionStream(resumes=bool(self.session_id), opened_by=opened_by)

    def on_message(self, now: float, message: session_pb2.ServerMessage) -> list[SessionEffect]:
        """The gateway has said something, if only that it is there."""
        if self._stream is not None and self._stream.silence is not None:
            self._stream.silence.heard = True
        for event in message.events:
            stream = self._stream
            if stream is None or stream.closing:
                break
            kind = event.WhichOneof("event") or ""
            if stream.opened or kind in _BEFORE_OPENED:
                stream.last_error = None
                self._on_event(now, stream, kind, event)
        return self._out()

    def _on_event(
        self, now: float, stream: SessionStream, kind: str, event: session_pb2.ServerEvent
    ) -> None:
        match kind:
            case "opened":
                self._on_opened(now, stream, event.opened)
            case "audio_ack":
                ack = event.audio_ack
                keep_seq = ack.keep_seq if ack.HasField("keep_seq") else None
                if self.kept.ack(ack.next_seq, keep_seq):
                    self._faults = 0
            case "utterance":
                self._on_progress(event.utterance)
            case "partial":
                self._on_partial(event.partial)
            case "result":
                self._on_outcome(now, stream, result_from(event.result))
            case "missing":
                self._on_outcome(now, stream, missing_from(event.missing))
            case "go_away":
                stream.leave_at = now + event.go_away.after_ms / 1000
                stream.leave_why = event.go_away.why
            case "error":
                self._on_error(stream, event.error)
            case "closed":
                self._on_closed(stream, event.closed)

    def _on_opened(self, now: float, stream: SessionStream, opened: session_pb2.Opened) -> None:
        if stream.opened:
            return
        if opened.next_seq < self.kept.first:
            what = f"wants chunk {opened.next_seq} again, which was acknowledged"
            self._fault(stream, "OUT_OF_ORDER", what)
            return
        stream.opened = True
        self._refusal = None
        self.session_id = opened.session_id or self.session_id
        self.token = opened.resume_token or self.token
        self.limits = limits_from(opened.limits)
        self.traceparent = opened.traceparent
        if silence_s := self._patience.silence_s(now, opened.limits.silence_ms):
            stream.silence = Silence(now, silence_s, ask_beats=ASK_BEATS)
        away = self._retries.opened(now, opened.limits.resume_within_ms / 1000)
        self.kept.begin_at(opened.next_seq)
        if stream.resumes:
            self.resumes += 1
            self._do(Give(Resumed(away=away, chunks_again=self.kept.to_repeat)))

    def _on_outcome(self, now: float, stream: SessionStream, outcome: Outcome) -> None:
        self._await(outcome.index)
        if outcome.index < self.seen:
            self.repeated += 1
        elif outcome.index > self.seen:
            what = f"gave index {outcome.index} before {self.seen}"
            self._fault(stream, "OUT_OF_ORDER", what)
        else:
            self._faults = 0
            self.results += isinstance(outcome, Result)
            self.missing += isinstance(outcome, Missing)
            stream.confirm_soon(now)
            self._do(Give(outcome))

    def _on_progress(self, event: session_pb2.UtteranceEvent) -> None:
        self._await(event.utterance_index)
        progress = progress_from(event)
        if progress is not None:
            self._do(Give(progress))

    def _on_partial(self, partial: session_pb2.Partial) -> None:
        self._await(partial.utterance_index)
        if partial.utterance_index >= self.seen:
            self._do(Give(partial_from(partial)))

    def _await(self, index: int) -> None:
        self.awaited = max(self.awaited, index + 1)

    def _on_error(self, stream: SessionStream, error: common_pb2.Error) -> None:
        # Over a quota, an open stream goes on: if it ends then, it is not for that.
        stream.last_error = None if stream.opened and error.reason == _QUOTA else error
        if not stream.opened:
            self._end_stream(stream, Close(Refused(error)))
            return
        expected = error.metadata.get("expected_seq", "")
        if error.reason == common_pb2.ERROR_REASON_BAD_AUDIO and expected.isdecimal():
            seq = int(expected)
            if seq in stream.refused:
                return  # what was on its way behind the refused chunk
            stream.refused.add(seq)
            # Chunks are sent in order, so a gap is none of ours: the same once more will do.
            gap = error.metadata.get("seq", expected) != expected
            self.kept.again_from(seq, emptied=not gap)
        self._do(Give(problem_from(error)))

    def _on_closed(self, stream: SessionStream, closed: session_pb2.Closed) -> None:
        total = closed.results + closed.missing
        if total > self.seen:
            self._await(total - 1)
            self._fault(stream, "OUT_OF_ORDER", f"closed after {self.seen} of {total} results")
        elif len(self.kept) and not self.close_written:
            self._fail(self.lost("CLOSED", "the server closed the session first"))
            self._end_stream(stream, Close(Left()))
        else:
            stream.confirm_due = True
            self._be_over()
            self._end_stream(stream, Close(Left(), graceful=True))

    def _fault(self, stream: SessionStream, reason: str, what: str) -> None:
        """The server has broken its promise: on another stream it may keep it."""
        self._faults += 1
        self._do(Give(Problem(reason=reason, message=f"the server {what}; asking again")))
        self._end_stream(stream, Close(Lost(f"the server {what}")))

    def on_timer(self, now: float) -> list[SessionEffect]:
        """It is `next_deadline`, or later."""
        stream = self._stream
        if stream is not None and not stream.closing:
            if stream.confirm_at is not None and stream.confirm_at <= now:
                stream.confirm_at, stream.confirm_due = None, True
            if stream.leave_at is not None and stream.leave_at <= now:
                self._end_stream(stream, Close(Moved(0.0, stream.leave_why)))
            elif not stream.opened and stream.opened_by <= now:
                lost = Lost("Open was not answered in time", silent=True)
                self._end_stream(stream, Close(lost))
            elif stream.silence is not None and stream.silence.due <= now:
                self._on_beat(now, stream, stream.silence)
        return self._out()

    def _on_beat(self, now: float, stream: SessionStream, silence: Silence) -> None:
        match silence.beat(now):
            case Verdict.ASK:
                stream.ask_due = True
            case Verdict.SILENT:
                self._patience.ran_out(now)
                what = f"the gateway has said nothing for {silence.silence_s:g} s"
                self._end_stream(stream, Close(Lost(what, silent=True)))

    # ---- the end of a stream ----

    def on_disconnected(self, now: float, ending: Ending) -> list[SessionEffect]:
        """The stream is gone. What was not acknowledged stays."""
        stream, self._stream = self._stream, None
        if self.over or stream is None:
            return self._out()
        if stream.opened:
            self._retries.away(now)
            self._do(Give(Reconnecting(why=_why(ending))))
        elif stream.resumes and stream.open_taken and isinstance(ending, Lost):
            self._late_resume_until = now + LATE_RESUME_S
        if isinstance(ending, Refused):
            self._after_refusal(now, stream, ending.error)
        elif isinstance(ending, Moved):
            self._retry(now, ending, asked=ending.after, moved=True)
        else:
            self._retry(now, ending)
        return self._out()

    def _after_refusal(self, now: float, stream: SessionStream, error: common_pb2.Error) -> None:
        reason, message = reason_name(error.reason), error.message
        if error.reason == common_pb2.ERROR_REASON_SESSION_NOT_FOUND and self.is_complete:
            self._be_over()
        elif self._is_final(now, stream, error):
            known = bool(self.session_id)
            refused = SessionRefusedError(reason, message, fields_of(error))
            self._fail(self.lost(reason, message) if known else refused)
        else:
            self._faults += stream.opened and error.reason == _INVALID
            # A gateway that drains says nothing about the others.
            if not stream.opened and error.reason != _DRAINING:
                self._refusal = error
            self._retry(now, Refused(error), asked=error.retry_after_ms / 1000)

    def _is_final(self, now: float, stream: SessionStream, error: common_pb2.Error) -> bool:
        """Whether no other try would help."""
        if error.reason == common_pb2.ERROR_REASON_SESSION_TAKEN_OVER:
            return not self._was_it_us(now)
        return error.reason in _FATAL or (not stream.opened and error.reason == _INVALID)

    def _was_it_us(self, now: float) -> bool:
        """Whether a resume that we gave up may have taken the session. Believed once of each."""
        late, self._late_resume_until = self._late_resume_until, 0.0
        return now < late

    def _retry(
        self, now: float, ending: Ending, *, asked: float = 0.0, moved: bool = False
    ) -> None:
        # A quota has room when it says so, and not earlier.
        strictly = isinstance(ending, Refused) and ending.error.reason == _QUOTA
        wait = self._retries.next_wait(now, asked=asked, moved=moved, strictly=strictly)
        if self._faults >= MAX_FAULTS:
            self._fail(self.lost("BROKEN_PROMISE", f"{MAX_FAULTS} streams failed: {_why(ending)}"))
        elif wait is not None:
            self._do(Retry(wait))
        else:
            said = ending.error if isinstance(ending, Refused) else self._refusal
            reason = "UNREACHABLE" if said is None else reason_name(said.reason)
            what = f"no gateway within {self._retries.seconds:g} s; last: {_why(ending)}"
            if self.session_id:
                self._fail(self.lost(reason, what))
            else:
                self._fail(SessionUnavailableError(reason, what, retry_after=asked))

    def _be_over(self) -> None:
        self.over = True
        self.kept.forget()
        self._do(Over())

    def _fail(self, error: SessionError) -> None:
        self.over = True
        self._do(Fail(error))

    def _end_stream(self, stream: SessionStream, close: Close) -> None:
        if not stream.closing:
            stream.closing = True
            self._do(close)

    # ---- what goes out ----

    def take(self) -> ClientMessage | None:
        """The next message to write; None where there is none now."""
        stream = self._stream
        if stream is None:
            return None
        if not stream.open_taken:
            return self._take_open(stream)
        if not stream.opened:
            return None
        message = None if stream.closing else self._take_next(stream)
        if message is None:
            confirms = stream.confirm_due and stream.seen_said != self.seen
            if not confirms and (stream.closing or not stream.ask_due):
                return None
            message = ClientMessage()
        stream.ask_due = False
        if stream.seen_said < self.seen:
            message.results_seen = stream.seen_said = self.seen
        stream.confirm_at, stream.confirm_due = None, False
        return message

    def _take_open(self, stream: SessionStream) -> ClientMessage:
        stream.open_taken = True
        if not stream.resumes:
            return ClientMessage(open=session_pb2.Open(new=self._new))
        stream.seen_said = self.seen
        self._tries += 1
        resume = session_pb2.ResumeSession(
            session_id=self.session_id,
            resume_token=self.token,
            results_seen=self.seen,
            next_seq=self.kept.acknowledged,
            kept_seq=self.kept.first,
            tries=self._tries,
        )
        return ClientMessage(open=session_pb2.Open(resume=resume))

    def _take_next(self, stream: SessionStream) -> ClientMessage | None:
        if stream.playing_said != self.playing:
            stream.playing_said = self.playing
            if self.playing:
                return ClientMessage(playback_started=session_pb2.PlaybackStarted())
            return ClientMessage(playback_ended=session_pb2.PlaybackEnded())
        if (chunk := self.kept.take()) is not None:
            return ClientMessage(audio=chunk)
        if self.closing and not stream.close_said:
            stream.close_said = self.close_written = True
            return ClientMessage(close=session_pb2.Close())
        return None

    def _do(self, effect: SessionEffect) -> None:
        self._effects.append(effect)

    def _out(self) -> list[SessionEffect]:
        effects, self._effects = self._effects, []
        return effects


def _why(ending: Ending) -> str:
    if isinstance(ending, Refused):
        return f"{reason_name(ending.error.reason)}: {ending.error.message}"
    return "" if isinstance(ending, Left) else ending.why
