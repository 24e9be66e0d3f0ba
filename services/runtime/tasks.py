"""Background tasks of one object: kept alive while they run, and ended with it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks that nobody awaits. The event loop alone would not keep them from being collected."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs work in a task of its own."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self, within_s: float) -> None:
        """Waits until all tasks have ended, but no longer than this."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def cancel(self) -> None:
        """Cancels all tasks, and waits for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
