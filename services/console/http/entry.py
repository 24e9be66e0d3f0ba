"""The HTTP requests of the console: each is refused or answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from aiohttp import web

from lingua_scheduler.services.console.http.actions import ActionRequests
from lingua_scheduler.services.console.http.backend import Backend
from lingua_scheduler.services.console.http.event_streams import CONTENT_TYPE, EventStreams
from lingua_scheduler.services.console.http.requests import json_body, query_of, text_field
from lingua_scheduler.services.console.http.routes import Kind, Route, route_of
from lingua_scheduler.services.console.http.viewers import Viewer, Viewers
from lingua_scheduler.services.console.http.watched import WatchedDocuments
from lingua_scheduler.services.console.metrics import ConsoleMetrics
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.errors import (
    BackpressureError,
    LinguaError,
    internal_error,
)
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.web.access import Hosts, Origins
from lingua_scheduler.services.runtime.web.connections import Connections, connection_of
from lingua_scheduler.services.runtime.web.page_files import PageFile
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

# As nginx counts them.
_CLIENT_LEFT = 499
# Longer than any token; longer ones are refused by what they are for.
_MAX_TOKEN_CHARS = 16 * 1024
# Of every response that does not say otherwise. Nothing may be kept, framed, or taken for
# something else.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "lingua-scheduler",
    "X-Content-Type-Options": "nosniff",
}

_log = logging.getLogger(__name__)


class ConsoleEntry:
    """Answers requests.

    Args:
        settings: of the console.
        version: of this program.
        backend: the documents and actions.
        guard: knows callers; None if auth is off.
        connections: counts those of this entry.
        page: the files of the pages, by path.
        metrics: of the console.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        version: str,
        backend: Backend,
        guard: Guard | None,
        connections: Connections,
        page: Mapping[str, PageFile],
        metrics: ConsoleMetrics,
    ) -> None:
        self._settings = settings
        self._version = version
        self._backend = backend
        self._connections = connections
        self._page = page
        self._metrics = metrics
        self._hosts = Hosts(settings.console_hosts)
        self._origins = Origins("")
        self._viewers = Viewers(guard, is_secure=bool(settings.tls_cert_file))
        self._watched = WatchedDocuments(
            backend.documents,
            instance_id=settings.instance_id,
            clock=asyncio.get_running_loop().time,
        )
        self._streams = EventStreams(self._watched, most=settings.console_viewers_max)
        self._actions = ActionRequests(
            backend.actions, self._viewers, metrics, instance_id=settings.instance_id
        )
        self._is_draining = False
        self._under_way = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        metrics.connections.set_function(lambda: connections.count)
        metrics.viewers.set_function(lambda: self._streams.count)
        metrics.watched.set_function(lambda: len(self._watched))

    def drain(self) -> None:
        """Tells probes to send no more viewers, and ends all event streams."""
        self._is_draining = True
        self._streams.drain()

    async def idle(self) -> None:
        """Returns when no request is under way."""
        await self._is_idle.wait()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request."""
        self._under_way += 1
        self._is_idle.clear()
        try:
            return await self._handle(request)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._is_idle.set()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection_of(request).unread_bytes = 0
        route = route_of(request.raw_path.partition("?")[0])
        try:
            response = await self._answer(request, route)
        except HttpRefusal as refusal:
            response = refusal.response(within="error")
        except ConnectionError:
            response = web.Response(status=_CLIENT_LEFT)  # nobody reads it
        except Exception as error:
            failure = internal_error(self._settings.instance_id)
            facts = {"error_id": failure.metadata["error_id"], "path": route.label}
            _log.error("console request failed", exc_info=error, extra=facts)
            response = HttpRefusal.of(failure).response(within="error")
        self._metrics.requests.labels(route.label, str(response.status)).inc()
        if not response.prepared:
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    async def handle_probe(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers a request at the address for probes, which has nothing but health."""
        route = route_of(request.raw_path.partition("?")[0])
        if route.kind is not Kind.HEALTH or request.method not in route.methods:
            return HttpRefusal(404, "NOT_FOUND", "only /healthz is here").response(within="error")
        return self._health()

    # ---- checks of every request ----

    async def _answer(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        if route.kind is Kind.HEALTH and request.method in route.methods:
            # Load balancers ask for health, by whatever name, and have to get an answer.
            return self._health()
        self._check_site(request, route)
        if problem := self._connections.problem(connection_of(request).address):
            raise HttpRefusal.of(BackpressureError(problem))
        if route.kind is Kind.NOTHING:
            raise HttpRefusal(404, "NOT_FOUND", "nothing is at this path")
        if request.method not in route.methods:
            allowed = ", ".join(route.methods)
            raise HttpRefusal(
                405, "METHOD_NOT_ALLOWED", f"allowed here: {allowed}", headers={"Allow": allowed}
            )
        return await self._serve(request, route)

    def _check_site(self, request: web.BaseRequest, route: Route) -> None:
        """Refuses requests by a wrong name, and those that pages of other sites make."""
        host = request.headers.get("Host", "")
        if not self._hosts.accepts(host):
            raise HttpRefusal(
                403,
                "WRONG_HOST",
                f"this server is not called {host[:100]!r}: use its address, or add the name to "
                f"{variable_name('console_hosts')}",
            )
        origin = request.headers.get("Origin")
        if not self._origins.accepts(origin, host):
            raise HttpRefusal(
                403, "WRONG_ORIGIN", f"pages of {str(origin)[:100]!r} may not use this server"
            )
        # Links from other sites to a view are fine: the page then asks for its data by itself.
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        if site not in ("same-origin", "none") and route.kind is not Kind.VIEW:
            raise HttpRefusal(403, "WRONG_ORIGIN", "pages of other sites may not use this server")

    # ---- what is served ----

    async def _serve(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        match route.kind:
            case Kind.VIEW:
                return self._page["/"].response(request)
            case Kind.FILE:
                return self._file(request)
            case Kind.SIGN_IN:
                return await self._sign_in(request)
            case Kind.SIGN_OUT:
                return self._viewers.sign_out(request)
            case Kind.ACTION:
                return await self._actions.act(request, route)
            case Kind.ME:
                return web.json_response(self._me(self._viewers.viewer(request)))
            case _:
                return await self._document(request, route)

    def _health(self) -> web.Response:
        status = "NOT_SERVING" if self._is_draining else "SERVING"
        body = {"status": status, "stale": sorted(self._backend.stale())}
        return web.json_response(body, status=503 if self._is_draining else 200)

    def _file(self, request: web.BaseRequest) -> web.Response:
        file = self._page.get(request.path)
        if file is None:
            raise HttpRefusal(404, "NOT_FOUND", "nothing is at this path")
        return file.response(request)

    async def _sign_in(self, request: web.BaseRequest) -> web.Response:
        body = await json_body(request)
        token = text_field(body, "token", most=_MAX_TOKEN_CHARS).strip()
        address = connection_of(request).address
        try:
            viewer, response = self._viewers.sign_in(request, token)
        except HttpRefusal as refusal:
            facts = {"address": address, "reason": refusal.reason}
            _log.warning("sign-in refused", extra=facts)
            raise
        facts = {"address": address, "by": viewer.name, "role": str(viewer.role)}
        _log.info("signed in", extra=facts)
        return response

    def _me(self, viewer: Viewer) -> dict[str, Any]:
        settings = self._settings
        links = {"grafana": settings.console_grafana_url, "trace": settings.console_trace_url}
        me: dict[str, Any] = {
            "name": viewer.name,
            "role": str(viewer.role),
            "may_act": viewer.may_act,
            "auth": self._viewers.has_auth,
            "csrf": self._viewers.csrf(viewer),
            "version": self._version,
            "instance": settings.instance_id,
            "links": {name: url for name, url in links.items() if url},
        }
        if viewer.expires_s is not None:
            me["expires_ms"] = int(viewer.expires_s * 1000)
        return me

    async def _document(self, request: web.BaseRequest, route: Route) -> web.StreamResponse:
        viewer = self._viewers.viewer(request)
        query = query_of(request)
        if CONTENT_TYPE in request.headers.get("Accept", ""):
            return await self._streams.serve(
                request,
                route.path,
                query,
                address=connection_of(request).address,
                viewer=viewer,
                is_valid=partial(self._viewers.is_still_valid, request, viewer),
                headers=_HEADERS,
            )
        try:
            body = await self._watched.get(route.path, query)
        except LinguaError as error:
            raise HttpRefusal.of(error) from None
        return web.Response(body=body, content_type="application/json")
