"""Queues what the app of a listener has yet to read: one queue for utterances, one for all events.

A room does not wait for a slow listener, so both queues are bounded. If the app reads too slowly,
the oldest utterances are dropped, and the app gets one `NotSaid` in their place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from lingua_scheduler.sdk.room.events import Heard, NotSaid, RoomEvent, Said

# What a queue keeps for an app that reads it: some hours of captions, or half an hour of speech.
MAX_UNREAD = 10_000
MAX_UNREAD_BYTES = 64 * 1024 * 1024
# What a queue keeps that the app does not read, while it reads the other one.
MAX_ASIDE = 256
MAX_ASIDE_BYTES = 8 * 1024 * 1024

_E = TypeVar("_E", bound=RoomEvent)


class RoomQueue(Generic[_E]):
    """Events in order, for one reader. If several readers share it, each event goes to one of them.

    Attributes:
        is_read: whether the app has asked for this queue.
    """

    def __init__(self) -> None:
        self.is_read = False
        self._waiting: deque[_E | NotSaid] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None

    def put(self, event: _E) -> None:
        """Adds an event."""
        self._waiting.append(event)
        self._bytes += _size(event)
        self._changed.set()

    def trim(self, most: int, most_bytes: int) -> None:
        """Drops the oldest events beyond the limits, and says which utterances were dropped."""
        dropped: list[Heard] = []
        # One less, for what says that others were dropped. The newest event always stays.
        while len(self._waiting) > 1 and (
            len(self._waiting) + bool(dropped) > most or self._bytes > most_bytes
        ):
            event = self._pop()
            if isinstance(event, Said | NotSaid):
                dropped.append(event)
        if dropped:
            self._waiting.appendleft(_not_read(dropped))

    def end(self, error: Exception | None) -> None:
        """Ends the queue. Readers get the error, if any, after the last event."""
        if not self._ended:
            self._ended, self._error = True, error
            self._changed.set()

    async def read(self) -> AsyncIterator[_E | NotSaid]:
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

    def _pop(self) -> _E | NotSaid:
        event = self._waiting.popleft()
        self._bytes -= _size(event)
        return event


class Inbox:
    """Both queues."""

    def __init__(self) -> None:
        self.events: RoomQueue[RoomEvent] = RoomQueue()
        self.heard: RoomQueue[Heard] = RoomQueue()

    def put(self, event: RoomEvent) -> None:
        """Adds an event to the queues that have it."""
        self.events.put(event)
        if isinstance(event, Said | NotSaid):
            self.heard.put(event)
        _bound(self.events, aside=self.heard.is_read and not self.events.is_read)
        _bound(self.heard, aside=self.events.is_read and not self.heard.is_read)

    def end(self, error: Exception | None = None) -> None:
        """Ends both queues."""
        self.events.end(error)
        self.heard.end(error)


def _bound(queue: RoomQueue[_E], *, aside: bool) -> None:
    if aside:
        queue.trim(MAX_ASIDE, MAX_ASIDE_BYTES)
    else:
        queue.trim(MAX_UNREAD, MAX_UNREAD_BYTES)


def _not_read(dropped: list[Heard]) -> NotSaid:
    first, last = dropped[0], dropped[-1]
    return NotSaid(
        room_index=first.room_index,
        until_index=last.until_index if isinstance(last, NotSaid) else last.room_index + 1,
        language=last.language,
        reason="NOT_READ",
        message="the app reads too slowly, so the oldest utterances were dropped",
    )


def _size(event: RoomEvent) -> int:
    return len(event.speech) + len(event.original_audio) if isinstance(event, Said) else 0
