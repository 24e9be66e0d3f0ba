"""The HTTP server of the console: where it listens, and how it ends."""

import asyncio

from lingua_scheduler.services.console.http.backend import Backend
from lingua_scheduler.services.console.http.entry import ConsoleEntry
from lingua_scheduler.services.console.http.page import page_files
from lingua_scheduler.services.console.metrics import ConsoleMetrics
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.rpc.tls import ServerTls
from lingua_scheduler.services.runtime.settings.settings import Settings, variable_name
from lingua_scheduler.services.runtime.web.connections import Connections
from lingua_scheduler.services.runtime.web.server import HttpServer

# Connections for each document that may be watched: browsers open up to six to a server.
_CONNECTIONS_PER_VIEWER = 6
# Connections of probes; there are few.
_PROBE_CONNECTIONS = 64


class ConsoleServer:
    """Serves from `start` to `end`.

    Args:
        settings: of the console.
        version: of this program.
        backend: the documents and actions.
        guard: knows callers; None if auth is off.
        tls: of browsers' connections; None for plain text.
        metrics: of the console.

    Raises:
        SettingsError: the files of the pages are not there.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        version: str,
        backend: Backend,
        guard: Guard | None,
        tls: ServerTls | None,
        metrics: ConsoleMetrics,
    ) -> None:
        most = settings.console_viewers_max * _CONNECTIONS_PER_VIEWER
        connections = Connections(server="console", most=most, most_of_address=most // 2)
        self._entry = ConsoleEntry(
            settings=settings,
            version=version,
            backend=backend,
            guard=guard,
            connections=connections,
            page=page_files(),
            metrics=metrics,
        )
        self._http = HttpServer(
            listen=settings.console_listen,
            variable=variable_name("console_listen"),
            hint="set another address",
            handle=self._entry.handle,
            connections=connections,
            tls=tls,
        )
        self._probes: HttpServer | None = None
        if settings.console_health_listen:
            self._probes = HttpServer(
                listen=settings.console_health_listen,
                variable=variable_name("console_health_listen"),
                hint="set another address, or an empty one for none",
                handle=self._entry.handle_probe,
                connections=Connections(
                    server="console", most=_PROBE_CONNECTIONS, most_of_address=0
                ),
                tls=None,
            )

    @property
    def address(self) -> str:
        """Where it listens; empty before `start`."""
        return self._http.address

    @property
    def health_address(self) -> str:
        """Where it answers probes besides; empty if it does not."""
        return self._probes.address if self._probes is not None else ""

    async def start(self) -> None:
        """Starts to listen.

        Raises:
            SettingsError: an address cannot be bound.
        """
        await self._http.start()
        if self._probes is not None:
            await self._probes.start()

    async def end(self, within_s: float) -> None:
        """Ends event streams, waits for other requests, and closes all connections."""
        self._entry.drain()
        await self._http.stop_accepting()
        try:
            async with asyncio.timeout(within_s):
                await self._entry.idle()
        except TimeoutError:
            pass
        await self._http.close()
        if self._probes is not None:
            await self._probes.close()
