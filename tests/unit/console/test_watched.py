"""Documents that are watched or asked for, many at once."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from lingua_scheduler.services.console.http.watched import MAX_ASKED, WatchedDocuments
from lingua_scheduler.services.runtime.errors import BackpressureError


class Counted:
    """Documents that note in which pass of the event loop each was computed."""

    def __init__(self) -> None:
        self.passes = 0
        self.computed: list[int] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        self.computed.append(self.passes)
        await self.may_end.wait()
        return {"path": path, **query}

    async def count(self) -> None:
        while True:
            self.passes += 1
            await asyncio.sleep(0)


def watched_of(documents: Counted) -> WatchedDocuments:
    clock = asyncio.get_running_loop().time
    return WatchedDocuments(documents, instance_id="console-1", clock=clock)


async def test_others_are_served_between_any_two_documents() -> None:
    documents = Counted()
    watched = watched_of(documents)

    async def read(number: int) -> None:
        async with watched.read("nodes", (("search", str(number)),)) as document:
            while not document.version:
                await document.changed()

    async def ask(number: int) -> None:
        assert await watched.get("jobs", (("search", str(number)),))

    counting = asyncio.create_task(documents.count())
    try:
        async with asyncio.timeout(10):
            await asyncio.gather(*map(read, range(50)), *map(ask, range(50)))
    finally:
        counting.cancel()
    assert len(documents.computed) == 100
    assert len(set(documents.computed)) == 100


async def test_only_so_many_are_computed_at_once_for_single_requests() -> None:
    documents = Counted()
    documents.may_end.clear()
    watched = watched_of(documents)
    asked = [
        asyncio.create_task(watched.get("jobs", (("search", str(number)),)))
        for number in range(MAX_ASKED)
    ]
    # All have begun, and wait for their turns.
    await asyncio.sleep(0)
    with pytest.raises(BackpressureError):
        await watched.get("jobs", ())
    documents.may_end.set()
    await asyncio.gather(*asked)
    assert await watched.get("jobs", ()) == b'{"path":"jobs"}'


async def test_a_document_that_is_watched_is_not_computed_again_for_a_request() -> None:
    documents = Counted()
    watched = watched_of(documents)
    async with watched.read("nodes", ()) as document:
        while not document.version:
            await document.changed()
        assert await watched.get("nodes", ()) == document.whole
    assert len(documents.computed) == 1
