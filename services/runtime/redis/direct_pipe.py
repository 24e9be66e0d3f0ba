"""The fast way to exchange commands and replies: around redis-py's streams.

The only module that uses private parts of redis-py. Compared with redis-py's streams, it takes a
third off the CPU time of a call in a batch of 100 (with uvloop: 3 us instead of 4 us).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from hiredis import Reader
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.redis.primary import Wire


class UnexpectedPartsError(Exception):
    """redis-py's connection is not built as this module expects."""


class DirectPipe(asyncio.Protocol):
    """Takes over the socket of a connection after redis-py has opened and authenticated it.

    It lasts as long as the connection, which its owner closes with redis-py.

    Args:
        wire: is connected; nobody else reads from it.

    Raises:
        UnexpectedPartsError: this version of redis-py is built differently. The connection can
            still be used through redis-py.
    """

    def __init__(self, wire: Wire) -> None:
        self._transport, self._replies = _parts(wire)
        # redis-py waits for it when it closes the connection.
        self._stream: asyncio.BaseProtocol = self._transport.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._more: asyncio.Future[None] | None = None
        self._broken: Exception | None = None
        self.write: Callable[[bytes], None] = self._transport.write
        """Sends packed commands."""
        self.nothing: object = self._replies.gets()
        """What `reply_in_hand` returns if the next reply has not arrived."""
        self.reply_in_hand: Callable[[], Any] = self._replies.gets
        """The next reply, which may be an exception, or `nothing`."""
        self._transport.set_protocol(self)

    async def is_stale(self) -> bool:
        """Whether the connection is closed, or holds a reply that nobody asked for."""
        return self._broken is not None or self._replies.has_data()

    def more(self) -> asyncio.Future[None]:
        """Waits until more has arrived. Raises the error that broke the connection."""
        self._more = self._loop.create_future()
        if self._broken is not None:
            self._more.set_exception(self._broken)
        return self._more

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """As redis-py's."""
        self.write(command)

    async def read_response(self) -> Any:
        """As redis-py's: raises error replies."""
        while (reply := self.reply_in_hand()) is self.nothing:
            await self.more()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    # ---- callbacks of the transport ----

    def data_received(self, data: bytes) -> None:
        """Replies have arrived, or parts of them."""
        self._replies.feed(data)
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """Either side has closed the connection."""
        self._broken = error or RedisConnectionError("Connection closed by server.")
        if self._more is not None and not self._more.done():
            self._more.set_exception(self._broken)
        self._stream.connection_lost(error)


def _parts(wire: Wire) -> tuple[asyncio.Transport, Any]:
    """The transport and the reply parser of a connection."""
    connection = cast(Any, wire)
    try:
        transport, replies = connection._writer.transport, connection._parser._reader
    except AttributeError as error:
        raise UnexpectedPartsError(str(error)) from error
    # Not by its class: those of uvloop are not derived from asyncio's.
    if not all(hasattr(transport, name) for name in ("get_protocol", "set_protocol", "write")):
        raise UnexpectedPartsError(f"its transport is of type {type(transport).__name__}")
    if not isinstance(replies, Reader):
        raise UnexpectedPartsError(f"its reply parser is of type {type(replies).__name__}")
    if replies.has_data():
        raise UnexpectedPartsError("it holds a reply that nobody asked for")
    return transport, replies
