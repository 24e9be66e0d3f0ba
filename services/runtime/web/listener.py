"""Accepts connections, and counts each from the moment it is accepted.

Servers of asyncio tell of a connection only after its TLS handshake, so peers that never finish
theirs would not count.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable

from lingua_scheduler.services.runtime.rpc.duplex import all_ended
from lingua_scheduler.services.runtime.web.connections import Connection, Connections

# Seconds that a peer has for its TLS handshake, and to answer the end of TLS.
_HANDSHAKE_WITHIN_S = 10.0
_SHUTDOWN_WITHIN_S = 2.0
# Connections that may wait to be accepted.
_BACKLOG = 128
# The process or the machine has no more files or memory. Accepting goes on after a pause.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_S = 1.0


class Listener:
    """Listens at one address, which may be a name with several.

    Args:
        connections: counts them.
        new_connection: makes the protocol of a connection from an address.
        tls: of the connections; None for plain text.
    """

    def __init__(
        self,
        *,
        connections: Connections,
        new_connection: Callable[[str], Connection],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._connections = connections
        self._new_connection = new_connection
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Starts to listen; returns the port.

        Raises:
            OSError: the address cannot be bound.
        """
        found = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listening = socket.create_server(
                    (str(address[0]), int(address[1])), family=family, backlog=_BACKLOG
                )
                listening.setblocking(False)
                self._sockets.append(listening)
        except OSError:
            self._close_sockets()
            raise
        for each in self._sockets:
            self._start(self._accept(each))
        return int(self._sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Accepts no more, and drops connections whose handshake is not done."""
        for task in self._tasks:
            task.cancel()
        await all_ended(list(self._tasks))
        self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets.clear()

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                peer, name = await self._loop.sock_accept(listening)
            except OSError as error:
                # Other errors concern the one connection, which its peer has already dropped.
                await asyncio.sleep(_PAUSE_S if error.errno in _EXHAUSTED else 0)
                continue
            address = str(name[0]) if name else ""
            if self._connections.is_flooded(address):
                peer.close()
                continue
            self._connections.add(address)
            self._start(self._connect(peer, address))

    async def _connect(self, peer: socket.socket, address: str) -> None:
        """Makes the connection, which counts until it is lost or cannot be made."""
        connection = self._new_connection(address)
        # asyncio accepts the time limits of TLS only together with TLS.
        tls = self._tls is not None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                peer,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_WITHIN_S if tls else None,
                ssl_shutdown_timeout=_SHUTDOWN_WITHIN_S if tls else None,
            )
        except OSError:
            pass  # the peer left, or its handshake failed
        finally:
            if not connection.is_made:
                self._connections.remove(address)
                peer.close()
