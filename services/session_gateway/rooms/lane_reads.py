"""Reads of lanes: what an audience asks its shell for, and what each answer is for. Pure."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic

from lingua_scheduler.services.session_gateway.rooms.lane import CatchUp, Form, Item, Key, Lane

# Outcomes of one read. With audio each may have hundreds of KB.
MOST_CAPTIONS = 100
MOST_WITH_AUDIO = 8


@dataclass(frozen=True, slots=True)
class Read:
    """Read outcomes of a language, and answer with `on_read` or `on_read_failed`.

    Attributes:
        number: names this read in the answer.
        language: of the outcomes.
        start: lower room indexes are left out.
        count: at most so many.
        newest: the last ones, not the first ones.
        with_audio: whether speech and original audio are needed.
        is_own: whether it is for listeners that catch up.
    """

    number: int
    language: str
    start: int
    count: int
    newest: bool
    with_audio: bool
    is_own: bool


@dataclass(frozen=True, slots=True)
class Deliver(Generic[Key]):
    """Send these items, in order, to each of these listeners, in this form."""

    form: Form
    items: tuple[Item, ...]
    listeners: tuple[Key, ...]


Effect = Read | Deliver[Key]


class Purpose(Enum):
    """What a read is for."""

    # To find the end of a lane.
    END = auto()
    # To read on, for all listeners of a lane.
    NEXT = auto()
    # To read on for listeners that are behind.
    CATCH_UP = auto()


@dataclass(frozen=True, slots=True, eq=False)
class Reading(Generic[Key]):
    """A read under way."""

    purpose: Purpose
    lane: Lane[Key]
    count: int
    with_audio: bool
    # Of the lane when it began, and its number among those of the lane.
    cursor: int = 0
    ordinal: int = 0
    catch_up: CatchUp[Key] | None = None


class LaneReads(Generic[Key]):
    """The reads of all lanes that are under way.

    Args:
        effects: where effects are added.
        replayed: how many outcomes a new listener gets first.
    """

    def __init__(self, effects: list["Effect[Key]"], *, replayed: int) -> None:
        self._effects = effects
        self._replayed = replayed
        self._under_way: dict[int, Reading[Key]] = {}
        self._number = 0

    def take(self, number: int) -> Reading[Key]:
        """Ends a read."""
        reading = self._under_way.pop(number)
        if reading.catch_up is not None:
            reading.catch_up.is_reading = False
        else:
            reading.lane.is_reading = False
        return reading

    def read_on(self, lane: Lane[Key]) -> None:
        """Reads a lane, unless a read is under way, or there is nothing to read."""
        if lane.is_reading or not lane.is_stale:
            return
        lane.is_reading, lane.is_stale = True, False
        if lane.cursor is None:
            self._begin(Reading(Purpose.END, lane, max(1, self._replayed), False), start=0)
            return
        lane.reads_begun += 1
        with_audio = lane.wants_audio()
        reading = Reading(
            Purpose.NEXT, lane, _most(with_audio), with_audio, ordinal=lane.reads_begun
        )
        self._begin(reading, start=lane.cursor)

    def read_own(self, lane: Lane[Key], catch_up: CatchUp[Key]) -> None:
        """Reads for listeners that are behind, unless a read is under way."""
        if catch_up.is_reading:
            return
        catch_up.is_reading = True
        assert lane.cursor is not None
        with_audio = catch_up.with_audio
        reading = Reading(
            Purpose.CATCH_UP,
            lane,
            _most(with_audio),
            with_audio,
            cursor=lane.cursor,
            catch_up=catch_up,
        )
        self._begin(reading, start=catch_up.start)

    def _begin(self, reading: Reading[Key], *, start: int) -> None:
        self._number += 1
        self._under_way[self._number] = reading
        self._effects.append(
            Read(
                number=self._number,
                language=reading.lane.language,
                start=start,
                count=reading.count,
                newest=reading.purpose is Purpose.END,
                with_audio=reading.with_audio,
                is_own=reading.catch_up is not None,
            )
        )


def _most(with_audio: bool) -> int:
    return MOST_WITH_AUDIO if with_audio else MOST_CAPTIONS
