"""One client of a session that is connected over a WebSocket: its audio in, its results out."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import WSMsgType

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.session_gateway.live.client import Extend, Take
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.web.frames import (
    PLAIN_HEADER,
    Directions,
    directions_of,
    plain_heads,
    read_audio,
    read_binary,
    read_text,
    written,
)
from lingua_scheduler.services.session_gateway.web.peer import WebPeer
from lingua_scheduler.v1 import session_pb2

# A text frame with "{}".
_SIGN_OF_LIFE = b"\x81\x02{}"


class WebClient:
    """The client of a session: an async iterator of its messages, and a way to write to it.

    Args:
        peer: its connection.
        traceparent: the header that it sent; empty if it sent none.
    """

    transport = "web"

    def __init__(self, peer: WebPeer, *, traceparent: str) -> None:
        self.traceparent = traceparent
        self._peer = peer
        self._socket = peer.socket
        self._directions: Directions = {0: None}
        self._plain_heads: Mapping[bytes, Direction] = {}
        self._take: Take | None = None
        self._extend: Extend | None = None
        # Of a frame that was taken directly.
        self._failure: Exception | None = None
        self._is_writing = False

    # ---- its messages ----

    def __aiter__(self) -> WebClient:
        return self

    async def __anext__(self) -> session_pb2.ClientMessage:
        """The next message.

        Raises:
            InvalidMessageError: a frame is not one.
            ClientLeftError: the connection has ended.
        """
        frame = await self._peer.receive()
        if self._failure is not None:
            raise self._failure
        if frame.type is WSMsgType.BINARY:
            return read_binary(frame.data, self._directions)
        return read_text(frame.data)

    def opened(self, session: session_pb2.NewSession, take: Take, extend: Extend) -> None:
        """Its session is open."""
        self._directions = directions_of(session)
        self._plain_heads = plain_heads(session)
        self._take, self._extend = take, extend
        self._socket.take_directly(self._take_audio)

    def _take_audio(self, frame: bytes) -> bool:
        """Gives a chunk to the session at once; False if it has to be read like other frames."""
        peer, take, extend = self._peer, self._take, self._extend
        watch = peer.watch
        if take is None or extend is None or watch is None:
            return False
        if not peer.is_reading or not peer.pace.passes():
            return False
        watch.silence.heard = True
        peer.connection.unread_bytes = 0
        try:
            if len(frame) > PLAIN_HEADER.size:
                head, seq, client_ms = PLAIN_HEADER.unpack_from(frame)
                direction = self._plain_heads.get(head)
                if direction is not None:
                    data = frame[PLAIN_HEADER.size :]
                    if extend(seq, data, client_ms, direction):
                        return True
            return take(read_audio(frame, self._directions))
        except InvalidMessageError:
            return False
        except Exception as error:
            self._failure = error
            return False

    # ---- messages to it ----

    async def write(self, data: bytes) -> None:
        """Sends a ServerMessage, serialized."""
        speech, text = written(session_pb2.ServerMessage.FromString(data))
        self._is_writing = True
        for frame in speech:
            await self._socket.send_bytes(frame)
        await self._socket.send_str(text)
        self._is_writing = False

    def beat(self) -> bool:
        """Sends a sign of life at once, unless something else is being sent."""
        transport = self._peer.transport
        if self._is_writing or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(_SIGN_OF_LIFE)
        return True

    def let_go(self) -> None:
        """Drops what refers back to this, because cycles are rarely collected."""
        self._take = self._extend = None
        self._socket.take_directly(None)
