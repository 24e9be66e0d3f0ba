"""Queues what the app has yet to read: one queue for `events()`, and one for `results()`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingua_scheduler.sdk.session.events import Event, Missing, Outcome, PartialText, Result

# A queue that is not read, while the other one is, keeps only its newest events: at most this many,
# with at most this much speech.
UNREAD_EVENTS = 256
UNREAD_BYTES = 8 * 1024 * 1024

_E = TypeVar("_E", bound=Event)


@dataclass(slots=True)
class _Waiting(Generic[_E]):
    event: _E


class EventQueue(Generic[_E]):
    """Events in order, for one reader. If several readers share it, each event goes to one of them.

    A waiting partial text is replaced by a newer one of its utterance.

    Attributes:
        is_read: whether the app has asked for this queue.
        dropped: how many events were dropped because it had not.
    """

    def __init__(self) -> None:
        self.is_read = False
        self.dropped = 0
        self._waiting: deque[_Waiting[_E]] = deque()
        self._partials: dict[int, _Waiting[_E]] = {}
        self._bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    def put(self, event: _E) -> None:
        """Adds an event."""
        if isinstance(event, PartialText):
            waiting = self._partials.get(event.index)
            if waiting is not None:
                waiting.event = event
                return
        waiting = _Waiting(event)
        if isinstance(event, PartialText):
            self._partials[event.index] = waiting
        self._waiting.append(waiting)
        self._bytes += _size(event)
        self._changed.set()

    def trim(self) -> None:
        """Drops the oldest events beyond the limits."""
        while len(self._waiting) > UNREAD_EVENTS or self._bytes > UNREAD_BYTES:
            self._pop()
            self.dropped += 1

    def end(self, error: Exception | None) -> None:
        """Ends the queue. Readers get the error, if any, after the last event."""
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    async def read(self) -> AsyncIterator[_E]:
        """Yields events until the end."""
        while True:
            while self._waiting:
                yield self._pop()
            if self._ended:
                if self._error is not None:
                    raise self._error
                return
            self._changed.clear()
            await self._changed.wait()

    def _pop(self) -> _E:
        event = self._waiting.popleft().event
        self._bytes -= _size(event)
        if isinstance(event, PartialText):
            del self._partials[event.index]
        return event


class Inbox:
    """Both queues.

    A queue that the app has asked for keeps every event until it is read, and so do both if the app
    has asked for neither. If it has asked for only one, the other keeps only its newest events, so
    that it does not fill the memory.
    """

    def __init__(self) -> None:
        self.events: EventQueue[Event] = EventQueue()
        self.results: EventQueue[Outcome] = EventQueue()

    def put(self, event: Event) -> None:
        """Adds an event to the queues that have it."""
        self.events.put(event)
        if isinstance(event, Result | Missing):
            self.results.put(event)
        if self.results.is_read and not self.events.is_read:
            self.events.trim()
        if self.events.is_read and not self.results.is_read:
            self.results.trim()

    def end(self, error: Exception | None = None) -> None:
        """Ends both queues."""
        self.events.end(error)
        self.results.end(error)


def _size(event: Event) -> int:
    return len(event.speech) if isinstance(event, Result) else 0
