"""An open connection to Redis: packed commands out, replies in, and nothing between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.redis.primary import Wire


class Pipe(asyncio.Protocol):
    """Takes the socket of a connection over when redis-py has opened it.

    redis-py knows how to connect: TLS, passwords, databases. After that, to send a batch and to
    read its replies through its streams takes some thirty calls, and here five.

    It is good for as long as the connection; whoever closes that closes it with redis-py.

    Args:
        wire: is connected, and not read from any more.
    """

    def __init__(self, wire: Wire) -> None:
        # redis-py has no public way to any of this.
        parts = cast(Any, wire)
        self._transport: asyncio.Transport = parts._writer.transport
        self._replies = parts._parser._reader
        # It is waited for when the connection is closed.
        self._stream: asyncio.BaseProtocol = self._transport.get_protocol()
        self._loop = asyncio.get_running_loop()
        self._more: asyncio.Future[None] | None = None
        self._broken: Exception | None = None
        self.write: Callable[[bytes], None] = self._transport.write
        """Sends packed commands."""
        self.reply_in_hand: Callable[[], Any] = self._replies.gets
        """The next reply if it has come, errors as well; if not, NOT_ENOUGH_DATA."""
        self._transport.set_protocol(self)

    @property
    def is_stale(self) -> bool:
        """Whether it is closed, or holds something unasked for."""
        return self._broken is not None or self._replies.has_data()

    def more(self) -> asyncio.Future[None]:
        """Waits for more to be in hand. Raises what has broken the connection."""
        self._more = self._loop.create_future()
        if self._broken is not None:
            self._more.set_exception(self._broken)
        return self._more

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """As redis-py's."""
        self.write(command)

    async def read_response(self) -> Any:
        """As redis-py's: errors are raised."""
        while (reply := self.reply_in_hand()) is NOT_ENOUGH_DATA:
            await self.more()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    # ---- what the socket says ----

    def data_received(self, data: bytes) -> None:
        """Replies have come, or parts of them."""
        self._replies.feed(data)
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed, by whomever."""
        self._broken = error or RedisConnectionError("Connection closed by server.")
        if self._more is not None and not self._more.done():
            self._more.set_exception(self._broken)
        self._stream.connection_lost(error)
