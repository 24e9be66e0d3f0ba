"""What belongs to one stream of a session and goes with it. No I/O, no clock."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lingua_scheduler.sdk._transport.endings import Lost, Moved, Refused
from lingua_scheduler.silence import Silence
from lingua_scheduler.v1 import common_pb2

# Results are confirmed with the next message; alone, if there is none for so long.
CONFIRM_S = 0.2


@dataclass(slots=True)
class SessionStream:
    """One stream, from its opening: what it has heard and said.

    Attributes:
        resumes: whether it asks to resume the session, and not for a new one.
        opened_by: when Opened has to have come.
        closing: it is given up, and what still comes on it is not looked at.
        seen_said: how many results it was told to have been seen.
        confirm_at: when they are to be confirmed, even alone.
        confirm_due: that time has come.
        leave_at: when the gateway wants it to be gone.
        last_error: the last thing that the gateway said, if that was an error.
        refused: seqs of chunks that were refused on it.
        silence: of the gateway; None where it does not promise to answer.
        ask_due: it is to be asked whether it is there.
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
    refused: set[int] = field(default_factory=set)
    silence: Silence | None = None
    ask_due: bool = False

    def deadlines(self) -> Iterator[float]:
        """When something is due on it."""
        if self.closing:
            return
        if not self.opened:
            yield self.opened_by
        if self.leave_at is not None:
            yield self.leave_at
        if self.confirm_at is not None:
            yield self.confirm_at
        if self.silence is not None:
            yield self.silence.due

    def confirm_soon(self, now: float) -> None:
        """A result has come; the first that is not confirmed sets the time."""
        if self.confirm_at is None and not self.confirm_due:
            self.confirm_at = now + CONFIRM_S

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Why it ended, if it just did: what the gateway said last, if anything."""
        if self.last_error is not None:
            return Refused(self.last_error)
        if self.leave_at is not None:
            return Moved(max(0.0, self.leave_at - now), self.leave_why)
        return Lost("the stream ended")
