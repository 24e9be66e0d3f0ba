"""One language of a room at one gateway: who listens to it, and how far it has been read. Pure.

A *lane* is the sequence of outcomes in one language, in the order of their room indexes. `audience`
decides what happens; this module has the parts that it is made of.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Generic, NamedTuple, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Form(IntFlag):
    """In which form a listener receives an outcome. Listeners with the same form share bytes."""

    CAPTIONS = 1
    SPEECH = 2
    ORIGINAL = 4
    # Said before the listener came: captions only, and marked as such.
    REPLAYED = 8


AUDIO = Form.SPEECH | Form.ORIGINAL


class Outcome(Protocol):
    """The outcome of an utterance in one language."""

    @property
    def index(self) -> int:
        """Its room index."""

    @property
    def previous(self) -> int | None:
        """The room index of the outcome before it in its lane; None if it is the first."""

    def silent(self) -> "Outcome":
        """The same without audio, to be replayed."""


class Gap(NamedTuple):
    """Outcomes that are no longer kept: those with first <= room index < until."""

    language: str
    first: int
    until: int


Item = Outcome | Gap


@dataclass(slots=True)
class Leg:
    """What a listener listens to, from one change of its wishes to the next.

    Attributes:
        language: of its lane.
        form: of its outcomes.
        until: the room index at which the next leg begins; None if this is the last.
        last_open: with `until`: the highest room index of this lane that had no outcome when the
            listener changed its wishes; -1 if none.
        seen_reads: with `until`: reads of the lane that had begun by then. One that begins later
            finds every outcome that was there.
    """

    language: str
    form: Form
    until: int | None = None
    last_open: int = -1
    seen_reads: int = 0


@dataclass(slots=True, eq=False)
class Listener(Generic[Key]):
    """One listener.

    Attributes:
        key: names it to the shell.
        position: it has seen, or does not want, all below this room index.
        live_from: what has a lower room index was said before it came.
        wants_replay: whether the last outcomes of its lane go first; then its position counts.
        legs: what it listens to; the first is current. Never empty.
        is_changing: whether its last leg is about to end, at a room index that is not known yet.
    """

    key: Key
    position: int
    live_from: int
    wants_replay: bool
    legs: deque[Leg]
    is_changing: bool = False

    def take(self, outcomes: Iterable[Outcome]) -> tuple[Item, ...]:
        """Moves its position over outcomes of its lane; returns what it has to get of them."""
        leg = self.legs[0]
        items, self.position = items_between(outcomes, leg.language, self.position, leg.until)
        return items

    def change(self, language: str, form: Form, next_index: int, last_open: int) -> None:
        """Ends its last leg at a room index, and adds another one."""
        left = self.legs[-1]
        if len(self.legs) > 1 and self.legs[-2].until == next_index:
            # Nothing was said since its last change.
            self.legs.pop()
        last = self.legs[-1]
        last.until = next_index
        if last.language == language:
            # What is open in this lane comes before anything that it wants in another form.
            last.last_open = next_index
        elif last.language == left.language:
            last.last_open = last_open
        self.legs.append(Leg(language, form))

    def is_over(self) -> bool:
        """Whether its position is beyond its leg."""
        until = self.legs[0].until
        return until is not None and self.position >= until

    def next_leg(self) -> None:
        """Begins its next leg, because it has all of the current one."""
        leg = self.legs.popleft()
        assert leg.until is not None
        self.position = max(self.position, leg.until)


def items_between(
    outcomes: Iterable[Outcome], language: str, start: int, until: int | None = None
) -> tuple[tuple[Item, ...], int]:
    """The outcomes of a lane with start <= room index < until, with gaps between them.

    Args:
        outcomes: in order, without a hole except for those that are no longer kept.
        language: of the lane.
        start: the first room index.
        until: the end; None if there is none.

    Returns:
        The items, and the first room index that may follow.
    """
    at, items = start, list[Item]()
    for outcome in outcomes:
        index, previous = outcome.index, outcome.previous
        if index < at:
            continue
        end = index if until is None else min(index, until)
        lost_until = 0 if previous is None else min(previous + 1, end)
        if lost_until > at:
            items.append(Gap(language, at, lost_until))
        if end == until:
            return tuple(items), end
        items.append(outcome)
        at = index + 1
    return tuple(items), at


@dataclass(slots=True, eq=False)
class CatchUp(Generic[Key]):
    """Listeners that are behind their lane, all at the same position, and read on together."""

    start: int
    with_audio: bool
    listeners: dict[Key, Listener[Key]] = field(default_factory=dict)
    is_reading: bool = False


class Lane(Generic[Key]):
    """A lane that somebody listens to. Each listener is in one of its groups.

    Attributes:
        language: of all outcomes.
        cursor: all outcomes below this room index were read; None: where the lane ends is not
            known yet.
        recent: the last outcomes below the cursor, for those who join.
        waiting: listeners until the end of the lane is known.
        held: listeners that get nothing, until it is known where their leg ends.
        catching_up: listeners below the cursor.
        together: by form, listeners at the cursor, which get whatever is read.
        apart: listeners at the cursor or above, which get something else than the others: not yet,
            as replayed, or no longer.
        is_reading, is_stale: whether a read is under way, and whether there may be more to read.
        reads_begun, reads_complete: how many reads from the cursor on were begun; the last of them
            that read all there was.
    """

    def __init__(self, language: str, most_recent: int) -> None:
        self.language = language
        self.cursor: int | None = None
        self.recent: deque[Outcome] = deque(maxlen=most_recent)
        self.waiting: dict[Key, Listener[Key]] = {}
        self.held: dict[Key, Listener[Key]] = {}
        self.catching_up: dict[tuple[int, bool], CatchUp[Key]] = {}
        self.together: dict[Form, dict[Key, Listener[Key]]] = {}
        self.apart: dict[Key, Listener[Key]] = {}
        self.is_reading = False
        self.is_stale = True
        self.reads_begun = 0
        self.reads_complete = 0

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return any(True for _ in self.listeners())

    def listeners(self) -> Iterator[Listener[Key]]:
        """All listeners."""
        yield from self.waiting.values()
        yield from self.held.values()
        yield from self.apart.values()
        for group in self.together.values():
            yield from group.values()
        for catch_up in self.catching_up.values():
            yield from catch_up.listeners.values()

    def wants_audio(self) -> bool:
        """Whether somebody who gets what is read from the cursor on wants more than captions."""
        if any(form & AUDIO for form in self.together):
            return True
        return any(listener.legs[0].form & AUDIO for listener in self.apart.values())

    def place(self, listener: Listener[Key]) -> None:
        """Puts a listener at the cursor, or above, into its group."""
        cursor, leg = self.cursor, listener.legs[0]
        assert cursor is not None
        if leg.until is None and max(listener.position, listener.live_from) <= cursor:
            self.together.setdefault(leg.form, {})[listener.key] = listener
        else:
            self.apart[listener.key] = listener

    def take_out(self, listener: Listener[Key]) -> None:
        """Takes a listener out of its group."""
        key, leg = listener.key, listener.legs[0]
        for some in (self.waiting, self.held, self.apart):
            if some.pop(key, None):
                return
        group = self.together.get(leg.form, {})
        if group.pop(key, None):
            if not group:
                del self.together[leg.form]
            # While it was together with the others, only the cursor moved.
            listener.position = max(listener.position, self.cursor or 0)
            return
        for catch_up in self.catching_up.values():
            if catch_up.listeners.pop(key, None):
                if not catch_up.listeners and not catch_up.is_reading:
                    self.forget(catch_up)
                return

    def forget(self, catch_up: CatchUp[Key]) -> None:
        """Forgets a group of listeners that were behind."""
        self.catching_up.pop((catch_up.start, catch_up.with_audio), None)

    def has_all(self, listener: Listener[Key]) -> bool:
        """Whether a listener at the cursor has all outcomes of a leg that has ended."""
        cursor, leg = self.cursor, listener.legs[0]
        if leg.until is None or cursor is None:
            return False
        if max(listener.position, cursor) >= leg.until:
            return True
        return cursor > leg.last_open and self.reads_complete > leg.seen_reads

    def advance(self, outcomes: Sequence[Outcome]) -> None:
        """Moves the cursor over outcomes that were read."""
        self.recent.extend(outcome.silent() for outcome in outcomes)
        if outcomes:
            self.cursor = outcomes[-1].index + 1
