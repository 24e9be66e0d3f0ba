"""Hands audio to its session as soon as the frame is complete, without waking a task.

This uses private parts of aiohttp: where a WebSocket puts its frames. A chunk then costs a third
less (decision 48). `is_usable` checks that these parts are as expected; if they are not, all frames
take the public way.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.base_protocol import BaseProtocol

try:
    from aiohttp._websocket.reader import WebSocketDataQueue, WebSocketReader
except ImportError:
    # Another version: DirectQueue cannot be made, and is_usable says so.
    WebSocketDataQueue = WebSocketReader = object  # type: ignore[assignment]

_BINARY = WSMsgType.BINARY
# Bytes of frames that may wait before no more are taken from the network; aiohttp doubles it.
_WAITING_BYTES = 64 * 1024
# A binary frame of a client with one byte.
_SAMPLE = b"\x82\x81\0\0\0\0a"


class DirectQueue(WebSocketDataQueue):
    """A queue of frames past which audio goes, if nothing is queued and somebody takes it."""

    take: Callable[[bytes], bool] | None = None
    """Called with a binary frame; must not raise. If it returns False, the frame is queued."""

    def feed_data(self, data: Any, size: int) -> None:
        """Takes a frame. Overtakes none that is queued, or has just left the queue.

        While reading is paused, the queue parses what has come already in the middle of `read`,
        with the frame that `read` is about to return no longer in the buffer.
        """
        if data[0] is _BINARY and not self._buffer and not self._protocol._reading_paused:
            take = self.take
            if take is not None and take(data[1]):
                return
        super().feed_data(data, size)


class DirectResponse(web.WebSocketResponse):
    """A WebSocket whose frames come into a DirectQueue."""

    def take_directly(self, take: Callable[[bytes], bool] | None) -> None:
        """Sets what takes binary frames; None for nothing."""
        if isinstance(self._reader, DirectQueue):
            self._reader.take = take

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: Any) -> None:
        if not _USABLE:
            super()._post_start(request, protocol, writer)
            return
        # As in aiohttp, except for the queue. There is no heartbeat here, and no compression.
        self._ws_protocol = protocol
        self._writer = writer
        assert self._loop is not None
        self._reader = DirectQueue(request.protocol, _WAITING_BYTES, loop=self._loop)
        self._parser = WebSocketReader(
            self._reader, self._max_msg_size, compress=False, decode_text=True
        )
        request.protocol.set_parser(self._parser)
        request.protocol.keep_alive(False)


def _is_usable() -> bool:
    taken: list[bytes] = []

    def take(frame: bytes) -> bool:
        taken.append(frame)
        return len(taken) == 1

    loop = asyncio.new_event_loop()
    try:
        queue = DirectQueue(BaseProtocol(loop), _WAITING_BYTES, loop=loop)
        queue.take = take
        reader = WebSocketReader(queue, 1000, compress=False, decode_text=True)
        reader.feed_data(_SAMPLE * 3)
        # The first was taken, the second was refused, and the third waits behind it.
        waiting = [frame.data for frame, _ in queue._buffer]
        return (taken, waiting) == ([b"a"] * 2, [b"a"] * 2)
    except Exception:
        return False
    finally:
        loop.close()


_USABLE = _is_usable()


def is_usable() -> bool:
    """Whether frames go directly."""
    return _USABLE
