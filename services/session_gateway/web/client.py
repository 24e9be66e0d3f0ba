"""One client that is connected over a WebSocket: its frames in, messages out, and pings."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from aiohttp import WebSocketError, WSCloseCode, WSMsgType

from lingua_scheduler.services.runtime.errors import InvalidMessageError, to_proto
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.web.connections import Connection
from lingua_scheduler.services.session_gateway.live.client import Extend, Take
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.web.close_codes import SILENT, TOO_LARGE, error_frame
from lingua_scheduler.services.session_gateway.web.direct_queue import DirectResponse
from lingua_scheduler.services.session_gateway.web.frames import (
    MAX_FRAME_BYTES,
    PLAIN_HEADER,
    Directions,
    directions_of,
    plain_heads,
    read_audio,
    read_binary,
    read_text,
    written,
)
from lingua_scheduler.services.session_gateway.web.pace import Pace
from lingua_scheduler.v1 import session_pb2

# Seconds that a client has to answer a close frame, and to read what was sent before it.
_CLOSE_WITHIN_S = 2.0
# Seconds for a client to notice that its frame was too large.
_LINGER_S = 0.5
# A text frame with "{}".
_SIGN_OF_LIFE = b"\x81\x02{}"
# Bytes that may wait in the connection before the next message waits for room.
_WRITE_AHEAD_BYTES = 64 * 1024


class ClientLeftError(Exception):
    """The connection has ended; the session can be resumed."""


class Socket(DirectResponse):
    """A WebSocket whose frames are limited, without compression."""

    def __init__(self, protocol: str) -> None:
        super().__init__(
            protocols=(protocol,),
            compress=False,
            autoping=False,
            timeout=_CLOSE_WITHIN_S,
            # Frames must be smaller than this.
            max_msg_size=MAX_FRAME_BYTES + 1,
            writer_limit=_WRITE_AHEAD_BYTES,
        )

    async def close(
        self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True
    ) -> bool:
        """Closes the connection. aiohttp calls this as well, if a frame is too large."""
        if code == WSCloseCode.MESSAGE_TOO_BIG and not self.closed:
            code, message = TOO_LARGE, b"FRAME_TOO_LARGE"
            with contextlib.suppress(ConnectionError):
                await self._refuse_large_frame(message)
        return await super().close(code=code, message=message, drain=drain)

    async def _refuse_large_frame(self, reason: bytes) -> None:
        error = InvalidMessageError(f"a frame has more than {MAX_FRAME_BYTES} bytes")
        await self.send_str(error_frame(to_proto(error)))
        await self.send_frame(TOO_LARGE.to_bytes(2, "big") + reason, WSMsgType.CLOSE)
        # Meanwhile what the client still sends is read and dropped. If the connection were closed
        # at once, the kernel would reset it, and the client might not get to read the above.
        await asyncio.sleep(_LINGER_S)


class WebClient:
    """The client of a session: an async iterator of its messages, and a way to write to it.

    Raises:
        ConnectionError: the connection has ended.

    Args:
        socket: is open.
        connection: below it.
        settings: of the gateway.
        traceparent: the header that it sent; empty if it sent none.
    """

    transport = "web"

    def __init__(
        self,
        socket: Socket,
        connection: Connection,
        *,
        settings: Settings,
        traceparent: str,
    ) -> None:
        self.traceparent = traceparent
        self.has_spoken = False
        """Whether it has sent a frame."""
        self.close_code = 0
        """The code with which its connection was closed from here; 0 if it is open."""
        self._socket = socket
        if connection.transport is None:
            raise ConnectionResetError("the client left during the handshake")
        self._connection = connection
        self._transport = connection.transport
        self._loop = asyncio.get_running_loop()
        self._directions: Directions = {0: None}
        self._pace = Pace(
            per_s=settings.web_frames_per_s,
            burst=settings.web_frames_burst,
            clock=self._loop.time,
        )
        self._plain_heads: Mapping[bytes, Direction] = {}
        self._take: Take | None = None
        self._extend: Extend | None = None
        # Of a frame that was taken directly.
        self._failure: Exception | None = None
        self._is_reading = False
        self._is_writing = False
        # Kept, because the loop does not.
        self._pinging: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._silence_ms = settings.keepalive_time_ms + settings.keepalive_timeout_ms
        self._watch: StreamWatch | None = self._new_watch()

    # ---- its messages ----

    def __aiter__(self) -> WebClient:
        return self

    async def __anext__(self) -> session_pb2.ClientMessage:
        """The next message.

        Raises:
            InvalidMessageError: a frame is not one.
            ClientLeftError: the connection has ended.
        """
        socket = self._socket
        while True:
            if wait_s := self._pace.wait_s():
                await asyncio.sleep(wait_s)
            self._is_reading = True
            frame = await socket.receive()
            self._is_reading = False
            if self._failure is not None:
                raise self._failure
            self._heard()
            kind = frame.type
            if kind is WSMsgType.BINARY:
                self.has_spoken = True
                return read_binary(frame.data, self._directions)
            if kind is WSMsgType.TEXT:
                self.has_spoken = True
                return read_text(frame.data)
            if kind is WSMsgType.PING:
                await socket.pong(frame.data)
            elif kind is not WSMsgType.PONG:
                if kind is WSMsgType.ERROR and isinstance(frame.data, WebSocketError):
                    # The socket has closed the connection by itself.
                    is_large = frame.data.code == WSCloseCode.MESSAGE_TOO_BIG
                    self.close_code = TOO_LARGE if is_large else frame.data.code
                raise ClientLeftError

    def opened(self, session: session_pb2.NewSession, take: Take, extend: Extend) -> None:
        """Its session is open."""
        self._directions = directions_of(session)
        self._plain_heads = plain_heads(session)
        self._take, self._extend = take, extend
        self._socket.take_directly(self._take_audio)

    def _take_audio(self, frame: bytes) -> bool:
        """Gives a chunk to the session at once; False if it has to be read like other frames."""
        take, extend, watch = self._take, self._extend, self._watch
        if take is None or extend is None or watch is None:
            return False
        if not self._is_reading or not self._pace.passes():
            return False
        watch.silence.heard = True
        self._connection.unread_bytes = 0
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
        transport = self._transport
        if self._is_writing or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(_SIGN_OF_LIFE)
        return True

    async def close(self, code: int, reason: str, error: str = "") -> None:
        """Closes the connection, whether the client reads or not.

        Args:
            code: of the close frame.
            reason: a word for it.
            error: a text frame that goes first; empty for none.
        """
        self._let_go()
        self.close_code = self.close_code or code
        # What a client does not read is dropped after a while.
        self._loop.call_later(_CLOSE_WITHIN_S, self._transport.abort)
        with contextlib.suppress(ConnectionError):
            if error and not self._socket.closed:
                await self._socket.send_str(error)
            await self._socket.close(code=code, message=reason.encode(), drain=False)

    def _let_go(self) -> None:
        """Drops what refers back to this, because cycles are rarely collected."""
        if self._watch is not None:
            self._watch.stop()
        self._watch = self._take = self._extend = None
        self._socket.take_directly(None)

    # ---- pings ----

    def _new_watch(self) -> StreamWatch:
        return StreamWatch(silence_ms=self._silence_ms, ask=self._ping, cut=self._cut)

    def _heard(self) -> None:
        self._connection.unread_bytes = 0
        if self._watch is not None:
            self._watch.silence.heard = True

    def _ping(self) -> None:
        if not self._is_reading:
            # Its answer would not be read: the session has too much in flight.
            self._heard()
            return
        self._pinging = self._loop.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self._socket.ping()

    def _cut(self, _: str) -> None:
        if not self._is_reading:
            self._watch = self._new_watch()
            return
        self._closing = self._loop.create_task(self.close(SILENT, "SILENT"))
