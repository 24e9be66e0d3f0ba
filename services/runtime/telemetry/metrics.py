"""Prometheus metrics of one process: its registry, and the HTTP server that exposes them."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.exposition import ThreadingWSGIServer

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.errors import SettingsError

# Time limit of a handshake, a request or its response; a scrape takes milliseconds.
_REQUEST_S = 10.0


def new_registry() -> CollectorRegistry:
    """A registry with the metrics of any process: memory, CPU, files, garbage, version."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class MetricsServer:
    """Serves a registry on `http://<listen>/metrics`, from its own thread.

    Args:
        listen: `host:port`; empty for no server, port 0 for any free port.
        variable: the environment variable that sets `listen`, for error messages.
        tls: makes the TLS context of a connection; None for plain text.
    """

    def __init__(
        self,
        *,
        listen: str,
        registry: CollectorRegistry,
        variable: str,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._listen = listen
        self._registry = registry
        self._variable = variable
        self._tls = tls
        self._running: tuple[ThreadingWSGIServer, threading.Thread] | None = None

    async def start(self) -> str:
        """Starts listening.

        Returns:
            The bound address, or "" if there is no server.

        Raises:
            SettingsError: the address cannot be bound.
        """
        if not self._listen:
            return ""
        host, port = split_address(self._listen)
        try:
            # In a thread, because it resolves the name of the host.
            server = await asyncio.to_thread(_bound, host, port, self._registry, self._tls)
        except OSError as error:
            raise SettingsError(
                f"{self._variable}={self._listen!r}: cannot listen there: "
                f"{error.strerror or error}; set another address, or an empty one for no metrics"
            ) from error
        thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        thread.start()
        self._running = server, thread
        return join_address(host, server.server_port)

    async def stop(self) -> None:
        """Stops the server; does nothing if it does not run."""
        if self._running is None:
            return
        (server, thread), self._running = self._running, None
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Does not log scrapes."""


def _bound(
    host: str,
    port: int,
    registry: CollectorRegistry,
    tls: Callable[[], ssl.SSLContext] | None,
) -> ThreadingWSGIServer:
    class Server(ThreadingWSGIServer):
        address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            """Runs in the thread of the request, so that a silent peer does not block others."""
            request.settimeout(_REQUEST_S)
            if tls is not None:
                try:
                    request = tls().wrap_socket(request, server_side=True)
                except OSError:
                    request.close()
                    return
            super().process_request_thread(request, client_address)

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Does not log peers that disconnect."""

    return make_server(host, port, make_wsgi_app(registry), Server, handler_class=_Handler)
