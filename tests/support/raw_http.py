"""HTTP and WebSockets by hand, for requests that no client sends."""

import asyncio
import base64
import contextlib
import os
import ssl
import struct
from collections.abc import AsyncIterator

from tests.support.process import SOON_S

HANDSHAKE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    "Sec-WebSocket-Protocol": "lingua.v1",
}
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


def request(address: str, path: str = "/v1/converse", method: str = "GET", **headers: str) -> bytes:
    """A request; header names have underscores for hyphens, and an empty value leaves one out."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = {"Host": address, **named}
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in fields.items() if v), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def handshake(address: str, **headers: str) -> bytes:
    """A request for a WebSocket."""
    fields = {name.replace("-", "_"): value for name, value in HANDSHAKE.items()}
    return request(address, **{**fields, **headers})


def frame(
    opcode: int, payload: bytes = b"", *, first: int | None = None, length: int = -1
) -> bytes:
    """A masked frame of a client. `length` is the one that it says, by default the real one."""
    mask, said = os.urandom(4), len(payload) if length < 0 else length
    head = bytes([0x80 | opcode if first is None else first])
    if said < 126:
        head += bytes([0x80 | said])
    elif said < 65536:
        head += struct.pack(">BH", 0xFE, said)
    else:
        head += struct.pack(">BQ", 0xFF, said)
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
    return head + mask + masked


class RawConnection:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Sends bytes; the peer may be gone."""
        with contextlib.suppress(ConnectionError):
            self.writer.write(data)
            await self.writer.drain()

    async def status(self, within: float = SOON_S) -> int:
        """The status of the next response; 0 if the connection ends instead."""
        async with asyncio.timeout(within):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                head = await self.reader.readuntil(b"\r\n\r\n")
                return int(head.split(b" ", 2)[1])
        return 0

    async def next_frame(self, within: float = SOON_S) -> tuple[int, bytes]:
        """The next frame: its opcode and content; (-1, b"") at the end of the connection."""
        async with asyncio.timeout(within):
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                first, second = await self.reader.readexactly(2)
                size = second & 127
                if size == 126:
                    (size,) = struct.unpack(">H", await self.reader.readexactly(2))
                elif size == 127:
                    (size,) = struct.unpack(">Q", await self.reader.readexactly(8))
                return first & 15, await self.reader.readexactly(size)
        return -1, b""

    async def close_code(self, within: float = SOON_S) -> int:
        """Reads to the end; returns the code of the close frame, 0 if there was none."""
        code = 0
        while (found := await self.next_frame(within))[0] != -1:
            if found[0] == CLOSE:
                code = int.from_bytes(found[1][:2], "big")
        return code

    def stop_reading(self) -> None:
        """Reads nothing from now on, like a peer that has vanished."""
        assert isinstance(self.writer.transport, asyncio.ReadTransport)
        self.writer.transport.pause_reading()

    async def ended(self, within: float = SOON_S) -> None:
        """Returns when the peer has closed the connection."""
        async with asyncio.timeout(within):
            with contextlib.suppress(ConnectionError):
                while await self.reader.read(65536):
                    pass


@contextlib.asynccontextmanager
async def raw_connection(
    address: str, tls: ssl.SSLContext | None = None, source: str = ""
) -> AsyncIterator[RawConnection]:
    """A connection inside the block; `source` is the address that it comes from."""
    host, _, port = address.rpartition(":")
    local = (source, 0) if source else None
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls, local_addr=local)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def raw_socket(address: str, source: str = "") -> AsyncIterator[RawConnection]:
    """A WebSocket inside the block; `source` is the address that it comes from."""
    async with raw_connection(address, source=source) as connection:
        await connection.send(handshake(address))
        assert await connection.status() == 101
        yield connection
