"""What a session is, over all its streams. No I/O, no clock."""

from lingua_scheduler.sdk.errors import SessionLostError
from lingua_scheduler.sdk.session.events import Limits
from lingua_scheduler.sdk.session.kept_chunks import KeptChunks


class SessionState:
    """The facts that outlive a stream.

    Attributes:
        kept: chunks that are not acknowledged; new ones are added there.
        playing: whether the app plays speech.
        closing: whether the app has closed it.
        close_written: whether any stream has had Close.
        session_id: of the session, once it is open; so are `token`, `limits` and `traceparent`.
        results: that the app was given; so is `missing`.
        awaited: one more than the highest index that the server has spoken of.
        repeated: results that came once more, and were dropped.
        resumes: how often another stream took the session on.
        over: whether it is closed, or lost.
    """

    def __init__(self) -> None:
        self.kept = KeptChunks()
        self.playing = False
        self.closing = False
        self.close_written = False
        self.session_id = ""
        self.token = ""
        self._tries = 0
        self.limits = Limits()
        self.traceparent = ""
        self.results = 0
        self.missing = 0
        self.awaited = 0
        self.repeated = 0
        self.resumes = 0
        self.over = False

    @property
    def seen(self) -> int:
        """Results and missing ones together: the next one wanted has this index."""
        return self.results + self.missing

    @property
    def is_complete(self) -> bool:
        """Whether a server that has forgotten the session had done all that it was asked for."""
        return self.close_written and len(self.kept) == 0 and self.seen >= self.awaited

    def lost(self, reason: str, message: str) -> SessionLostError:
        """The error that says what is lost now."""
        return SessionLostError(
            reason,
            message,
            unacknowledged_chunks=len(self.kept),
            unacknowledged_bytes=self.kept.size,
            results_seen=self.seen,
        )
