"""The server of the web entry: where it listens, and how it ends."""

import logging

from lingua_scheduler.services.runtime.hosted_service import Runtime
from lingua_scheduler.services.runtime.settings.settings import variable_name
from lingua_scheduler.services.runtime.web.connections import Connections
from lingua_scheduler.services.runtime.web.server import HttpServer
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.metrics import WebMetrics
from lingua_scheduler.services.session_gateway.rooms.calls import RoomCalls
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.web.direct_queue import is_usable
from lingua_scheduler.services.session_gateway.web.entry import WebEntry
from lingua_scheduler.services.session_gateway.web.languages import Languages
from lingua_scheduler.services.session_gateway.web.talk_page import page_files

_log = logging.getLogger(__name__)


class WebServer:
    """The web entry of a gateway; does nothing if `gateway_web_listen` is empty.

    It follows Redis by itself, and serves from `start` to `close`.

    Args:
        runtime: of the process.
        sessions: of the gateway.
        rooms: of the gateway.
        room_calls: the calls about rooms.

    Raises:
        SettingsError: the talk page is on, and its files are not there.
    """

    def __init__(
        self, runtime: Runtime, *, sessions: Sessions, rooms: Rooms, room_calls: RoomCalls
    ) -> None:
        settings = runtime.settings
        self._listen = settings.gateway_web_listen
        connections = Connections(
            server="gateway",
            most=settings.web_connections_max,
            most_of_address=settings.web_connections_per_address,
        )
        metrics = WebMetrics(runtime.registry)
        metrics.connections.set_function(lambda: connections.count)
        self._entry = WebEntry(
            settings=settings,
            sessions=sessions,
            rooms=rooms,
            room_calls=room_calls,
            languages=Languages(cells=runtime.cells),
            connections=connections,
            guard=runtime.guard,
            refusals=runtime.refusals,
            metrics=metrics,
            page=page_files() if self._listen and settings.talk_page else {},
        )
        self._http = HttpServer(
            listen=self._listen,
            variable=variable_name("gateway_web_listen"),
            hint="set another address, or an empty one for no web entry",
            handle=self._entry.handle,
            connections=connections,
            tls=runtime.tls,
        )
        runtime.cells.on_change(lambda *_: self._set_serving(runtime.cells.up))

    @property
    def address(self) -> str:
        """Where it listens; empty before `start`, and if it is off."""
        return self._http.address

    async def start(self) -> None:
        """Starts to listen; does nothing if it does already.

        Raises:
            SettingsError: the address cannot be bound.
        """
        if not self._listen or self.address:
            return
        await self._http.start()
        if not is_usable():
            _log.warning("direct frames unavailable")
        _log.info("listening for web", extra={"address": self.address})

    def drain(self) -> None:
        """Accepts no more clients. Those that are connected are served on."""
        self._entry.is_draining = True

    async def close(self) -> None:
        """Ends all connections."""
        await self._http.stop_accepting()
        await self._entry.close()
        await self._http.close()

    def _set_serving(self, serving: bool) -> None:
        self._entry.is_serving = serving
