"""What a session knows beyond any one stream. No I/O, no clock."""

from typing import NamedTuple

from lingua_scheduler.sdk.errors import SessionLostError
from lingua_scheduler.sdk.session.events import Limits
from lingua_scheduler.sdk.session.protocol.kept_chunks import KeptChunks


class Unacknowledged(NamedTuple):
    """Audio that the SDK keeps because no server has acknowledged it."""

    chunks: int
    bytes: int


class Counts(NamedTuple):
    """Totals of a session.

    Attributes:
        chunks: sent by the app.
        utterances: that the server has mentioned, including those in unread events. After
            `drained` this is every utterance so far. If the connection broke since, some may be
            counted only when their results arrive.
        results: received.
        missing: utterances without a result.
        repeated: results that arrived again after a reconnection and were dropped.
        resumes: reconnections.
    """

    chunks: int
    utterances: int
    results: int
    missing: int
    repeated: int
    resumes: int


class SessionState:
    """Facts that outlive a stream.

    Attributes:
        kept: the chunks that the session may still have to send. New chunks are added here.
        playing: whether the app is playing speech.
        closing: whether the app has closed the session.
        close_written: whether Close was written to any stream.
        session_id: empty until the session is open, as are `token`, `limits` and `traceparent`.
        resume_attempts: how often a stream asked to resume.
        results: results given to the app.
        missing: missing utterances reported to the app.
        awaited: one more than the highest utterance index that the server has mentioned.
        repeated: results that arrived again and were dropped.
        resumes: how often another stream took over the session.
        over: whether the session is closed or lost.
    """

    def __init__(self) -> None:
        self.kept = KeptChunks()
        self.playing = False
        self.closing = False
        self.close_written = False
        self.session_id = ""
        self.token = ""
        self.limits = Limits()
        self.traceparent = ""
        self.resume_attempts = 0
        self.results = 0
        self.missing = 0
        self.awaited = 0
        self.repeated = 0
        self.resumes = 0
        self.over = False

    @property
    def seen(self) -> int:
        """The number of results and missing utterances so far; also the next expected index."""
        return self.results + self.missing

    @property
    def is_complete(self) -> bool:
        """Whether the server has done everything that it was asked to do."""
        return self.close_written and len(self.kept) == 0 and self.seen >= self.awaited

    @property
    def unacknowledged(self) -> Unacknowledged:
        """The audio that no server has acknowledged."""
        return Unacknowledged(len(self.kept), self.kept.size)

    @property
    def counts(self) -> Counts:
        """Totals so far."""
        return Counts(
            chunks=self.kept.end,
            utterances=self.awaited,
            results=self.results,
            missing=self.missing,
            repeated=self.repeated,
            resumes=self.resumes,
        )

    def expect(self, index: int) -> None:
        """Notes that the server has mentioned this utterance."""
        self.awaited = max(self.awaited, index + 1)

    def lost(self, reason: str, message: str) -> SessionLostError:
        """Returns the error that says what is lost if the session ends now."""
        return SessionLostError(
            reason,
            message,
            unacknowledged_chunks=len(self.kept),
            unacknowledged_bytes=self.kept.size,
            results_seen=self.seen,
        )
