"""The standard gRPC health service, for a server that drains.

Not the servicer of `grpc_health`: its watches never end, so that a single watching client would
hold up every drain until the grace period is over.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

_Response = health_pb2.HealthCheckResponse

# What is always served as long as the event loop answers: whoever restarts processes asks for this.
LIVENESS = "liveness"


class HealthServicer(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # has no types
    """Says of each service, and of the server as a whole (""), whether it serves.

    LIVENESS serves whatever becomes of the rest: a restart would bring no Redis back.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(["", LIVENESS, *services])
        self._serving = False
        self._closed = False
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """Tells every watcher; does nothing once closed."""
        if not self._closed:
            self._serving = serving
            self._wake()

    def close(self) -> None:
        """Serves no more, for good; watches end after they have told so."""
        self._serving = False
        self._closed = True
        self._wake()

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """The state now; NOT_FOUND for a service that this server does not have."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r} here")
        return _Response(status=self._status(request.service))

    async def Watch(self, request: Any, context: object) -> AsyncIterator[Any]:  # noqa: N802
        """The state now and at every change, until the server drains."""
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
        # Who sleeps has the old event; who comes later sees the new state before it sleeps.
        self._changed.set()
        self._changed = asyncio.Event()
