"""The state of one stream of a session. No I/O, no clock."""

from dataclasses import dataclass, field

from lingua_scheduler.sdk._transport.endings import Lost, Moved, Refused
from lingua_scheduler.sdk.session.protocol.state import SessionState
from lingua_scheduler.silence import Silence
from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage

# Results are confirmed with the next message, or alone if there is none for this long.
CONFIRM_S = 0.2


@dataclass(slots=True)
class SessionStream:
    """One stream from its opening: what it has received, and what was written to it.

    Everything that has to be repeated on each stream (the chunks, whether speech is playing,
    whether the app has closed) is a fact of the session. `take` compares the facts with what this
    stream has written, so nothing depends on where the previous stream broke.

    Attributes:
        resumes: whether it resumes the session; otherwise it asks for a new one.
        opened_by: when Opened must have arrived.
        closing: whether the stream is being ended. Events that still arrive are ignored.
        seen_said: the number of results that it has confirmed.
        confirm_at: when results are confirmed even without another message.
        confirm_due: whether that time has come.
        leave_at: when the gateway wants the client to have left.
        last_error: the gateway's last event, if that was an error.
        gaps: sequence numbers of chunks that the gateway missed and was sent again.
        emptied: those of chunks that it refused and was sent again without their audio.
        silence: tracks the gateway's silence; None if the gateway does not promise to answer.
        ask_due: whether to send an empty message, which the gateway has to answer.
    """

    resumes: bool
    opened_by: float
    open_taken: bool = False
    opened: bool = False
    closing: bool = False
    seen_said: int = 0
    playing_said: bool = False
    close_said: bool = False
    confirm_at: float | None = None
    confirm_due: bool = False
    leave_at: float | None = None
    leave_why: str = ""
    last_error: common_pb2.Error | None = None
    gaps: set[int] = field(default_factory=set)
    emptied: set[int] = field(default_factory=set)
    silence: Silence | None = None
    ask_due: bool = False

    def next_deadline(self) -> float | None:
        """Returns when something is due on this stream; None: never. Called for each chunk."""
        if self.closing:
            return None
        due = None if self.opened else self.opened_by
        if self.silence is not None and (due is None or self.silence.due < due):
            due = self.silence.due
        if self.confirm_at is not None and (due is None or self.confirm_at < due):
            due = self.confirm_at
        if self.leave_at is not None and (due is None or self.leave_at < due):
            due = self.leave_at
        return due

    def confirm_soon(self, now: float) -> None:
        """Schedules a confirmation, unless one is scheduled already."""
        if self.confirm_at is None and not self.confirm_due:
            self.confirm_at = now + CONFIRM_S

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the gateway."""
        if self.last_error is not None:
            return Refused(self.last_error)
        if self.leave_at is not None:
            return Moved(max(0.0, self.leave_at - now), self.leave_why)
        return Lost("the stream ended")

    def take(self, state: SessionState, new: session_pb2.NewSession) -> ClientMessage | None:
        """Returns the next message to write; None if there is none now.

        Args:
            state: the session's facts.
            new: the request for a new session, for a stream that does not resume one.
        """
        if not self.open_taken:
            return self._take_open(state, new)
        if not self.opened:
            return None
        message = None if self.closing else self._take_next(state)
        if message is None:
            confirms = self.confirm_due and self.seen_said != state.seen
            if not confirms and (self.closing or not self.ask_due):
                return None
            message = ClientMessage()
        self.ask_due = False
        if self.seen_said < state.seen:
            message.results_seen = self.seen_said = state.seen
        self.confirm_at, self.confirm_due = None, False
        return message

    def _take_open(self, state: SessionState, new: session_pb2.NewSession) -> ClientMessage:
        self.open_taken = True
        if not self.resumes:
            return ClientMessage(open=session_pb2.Open(new=new))
        self.seen_said = state.seen
        state.resume_attempts += 1
        resume = session_pb2.ResumeSession(
            session_id=state.session_id,
            resume_token=state.token,
            results_seen=state.seen,
            next_seq=state.kept.acknowledged,
            kept_seq=state.kept.first,
            tries=state.resume_attempts,
        )
        return ClientMessage(open=session_pb2.Open(resume=resume))

    def _take_next(self, state: SessionState) -> ClientMessage | None:
        if self.playing_said != state.playing:
            self.playing_said = state.playing
            if state.playing:
                return ClientMessage(playback_started=session_pb2.PlaybackStarted())
            return ClientMessage(playback_ended=session_pb2.PlaybackEnded())
        if state.closing:
            state.kept.release()
        if chunks := state.kept.take(state.limits.max_chunks):
            if len(chunks) == 1:
                return ClientMessage(audio=chunks[0])
            message = ClientMessage()
            message.audio_chunks.chunks.extend(chunks)
            return message
        if state.closing and not self.close_said:
            self.close_said = state.close_written = True
            return ClientMessage(close=session_pb2.Close())
        return None
