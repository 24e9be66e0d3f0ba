"""Where a listener is in its room, and whether it has been given everything. No I/O, no clock.

Each utterance names the one before it in its language. If that one is not below the listener's
position, the listener was not given it: the chain is broken.
"""

# The highest room index that the contract allows.
MAX_INDEX = 2**53
# Changes of language that have not come into effect yet. More than these are merged.
_MAX_CHANGES = 64

# Reasons for doubt.
LISTENING_CHANGED = "LISTENING_CHANGED"
AWAY = "AWAY"


class Chain:
    """The position of one listener, over all its streams.

    Attributes:
        started: whether the listener has been in the room.
    """

    def __init__(self) -> None:
        self.started = False
        self._live_from = 0
        self._seen: int | None = None
        # The first indexes of languages that were changed to, ascending, all above the position.
        self._changes: list[int] = []
        # Why the room may not have published all in the listener's language, and up to where.
        self._doubt = ""
        self._doubt_until = 0

    @property
    def position(self) -> int:
        """The first room index that the listener has not seen, or is to get live."""
        return self._live_from if self._seen is None else self._seen

    @property
    def doubt(self) -> str:
        """Why utterances before the last time that the listener joined may be missing."""
        return self._doubt

    def join(self, live_from: int, *, was_away: bool = False) -> None:
        """A stream begins, in one language.

        Args:
            live_from: what is said from here on comes live.
            was_away: whether the listener was away for longer than the room counted it. Then
                nobody may have wanted its language for a while.
        """
        if not self.started:
            self.started, self._live_from = True, live_from
        if was_away and not self._doubt:
            self._doubt = AWAY
        if self._doubt:
            self._doubt_until = live_from
        self._changes = []

    def disconnect(self, *, asked: bool) -> None:
        """The stream has ended.

        Args:
            asked: whether a change was asked for and not answered. Until the listener joins again,
                the room may have published only in the one language or only in the other.
        """
        if self.position >= self._doubt_until:
            self._doubt = ""
        if asked or self._changes:
            self._doubt = LISTENING_CHANGED

    def change(self, index: int) -> None:
        """Notes that utterances from this index on come in another language."""
        if index > self.position:
            above = [each for each in self._changes if each < index]
            self._changes = [*above[-_MAX_CHANGES:], index]

    def is_repeat(self, until: int) -> bool:
        """Whether everything below `until` has been seen."""
        return self._seen is not None and until <= self._seen

    def lost_before(self, index: int, previous: int | None) -> tuple[int, int] | None:
        """Returns what the listener was not given before this utterance; None if nothing.

        Args:
            index: of the utterance.
            previous: the index of the one before it in its language; None: there is none.

        Returns:
            The first index that it was not given, and the one after the last.
        """
        first = self._first_due(index)
        if previous is None or first is None:
            return None
        until = min(index, previous + 1)
        return (first, until) if first < until else None

    def doubtful_before(self, index: int) -> tuple[int, int] | None:
        """Returns what was perhaps not published in the language that the listener asks for.

        The listener was due everything below `index`, but see `doubt`. Returns the range as
        `lost_before` does; None if all is well.
        """
        until = min(index, self._doubt_until)
        return (self.position, until) if self.position < until else None

    def _first_due(self, index: int) -> int | None:
        """The lowest index that is due before this one; None: unknown, it is the first replay."""
        if self._seen is None and index < self._live_from:
            return None
        changed = [each for each in self._changes if each <= index]
        return max(self.position, changed[-1]) if changed else self.position

    def advance(self, until: int) -> None:
        """Notes that everything below `until` was given to the app."""
        self._seen = max(until, self._seen or 0)
        self._changes = [each for each in self._changes if each > until]
