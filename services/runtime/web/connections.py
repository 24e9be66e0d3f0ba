"""How many connections an HTTP server has, and from how many addresses."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp import web

from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

# Seconds that a connection has for its next request, headers included. So a peer that sends its
# request byte by byte is disconnected.
_REQUEST_WITHIN_S = 10.0
# Seconds that a peer may leave a response unread, once the buffers are full.
_READ_WITHIN_S = 30.0
# Largest line of a request, and largest header. A token may have some kilobytes.
_MAX_LINE_BYTES = 8190
_MAX_HEADERS = 64
# Bytes that may come before they are a request or a message. aiohttp stops reading at half a
# megabyte of messages that wait to be read, and reads a quarter at once.
_MAX_UNREAD_BYTES = 2 * 1024 * 1024


class Connections:
    """Counts connections, in all and by address.

    Args:
        server: what has them, for messages.
        most: connections that are served.
        most_of_address: connections of one address that are served; 0 for no limit.
    """

    def __init__(self, *, server: str, most: int, most_of_address: int) -> None:
        self._server = server
        self._most = most
        self._most_of_address = most_of_address
        self._by_address: Counter[str] = Counter()
        self.count = 0
        """Open connections."""

    def add(self, address: str) -> None:
        """A connection is open."""
        self.count += 1
        self._by_address[address] += 1

    def remove(self, address: str) -> None:
        """A connection has ended."""
        self.count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def is_flooded(self, address: str) -> bool:
        """Whether there are so many that the next one of an address is dropped unanswered."""
        return self.count >= 2 * self._most or (
            0 < 2 * self._most_of_address <= self._by_address[address]
        )

    def problem(self, address: str) -> str:
        """Why the last connection of an address may not be served; empty if it may."""
        if self.count > self._most:
            return f"this {self._server} has too many connections"
        if 0 < self._most_of_address < self._by_address[address]:
            return f"more than {self._most_of_address} connections from one address"
        return ""


class Connection(web.RequestHandler):
    """One connection from an address, which counts already, and does so until it is lost."""

    __slots__ = (
        "_connections",
        "_frames",
        "_unread_timer",
        "address",
        "is_made",
        "lost",
        "unread_bytes",
    )

    def __init__(
        self,
        server: web.Server,
        connections: Connections,
        loop: asyncio.AbstractEventLoop,
        address: str,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # for none
            keepalive_timeout=_REQUEST_WITHIN_S,
            # What is left of a body after the response is not read.
            lingering_time=0,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            auto_decompress=False,
        )
        self._connections = connections
        self.address = address
        self.is_made = False
        """Whether it was made, and will be lost. With TLS that is after the handshake."""
        self.lost = asyncio.Event()
        """Set when it has ended, for requests that would notice only when they write."""
        self._frames: Any = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self.unread_bytes = 0
        """Bytes that have come since the last request or message."""

    def data_received(self, data: bytes) -> None:
        """Takes bytes in, unless they never become a message, as endless fragments do not."""
        self.unread_bytes += len(data)
        if self.unread_bytes > _MAX_UNREAD_BYTES and self.transport is not None:
            self.transport.abort()
        elif self._frames is None:
            super().data_received(data)
        else:
            # Once it is a WebSocket, this is all that aiohttp does.
            failed, _ = self._frames.feed_data(data)
            if failed:
                self.close()

    def set_parser(self, parser: Any, data_received_cb: Any = None) -> None:
        """From now on, what comes in are frames. aiohttp calls this."""
        super().set_parser(parser, data_received_cb)
        self._frames = parser

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open, TLS included."""
        self.is_made = True
        super().connection_made(transport)

    def pause_writing(self) -> None:
        """The peer does not read. Sessions have a rule of their own for that."""
        super().pause_writing()
        transport = self.transport
        if self._frames is None and isinstance(transport, asyncio.Transport):
            self._unread_timer = asyncio.get_running_loop().call_later(
                _READ_WITHIN_S, transport.abort
            )

    def resume_writing(self) -> None:
        """The peer has read."""
        super().resume_writing()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answers what is not HTTP. It is not logged: anybody can send it."""
        if request.writer.output_size > 0:
            raise ConnectionResetError("a part of another response is sent already")
        refusal = HttpRefusal(
            status,
            "BAD_REQUEST",
            "the request is not valid HTTP/1.1",
            # aiohttp would tell its version and that of Python.
            headers={"Server": "lingua-scheduler"},
        )
        return refusal.response()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Counts it no more."""
        self.lost.set()
        self._stop_timer()
        self._connections.remove(self.address)
        self._frames = None
        super().connection_lost(exc)


def connection_factory(server: web.Server, connections: Connections) -> Callable[[str], Connection]:
    """Makes the protocol of each new connection from an address."""
    loop = asyncio.get_running_loop()
    return lambda address: Connection(server, connections, loop, address)


def connection_of(request: web.BaseRequest) -> Connection:
    """The connection on which a request came."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection
