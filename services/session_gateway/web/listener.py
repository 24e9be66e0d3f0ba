"""One listener of a room that is connected over a WebSocket."""

from __future__ import annotations

from aiohttp import WSMsgType

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.session_gateway.rooms.packing import Packed
from lingua_scheduler.services.session_gateway.web.frames import read_message
from lingua_scheduler.services.session_gateway.web.peer import WRITE_AHEAD_BYTES, WebPeer
from lingua_scheduler.v1 import rooms_pb2


class WebListener:
    """A listener: an async iterator of its messages, and ways to write to it.

    Frames of a server have no mask, so they are the same for all listeners. They are made once and
    go past aiohttp, straight to the connection.

    Args:
        peer: its connection.
    """

    transport = "web"

    def __init__(self, peer: WebPeer) -> None:
        self._peer = peer
        self._transport = peer.transport

    def __aiter__(self) -> WebListener:
        return self

    async def __anext__(self) -> rooms_pb2.ListenerMessage:
        """The next message.

        Raises:
            InvalidMessageError: a frame is not one.
            ClientLeftError: the connection has ended.
        """
        frame = await self._peer.receive()
        if frame.type is WSMsgType.BINARY:
            raise InvalidMessageError("listeners send only text frames")
        message = rooms_pb2.ListenerMessage()
        read_message(frame.data, message)
        return message

    def write_now(self, packed: Packed) -> bool:
        """Writes a message at once; False if that would have to wait, and it has not."""
        transport = self._transport
        if transport.is_closing() or transport.get_write_buffer_size() > WRITE_AHEAD_BYTES:
            return False
        transport.write(packed.frames)
        return True

    async def write(self, packed: Packed) -> None:
        """Writes a message, once there is room for it. Raises ConnectionError."""
        await self._peer.drained()
        if self._transport.is_closing():
            raise ConnectionResetError("the listener has left")
        self._transport.write(packed.frames)
