"""The HTTP requests of the web entry: each is refused, answered, or becomes a client."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from aiohttp import web

from lingua_scheduler.services.runtime.auth.guard import Guard, member_if_any
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
)
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.web.access import Hosts, Origins
from lingua_scheduler.services.runtime.web.connections import Connections, connection_of
from lingua_scheduler.services.runtime.web.credentials import WebCredentials
from lingua_scheduler.services.runtime.web.page_files import PageFile
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.metrics import WebMetrics
from lingua_scheduler.services.session_gateway.rooms.calls import RoomCalls
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.web.client import WebClient
from lingua_scheduler.services.session_gateway.web.languages import Languages
from lingua_scheduler.services.session_gateway.web.listener import WebListener
from lingua_scheduler.services.session_gateway.web.room_calls import (
    RoomCall,
    answered,
    calls_by_path,
)
from lingua_scheduler.services.session_gateway.web.sockets import (
    HEADERS,
    Sockets,
    offered_subprotocols,
    without_frames,
)
from lingua_scheduler.services.session_gateway.web.subprotocols import offered_tokens
from lingua_scheduler.v1 import session_pb2

_GATEWAY = session_pb2.DESCRIPTOR.services_by_name["SessionGateway"].full_name
_CONVERSE, _LISTEN = f"{_GATEWAY}/Converse", f"{_GATEWAY}/Listen"
_HEALTH = "/healthz"
# As nginx counts them.
_CLIENT_LEFT = 499
# Of every response to a page of another origin that may use this entry.
_CORS = {
    "Access-Control-Allow-Headers": "authorization, content-type",
    "Access-Control-Allow-Methods": "GET, POST",
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
        rooms: with listeners of this gateway, whatever their transport.
        room_calls: the calls about rooms.
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
        rooms: Rooms,
        room_calls: RoomCalls,
        languages: Languages,
        connections: Connections,
        guard: Guard | None,
        refusals: Refusals,
        metrics: WebMetrics,
        page: Mapping[str, PageFile],
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._rooms = rooms
        self._connections = connections
        self._guard = guard
        self._refusals = refusals
        self._metrics = metrics
        self._hosts = Hosts(settings.web_hosts)
        self._origins = Origins(settings.web_origins)
        self._languages = languages
        handlers = {
            "/v1/converse": self._converse,
            "/v1/listen": self._listen,
            "/v1/languages": self._list_languages,
            _HEALTH: self._health,
        }
        self._routes = {
            **{
                path: Route(partial(_send, file), "page", ("GET", "HEAD"))
                for path, file in page.items()
            },
            **{path: Route(handler, path) for path, handler in handlers.items()},
            **{
                path: Route(partial(self._call_room, call), path, ("POST",))
                for path, call in calls_by_path(room_calls).items()
            },
        }
        self._sockets = Sockets(settings=settings, refusals=refusals, metrics=metrics)
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
            without_frames(error)
            response = web.Response(status=_CLIENT_LEFT)  # nobody reads it
        except Exception as error:
            failure = internal_error(self._settings.instance_id)
            facts = {"error_id": failure.metadata["error_id"], "path": path}
            _log.error("web request failed", exc_info=error, extra=facts)
            response = HttpRefusal.of(failure).response()
        self._metrics.requests.labels(path, str(response.status)).inc()
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            origin = request.headers.get("Origin")
            if origin is not None and self._origins.accepts(
                origin, request.headers.get("Host", "")
            ):
                response.headers.update(_CORS, **{"Access-Control-Allow-Origin": origin})
        return response

    async def close(self) -> None:
        """Ends all connections; what they were for can be resumed elsewhere."""
        await self._sockets.close()

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
        self._admit(request, _CONVERSE)
        try:
            body = await self._languages.body()
        except DependencyDownError as error:
            raise HttpRefusal.of(error) from None
        return web.Response(text=body, content_type="application/json")

    def _admit(
        self, request: web.BaseRequest, method: str, tokens: Sequence[str] = ()
    ) -> Principal | None:
        """Admits a request as a call of a method of gRPC. Raises HttpRefusal."""
        headers = [*request.headers.getall("Authorization", ())]
        given = [*headers, *(f"Bearer {token}" for token in tokens)]
        if len(given) > 1:
            raise HttpRefusal.of(
                InvalidMessageError("more than one token: send it in one header or subprotocol")
            )
        certificate = request.get_extra_info("peercert")
        credentials = WebCredentials(given[0] if given else None, certificate)
        try:
            if self._guard is not None:
                return self._guard.admit(method, credentials)
            return member_if_any(credentials)
        except (UnauthenticatedError, PermissionDeniedError) as error:
            self._refusals.note(method, error)
            raise HttpRefusal.of(error) from None

    # ---- WebSockets ----

    async def _converse(self, request: web.BaseRequest) -> web.StreamResponse:
        principal = self._admit_socket(request, _CONVERSE)
        peer = await self._sockets.open(request)
        client = WebClient(peer, traceparent=request.headers.get("traceparent", ""))
        work = self._sessions.converse(client, client)
        try:
            return await self._sockets.serve(peer, work, method=_CONVERSE, principal=principal)
        finally:
            client.let_go()

    async def _listen(self, request: web.BaseRequest) -> web.StreamResponse:
        principal = self._admit_socket(request, _LISTEN)
        peer = await self._sockets.open(request)
        listener = WebListener(peer)
        work = self._rooms.listen(listener, listener)
        return await self._sockets.serve(peer, work, method=_LISTEN, principal=principal)

    def _admit_socket(self, request: web.BaseRequest, method: str) -> Principal | None:
        """Admits a request for a WebSocket, or whether it would be one. Raises HttpRefusal."""
        offered = offered_subprotocols(request)
        principal = self._admit(request, method, offered_tokens(offered))
        if self.is_draining:
            raise HttpRefusal.of(DrainingError("this gateway is draining; connect to another one"))
        if not self.is_serving:
            raise HttpRefusal.of(DependencyDownError("Redis is not available"))
        return principal

    # ---- rooms ----

    async def _call_room(self, call: RoomCall, request: web.BaseRequest) -> web.StreamResponse:
        method = f"{_GATEWAY}/{call.name}"
        self._admit(request, method)
        try:
            return await answered(call, request)
        except LinguaError as error:
            if isinstance(error, PermissionDeniedError):
                self._refusals.note(method, error)
            raise HttpRefusal.of(error) from None


async def _send(file: PageFile, request: web.BaseRequest) -> web.StreamResponse:
    return file.response(request)
