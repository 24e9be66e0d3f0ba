"""Documents as server-sent events: the whole document first, then what changes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from lingua_scheduler.services.console.http.requests import Query
from lingua_scheduler.services.console.http.viewers import Viewer
from lingua_scheduler.services.console.http.watched import Watched, WatchedDocuments, to_json
from lingua_scheduler.services.runtime.errors import (
    BackpressureError,
    DrainingError,
    LinguaError,
    UnauthenticatedError,
    reason_name,
)
from lingua_scheduler.services.runtime.web.connections import connection_of
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

CONTENT_TYPE = "text/event-stream"
# Seconds between two ticks, which tell a reader that the stream is alive, and how old it is.
TICK_S = 5.0
# Seconds that the first version of a document may take.
_FIRST_WITHIN_S = 15.0
_UNAUTHENTICATED = UnauthenticatedError("the token has expired").reason
_DRAINING = DrainingError("").reason


class EventStreams:
    """The streams of all readers, limited in all and by address.

    A reader that is slower than a document changes gets the newest version as a whole, so nothing
    queues up for it. One that reads nothing at all is disconnected by its connection.

    Args:
        watched: the documents.
        most: streams at once; one address may have half of them.
    """

    def __init__(self, watched: WatchedDocuments, *, most: int) -> None:
        self._watched = watched
        self._most = most
        self._by_address: Counter[str] = Counter()
        self._draining = asyncio.Event()

    @property
    def count(self) -> int:
        """Open streams."""
        return self._by_address.total()

    def drain(self) -> None:
        """Ends all streams."""
        self._draining.set()

    async def serve(
        self,
        request: web.BaseRequest,
        path: str,
        query: Query,
        *,
        address: str,
        viewer: Viewer,
        is_valid: Callable[[], bool],
        headers: dict[str, str],
    ) -> web.StreamResponse:
        """Streams a document until its reader leaves or it ends.

        Args:
            request: of the reader.
            path: of the document.
            query: of the document.
            address: of the reader.
            viewer: the reader.
            is_valid: whether the reader may still look.
            headers: of the response.

        Raises:
            HttpRefusal: there is no such document, or there are too many streams.
        """
        self._admit(address)
        self._by_address[address] += 1
        try:
            async with self._watched.read(path, query) as watched:
                await self._first(watched)
                reader = _Reader(watched, viewer, is_valid, self._draining)
                return await reader.serve(request, headers)
        except LinguaError as error:
            raise HttpRefusal.of(error) from None
        finally:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _admit(self, address: str) -> None:
        if self._draining.is_set():
            raise HttpRefusal.of(DrainingError("this console is draining"))
        if self.count >= self._most:
            raise HttpRefusal.of(BackpressureError("too many documents are watched"))
        if self._by_address[address] >= max(1, self._most // 2):
            raise HttpRefusal.of(
                BackpressureError("too many documents are watched from this address")
            )

    async def _first(self, watched: Watched) -> None:
        """Waits for the first version; raises the error if there is none."""
        try:
            async with asyncio.timeout(_FIRST_WITHIN_S):
                while not watched.version and watched.ended is None:
                    await watched.changed()
        except TimeoutError:
            raise BackpressureError("the document was not computed in time") from None
        if watched.ended is not None:
            raise watched.ended


class _Reader:
    """One stream."""

    def __init__(
        self,
        watched: Watched,
        viewer: Viewer,
        is_valid: Callable[[], bool],
        draining: asyncio.Event,
    ) -> None:
        self._watched = watched
        self._viewer = viewer
        self._is_valid = is_valid
        self._draining = draining
        self._seen = 0
        self._problem = b""

    async def serve(self, request: web.BaseRequest, headers: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers={**headers, "Content-Type": CONTENT_TYPE})
        # Proxies would keep events back to fill their buffers.
        response.headers["X-Accel-Buffering"] = "no"
        await response.prepare(request)
        lost = connection_of(request).lost
        leaving = asyncio.create_task(lost.wait())
        draining = asyncio.create_task(self._draining.wait())
        tick_at = time.monotonic() + TICK_S
        try:
            while True:
                # Before anything is awaited, so that no change in between is missed.
                changing = asyncio.create_task(self._watched.changed())
                try:
                    if lost.is_set():
                        raise ConnectionResetError("the reader has left")
                    if parts := self._news():
                        await response.write(b"".join(parts))
                    if reason := self._end():
                        await response.write(event("end", to_json({"reason": reason})))
                        return response
                    if time.monotonic() >= tick_at:
                        tick_at = time.monotonic() + TICK_S
                        now_ms = int(time.time() * 1000)
                        await response.write(event("tick", to_json({"now_ms": now_ms})))
                    if self._is_current():
                        await asyncio.wait(
                            (changing, draining, leaving),
                            timeout=self._wait_s(tick_at),
                            return_when=asyncio.FIRST_COMPLETED,
                        )
                finally:
                    changing.cancel()
        finally:
            leaving.cancel()
            draining.cancel()

    def _is_current(self) -> bool:
        watched = self._watched
        return self._seen == watched.version and self._problem == watched.problem

    def _news(self) -> list[bytes]:
        """What the reader does not know yet."""
        watched = self._watched
        parts = []
        if watched.version == self._seen + 1 and self._seen:
            parts.append(event("patch", watched.patch))
        elif watched.version != self._seen:
            parts.append(event("document", watched.whole))
        if watched.problem != self._problem:
            parts.append(event("problem", watched.problem or b"{}"))
        self._seen, self._problem = watched.version, watched.problem
        return parts

    def _end(self) -> str:
        """Why the stream ends; empty if it goes on."""
        if self._draining.is_set():
            return reason_name(_DRAINING)
        expires_s = self._viewer.expires_s
        if (expires_s is not None and time.time() >= expires_s) or not self._is_valid():
            return reason_name(_UNAUTHENTICATED)
        ended = self._watched.ended
        return reason_name(ended.reason) if ended is not None else ""

    def _wait_s(self, tick_at: float) -> float:
        wait_s = tick_at - time.monotonic()
        if self._viewer.expires_s is not None:
            wait_s = min(wait_s, self._viewer.expires_s - time.time())
        return max(0.0, wait_s)


def event(name: str, data: bytes) -> bytes:
    """A server-sent event; its data is on one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
