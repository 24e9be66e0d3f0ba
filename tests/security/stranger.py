"""A peer without a token that speaks HTTP/2 by hand, so that it can do what no gRPC client does."""

import contextlib
import socket
import struct
import threading
from collections import Counter
from types import TracebackType
from typing import Self

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
MAX_CONCURRENT_STREAMS = 3
"""A setting that the server announces."""
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_CANCEL = 8
_FRAME_BYTES = 16_384
_SOCKET_S = 10.0


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def call(stream: int, path: str, *headers: tuple[str, str], ends: bool = False) -> bytes:
    """The HEADERS frame that begins a gRPC call; with `ends` the call has no message."""
    fields = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "stranger"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *headers,
    )
    block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
    return frame(HEADERS, _END_HEADERS | (_END_STREAM if ends else 0), stream, block)


def message_start(stream: int, length: int, sent: int) -> bytes:
    """DATA frames with the first `sent` bytes of a message that says it has `length` bytes."""
    body = struct.pack(">BI", 0, length) + bytes(sent)
    chunks = (body[at : at + _FRAME_BYTES] for at in range(0, len(body), _FRAME_BYTES))
    return b"".join(frame(DATA, 0, stream, chunk) for chunk in chunks)


def message(stream: int, body: bytes) -> bytes:
    """A DATA frame with one complete message, which ends the request."""
    return frame(DATA, _END_STREAM, stream, struct.pack(">BI", 0, len(body)) + body)


def reset(stream: int) -> bytes:
    """An RST_STREAM frame, which cancels a call."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))


class Stranger:
    """One connection. It acknowledges settings and pings, and counts the frames that come.

    Args:
        address: `host:port` of the server.
        obeys: False: it ignores the server's settings, and does not acknowledge them.
    """

    def __init__(self, address: str, *, obeys: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_SOCKET_S)
        self._obeys = obeys
        self._lock = threading.Lock()
        self._next = 1
        self.frames: Counter[int] = Counter()
        """Frames that came, by kind."""
        self.ended: set[int] = set()
        """Streams that the server has ended."""
        self.settings: dict[int, int] = {}
        self.closed = threading.Event()
        """Set when the server has closed the connection."""
        self.send(_PREFACE + frame(SETTINGS, 0, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join(_SOCKET_S)

    def streams(self, count: int) -> list[int]:
        """Ids of new streams."""
        ids = [self._next + 2 * each for each in range(count)]
        self._next += 2 * count
        return ids

    def send(self, data: bytes) -> bool:
        """Sends; False if the server does not read any more, or has closed the connection."""
        try:
            with self._lock:
                self._socket.sendall(data)
        except OSError:
            return False
        return True

    def _read(self) -> None:
        buffer = b""
        with contextlib.suppress(OSError):
            while True:
                try:
                    data = self._socket.recv(1 << 18)
                except TimeoutError:
                    continue
                if not data:
                    break
                buffer = self._take(buffer + data)
        self.closed.set()

    def _take(self, buffer: bytes) -> bytes:
        at = 0
        answers = b""
        while len(buffer) - at >= 9:
            length = int.from_bytes(buffer[at : at + 3])
            if len(buffer) - at < 9 + length:
                break
            kind, flags, stream = struct.unpack(">BBI", buffer[at + 3 : at + 9])
            payload = buffer[at + 9 : at + 9 + length]
            at += 9 + length
            self.frames[kind] += 1
            if kind == RST_STREAM or (kind == HEADERS and flags & _END_STREAM):
                self.ended.add(stream)
            if kind == SETTINGS and not flags & _ACK:
                self.settings |= dict(struct.iter_unpack(">HI", payload))
                answers += frame(SETTINGS, _ACK, 0) if self._obeys else b""
            if kind == PING and not flags & _ACK:
                answers += frame(PING, _ACK, 0, payload)
        if answers:
            self.send(answers)
        return buffer[at:]


def _text(value: str) -> bytes:
    raw = value.encode()
    length, rest = len(raw), b""
    if length >= 127:
        # An integer of HPACK: what does not fit into the first seven bits follows, low bits first.
        left = length - 127
        while left >= 128:
            rest += bytes([left % 128 + 128])
            left //= 128
        length, rest = 127, rest + bytes([left])
    return bytes([length]) + rest + raw
