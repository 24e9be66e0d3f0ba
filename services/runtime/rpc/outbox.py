"""A bounded queue of events that are to be written to one stream, batched into messages."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from lingua_scheduler.services.runtime.rpc.message_sizes import MAX_BATCH_BYTES

# The most events in one message: receivers accept no more.
MAX_TAKE_EVENTS = 1000
# How long a low-priority event may wait for another one to share a message with.
SHARE_WITHIN_S = 0.02

Event = TypeVar("Event")


class Outbox(Generic[Event]):
    """A queue of events with one consumer.

    Promises:
    - It never holds more than `max_events` events or `max_bytes` bytes.
    - Events come out once each, in the order in which they were put. If room is needed, the oldest
      droppable events are dropped.
    - An event that is not droppable stays, once queued, until it is taken.
    - An event that may wait is taken with the next one that may not, or when its time is over.

    Args:
        max_events: the most events that it holds.
        max_bytes: the most bytes that it holds, by the sizes given to `put`. A larger event is
            never queued.
        max_take_bytes: the most bytes that one `take` returns, unless a single event is larger.
        max_take_events: the most events that one `take` returns.
    """

    def __init__(
        self,
        max_events: int,
        max_bytes: int,
        *,
        max_take_bytes: int = MAX_BATCH_BYTES,
        max_take_events: int = MAX_TAKE_EVENTS,
    ) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_take_bytes = max_take_bytes
        self._max_take_events = max_take_events
        # Events with their sizes and what they replace, by number, oldest first; numbers only grow.
        self._entries: OrderedDict[int, tuple[Event, int, Hashable]] = OrderedDict()
        self._droppable: OrderedDict[int, int] = OrderedDict()
        self._latest: dict[Hashable, int] = {}
        self._bytes = 0
        self._droppable_bytes = 0
        self._next = 0
        self._closed = False
        # Kept from its first use: asking for the running loop is a system call each time.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taker: asyncio.Future[None] | None = None
        # Whether what is queued may be taken now; otherwise when the timer fires.
        self._ready = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self.dropped = 0
        """Droppable events that were not delivered."""

    def __len__(self) -> int:
        """Events that are queued."""
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Their sizes, summed."""
        return self._bytes

    @property
    def closed(self) -> bool:
        """Whether nothing more is queued."""
        return self._closed

    def put(
        self,
        event: Event,
        size: int,
        droppable: bool = False,
        *,
        replaces: Hashable = None,
        within_s: float = 0.0,
    ) -> bool:
        """Queues an event.

        Args:
            event: what to send; not to be changed after this.
            size: its bytes.
            droppable: it may be dropped if room is needed, such as a partial result.
            replaces: for a droppable event: a queued one with the same value is dropped first.
            within_s: how long it may wait to share a message with others; 0: it may not wait.

        Returns:
            False if there is no room even without the droppable events, or the outbox is closed.
            Then nothing was queued and nothing dropped.
        """
        has_room = len(self._entries) < self._max_events and self._bytes + size <= self._max_bytes
        if self._closed or not (has_room or self._can_have_room(size)):
            self.dropped += droppable
            return False
        if droppable and replaces is not None and replaces in self._latest:
            self._drop(self._latest[replaces])
        if not has_room:
            self._make_room(size)
        self._next += 1
        self._entries[self._next] = event, size, replaces if droppable else None
        self._bytes += size
        if droppable:
            self._droppable[self._next] = size
            self._droppable_bytes += size
            if replaces is not None:
                self._latest[replaces] = self._next
        if not within_s:
            self._wake()
        elif not self._ready:
            self._wake_within(within_s)
        return True

    async def take(self) -> list[Event]:
        """Waits for events, and returns all that are ready and fit into one message.

        Returns an empty list when the outbox is closed and everything is taken.

        Raises:
            RuntimeError: another consumer waits.
        """
        if self._taker is not None:
            raise RuntimeError("an outbox has one consumer")
        while not (self._ready and self._entries) and not self._closed:
            # What it was ready for may have been dropped.
            self._ready = False
            self._loop = self._loop or asyncio.get_running_loop()
            self._taker = self._loop.create_future()
            try:
                await self._taker
            finally:
                self._taker = None
        if self._bytes > self._max_take_bytes or len(self._entries) > self._max_take_events:
            return self._take_some()
        events = [event for event, _, _ in self._entries.values()]
        self._entries.clear()
        if self._droppable:
            self._droppable.clear()
            self._latest.clear()
        self._bytes = self._droppable_bytes = 0
        self._ready = False
        return events

    def _take_some(self) -> list[Event]:
        events: list[Event] = []
        room = self._max_take_bytes
        while self._entries and len(events) < self._max_take_events:
            number, (event, size, _) = next(iter(self._entries.items()))
            if events and size > room:
                break
            room -= size
            self._remove(number)
            events.append(event)
        self._ready = bool(self._entries)
        return events

    def close(self) -> None:
        """Queues nothing more; what is queued can still be taken."""
        self._closed = True
        self._wake()

    def _can_have_room(self, size: int) -> bool:
        """Whether there is room without the droppable events."""
        firm_events = len(self._entries) - len(self._droppable)
        firm_bytes = self._bytes - self._droppable_bytes
        return firm_events < self._max_events and firm_bytes + size <= self._max_bytes

    def _make_room(self, size: int) -> None:
        """Drops as many of the oldest droppable events as it takes."""
        while len(self._entries) >= self._max_events or self._bytes + size > self._max_bytes:
            self._drop(next(iter(self._droppable)))

    def _wake_within(self, seconds: float) -> None:
        self._loop = self._loop or asyncio.get_running_loop()
        at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(at, self._wake), at

    def _wake(self) -> None:
        self._ready = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def _drop(self, number: int) -> None:
        self._remove(number)
        self.dropped += 1

    def _remove(self, number: int) -> None:
        _, size, replaces = self._entries.pop(number)
        self._bytes -= size
        self._droppable_bytes -= self._droppable.pop(number, 0)
        if replaces is not None and self._latest.get(replaces) == number:
            del self._latest[replaces]
