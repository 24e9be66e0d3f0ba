"""An open connection to Redis as the link uses it: packed commands out, raw replies in."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Protocol

from redis.exceptions import ResponseError

from lingua_scheduler.services.runtime.redis.direct_pipe import DirectPipe, UnexpectedPartsError
from lingua_scheduler.services.runtime.redis.primary import CommandChannel, Wire

_log = logging.getLogger(__name__)


class Pipe(CommandChannel, Protocol):
    """Exchanges packed commands and replies over a connection that is open."""

    nothing: object

    def write(self, packed: bytes, /) -> None:
        """Sends packed commands, at the latest with the next `more`."""

    def reply_in_hand(self) -> Any:
        """The next reply, which may be an exception, or `nothing` if it has not arrived."""

    def more(self) -> Awaitable[None]:
        """Waits until more has arrived. Raises the error that broke the connection."""

    async def is_stale(self) -> bool:
        """Whether the connection is closed, or holds a reply that nobody asked for."""


class PublicPipe:
    """The way through redis-py's public methods, for versions that DirectPipe does not know.

    Unlike DirectPipe, it does not notice that an idle connection was reset, only that it was closed
    in order. After a reset, the next batch fails and the link reconnects.
    """

    def __init__(self, wire: Any) -> None:
        self._wire = wire
        self.nothing: object = object()
        self._unsent = b""
        self._reply: Any = self.nothing

    def write(self, packed: bytes, /) -> None:
        """Keeps the commands for `more`: redis-py can only send from a coroutine."""
        self._unsent += packed

    def reply_in_hand(self) -> Any:
        """The reply that `more` has read, once."""
        reply, self._reply = self._reply, self.nothing
        return reply

    async def more(self) -> None:
        """Sends what was written, and reads one reply."""
        if self._unsent:
            packed, self._unsent = self._unsent, b""
            await self.send_packed_command(packed, False)
        try:
            self._reply = await self._wire.read_response()
        except ResponseError as error:
            self._reply = error

    async def is_stale(self) -> bool:
        """As redis-py can tell."""
        return not self._wire.is_connected or await self._wire.can_read()

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """As redis-py's."""
        await self._wire.send_packed_command(command, check_health)

    async def read_response(self) -> Any:
        """As redis-py's: raises error replies."""
        return await self._wire.read_response()


def pipe_of(wire: Wire) -> Pipe:
    """The fastest way to use a connection that is open."""
    try:
        return DirectPipe(wire)
    except UnexpectedPartsError as error:
        _log.warning("direct redis access unavailable", extra={"reason": str(error)})
        return PublicPipe(wire)
