"""A name server for tests: it resolves one name to several loopback addresses."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

TTL_S = 5
TYPE_A, CLASS_IN = 1, 1
RESPONSE = 0x8580


class NameServer(asyncio.DatagramProtocol):
    """Answers every question with the addresses of the pods that are ready."""

    def __init__(self) -> None:
        self.port = 0
        self.ready: list[str] = []
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def target(self, name: str, port: int) -> str:
        """The gRPC target for a port of the hosts that have the name."""
        return f"dns://127.0.0.1:{self.port}/{name}:{port}"

    def datagram_received(self, data: bytes, addr: Any) -> None:
        question = data[12 : data.index(b"\0", 12) + 5]
        (wanted,) = struct.unpack("!H", question[-4:-2])
        found = self.ready if wanted == TYPE_A else []
        header = data[:2] + struct.pack("!HHHHH", RESPONSE, 1, len(found), 0, 0)
        # The name of each answer is that of the question, 12 bytes from the start.
        record = b"\xc0\x0c" + struct.pack("!HHIH", TYPE_A, CLASS_IN, TTL_S, 4)
        answers = b"".join(record + socket.inet_aton(address) for address in found)
        self._transport.sendto(header + question + answers, addr)


@contextlib.asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    """A name server that knows no address yet."""
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(NameServer, local_addr=("127.0.0.1", 0))
    try:
        yield names
    finally:
        transport.close()
