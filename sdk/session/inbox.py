"""What waits for the app to read it: a lane for `events()`, and one for `results()`."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from lingua_scheduler.sdk.session.events import Event, Missing, Outcome, PartialText, Result

# Of a lane that nobody reads while the other one is read, the newest are kept: so many, and so much
# speech in them.
UNREAD_EVENTS = 256
UNREAD_BYTES = 8 * 1024 * 1024

_E = TypeVar("_E", bound=Event)


@dataclass(slots=True)
class _Waiting(Generic[_E]):
    event: _E


class Lane(Generic[_E]):
    """Events in order, for one reader. Readers that share it get each event once among them.

    A partial text that waits is replaced by a newer one of its utterance.

    Attributes:
        is_read: whether anybody has asked for it.
        dropped: events that went because nobody had asked for them.
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
        """One more."""
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
        """Forgets the oldest: nobody reads them."""
        while len(self._waiting) > UNREAD_EVENTS or self._bytes > UNREAD_BYTES:
            self._pop()
            self.dropped += 1

    def end(self, error: Exception | None) -> None:
        """Nothing more comes; with an error, readers are told after the last event."""
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    async def read(self) -> AsyncIterator[_E]:
        """What waits and what comes, until the end."""
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
    """Both lanes. Neither loses anything that its reader should have.

    A lane that is read keeps everything until it is read. So does one that is not, as long as the
    other is not read either. But an app that reads only one of them must not fill its memory with
    the other: that one keeps the newest only.
    """

    def __init__(self) -> None:
        self.events: Lane[Event] = Lane()
        self.results: Lane[Outcome] = Lane()

    def put(self, event: Event) -> None:
        """Something has happened."""
        self.events.put(event)
        if isinstance(event, Result | Missing):
            self.results.put(event)
        if self.results.is_read and not self.events.is_read:
            self.events.trim()
        if self.events.is_read and not self.results.is_read:
            self.results.trim()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes."""
        self.events.end(error)
        self.results.end(error)


def _size(event: Event) -> int:
    return len(event.speech) if isinstance(event, Result) else 0
