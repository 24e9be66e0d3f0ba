"""Detects frozen peers by their silence. No I/O, no clock. The SDK and the services share it.

A process that is stopped, or whose machine hangs, keeps its connections: they do not break, and its
kernel still accepts what is sent to it. Only its silence shows that it is frozen. Imports only the
standard library.
"""

from enum import Enum, auto

# A peer is frozen after SILENT_BEATS without a message, if it also had ANSWER_BEATS to answer.
SILENT_BEATS = 6
ANSWER_BEATS = 3


class Verdict(Enum):
    """What to do about a peer after a beat."""

    WAIT = auto()
    ASK = auto()
    SILENT = auto()


class Silence:
    """Counts the beats during which one peer sent nothing.

    A beat counts only if it came on time. If it did not, this process was suspended or busy, and
    messages of the peer may lie unread in the socket. So a stall of this process, however long, is
    never mistaken for silence of the peer.

    Args:
        now: the time, in seconds of a monotonic clock.
        silence_s: how long the peer may be silent. If all beats are on time, a frozen peer is
            detected after this time at the earliest, and a sixth of it later at the latest.
        ask_beats: after how many silent beats the peer is asked, 1 to 3. A beat is a sixth of
            `silence_s`.

    Attributes:
        due: when to call `beat` next.
        heard: set this to True whenever the peer has sent something.
    """

    def __init__(self, now: float, silence_s: float, *, ask_beats: int = 2) -> None:
        self._beat_s = silence_s / SILENT_BEATS
        self._ask_beats = ask_beats
        self._quiet = 0
        # Beats since it was asked; None if it was not asked since its last message.
        self._unanswered: int | None = None
        self.silence_s = silence_s
        self.due = now + self._beat_s
        self.heard = False

    @property
    def awaits_answer(self) -> bool:
        """Whether the peer was asked, and no later beat has found a message of it."""
        return self._unanswered is not None

    def asked(self, now: float) -> None:
        """Notes that the peer has to answer. Messages that it sent earlier do not count."""
        if self.heard:
            self.heard = False
            self._quiet, self._unanswered = 0, None
        if self._unanswered is None:
            self._unanswered = 0
            if self.due <= now:
                # `beat` has not been called for a while.
                self.due = now + self._beat_s

    def beat(self, now: float, *, ask: bool = True) -> Verdict:
        """Handles a beat, which must be `due`.

        Args:
            now: the time.
            ask: whether the peer may be asked now.

        Returns:
            ASK: ask the peer now; this counts as asked. SILENT: the peer is frozen; each later
            beat returns it again.
        """
        late = now - self.due
        self.due = now + self._beat_s
        if self.heard:
            self.heard = False
            self._quiet, self._unanswered = 0, None
            return Verdict.WAIT
        if late > self._beat_s:
            return Verdict.WAIT
        self._quiet += 1
        if self._unanswered is None:
            if not ask or self._quiet < self._ask_beats:
                return Verdict.WAIT
            self._unanswered = 0
            return Verdict.ASK
        self._unanswered += 1
        is_frozen = self._quiet >= SILENT_BEATS and self._unanswered >= ANSWER_BEATS
        return Verdict.SILENT if is_frozen else Verdict.WAIT
