"""The data side of a console that follows real services."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from lingua_scheduler.services.console.documents.backend import Backend
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.process import environment

# Instances announce themselves every 2 s, and machines may be busy.
WITHIN_S = 30.0

Document = dict[str, Any]


class Console:
    """Documents and actions of a running console."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.actions = backend.actions

    async def get(self, path: str, **query: str) -> Document:
        """A document."""
        return await self.backend.documents.get(path, query)

    async def until(
        self, path: str, condition: Callable[[Document], object], **query: str
    ) -> Document:
        """Returns a document once it meets a condition."""
        deadline = time.monotonic() + WITHIN_S
        while not condition(document := await self.get(path, **query)):
            assert time.monotonic() < deadline, document
            await asyncio.sleep(0.05)
        return document


@contextlib.asynccontextmanager
async def following(**settings: object) -> AsyncIterator[Console]:
    """A console that follows the services at the addresses in these settings."""
    own = load_settings(environment(**settings))
    backend = Backend.of(own, trace_template="https://traces.example.com/{trace_id}")
    running = asyncio.create_task(backend.run())
    try:
        yield Console(backend)
        assert not running.done(), running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await backend.close()
