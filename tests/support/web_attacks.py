"""What peers of the web entry send that no browser does: one list for all tests that send it."""

import asyncio
import contextlib
import json
import random
import struct
from functools import cache

from google.protobuf.json_format import MessageToDict

from lingua_scheduler.v1 import session_pb2
from tests.support.raw_http import BINARY, PING, TEXT, RawConnection, frame
from tests.support.web_client import audio_frame

EVIL = "http://evil.example"


def open_frame(new: session_pb2.NewSession) -> bytes:
    """The frame that opens a session."""
    return frame(TEXT, json.dumps({"open": {"new": MessageToDict(new)}}).encode())


# ---- requests ----

HANDSHAKES: list[tuple[dict[str, str], int]] = [
    ({"Origin": EVIL}, 403),
    ({"Origin": "null"}, 403),
    ({"Host": "evil.example"}, 403),
    ({"Host": "evil.example", "Origin": EVIL}, 403),
    ({"Host": ""}, 400),
    ({"Sec_WebSocket_Protocol": ""}, 400),
    ({"Sec_WebSocket_Protocol": "lingua.v2"}, 400),
    ({"Sec_WebSocket_Protocol": "lingua.v1, bearer.a, bearer.b"}, 400),
    ({"Sec_WebSocket_Protocol": "lingua.v1, bearer.a", "Authorization": "Bearer b"}, 400),
    ({"Sec_WebSocket_Version": "12"}, 400),
    ({"Sec_WebSocket_Key": "short"}, 400),
    ({"Sec_WebSocket_Key": ""}, 400),
    ({"Connection": "keep-alive"}, 400),
    ({"Content_Length": "5"}, 400),
    ({"Transfer_Encoding": "chunked"}, 400),
    ({"Sec_WebSocket_Version": "\xff13"}, 400),
    ({"Sec_WebSocket_Key": "\xff" * 24}, 400),
    ({"Connection": "Up\xffrade"}, 400),
]
"""Headers of handshakes that are refused, and the status. See raw_http.request for their form."""

NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % at for at in range(200)) + b"\r\n",
    b"GET / HTTP/1.1\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"\0" * 1000,
]
"""Bytes that are not a request of HTTP/1.1."""

# ---- frames ----

BAD_FRAMES = {
    "a text frame before open": (frame(TEXT, b'{"close": {}}'), 4400),
    "audio before open": (frame(BINARY, audio_frame(0, b"ab")), 4400),
    "no JSON": (frame(TEXT, b"hello"), 4400),
    "an unknown field": (frame(TEXT, b'{"shout": 1}'), 4400),
    "audio in JSON": (frame(TEXT, b'{"audio": {"seq": 0}}'), 4400),
    "an open without a start": (frame(TEXT, b'{"open": {}}'), 4400),
    "deep JSON": (frame(TEXT, b'{"open":' * 10_000), 4400),
    "text that is not UTF-8": (frame(TEXT, b"\xff\xfe{}"), 1007),
    "an unknown opcode": (frame(3, b"x"), 1002),
    "a reserved bit": (frame(TEXT, b"{}", first=0xC1), 1002),
    "a long ping": (frame(PING, bytes(126)), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
    "a frame in the middle of another": (
        frame(TEXT, b"{", first=TEXT) + frame(TEXT, b"{}"),
        1002,
    ),
    "a session that does not exist": (
        frame(TEXT, b'{"open": {"resume": {"sessionId": "x", "resumeToken": "y"}}}'),
        4404,
    ),
}
"""First frames that close the connection, and the code."""

BAD_FRAMES_LATER = {
    "an empty binary frame": frame(BINARY, b""),
    "an unknown type": frame(BINARY, struct.pack(">BBHQQ", 9, 0, 0, 0, 0)),
    "a direction that the session has not": frame(BINARY, struct.pack(">BBHQQ", 1, 2, 0, 0, 0)),
    "an unknown flag": frame(BINARY, struct.pack(">BBHQQ", 1, 0x80, 0, 0, 0)),
    "a negative count": frame(TEXT, b'{"resultsSeen": -1}'),
}
"""Frames that end an open session with 4400."""


def large_frames() -> dict[str, list[bytes]]:
    """Frames that are too large, each of which is refused before it is complete."""
    fragments = [frame(BINARY, bytes(60_000), first=BINARY)]
    fragments += [frame(0, bytes(60_000), first=0) for _ in range(4)]
    return {
        "a frame that says it is large": [frame(BINARY, b"x", length=2**40)],
        "fragments that are large together": fragments,
        "a large text": [frame(TEXT, b" " * 140_000)],
    }


def noise(rng: random.Random) -> bytes:
    """Bytes that are a frame, nearly one, or none at all."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 300))
    if kind == 1:
        return frame(BINARY, rng.randbytes(rng.randrange(60)))
    if kind == 2:
        return frame(TEXT, rng.randbytes(rng.randrange(60)))
    if kind == 3:
        return frame(rng.randrange(16), rng.randbytes(rng.randrange(200)))
    if kind == 4:
        return frame(TEXT, b"{}")[: rng.randrange(8)]
    return frame(BINARY, audio_frame(rng.randrange(9), rng.randbytes(200)))


# ---- floods ----


@cache
def floods() -> dict[str, tuple[bytes, bytes]]:
    """What to send first, and what to send again and again."""
    audio = b"".join(frame(BINARY, audio_frame(at, bytes(320))) for at in range(1000))
    return {
        "empty frames": (b"", frame(BINARY, b"") * 1000),
        "pings": (b"", frame(PING, b"") * 1000),
        "signs of life": (b"", frame(TEXT, b"{}") * 1000),
        "audio": (b"", audio),
        "fragments": (frame(BINARY, b"", first=BINARY), frame(0, b"", first=0) * 1000),
    }


FLOODS = tuple(floods())


async def flood(peer: RawConnection, kind: str, seconds: float) -> None:
    """Sends as fast as the connection takes it, until it ends or time is over."""
    first, data = floods()[kind]
    await peer.send(first)
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(seconds):
            while not peer.reader.at_eof():
                peer.writer.write(data)
                await peer.writer.drain()
