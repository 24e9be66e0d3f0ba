"""Sessions, read while somebody asks for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.v1 import session_pb2

# How many sessions are read at most, and how old a list may be.
MAX_SESSIONS = 2000
LIST_EVERY_S = 5.0
_PAGE = 500
# An empty page may be followed by others; this bounds the calls for one list. So does the time: a
# gateway that needs seconds for a page makes a partial list, not readers who wait.
_MAX_PAGES = 40
_SESSION_S = 2.0
_KEPT_SESSIONS = 500


@dataclass(frozen=True, slots=True)
class SessionList:
    """The sessions that were read, and whether there are more."""

    sessions: Sequence[session_pb2.Session] = ()
    is_partial: bool = False


class SessionReads:
    """Reads sessions of all gateways: a list for all who look, or one.

    Args:
        calls: makes the calls.
        problems: get a problem of "sessions" while gateways cannot be asked.
    """

    def __init__(self, *, calls: ServiceCalls, problems: Problems) -> None:
        self._calls = calls
        self._problems = problems
        self._list = SessionList()
        self._listed_at: float | None = None
        self._reading = asyncio.Lock()
        self._sessions = Kept(self._get, keep_s=lambda _: _SESSION_S, most=_KEPT_SESSIONS)

    async def list(self) -> SessionList:
        """All sessions, as they were at most 5 s ago; an older list if gateways do not answer."""
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._listed_at is None or now - self._listed_at >= LIST_EVERY_S:
                self._listed_at = now
                try:
                    self._list = await self._read_all()
                    self._problems.solved("sessions")
                except LinguaError as error:
                    self._problems.found("sessions", error)
            return self._list

    def listed(self) -> SessionList:
        """The list that was read last; reads nothing."""
        return self._list

    async def get(self, session_id: str) -> session_pb2.Session:
        """One session, with its turns. Raises LinguaError."""
        return await self._sessions.get(session_id)

    async def _get(self, session_id: str) -> session_pb2.Session:
        request = session_pb2.GetSessionRequest(session_id=session_id)
        response = await self._calls.call("gateway", "GetSession", request)
        session: session_pb2.Session = response.session
        return session

    async def _read_all(self) -> SessionList:
        found: dict[str, session_pb2.Session] = {}
        request = session_pb2.ListSessionsRequest(page_size=_PAGE)
        loop = asyncio.get_running_loop()
        until = loop.time() + LIST_EVERY_S
        for _ in range(_MAX_PAGES):
            page = await self._calls.call("gateway", "ListSessions", request)
            found.update((each.session_id, each) for each in page.sessions)
            request.page_token = page.next_page_token
            if not request.page_token or len(found) >= MAX_SESSIONS or loop.time() >= until:
                break
        sessions = list(found.values())
        is_partial = bool(request.page_token) or len(sessions) > MAX_SESSIONS
        return SessionList(sessions[:MAX_SESSIONS], is_partial)
