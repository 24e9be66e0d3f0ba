"""Where a listener is in its room, and whether it has been given everything. No I/O, no clock.

Each utterance names the one before it in its language. If that one is not below the listener's
position, the listener was not given it: the chain is broken.
"""

# The highest room index that the contract allows.
MAX_INDEX = 2**53
# Changes of language that have not come into effect yet. More than these are merged.
_MAX_CHANGES = 64


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
        # Whether the last stream broke during a change, and up to where that matters.
        self._is_unsure = False
        self._unsure_until = 0

    @property
    def position(self) -> int:
        """The first room index that the listener has not seen, or is to get live."""
        return self._live_from if self._seen is None else self._seen

    def join(self, live_from: int) -> None:
        """A stream begins, in one language; what is said from `live_from` on comes live."""
        if not self.started:
            self.started, self._live_from = True, live_from
        if self._is_unsure:
            self._is_unsure, self._unsure_until = False, live_from
        self._changes = []

    def disconnect(self, *, asked: bool) -> None:
        """The stream has ended.

        Args:
            asked: whether a change was asked for and not answered. Until the listener joins again,
                the room may have published only in the one language or only in the other.
        """
        self._is_unsure = self._is_unsure or asked or bool(self._changes)

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

    def unsure_before(self, index: int) -> tuple[int, int] | None:
        """Returns what was perhaps published only in the language that was not asked for.

        The listener was due everything below `index` in one language or the other, but a change of
        language was interrupted. Returns the range as `lost_before` does; None if all is well.
        """
        until = min(index, self._unsure_until)
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
