"""Events of a stream that no test has taken yet."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from tests.support.process import SOON_S

Event = TypeVar("Event")


class Inbox(Generic[Event]):
    """Events in the order in which they came; a test takes them out."""

    def __init__(self, whose: str) -> None:
        self.waiting: list[Event] = []
        self.ended = asyncio.Event()
        self._whose = whose
        self._came = asyncio.Event()

    def put(self, events: Iterable[Event]) -> None:
        """Adds events."""
        self.waiting.extend(events)
        self._came.set()

    async def take(self, wanted: Callable[[Event], bool], within: float = SOON_S) -> Event:
        """Waits for the first wanted event, and takes it out; all others stay."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    for event in self.waiting:
                        if wanted(event):
                            self.waiting.remove(event)
                            return event
                    self._came.clear()
                    await self._came.wait()
        raise AssertionError(f"{self._whose}: not within {within} s; it has {self.waiting}")
