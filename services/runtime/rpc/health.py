"""The standard gRPC health service, for a server that drains.

The servicer of `grpc_health` is not used because its watches never end: a single watching client
would delay every drain until the grace period is over.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Response = health_pb2.HealthCheckResponse

# The service name that liveness probes ask for. It is SERVING as long as the event loop runs.
LIVENESS = "liveness"


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # has no types
    """The health of each service, and of the server as a whole ("").

    LIVENESS is SERVING even if the rest is not, because a restart would not bring Redis back.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(["", LIVENESS, *services])
        self._serving = False
        self._closed = False
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """Sets the health and tells every watcher; does nothing after `close`."""
        if not self._closed:
            self._serving = serving
            self._wake()

    def close(self) -> None:
        """Sets the health to NOT_SERVING for good; watches report it and end."""
        self._serving = False
        self._closed = True
        self._wake()

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """The current health; NOT_FOUND if this server does not have the service."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return _Response(status=self._status(request.service))

    async def Watch(self, request: Any, context: object) -> AsyncIterator[Any]:  # noqa: N802
        """The current health and every change, until the server drains."""
        last = None
        while True:
            changed, closed = self._changed, self._closed
            status = self._status(request.service)
            if status != last:
                last = status
                yield _Response(status=status)
            if closed:
                return
            await changed.wait()

    def _status(self, service: str) -> int:
        if service not in self._services:
            return int(_Response.SERVICE_UNKNOWN)
        serving = self._serving or service == LIVENESS
        return int(_Response.SERVING if serving else _Response.NOT_SERVING)

    def _wake(self) -> None:
        # Watchers wait on the old event; later ones read the new state before they wait.
        self._changed.set()
        self._changed = asyncio.Event()
