"""An HTTP server: where it listens, and how it ends."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.rpc.tls import ServerTls
from lingua_scheduler.services.runtime.web.connections import Connections, connection_factory
from lingua_scheduler.services.runtime.web.listener import Listener

# Seconds that connections have to end.
_SHUTDOWN_WITHIN_S = 2.0


class HttpServer:
    """Serves from `start` to `close`.

    Args:
        listen: `host:port`.
        variable: the environment variable that sets `listen`, for error messages.
        hint: what to do if it cannot listen there.
        handle: answers each request.
        connections: counts and limits them.
        tls: of the connections; None for plain text.
    """

    def __init__(
        self,
        *,
        listen: str,
        variable: str,
        hint: str,
        handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        connections: Connections,
        tls: ServerTls | None,
    ) -> None:
        self._listen = listen
        self._variable = variable
        self._hint = hint
        self._handle = handle
        self._connections = connections
        self._tls = tls
        self._running: tuple[web.Server, Listener] | None = None
        self.address = ""
        """Where it listens; empty before `start`."""

    async def start(self) -> None:
        """Starts to listen; does nothing if it does already.

        Raises:
            SettingsError: the address cannot be bound.
        """
        if self._running is not None:
            return
        host, port = split_address(self._listen)
        http = web.Server(self._handle)
        listener = Listener(
            connections=self._connections,
            new_connection=connection_factory(http, self._connections),
            tls=_changing_context(self._tls) if self._tls is not None else None,
        )
        try:
            bound = await listener.start(host, port)
        except OSError as error:
            raise SettingsError(
                f"{self._variable}={self._listen!r}: cannot listen there: "
                f"{error.strerror or error}; {self._hint}"
            ) from error
        self._running = http, listener
        self.address = join_address(host, bound)

    async def stop_accepting(self) -> None:
        """Accepts no more connections."""
        if self._running is not None:
            await self._running[1].close()

    async def close(self) -> None:
        """Ends all connections."""
        if self._running is not None:
            await self.stop_accepting()
            self._running[0].pre_shutdown()
            await self._running[0].shutdown(_SHUTDOWN_WITHIN_S)


def _changing_context(tls: ServerTls) -> ssl.SSLContext:
    """A context that uses, for each connection, the certificates that are in the files then."""
    first = tls.context()

    def use_current(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        connection.context = tls.context()

    first.sni_callback = use_current
    return first
