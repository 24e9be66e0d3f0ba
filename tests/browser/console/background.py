"""An event loop in a thread of its own.

Playwright keeps the loop of the main thread running, so nodes, gateways and clients of these tests
live in another one.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

Result = TypeVar("Result")

# The longest step: 10,000 jobs on a busy machine.
WITHIN_S = 120.0


class Background:
    """Runs coroutines. A context manager: at the end, what still runs is cancelled."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result], within: float = WITHIN_S) -> Result:
        """Returns what a coroutine returns."""
        return self.start(work).result(within)

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Returns what a function returns that needs the loop, such as to make a channel."""

        async def work() -> Result:
            return function(*arguments)

        return self.run(work())

    def start(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Lets a coroutine run on."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WITHIN_S)
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)
