"""When the silence of a peer means that it is frozen. No I/O, no clock; imports only from Python.

A process that is stopped, or whose machine hangs, keeps its connections: nothing breaks, and what
is sent to it is taken by its kernel. Only its silence tells. The client SDK uses this rule too.
"""

from enum import Enum, auto

# A peer is frozen after so many beats without a word, and never sooner than so many beats after it
# was asked.
SILENT_BEATS = 6
ANSWER_BEATS = 3


class Verdict(Enum):
    """What to do about a peer after a beat."""

    WAIT = auto()
    ASK = auto()
    SILENT = auto()


class Silence:
    """Counts the beats in which one peer has said nothing.

    A beat counts only if it came on time. If it did not, this process stood still or was busy, and
    words of the peer may lie unread in the socket. So a stall of this side, however long, is never
    taken for the silence of the other one.

    Args:
        now: the time, in seconds of a clock that only goes up.
        silence_s: how long the peer may say nothing. It is found frozen after this time at the
            earliest, and a sixth of it later at the latest, if all beats are on time.
        ask_beats: after how many beats without a word it is asked, 1 to 3. A beat is a sixth of
            `silence_s`.

    Attributes:
        due: when `beat` is to be called next.
        heard: to be set to True whenever the peer has said something.
    """

    def __init__(self, now: float, silence_s: float, *, ask_beats: int = 2) -> None:
        self._beat_s = silence_s / SILENT_BEATS
        self._ask_beats = ask_beats
        self._quiet = 0
        # Beats since it was asked; None: it was not, since it last said something.
        self._unanswered: int | None = None
        self.silence_s = silence_s
        self.due = now + self._beat_s
        self.heard = False

    @property
    def awaits_answer(self) -> bool:
        """Whether the peer was asked, and has not been found to have said anything since."""
        return self._unanswered is not None

    def asked(self, now: float) -> None:
        """The peer was sent something that it has to answer; what it said before does not count."""
        if self.heard:
            self.heard = False
            self._quiet, self._unanswered = 0, None
        if self._unanswered is None:
            self._unanswered = 0
            if self.due <= now:
                # Nobody looked for a while.
                self.due = now + self._beat_s

    def beat(self, now: float, *, ask: bool = True) -> Verdict:
        """It is `due`, or later.

        Args:
            now: the time.
            ask: whether the peer may be asked now.

        Returns:
            ASK: it is to be asked, which counts as done. SILENT: it is frozen. It says so again
            with each beat.
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
