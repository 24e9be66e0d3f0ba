"""WebSockets of the web entry: from the handshake to the close frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from lingua_scheduler.services.runtime.auth.expiry import until_expiry
from lingua_scheduler.services.runtime.auth.principals import Principal
from lingua_scheduler.services.runtime.auth.refusals import Refusals
from lingua_scheduler.services.runtime.errors import (
    InvalidMessageError,
    LinguaError,
    PermissionDeniedError,
    UnauthenticatedError,
    internal_error,
    reason_name,
    to_proto,
)
from lingua_scheduler.services.runtime.rpc.duplex import all_ended
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal
from lingua_scheduler.services.session_gateway.metrics import WebMetrics
from lingua_scheduler.services.session_gateway.web.close_codes import (
    DONE,
    GO_AWAY,
    INTERNAL,
    SILENT,
    close_code,
    error_frame,
)
from lingua_scheduler.services.session_gateway.web.peer import ClientLeftError, Socket, WebPeer
from lingua_scheduler.services.session_gateway.web.subprotocols import PROTOCOL, subprotocols

HEADERS = {
    "Cache-Control": "no-store",
    "Server": "lingua-scheduler",
    "X-Content-Type-Options": "nosniff",
}
"""Of all responses, unless they say otherwise. Nothing may be kept, or taken for something else."""

_log = logging.getLogger(__name__)


class Sockets:
    """All WebSockets of the web entry.

    Args:
        settings: of the gateway.
        refusals: counts clients that may not do what they ask for.
        metrics: of the web entry.
    """

    def __init__(self, *, settings: Settings, refusals: Refusals, metrics: WebMetrics) -> None:
        self._settings = settings
        self._refusals = refusals
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Ends all connections; what they were for can be resumed elsewhere."""
        for task in self._tasks:
            task.cancel()
        await all_ended(list(self._tasks))

    async def open(self, request: web.BaseRequest) -> WebPeer:
        """Upgrades a request that is a handshake.

        Raises:
            HttpRefusal: it is none.
            ConnectionError: the client has left.
        """
        if not is_upgrade(request):
            # A browser does not tell its page why an upgrade was refused, but the page can ask
            # here, with the same checks.
            raise HttpRefusal(
                426,
                "UPGRADE_REQUIRED",
                "this is a WebSocket: connect with ws:// or wss://",
                headers={"Upgrade": "websocket"},
            )
        socket = Socket(PROTOCOL)
        if not _is_handshake(socket, request):
            raise HttpRefusal.of(InvalidMessageError("the request is not a WebSocket handshake"))
        socket.headers.update(HEADERS)
        await socket.prepare(request)
        return WebPeer(socket, request, self._settings)

    async def serve(
        self,
        peer: WebPeer,
        work: Coroutine[Any, Any, None],
        *,
        method: str,
        principal: Principal | None,
    ) -> web.StreamResponse:
        """Serves a client until it leaves or its work ends, and closes its connection.

        Args:
            peer: the client.
            work: serves it.
            method: of gRPC that does the same, for logs.
            principal: the client, until its token expires.
        """
        task = asyncio.create_task(until_expiry(principal, work))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            await all_ended([task])
            self._tasks.discard(task)
        ended = self._end(task, peer, method)
        if not task.cancelled():
            without_frames(task.exception())
        await peer.close(*ended)
        self._metrics.closed.labels(str(peer.close_code)).inc()
        without_frames(peer.socket.exception())
        return peer.socket

    def _end(self, task: asyncio.Task[None], peer: WebPeer, method: str) -> tuple[int, str, str]:
        """How to close a connection: the code, a word, and a frame to send first."""
        if task.cancelled():
            return GO_AWAY, "GO_AWAY", ""
        error = task.exception()
        if error is None:
            return DONE, "CLOSED", ""
        if isinstance(error, ClientLeftError | ConnectionError):
            return DONE, "", ""
        if isinstance(error, InvalidMessageError) and not peer.has_spoken:
            return SILENT, "NO_OPEN", ""
        if isinstance(error, UnauthenticatedError | PermissionDeniedError):
            self._refusals.note(method, error)
        if not isinstance(error, LinguaError):
            failure = internal_error(self._settings.instance_id)
            facts = {"error_id": failure.metadata["error_id"], "error": type(error).__name__}
            _log.error("web session failed", exc_info=error, extra=facts)
            return INTERNAL, "INTERNAL", error_frame(to_proto(failure))
        # The client has been told of all errors but this one.
        expired = isinstance(error, UnauthenticatedError)
        frame = error_frame(to_proto(error)) if expired else ""
        return close_code(error), reason_name(error.reason), frame


def is_upgrade(request: web.BaseRequest) -> bool:
    """Whether a request is for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def offered_subprotocols(request: web.BaseRequest) -> list[str]:
    """The subprotocols that a client offers, tokens included.

    Raises:
        HttpRefusal: they are not as they have to be.
    """
    headers = request.headers.getall("Sec-WebSocket-Protocol", ())
    if len(headers) > 1:
        # aiohttp would read the first only, and write it to the log.
        what = "more than one Sec-WebSocket-Protocol header: list all subprotocols in one"
        raise HttpRefusal.of(InvalidMessageError(what))
    offered = subprotocols(headers)
    if is_upgrade(request) and PROTOCOL not in offered:
        raise HttpRefusal.of(
            InvalidMessageError(f"the client has to offer the subprotocol {PROTOCOL!r}")
        )
    return offered


def without_frames(error: BaseException | None) -> None:
    """Lets go of the frames in which an error was raised.

    They refer to tasks and sockets that keep the error. Without this, every connection would be a
    reference cycle, which the garbage collector rarely looks for (see service_process).
    """
    if error is not None:
        error.__traceback__ = error.__context__ = error.__cause__ = None


def _is_handshake(socket: Socket, request: web.BaseRequest) -> bool:
    if request.can_read_body:
        return False
    try:
        return socket.can_prepare(request).ok
    except ValueError:
        # aiohttp decodes the key, and quotes bad headers, without regard for bytes beyond ASCII.
        return False
