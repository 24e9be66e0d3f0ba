"""The HTTP requests of the web entry: each is refused, answered, or becomes a client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from aiohttp import web

from lingua_scheduler.services.runtime.auth.expiry import until_expiry
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.auth.principals import Principal
from lingua_scheduler.services.runtime.auth.refusals import Refusals
from lingua_scheduler.services.runtime.errors import (
    BackpressureError,
    DependencyDownError,
    DrainingError,
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
from lingua_scheduler.services.runtime.web.access import Hosts, Origins
from lingua_scheduler.services.runtime.web.connections import Connections, connection_of
from lingua_scheduler.services.runtime.web.credentials import WebCredentials
from lingua_scheduler.services.runtime.web.page_files import PageFile
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.metrics import WebMetrics
from lingua_scheduler.services.session_gateway.web.client import (
    ClientLeftError,
    Socket,
    WebClient,
)
from lingua_scheduler.services.session_gateway.web.close_codes import (
    DONE,
    GO_AWAY,
    INTERNAL,
    SILENT,
    close_code,
    error_frame,
)
from lingua_scheduler.services.session_gateway.web.languages import Languages
from lingua_scheduler.services.session_gateway.web.subprotocols import (
    PROTOCOL,
    offered_tokens,
    subprotocols,
)
from lingua_scheduler.v1 import session_pb2

_CONVERSE = f"{session_pb2.DESCRIPTOR.services_by_name['SessionGateway'].full_name}/Converse"
_HEALTH = "/healthz"
# As nginx counts them.
_CLIENT_LEFT = 499
# Of every response that does not say otherwise. Nothing may be kept, or taken for something else.
_HEADERS = {
    "Cache-Control": "no-store",
    "Server": "lingua-scheduler",
    "X-Content-Type-Options": "nosniff",
}
# Of every response to a page of another origin that may use this entry.
_CORS = {
    "Access-Control-Allow-Headers": "authorization",
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Max-Age": "600",
    "Vary": "Origin",
}

_log = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """What is served at a path."""

    handler: Handler
    label: str
    """Its name in metrics."""
    methods: tuple[str, ...] = ("GET",)


class WebEntry:
    """Handles requests, and serves clients with `sessions`.

    Args:
        settings: of the gateway.
        sessions: of the gateway, whatever their transport.
        languages: that nodes offer.
        connections: counts those of this entry.
        guard: decides who may call; None if everyone may.
        refusals: counts those that may not.
        metrics: of this entry.
        page: the files of the talk page, by path; none if it is off.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        sessions: Sessions,
        languages: Languages,
        connections: Connections,
        guard: Guard | None,
        refusals: Refusals,
        metrics: WebMetrics,
        page: Mapping[str, PageFile],
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._connections = connections
        self._guard = guard
        self._refusals = refusals
        self._metrics = metrics
        self._hosts = Hosts(settings.web_hosts)
        self._origins = Origins(settings.web_origins)
        self._languages = languages
        handlers = {
            "/v1/converse": self._converse,
            "/v1/languages": self._list_languages,
            _HEALTH: self._health,
        }
        self._routes = {
            **{
                path: Route(partial(_send, file), "page", ("GET", "HEAD"))
                for path, file in page.items()
            },
            **{path: Route(handler, path) for path, handler in handlers.items()},
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_serving = False
        """Whether Redis is up."""
        self.is_draining = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request."""
        connection_of(request).unread_bytes = 0
        route = self._routes.get(request.path)
        path = route.label if route is not None else "other"
        try:
            response = await self._answer(request, route)
        except HttpRefusal as refusal:
            response = refusal.response()
        except ConnectionError as error:
            _without_frames(error)
            response = web.Response(status=_CLIENT_LEFT)  # nobody reads it
        except Exception as error:
            failure = internal_error(self._settings.instance_id)
            facts = {"error_id": failure.metadata["error_id"], "path": path}
            _log.error("web request failed", exc_info=error, extra=facts)
            response = HttpRefusal.of(failure).response()
        self._metrics.requests.labels(path, str(response.status)).inc()
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            origin = request.headers.get("Origin")
            if origin is not None and self._origins.accepts(
                origin, request.headers.get("Host", "")
            ):
                response.headers.update(_CORS, **{"Access-Control-Allow-Origin": origin})
        return response

    async def close(self) -> None:
        """Ends all connections; their sessions can be resumed elsewhere."""
        for task in self._tasks:
            task.cancel()
        await all_ended(list(self._tasks))

    # ---- requests ----

    async def _answer(self, request: web.BaseRequest, route: Route | None) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        # Load balancers ask for health, by whatever name, and have to get an answer.
        is_probe = request.path == _HEALTH
        if not is_probe and not self._hosts.accepts(host):
            raise HttpRefusal(
                403,
                "WRONG_HOST",
                f"this server is not called {host[:100]!r}: use its address, or add the name to "
                "LINGUA_WEB_HOSTS",
            )
        origin = request.headers.get("Origin")
        if not self._origins.accepts(origin, host):
            raise HttpRefusal(
                403,
                "WRONG_ORIGIN",
                f"pages of {str(origin)[:100]!r} may not use this server: see LINGUA_WEB_ORIGINS",
            )
        problem = self._connections.problem(connection_of(request).address)
        if problem and not is_probe:
            raise HttpRefusal.of(BackpressureError(problem))
        if route is None:
            is_off = request.path == "/"
            why = (
                "the talk page is off: see LINGUA_TALK_PAGE"
                if is_off
                else "nothing is at this path"
            )
            raise HttpRefusal(404, "NOT_FOUND", why)
        if request.method == "OPTIONS":
            allowed = ", ".join((*route.methods, "OPTIONS"))
            return web.Response(status=204, headers={"Allow": allowed})
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            raise HttpRefusal(
                405, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}", headers={"Allow": allowed}
            )
        return await route.handler(request)

    async def _health(self, _: web.BaseRequest) -> web.StreamResponse:
        serving = self.is_serving and not self.is_draining
        status = {"status": "SERVING" if serving else "NOT_SERVING"}
        return web.json_response(status, status=200 if serving else 503)

    async def _list_languages(self, request: web.BaseRequest) -> web.StreamResponse:
        self._admit(request, [])
        try:
            body = await self._languages.body()
        except DependencyDownError as error:
            raise HttpRefusal.of(error) from None
        return web.Response(text=body, content_type="application/json")

    def _admit(self, request: web.BaseRequest, tokens: list[str]) -> Principal | None:
        """Admits a request as a call of Converse. Raises HttpRefusal."""
        headers = [*request.headers.getall("Authorization", ())]
        given = [*headers, *(f"Bearer {token}" for token in tokens)]
        if len(given) > 1:
            raise HttpRefusal.of(
                InvalidMessageError("more than one token: send it in one header or subprotocol")
            )
        if self._guard is None:
            return None
        certificate = request.get_extra_info("peercert")
        credentials = WebCredentials(given[0] if given else None, certificate)
        try:
            return self._guard.admit(_CONVERSE, credentials)
        except (UnauthenticatedError, PermissionDeniedError) as error:
            self._refusals.note(_CONVERSE, error)
            raise HttpRefusal.of(error) from None

    # ---- conversations ----

    async def _converse(self, request: web.BaseRequest) -> web.StreamResponse:
        is_upgrade = request.headers.get("Upgrade", "").lower() == "websocket"
        headers = request.headers.getall("Sec-WebSocket-Protocol", ())
        if len(headers) > 1:
            # aiohttp would read the first only, and write it to the log.
            what = "more than one Sec-WebSocket-Protocol header: list all subprotocols in one"
            raise HttpRefusal.of(InvalidMessageError(what))
        offered = subprotocols(headers)
        if is_upgrade and PROTOCOL not in offered:
            raise HttpRefusal.of(
                InvalidMessageError(f"the client has to offer the subprotocol {PROTOCOL!r}")
            )
        principal = self._admit(request, offered_tokens(offered))
        if self.is_draining:
            raise HttpRefusal.of(DrainingError("this gateway is draining; connect to another one"))
        if not self.is_serving:
            raise HttpRefusal.of(DependencyDownError("Redis is not available"))
        if not is_upgrade:
            # Last: a browser does not tell its page why an upgrade was refused, but the page can
            # ask here, with the same checks.
            raise HttpRefusal(
                426,
                "UPGRADE_REQUIRED",
                "this is a WebSocket: connect with ws:// or wss://",
                headers={"Upgrade": "websocket"},
            )
        socket = Socket(PROTOCOL)
        if not _is_handshake(socket, request):
            raise HttpRefusal.of(InvalidMessageError("the request is not a WebSocket handshake"))
        socket.headers.update(_HEADERS)
        await socket.prepare(request)
        client = WebClient(
            socket,
            connection_of(request),
            settings=self._settings,
            traceparent=request.headers.get("traceparent", ""),
        )
        await self._serve(client, principal)
        _without_frames(socket.exception())
        return socket

    async def _serve(self, client: WebClient, principal: Principal | None) -> None:
        """Serves a client until it leaves or its session ends, and closes its connection."""
        conversation = self._sessions.converse(client, client)
        task = asyncio.create_task(until_expiry(principal, conversation))
        self._tasks.add(task)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
            await all_ended([task])
            self._tasks.discard(task)
        ended = self._end(task, client)
        if not task.cancelled():
            _without_frames(task.exception())
        await client.close(*ended)
        self._metrics.closed.labels(str(client.close_code)).inc()

    def _end(self, task: asyncio.Task[None], client: WebClient) -> tuple[int, str, str]:
        """How to close a connection: the code, a word, and a frame to send first."""
        if task.cancelled():
            return GO_AWAY, "GO_AWAY", ""
        error = task.exception()
        if error is None:
            return DONE, "CLOSED", ""
        if isinstance(error, ClientLeftError | ConnectionError):
            return DONE, "", ""
        if isinstance(error, InvalidMessageError) and not client.has_spoken:
            return SILENT, "NO_OPEN", ""
        if isinstance(error, UnauthenticatedError | PermissionDeniedError):
            self._refusals.note(_CONVERSE, error)
        if not isinstance(error, LinguaError):
            failure = internal_error(self._settings.instance_id)
            facts = {"error_id": failure.metadata["error_id"], "error": type(error).__name__}
            _log.error("web session failed", exc_info=error, extra=facts)
            return INTERNAL, "INTERNAL", error_frame(to_proto(failure))
        # The session tells its client of all errors but this one.
        expired = isinstance(error, UnauthenticatedError)
        frame = error_frame(to_proto(error)) if expired else ""
        return close_code(error), reason_name(error.reason), frame


async def _send(file: PageFile, request: web.BaseRequest) -> web.StreamResponse:
    return file.response(request)


def _is_handshake(socket: Socket, request: web.BaseRequest) -> bool:
    if request.can_read_body:
        return False
    try:
        return socket.can_prepare(request).ok
    except ValueError:
        # aiohttp decodes the key, and quotes bad headers, without regard for bytes beyond ASCII.
        return False


def _without_frames(error: BaseException | None) -> None:
    """Lets go of the frames in which an error was raised.

    They refer to tasks and sockets that keep the error. Without this, every connection would be a
    reference cycle, which the garbage collector rarely looks for (see service_process).
    """
    if error is not None:
        error.__traceback__ = error.__context__ = error.__cause__ = None
