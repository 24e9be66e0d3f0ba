"""Documents that are watched: each is computed once for all its readers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from lingua_scheduler.services.console.http.backend import Documents
from lingua_scheduler.services.console.http.due import next_due
from lingua_scheduler.services.console.http.merge_patch import diff
from lingua_scheduler.services.console.http.requests import Query
from lingua_scheduler.services.console.http.turns import Measured, Turns
from lingua_scheduler.services.runtime.errors import (
    BackpressureError,
    DependencyDownError,
    LinguaError,
    internal_error,
    reason_name,
)

# Distinct documents that are watched at once.
MAX_WATCHED = 500
# Documents that are computed at once for requests that do not watch them.
MAX_ASKED = 64

_log = logging.getLogger(__name__)

Key = tuple[str, Query]


class Watched:
    """One document, computed again and again while anyone reads it.

    Attributes:
        version: counts its changes; 0 before it was computed.
        whole: the document, as JSON; empty before it was computed.
        patch: what changed from the version before to this one, as JSON.
        problem: why the last computation failed, as JSON; empty if it did not.
        ended: the error after which it is computed no more; None if it is.
        cost_s: how long the last computation kept the event loop.
    """

    def __init__(self, path: str, query: Query) -> None:
        self.path = path
        self.query = query
        self.readers = 0
        self.version = 0
        self.whole = b""
        self.patch = b""
        self.problem = b""
        self.ended: LinguaError | None = None
        self.cost_s = 0.0
        self._document: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def changed(self) -> Coroutine[Any, Any, bool]:
        """Returns after the next change of any attribute from this call on, awaited or not."""
        return self._changed.wait()

    def set(self, document: dict[str, Any]) -> None:
        """It was computed."""
        patch = diff(self._document, document)
        if not self.version or patch:
            self.version += 1
            self._document = document
            self.whole, self.patch = to_json(document), to_json(patch)
            self._wake()
        if self.problem:
            self.problem = b""
            self._wake()

    def fail(self, error: LinguaError) -> None:
        """It could not be computed; the last version stays."""
        is_passing = isinstance(error, DependencyDownError) or not _is_final(error)
        if self.version and is_passing:
            problem = to_json({"reason": reason_name(error.reason), "message": error.message})
            if problem != self.problem:
                self.problem = problem
                self._wake()
            return
        self.ended = error
        self._wake()

    def _wake(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()


class WatchedDocuments:
    """All documents that are watched.

    Args:
        documents: computes them.
        instance_id: of this process, for errors.
        clock: the time, in seconds of the event loop's clock.
    """

    def __init__(
        self, documents: Documents, *, instance_id: str, clock: Callable[[], float]
    ) -> None:
        self._documents = documents
        self._instance_id = instance_id
        self._clock = clock
        self._watched: dict[Key, tuple[Watched, asyncio.Task[None]]] = {}
        self._turns = Turns()
        self._asked = 0

    def __len__(self) -> int:
        """How many documents are watched."""
        return len(self._watched)

    async def get(self, path: str, query: Query) -> bytes:
        """A document for one request: as its readers have it, or else as of now.

        Raises:
            LinguaError: it could not be computed; BackpressureError if too many are.
        """
        if body := self._current(path, query):
            return body
        if self._asked >= MAX_ASKED:
            raise BackpressureError(f"more than {MAX_ASKED} documents are computed")
        self._asked += 1
        try:
            await self._turns.next()
            return to_json(await self._compute(path, query))
        finally:
            self._asked -= 1

    async def _compute(self, path: str, query: Query) -> dict[str, Any]:
        try:
            return await self._documents.get(path, dict(query))
        except LinguaError:
            raise
        except Exception as error:
            failure = internal_error(self._instance_id)
            facts = {"error_id": failure.metadata["error_id"], "path": path}
            _log.error("document failed", exc_info=error, extra=facts)
            raise failure from error

    @asynccontextmanager
    async def read(self, path: str, query: Query) -> AsyncIterator[Watched]:
        """A document that is kept up to date within this block.

        Raises:
            BackpressureError: too many are watched.
        """
        key = path, query
        if key not in self._watched:
            if len(self._watched) >= MAX_WATCHED:
                raise BackpressureError(f"more than {MAX_WATCHED} documents are watched")
            made = Watched(path, query)
            self._watched[key] = made, asyncio.create_task(self._keep(made))
        watched, task = self._watched[key]
        watched.readers += 1
        try:
            yield watched
        finally:
            watched.readers -= 1
            if not watched.readers:
                task.cancel()
                self._forget(key, watched)

    def _current(self, path: str, query: Query) -> bytes:
        """A document as it was computed for its readers; empty if it has none."""
        found = self._watched.get((path, query))
        return found[0].whole if found and not found[0].problem else b""

    async def _keep(self, watched: Watched) -> None:
        while watched.ended is None:
            await self._turns.next()
            began = self._clock()
            work = Measured(self._update(watched))
            await work
            ended, watched.cost_s = self._clock(), work.busy_s
            total_s = sum(each.cost_s for each, _ in self._watched.values())
            due = next_due(began, ended, cost_s=watched.cost_s, total_s=total_s)
            await asyncio.sleep(due - ended)
        # The next reader makes a new one.
        self._forget((watched.path, watched.query), watched)

    async def _update(self, watched: Watched) -> None:
        try:
            watched.set(await self._compute(watched.path, watched.query))
        except LinguaError as error:
            watched.fail(error)
        except ValueError as error:
            _log.error("document has null", extra={"path": watched.path, "why": str(error)})
            watched.fail(internal_error(self._instance_id))

    def _forget(self, key: Key, watched: Watched) -> None:
        if key in self._watched and self._watched[key][0] is watched:
            del self._watched[key]


def to_json(value: object) -> bytes:
    """Compact JSON on one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _is_final(error: LinguaError) -> bool:
    """Whether an error says that there is no such document, rather than that it failed now."""
    return error.code.name in ("NOT_FOUND", "INVALID_ARGUMENT", "PERMISSION_DENIED")
