"""Computations on the event loop: one at a time, and how long each keeps the loop."""

import asyncio
import time
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Turns:
    """Lets one computation begin in each pass of the event loop.

    Many that are due at once would otherwise run one after the other within a single pass, and no
    request would be answered in the meantime.
    """

    def __init__(self) -> None:
        self._queue = asyncio.Lock()

    async def next(self) -> None:
        """Returns when it is the caller's turn, in the order of the calls."""
        async with self._queue:
            # The next one in the queue wakes up one pass later.
            await asyncio.sleep(0)


class Measured(Generic[Result]):
    """Runs a coroutine when it is awaited, and measures how long it keeps the event loop.

    Args:
        work: the coroutine.
    """

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = work
        self.busy_s = 0.0
        """Seconds that it has computed, without those that it has waited."""

    def __await__(self) -> Generator[Any, None, Result]:
        error: BaseException | None = None
        while True:
            began = time.perf_counter()
            try:
                awaited = self._work.send(None) if error is None else self._work.throw(error)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                self.busy_s += time.perf_counter() - began
            error = None
            try:
                yield awaited
            except BaseException as raised:
                # Such as a cancellation, which is for the work.
                error = raised
