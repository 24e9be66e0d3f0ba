"""The process of the session gateway."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.runtime.hosted_service import Runtime, ServiceKind
from lingua_scheduler.services.runtime.service_process import Ready, run_services
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.dispatcher_link import DispatcherLink
from lingua_scheduler.services.session_gateway.live.sessions import Sessions
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics, RoomMetrics
from lingua_scheduler.services.session_gateway.rooms.calls import RoomCalls
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.service import SessionGatewayServicer
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore
from lingua_scheduler.services.session_gateway.views import SessionViews
from lingua_scheduler.services.session_gateway.web.server import WebServer
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc


class SessionGatewayService:
    """Wires the parts of the session gateway."""

    grpc_name = session_pb2.DESCRIPTOR.services_by_name["SessionGateway"].full_name
    # The largest messages that the contract allows have a chunk or features of 64 KiB.
    max_request_bytes: int | None = 128 * 1024

    def __init__(self, runtime: Runtime) -> None:
        settings, cells = runtime.settings, runtime.cells
        metrics = GatewayMetrics(runtime.registry)
        self._instances = runtime.instances
        self._stats = metrics.stats
        self._dispatchers = DispatcherLink(settings=settings, dialer=runtime.dialer)
        self._dispatchers.on_change.append(lambda up, _: metrics.dispatcher_up.set(up))
        metrics.jobs.set_function(lambda: self._dispatchers.jobs)
        self._rooms = Rooms(cells=cells, settings=settings, metrics=RoomMetrics(runtime.registry))
        cells.on_change(lambda cell, up, _: self._rooms.on_redis(cell, up))
        self._sessions = Sessions(
            settings=settings,
            cells=cells,
            store=SessionStore(cells=cells, settings=settings),
            link=self._dispatchers,
            metrics=metrics,
            rooms=self._rooms,
        )
        cells.on_change(lambda cell, up, _: self._sessions.on_redis(cell, up))
        calls = RoomCalls(settings=settings, cells=cells, rooms=self._rooms, metrics=metrics)
        self._web = WebServer(runtime, sessions=self._sessions, rooms=self._rooms, room_calls=calls)
        self._servicer = SessionGatewayServicer(
            sessions=self._sessions,
            views=SessionViews(cells=cells),
            rooms=self._rooms,
            calls=calls,
        )

    @property
    def web_address(self) -> str:
        """Where it serves browsers; empty if it does not."""
        return self._web.address

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server."""
        session_pb2_grpc.add_SessionGatewayServicer_to_server(self._servicer, server)

    async def open(self, address: str) -> None:
        """Announces the address of this instance, connects to a dispatcher, serves the web."""
        await self._instances.announce(address, self._stats)
        await self._dispatchers.open()
        await self._web.start()

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """The renewal of sessions and rooms, and news of rooms."""
        return (*self._sessions.work(), *self._rooms.work())

    async def drain(self) -> None:
        """Opens no more sessions, and sends clients and listeners elsewhere."""
        self._web.drain()
        await asyncio.gather(self._sessions.drain(), self._rooms.drain())

    async def close(self) -> None:
        """Ends the connections of the web, and disconnects from the other services."""
        await self._web.close()
        self._sessions.close()
        self._rooms.close()
        await self._dispatchers.close()


GATEWAY = ServiceKind("gateway", SessionGatewayService)


async def serve(settings: Settings, ready: Ready) -> None:
    """Runs the session gateway until it is told to stop; see `run_services`."""
    await run_services(settings, (GATEWAY,), ready)
