"""One direction of a call: serialized messages from one writer to one reader, in order."""

import asyncio
from collections import deque

import grpc

# A writer waits while the reader has this much left to read. One message may exceed it.
MAX_BYTES = 256 * 1024
MAX_MESSAGES = 64


class Pipe:
    """A bounded queue of messages.

    It ends in one of two ways: after `close` the reader gets what is left and then EOF; after
    `break_off` it gets EOF at once, and the writer gets BrokenPipeError.
    """

    __slots__ = ("_bytes", "_ended", "_loop", "_messages", "_reader", "_writer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._messages: deque[bytes] = deque()
        self._bytes = 0
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Messages that are not read yet."""
        return len(self._messages)

    async def write(self, data: bytes) -> None:
        """Adds a message, as soon as there is room. Raises BrokenPipeError after the end."""
        while (self._bytes >= MAX_BYTES or len(self._messages) >= MAX_MESSAGES) and not self._ended:
            if self._writer is not None:
                raise grpc.aio.UsageError("another write of this call is under way")
            self._writer = self._loop.create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._ended:
            raise BrokenPipeError("the call has ended")
        self.put(data)

    def put(self, data: bytes) -> None:
        """Adds a message, whether there is room or not."""
        self._messages.append(data)
        self._bytes += len(data)
        if self._reader is not None:
            _wake(self._reader)

    async def read(self) -> bytes | None:
        """The next message; None if there will be no more."""
        while not self._messages:
            if self._ended:
                return None
            if self._reader is not None:
                raise grpc.aio.UsageError("another read of this call is under way")
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._messages.popleft()
        self._bytes -= len(data)
        if self._writer is not None:
            _wake(self._writer)
        return data

    def close(self) -> None:
        """Nothing more will be written; what is there can be read."""
        self._ended = True
        for waiting in (self._reader, self._writer):
            if waiting is not None:
                _wake(waiting)

    def break_off(self) -> None:
        """Drops what is there; nothing more is written or read."""
        self._messages.clear()
        self._bytes = 0
        self.close()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
