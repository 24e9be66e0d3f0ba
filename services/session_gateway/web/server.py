"""The server of the web entry: where it listens, and how it ends."""

from __future__ import annotations

import logging
import ssl

from aiohttp import web

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.hosted_service import Runtime
from lingua_scheduler.services.runtime.rpc.tls import ServerTls
from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.metrics import WebMetrics
from lingua_scheduler.services.session_gateway.web.connections import (
    Connections,
    connection_factory,
)
from lingua_scheduler.services.session_gateway.web.direct_queue import is_usable
from lingua_scheduler.services.session_gateway.web.entry import WebEntry
from lingua_scheduler.services.session_gateway.web.languages import Languages
from lingua_scheduler.services.session_gateway.web.listener import Listener
from lingua_scheduler.services.session_gateway.web.talk_page import page_files

# Seconds that connections have to end.
_SHUTDOWN_WITHIN_S = 2.0

_log = logging.getLogger(__name__)


class WebServer:
    """The web entry of a gateway; does nothing if `gateway_web_listen` is empty.

    It follows Redis by itself, and serves from `start` to `close`.

    Args:
        runtime: of the process.
        sessions: of the gateway.

    Raises:
        SettingsError: the talk page is on, and its files are not there.
    """

    def __init__(self, runtime: Runtime, sessions: Sessions) -> None:
        settings = runtime.settings
        self._listen = settings.gateway_web_listen
        self._tls = runtime.tls
        self._connections = Connections(
            most=settings.web_connections_max,
            most_of_address=settings.web_connections_per_address,
        )
        metrics = WebMetrics(runtime.registry)
        metrics.connections.set_function(lambda: self._connections.count)
        self._entry = WebEntry(
            settings=settings,
            sessions=sessions,
            languages=Languages(link=runtime.link, settings=settings),
            connections=self._connections,
            guard=runtime.guard,
            refusals=runtime.refusals,
            metrics=metrics,
            page=page_files() if self._listen and settings.talk_page else {},
        )
        self.address = ""
        """Where it listens; empty before `start`, and if it is off."""
        self._http: web.Server | None = None
        self._listener: Listener | None = None
        runtime.link.on_change.append(lambda up, _: self._set_serving(up))

    async def start(self) -> None:
        """Starts to listen; does nothing if it does already.

        Raises:
            SettingsError: the address cannot be bound.
        """
        if not self._listen or self._listener is not None:
            return
        host, port = split_address(self._listen)
        self._http = web.Server(self._entry.handle)
        listener = Listener(
            connections=self._connections,
            new_connection=connection_factory(self._http, self._connections),
            tls=_changing_context(self._tls) if self._tls is not None else None,
        )
        try:
            bound = await listener.start(host, port)
        except OSError as error:
            raise SettingsError(
                f"{variable_name('gateway_web_listen')}={self._listen!r}: cannot listen there: "
                f"{error.strerror or error}; set another address, or an empty one for no web entry"
            ) from error
        self._listener = listener
        self.address = join_address(host, bound)
        if not is_usable():
            _log.warning("direct frames unavailable")
        _log.info("listening for web", extra={"address": self.address})

    def drain(self) -> None:
        """Accepts no more clients. Those that are connected are served on."""
        self._entry.is_draining = True

    async def close(self) -> None:
        """Ends all connections."""
        if self._listener is None or self._http is None:
            return
        await self._listener.close()
        await self._entry.close()
        self._http.pre_shutdown()
        await self._http.shutdown(_SHUTDOWN_WITHIN_S)

    def _set_serving(self, serving: bool) -> None:
        self._entry.is_serving = serving


def _changing_context(tls: ServerTls) -> ssl.SSLContext:
    """A context that uses, for each connection, the certificates that are in the files then."""
    first = tls.context()

    def use_current(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = tls.context()

    first.sni_callback = use_current
    return first
