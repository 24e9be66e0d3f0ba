"""One connection over a WebSocket, whoever it is from: frames in, pings, and its end."""

from __future__ import annotations

import asyncio
import contextlib

from aiohttp import WebSocketError, WSCloseCode, WSMessage, WSMsgType, web

from lingua_scheduler.services.runtime.errors import InvalidMessageError, to_proto
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.web.connections import connection_of
from lingua_scheduler.services.session_gateway.web.close_codes import SILENT, TOO_LARGE, error_frame
from lingua_scheduler.services.session_gateway.web.direct_queue import DirectResponse
from lingua_scheduler.services.session_gateway.web.frames import MAX_FRAME_BYTES
from lingua_scheduler.services.session_gateway.web.pace import Pace

# Seconds that a client has to answer a close frame, and to read what was sent before it.
_CLOSE_WITHIN_S = 2.0
# Seconds for a client to notice that its frame was too large.
_LINGER_S = 0.5
# Bytes that may wait in the connection before the next message waits for room.
WRITE_AHEAD_BYTES = 64 * 1024


class ClientLeftError(Exception):
    """The connection has ended; what it was for can be resumed."""


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
            writer_limit=WRITE_AHEAD_BYTES,
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


class WebPeer:
    """The other end of a WebSocket.

    Raises:
        ConnectionError: the connection has ended.

    Args:
        socket: is open.
        request: that opened it.
        settings: of the gateway.
    """

    def __init__(self, socket: Socket, request: web.BaseRequest, settings: Settings) -> None:
        self.has_spoken = False
        """Whether it has sent a frame."""
        self.close_code = 0
        """The code with which its connection was closed from here; 0 if it is open."""
        self.is_reading = False
        """Whether the next frame is waited for."""
        self.socket = socket
        self.connection = connection_of(request)
        if self.connection.transport is None:
            raise ConnectionResetError("the client left during the handshake")
        self.transport = self.connection.transport
        self.drained = request.writer.drain
        """Returns when there is room to write; raises ConnectionError."""
        self._loop = asyncio.get_running_loop()
        self.pace = Pace(
            per_s=settings.web_frames_per_s,
            burst=settings.web_frames_burst,
            clock=self._loop.time,
        )
        # Kept, because the loop does not.
        self._pinging: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._silence_ms = settings.keepalive_time_ms + settings.keepalive_timeout_ms
        self.watch: StreamWatch | None = self._new_watch()
        """Watches whether it answers pings; None if its connection is closed."""

    async def receive(self) -> WSMessage:
        """The next text or binary frame.

        Raises:
            ClientLeftError: the connection has ended.
        """
        socket = self.socket
        while True:
            if wait_s := self.pace.wait_s():
                await asyncio.sleep(wait_s)
            self.is_reading = True
            frame = await socket.receive()
            self.is_reading = False
            self._heard()
            kind = frame.type
            if kind is WSMsgType.BINARY or kind is WSMsgType.TEXT:
                self.has_spoken = True
                return frame
            if kind is WSMsgType.PING:
                await socket.pong(frame.data)
            elif kind is not WSMsgType.PONG:
                if kind is WSMsgType.ERROR and isinstance(frame.data, WebSocketError):
                    # The socket has closed the connection by itself.
                    is_large = frame.data.code == WSCloseCode.MESSAGE_TOO_BIG
                    self.close_code = TOO_LARGE if is_large else frame.data.code
                raise ClientLeftError

    async def close(self, code: int, reason: str, error: str = "") -> None:
        """Closes the connection, whether the client reads or not.

        Args:
            code: of the close frame.
            reason: a word for it.
            error: a text frame that goes first; empty for none.
        """
        if self.watch is not None:
            self.watch.stop()
        # It refers back to this, and cycles are rarely collected.
        self.watch = None
        self.close_code = self.close_code or code
        # What a client does not read is dropped after a while.
        self._loop.call_later(_CLOSE_WITHIN_S, self.transport.abort)
        with contextlib.suppress(ConnectionError):
            if error and not self.socket.closed:
                await self.socket.send_str(error)
            await self.socket.close(code=code, message=reason.encode(), drain=False)

    # ---- pings ----

    def _new_watch(self) -> StreamWatch:
        return StreamWatch(silence_ms=self._silence_ms, ask=self._ping, cut=self._cut)

    def _heard(self) -> None:
        self.connection.unread_bytes = 0
        if self.watch is not None:
            self.watch.silence.heard = True

    def _ping(self) -> None:
        if not self.is_reading:
            # Its answer would not be read: the client has too much in flight.
            self._heard()
            return
        self._pinging = self._loop.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        with contextlib.suppress(ConnectionError):
            await self.socket.ping()

    def _cut(self, _: str) -> None:
        if not self.is_reading:
            self.watch = self._new_watch()
            return
        self._closing = self._loop.create_task(self.close(SILENT, "SILENT"))
