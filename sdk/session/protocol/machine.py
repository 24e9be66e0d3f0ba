"""The client side of Converse: what to send on which event. No I/O, no clock, no logging.

Each method handles one event and returns the effects that the shell has to carry out. Every event
of a stream carries the time, in seconds of a monotonic clock. `take` returns the next message to
write, and `next_deadline` says when to call `on_timer`. A session over its streams:

    a stream opens        send Open: a new session, or resume once a gateway has answered Opened
    Opened                send unacknowledged chunks, from where Opened says; then new ones
    AudioAck              forget the chunks below, except those that a node holds
    Result, Missing       the next index: give it to the app and confirm it soon
                          an earlier index: drop it, it is a repeat
                          a later index: end the stream, so that the missing ones arrive again
    GoAway                end the stream when its time has come
    the stream ends       try another gateway until one opens the session or the time is up
    close                 send Close after the last chunk, on every stream until Closed arrives
    Closed                confirm once more, and end
"""

import random

from lingua_scheduler.sdk._transport.endings import Close, Ending, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import Patience
from lingua_scheduler.sdk.errors import (
    SessionError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk.session.events import (
    Missing,
    Outcome,
    Problem,
    Reconnecting,
    Result,
    Resumed,
)
from lingua_scheduler.sdk.session.protocol.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.retry import Retries
from lingua_scheduler.sdk.session.protocol.state import SessionState
from lingua_scheduler.sdk.session.protocol.stream import SessionStream
from lingua_scheduler.sdk.session.protocol.wire import (
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

# The session fails after this many streams in a row on which the server broke the contract.
MAX_FAULTS = 5
# A gateway that receives messages sends something at least every half of its silence (3 of 6
# beats), so the client asks after that.
ASK_BEATS = 3
# How long a gateway that has not answered a resume may still take over the session.
LATE_RESUME_S = 60.0

# The most digits of a sequence number, which is at most 2^53.
_SEQ_DIGITS = 16

_INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE
_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
_DRAINING = common_pb2.ERROR_REASON_DRAINING
# A retry cannot help: the caller has no permission, or the session or its room are gone.
_FATAL = frozenset(
    {
        common_pb2.ERROR_REASON_UNAUTHENTICATED,
        common_pb2.ERROR_REASON_PERMISSION_DENIED,
        common_pb2.ERROR_REASON_SESSION_NOT_FOUND,
        common_pb2.ERROR_REASON_ROOM_NOT_FOUND,
        common_pb2.ERROR_REASON_ROOM_CLOSED,
    }
)
_BEFORE_OPENED = frozenset({"opened", "error", "go_away"})


class SessionProtocol:
    """One session, over all its streams.

    Args:
        new: the request for the session.
        rng: randomizes the waits between attempts to connect.
        reconnect_seconds: how long to try before giving up; None: as long as the server allows.

    Attributes:
        state: the facts that outlive a stream. The app's side adds chunks to `state.kept` and sets
            `state.playing`; the protocol changes everything else.
    """

    def __init__(
        self,
        *,
        new: session_pb2.NewSession,
        rng: random.Random | None = None,
        reconnect_seconds: float | None = None,
    ) -> None:
        self.state = SessionState()
        self._new = new
        self._faults = 0
        # The last refusal of Open since the session was last open.
        self._refusal: common_pb2.Error | None = None
        self._late_resume_until = 0.0
        self._retries = Retries(rng=rng or random.Random(), seconds=reconnect_seconds)
        self._patience = Patience()
        self._stream: SessionStream | None = None
        self._effects: list[SessionEffect] = []

    # ---- queries of the shell ----

    @property
    def opened(self) -> bool:
        """Whether the session is open on the current stream."""
        return self._stream is not None and self._stream.opened

    def next_deadline(self) -> float | None:
        """Returns when to call `on_timer`; None if nothing is due."""
        return None if self._stream is None else self._stream.next_deadline()

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the gateway."""
        return Lost("the stream ended") if self._stream is None else self._stream.ending(now)

    # ---- the app ----

    def close(self) -> None:
        """The app will send nothing more."""
        self.state.closing = True

    # ---- the stream ----

    def on_connecting(self, now: float) -> float:
        """A stream is about to be opened. Returns the deadline for that."""
        self._retries.away(now)
        return self._retries.answer_by(now)

    def on_connected(self, now: float) -> None:
        """A new stream is open; its first message is Open."""
        opened_by = self.on_connecting(now)
        self._stream = SessionStream(resumes=bool(self.state.session_id), opened_by=opened_by)

    def on_message(self, now: float, message: session_pb2.ServerMessage) -> list[SessionEffect]:
        """A message has arrived. An empty one only shows that the gateway is alive."""
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
                if self.state.kept.ack(ack.next_seq, keep_seq):
                    self._advanced()
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
        if not stream.resumes and not (opened.session_id and opened.resume_token):
            what = "opened a session without session_id or resume_token"
            self._fault(stream, "INVALID_MESSAGE", what)
            return
        if opened.next_seq < self.state.kept.first:
            what = f"asked again for chunk {opened.next_seq}, which it had acknowledged"
            self._fault(stream, "OUT_OF_ORDER", what)
            return
        stream.opened = True
        self._refusal = None
        state = self.state
        state.session_id = opened.session_id or state.session_id
        state.token = opened.resume_token or state.token
        state.limits = limits_from(opened.limits)
        state.traceparent = opened.traceparent
        if silence_s := self._patience.silence_s(now, opened.limits.silence_ms):
            stream.silence = Silence(now, silence_s, ask_beats=ASK_BEATS)
        away = self._retries.opened(now, opened.limits.resume_within_ms / 1000)
        state.kept.begin_at(opened.next_seq)
        if stream.resumes:
            state.resumes += 1
            self._do(Give(Resumed(away=away, chunks_again=state.kept.to_repeat)))

    def _on_outcome(self, now: float, stream: SessionStream, outcome: Outcome) -> None:
        self.state.expect(outcome.index)
        if outcome.index < self.state.seen:
            self.state.repeated += 1
        elif outcome.index > self.state.seen:
            what = f"sent index {outcome.index} before {self.state.seen}"
            self._fault(stream, "OUT_OF_ORDER", what)
        else:
            self._advanced()
            self.state.results += isinstance(outcome, Result)
            self.state.missing += isinstance(outcome, Missing)
            stream.confirm_soon(now)
            self._do(Give(outcome))

    def _advanced(self) -> None:
        """The stream has brought the session forward."""
        self._faults = 0
        self._retries.progress()

    def _on_progress(self, event: session_pb2.UtteranceEvent) -> None:
        self.state.expect(event.utterance_index)
        progress = progress_from(event)
        if progress is not None:
            self._do(Give(progress))

    def _on_partial(self, partial: session_pb2.Partial) -> None:
        self.state.expect(partial.utterance_index)
        if partial.utterance_index >= self.state.seen:
            self._do(Give(partial_from(partial)))

    def _on_error(self, stream: SessionStream, error: common_pb2.Error) -> None:
        # An open stream survives a quota error, so that is not why it ends later.
        stream.last_error = None if stream.opened and error.reason == _QUOTA else error
        if not stream.opened:
            self._end_stream(stream, Close(Refused(error)))
            return
        expected = error.metadata.get("expected_seq", "")
        if expected.isdecimal() and len(expected) <= _SEQ_DIGITS:
            # The gateway refuses a chunk and keeps the stream, so this is not why it may end later.
            stream.last_error = None
            gap = error.metadata.get("seq", expected) != expected
            if not self._send_again(stream, int(expected), gap=gap):
                return
        self._do(Give(problem_from(error)))

    def _send_again(self, stream: SessionStream, seq: int, *, gap: bool) -> bool:
        """Sends chunks again, from one that was refused.

        That chunk loses its audio and its time, which the server cannot use. Returns False if the
        refused chunk was only in flight behind that one.
        """
        if gap and (seq in stream.gaps or seq in stream.emptied):
            return False
        # Chunks are sent in order, so a gap is not ours; sending the same again fixes it.
        if seq not in stream.emptied and self.state.kept.again_from(seq, emptied=not gap):
            (stream.gaps if gap else stream.emptied).add(seq)
        return True

    def _on_closed(self, stream: SessionStream, closed: session_pb2.Closed) -> None:
        total = closed.results + closed.missing
        if total > self.state.seen:
            self.state.expect(total - 1)
            what = f"closed the session after {self.state.seen} of {total} results"
            self._fault(stream, "OUT_OF_ORDER", what)
        elif len(self.state.kept) and not self.state.close_written:
            self._fail(self.state.lost("CLOSED", "the server closed the session before the app"))
            self._end_stream(stream, Close(Left()))
        else:
            stream.confirm_due = True
            self._be_over()
            self._end_stream(stream, Close(Left(), graceful=True))

    def _fault(self, stream: SessionStream, reason: str, what: str) -> None:
        """Ends the stream because the server broke the contract, in the hope of a better one."""
        self._faults += 1
        self._do(Give(Problem(reason=reason, message=f"the server {what}; reconnecting")))
        self._end_stream(stream, Close(Lost(f"the server {what}")))

    def on_timer(self, now: float) -> list[SessionEffect]:
        """The time of `next_deadline` has come."""
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
                what = f"the gateway sent nothing for {silence.silence_s:g} s"
                self._end_stream(stream, Close(Lost(what, silent=True)))

    # ---- the end of a stream ----

    def on_disconnected(self, now: float, ending: Ending) -> list[SessionEffect]:
        """The stream has ended. Unacknowledged chunks stay."""
        stream, self._stream = self._stream, None
        if self.state.over or stream is None:
            return self._out()
        if stream.opened:
            self._retries.away(now)
            self._do(Give(Reconnecting(why=_why(ending))))
        elif stream.resumes and stream.open_taken and isinstance(ending, Lost):
            self._late_resume_until = now + LATE_RESUME_S
        if isinstance(ending, Refused):
            self._after_refusal(now, stream, ending.error)
        elif isinstance(ending, Moved):
            # Gateways that send clients away before they open the session get a backoff.
            self._retry(now, ending, asked=ending.after, moved=stream.opened)
        else:
            self._retry(now, ending)
        return self._out()

    def _after_refusal(self, now: float, stream: SessionStream, error: common_pb2.Error) -> None:
        reason, message = reason_name(error.reason), error.message
        if error.reason == common_pb2.ERROR_REASON_SESSION_NOT_FOUND and self.state.is_complete:
            self._be_over()
        elif self._is_final(now, stream, error):
            known = bool(self.state.session_id)
            refused = SessionRefusedError(reason, message, fields_of(error))
            self._fail(self.state.lost(reason, message) if known else refused)
        else:
            self._faults += stream.opened and error.reason == _INVALID
            # That one gateway is draining says nothing about the others.
            if not stream.opened and error.reason != _DRAINING:
                self._refusal = error
            self._retry(now, Refused(error), asked=error.retry_after_ms / 1000)

    def _is_final(self, now: float, stream: SessionStream, error: common_pb2.Error) -> bool:
        """Whether a retry cannot help."""
        if error.reason == common_pb2.ERROR_REASON_SESSION_TAKEN_OVER:
            return not self._was_it_us(now)
        if error.reason == common_pb2.ERROR_REASON_ROOM_FULL:
            # A session that has audio to send may find a place in the room again.
            return not self.state.session_id
        return error.reason in _FATAL or (not stream.opened and error.reason == _INVALID)

    def _was_it_us(self, now: float) -> bool:
        """Whether a resume that this client abandoned may have taken over; true once for each."""
        late, self._late_resume_until = self._late_resume_until, 0.0
        return now < late

    def _retry(
        self, now: float, ending: Ending, *, asked: float = 0.0, moved: bool = False
    ) -> None:
        # A quota has no room before the time that the server gave.
        strictly = isinstance(ending, Refused) and ending.error.reason == _QUOTA
        wait = self._retries.next_wait(now, asked=asked, moved=moved, strictly=strictly)
        if self._faults >= MAX_FAULTS:
            what = f"{MAX_FAULTS} streams in a row failed: {_why(ending)}"
            self._fail(self.state.lost("BROKEN_PROMISE", what))
        elif wait is not None:
            self._do(Retry(wait))
        else:
            said = ending.error if isinstance(ending, Refused) else self._refusal
            reason = "UNREACHABLE" if said is None else reason_name(said.reason)
            within = f"{self._retries.seconds:g} s"
            what = f"no gateway accepted the session within {within}; last: {_why(ending)}"
            if self.state.session_id:
                self._fail(self.state.lost(reason, what))
            else:
                self._fail(SessionUnavailableError(reason, what, retry_after=asked))

    def _be_over(self) -> None:
        self.state.over = True
        self.state.kept.forget()
        self._do(Over())

    def _fail(self, error: SessionError) -> None:
        self.state.over = True
        self._do(Fail(error))

    def _end_stream(self, stream: SessionStream, close: Close) -> None:
        if not stream.closing:
            stream.closing = True
            self._do(close)

    def take(self) -> ClientMessage | None:
        """Returns the next message to write; None if there is none now."""
        return None if self._stream is None else self._stream.take(self.state, self._new)

    def _do(self, effect: SessionEffect) -> None:
        self._effects.append(effect)

    def _out(self) -> list[SessionEffect]:
        effects, self._effects = self._effects, []
        return effects


def _why(ending: Ending) -> str:
    if isinstance(ending, Refused):
        return f"{reason_name(ending.error.reason)}: {ending.error.message}"
    return "" if isinstance(ending, Left) else ending.why
