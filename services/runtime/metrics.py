"""Prometheus metrics of one process: its registry, and the HTTP server that shows them."""

import asyncio
import threading
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    start_http_server,
)

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.errors import SettingsError


def new_registry() -> CollectorRegistry:
    """A registry with what is known of any process: memory, CPU, files, garbage, version."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class MetricsServer:
    """Serves a registry on `http://<listen>/metrics`, from a thread of its own.

    Args:
        listen: `host:port`; empty for no server at all, port 0 for any free port.
        variable: the environment variable that sets `listen`, for error messages.
    """

    def __init__(self, *, listen: str, registry: CollectorRegistry, variable: str) -> None:
        self._listen = listen
        self._registry = registry
        self._variable = variable
        self._running: tuple[WSGIServer, threading.Thread] | None = None

    async def start(self) -> str:
        """Starts to listen.

        Returns:
            The bound address, or "" when it is off.

        Raises:
            SettingsError: nothing can listen there.
        """
        if not self._listen:
            return ""
        host, port = split_address(self._listen)
        try:
            # In a thread, because it asks the resolver for the host's name.
            self._running = await asyncio.to_thread(
                start_http_server, port, host, registry=self._registry
            )
        except OSError as error:
            raise SettingsError(
                f"{self._variable}={self._listen!r}: cannot listen there: "
                f"{error.strerror or error}; set another address, or an empty one for no metrics"
            ) from error
        return join_address(host, self._running[0].server_port)

    async def stop(self) -> None:
        """Stops and frees the address; does nothing if it does not run."""
        if self._running is None:
            return
        (server, thread), self._running = self._running, None
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)
