"""Many who listen to a room, for `rooms.py`, which runs this as a process.

They are as lean as they can be, because they share the machine with what is measured: WebSockets
and HTTP/2 by hand, one connection each, and of a message only whether it has results. All are in
the room before anything is said, so the n-th result of each is of the n-th utterance.

It prints READY when all have joined. Each line on stdin is answered with one line of JSON: for each
language, how many listeners got each utterance, and when the first and the last of them did, in ns
of the machine's monotonic clock.
"""

import argparse
import asyncio
import json
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from lingua_scheduler.v1 import rooms_pb2

# Connections that are opened at the same time.
JOINING = 50
JOIN_S = 60.0


@dataclass
class Lane:
    """What came in one language, by utterance."""

    count: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)

    def heard(self, number: int) -> None:
        """A listener has got its result of this utterance."""
        now = time.monotonic_ns()
        if number == len(self.count):
            self.count.append(0)
            self.first.append(now)
            self.last.append(now)
        self.count[number] += 1
        self.last[number] = now


class Listener(asyncio.Protocol):
    """What both transports have in common."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._heard = 0
        self._rest = b""
        self.transport: asyncio.Transport
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, _: Exception | None) -> None:
        """The connection has ended, which the benchmark does not expect before its own end."""
        if not self.joined.done():
            self.joined.set_exception(ConnectionError("not let in"))

    def on_results(self, count: int) -> None:
        """So many results have come at once."""
        for _ in range(count):
            self._lane.heard(self._heard)
            self._heard += 1


class WebSocketListener(Listener):
    """A WebSocket by hand."""

    def __init__(self, lane: Lane, address: str, join: rooms_pb2.JoinRoom) -> None:
        super().__init__(lane)
        self._address = address
        listening = {
            "language": join.listening.language,
            "captions": True,
            "speech": join.listening.speech,
        }
        told = {"roomId": join.room_id, "joinToken": join.join_token, "listening": listening}
        self._join = json.dumps({"join": told}).encode()
        self._is_open = False
        # Bytes of a frame with audio that are still to come.
        self._skip = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for a WebSocket."""
        super().connection_made(transport)
        self.transport.write(
            f"GET /v1/listen HTTP/1.1\r\nHost: {self._address}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Protocol: lingua.v1\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        """Counts the results in all complete frames."""
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0 if self._is_open else self._open(data)
        while len(data) - at >= 2:
            first, size, start = data[at], data[at + 1], at + 2
            if size == 126:
                if len(data) < at + 4:
                    break
                (size,), start = struct.unpack_from(">H", data, start), at + 4
            elif size == 127:
                if len(data) < at + 10:
                    break
                (size,), start = struct.unpack_from(">Q", data, start), at + 10
            end = start + size
            if first == 0x82 and end > len(data):
                self._skip = end - len(data)
                return
            if end > len(data):
                break
            if first == 0x81:
                self._on_text(data, start, end)
            elif first == 0x89:
                self.transport.write(_web_frame(0x8A, data[start:end]))
            at = end
        self._rest = data[at:]

    def _open(self, data: bytes) -> int:
        """Joins when the WebSocket is open; returns where frames begin."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return 0
        assert data.startswith(b"HTTP/1.1 101"), data[:200]
        self._is_open = True
        self.transport.write(_web_frame(0x81, self._join))
        return end + 4

    def _on_text(self, data: bytes, start: int, end: int) -> None:
        if count := data.count(b'"result":', start, end):
            self.on_results(count)
        elif not self.joined.done() and data.find(b'"joined":', start, end) >= 0:
            self.joined.set_result(None)


def _web_frame(first: int, payload: bytes) -> bytes:
    """A frame of a client; its mask changes nothing."""
    assert len(payload) < 65_536
    return struct.pack(">BBHI", first, 0xFE, len(payload), 0) + payload


# ---- gRPC ----

DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
ACK = 1
MOST = 2**31 - 1


class GrpcListener(Listener):
    """A call of Listen, with HTTP/2 by hand and windows that never fill."""

    def __init__(self, lane: Lane, address: str, join: rooms_pb2.JoinRoom) -> None:
        super().__init__(lane)
        self._address = address
        self._join = rooms_pb2.ListenerMessage(join=join).SerializeToString()
        # What came of a message that is not complete.
        self._part = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the call."""
        super().connection_made(transport)
        fields = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/lingua_scheduler.v1.SessionGateway/Listen"),
            (":authority", self._address),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
        )
        block = b"".join(b"\0" + _field(name) + _field(value) for name, value in fields)
        self.transport.write(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            # SETTINGS_INITIAL_WINDOW_SIZE, and that of the connection.
            + _frame(SETTINGS, 0, 0, struct.pack(">HI", 4, MOST))
            + _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", MOST - 65_535))
            + _frame(HEADERS, 4, 1, block)
            + _frame(DATA, 0, 1, struct.pack(">BI", 0, len(self._join)) + self._join)
        )

    def data_received(self, data: bytes) -> None:
        """Handles all complete frames."""
        if self._rest:
            data, self._rest = self._rest + data, b""
        at = 0
        while len(data) - at >= 9:
            end = at + 9 + int.from_bytes(data[at : at + 3], "big")
            if end > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            if kind == DATA:
                self._on_data(data[at + 9 : end])
            elif kind in (PING, SETTINGS) and not flags & ACK:
                payload = data[at + 9 : end] if kind == PING else b""
                self.transport.write(_frame(kind, ACK, 0, payload))
            at = end
        self._rest = data[at:]

    def _on_data(self, data: bytes) -> None:
        data, self._part = self._part + data, b""
        at = 0
        while len(data) - at >= 5:
            end = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
            if end > len(data):
                break
            self._on_message(data, at + 5, end)
            at = end
        self._part = data[at:]

    def _on_message(self, data: bytes, at: int, end: int) -> None:
        """Looks at the kind of each event: 1 is joined, 2 a result."""
        results = 0
        while at < end:
            # The tag of an event, and its length.
            size, at = _varint(data, at + 1)
            results += data[at] == 0x12
            if data[at] == 0x0A and not self.joined.done():
                self.joined.set_result(None)
            at += size
        if results:
            self.on_results(results)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _field(text: str) -> bytes:
    """A text of HPACK, shorter than 127 bytes."""
    return bytes([len(text)]) + text.encode()


TRANSPORTS = {"websocket": WebSocketListener, "grpc": GrpcListener}


async def main(given: argparse.Namespace) -> None:
    """Joins, and answers commands until stdin ends."""
    loop = asyncio.get_running_loop()
    lanes = {language: Lane() for language in given.languages.split(",")}
    places = asyncio.Semaphore(JOINING)
    addresses = given.addresses.split(",")

    async def join(at: int) -> Listener:
        # Each language has the same share of listeners at each gateway.
        language = list(lanes)[at // len(addresses) % len(lanes)]
        address = addresses[at % len(addresses)]
        asked = rooms_pb2.JoinRoom(room_id=given.room, join_token=given.token)
        asked.listening.language, asked.listening.captions = language, True
        asked.listening.speech = given.speech
        host, _, port = address.rpartition(":")
        async with places, asyncio.timeout(JOIN_S):
            _, listener = await loop.create_connection(
                lambda: TRANSPORTS[given.transport](lanes[language], address, asked),
                host,
                int(port),
            )
            await listener.joined
        return listener

    first = given.first
    listeners = await asyncio.gather(*(join(first + at) for at in range(given.count)))
    print("READY", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({name: asdict(lane) for name, lane in lanes.items()}), flush=True)
    for each in listeners:
        each.transport.abort()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", help="gateways, or their web entries, separated by commas")
    parser.add_argument("--transport", choices=TRANSPORTS, default="websocket")
    parser.add_argument("--room")
    parser.add_argument("--token")
    parser.add_argument("--languages", help="separated by commas")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--speech", action="store_true")
    uvloop.run(main(parser.parse_args()))
