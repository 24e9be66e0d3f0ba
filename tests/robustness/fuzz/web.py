"""Sessions of the web entry as frames, mutated: what clients never send, and what they may.

A session is a list of frames. `mutated` changes some of them, or their order; `respelled` only
writes them in another way that RFC 6455 and docs/web.md allow, so the session must work.
"""

import asyncio
import contextlib
import json
import os
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from lingua_scheduler.v1 import session_pb2
from tests.robustness.fuzz.messages import broken, random_message
from tests.support.listening_node import audio_of
from tests.support.raw_client import new_session
from tests.support.raw_http import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    RawConnection,
    handshake,
    raw_connection,
)
from tests.support.web_client import audio_frame

# A connection that is neither answered nor ended is left after this.
LEFT_S = 0.3
RESULT_S = 20.0
CONVERSE = "/v1/converse"
STATUSES = {0, 101, 200, 204, 400, 401, 403, 404, 405, 413, 415, 426, 429, 503}
"""All that docs/web.md has; 0: the connection ended, or waits for more."""
CODES = {0, 1000, 1001, 1002, 1007, 1013, 4400, 4401, 4403, 4404, 4408, 4409, 4410, 4413, 4429}
"""The close codes of docs/reference/errors.md; 0: there was none."""
VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    2**31,
    2**63,
    2**64,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "0",
    "-1",
    "1e3",
    "qfx",
    "\0",
    "\ud800",
    "x" * 3000,
    [],
    [[]],
    {},
    {"": {}},
]


@dataclass(frozen=True)
class Frame:
    """One frame of a client.

    Attributes:
        first: the first byte, with FIN, reserved bits and opcode.
        is_masked: as all frames of clients must be.
        longer: how many bytes more than it has it says it has.
    """

    first: int
    content: bytes
    is_masked: bool = True
    longer: int = 0

    def written(self) -> bytes:
        """The frame as bytes."""
        said = max(0, len(self.content) + self.longer)
        bit = 0x80 if self.is_masked else 0
        if said < 126:
            head = bytes([self.first, bit | said])
        elif said < 65_536:
            head = struct.pack(">BBH", self.first, bit | 126, said)
        else:
            head = struct.pack(">BBQ", self.first, bit | 127, said)
        if not self.is_masked:
            return head + self.content
        mask = os.urandom(4)
        whole = mask * (len(self.content) // 4 + 1)
        return head + mask + bytes(a ^ b for a, b in zip(self.content, whole, strict=False))


def text(value: object) -> Frame:
    """A text frame with JSON."""
    return Frame(0x80 | TEXT, json.dumps(value).encode())


def audio(seq: int, data: bytes, *, final: bool = False) -> Frame:
    """A binary frame with a chunk of audio."""
    return Frame(0x80 | BINARY, audio_frame(seq, data, final=final))


def session(src: str, tgt: str, *words: int) -> list[Frame]:
    """A session that says some words and waits for what becomes of them."""
    new = json_format.MessageToDict(new_session(src, tgt))
    last = len(words) - 1
    return [
        text({"open": {"new": new}}),
        *(audio(seq, audio_of(word), final=seq == last) for seq, word in enumerate(words)),
    ]


def whole_session(rng: random.Random) -> list[Frame]:
    """A session with a frame of each kind, in languages that no node offers."""
    frames = session("qfx", "qfy", *range(2, 2 * rng.randrange(2, 6), 2))
    frames[2:2] = [text({"playbackStarted": {}}), text({}), Frame(0x80 | PING, b"still there?")]
    return [*frames, text({"playbackEnded": {}}), text({"resultsSeen": 0}), text({"close": {}})]


# ---- mutations ----


def mutated(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """The same session with one to three things wrong."""
    for _ in range(rng.randrange(1, 4)):
        frames = rng.choice(_MUTATIONS)(list(frames), rng) or [text({})]
    return frames


def _drop(frames: list[Frame], rng: random.Random) -> list[Frame]:
    del frames[rng.randrange(len(frames))]
    return frames


def _repeat(frames: list[Frame], rng: random.Random) -> list[Frame]:
    frames.insert(rng.randrange(len(frames) + 1), rng.choice(frames))
    return frames


def _swap(frames: list[Frame], rng: random.Random) -> list[Frame]:
    one, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[one], frames[other] = frames[other], frames[one]
    return frames


def _reframe(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """One frame with another first byte, no mask, or a length that is not its own."""
    changes: list[dict[str, Any]] = [
        {"first": rng.randrange(256)},
        {"is_masked": False},
        {"longer": rng.choice((-1, 1, 100, 2**17, 2**40, 2**63))},
    ]
    return _changed(frames, rng, lambda each: replace(each, **rng.choice(changes)))


def _break(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """One frame with content that is cut, changed, or not its own."""
    return _changed(frames, rng, lambda each: replace(each, content=broken(each.content, rng)))


def _alter_json(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """A text frame with a value, or a name, that does not belong there."""

    def altered(each: Frame) -> Frame:
        try:
            value = json.loads(each.content)
        except ValueError:
            return text(rng.choice(VALUES))
        return text(altered_json(value, rng))

    return _changed(frames, rng, altered)


def _other_message(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """A text frame with any message: well made, but for all that the contract says of it."""
    message = random_message(session_pb2.ClientMessage.DESCRIPTOR, rng)
    made = json_format.MessageToDict(message)
    return _changed(frames, rng, lambda _: text(made))


def _other_header(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """A chunk with another type, flags, number or time."""
    head = struct.pack(
        ">BBHQQ",
        rng.choice((0, 1, 1, 1, 2, 255)),
        rng.randrange(256) if rng.random() < 0.5 else rng.randrange(8),
        rng.choice((0, 0, 0, 1, 65_535)),
        rng.choice((0, 1, 2, 1000, 2**32, 2**63, 2**64 - 1)),
        rng.choice((0, 1, 2**64 - 1)),
    )
    return _changed(frames, rng, lambda each: Frame(0x80 | BINARY, head + each.content[20:]))


def _close_early(frames: list[Frame], rng: random.Random) -> list[Frame]:
    """A close frame, possibly malformed, and frames behind it."""
    contents = (
        b"",
        b"\x03",
        b"\x03\xe8bye",
        b"\x03\xe8\xff",
        b"\x00\x00",
        b"\x03\xedx",
        bytes(126),
    )
    frames.insert(rng.randrange(len(frames)), Frame(0x80 | CLOSE, rng.choice(contents)))
    return frames


def _changed(
    frames: list[Frame], rng: random.Random, change: Callable[[Frame], Frame]
) -> list[Frame]:
    at = rng.randrange(len(frames))
    frames[at] = change(frames[at])
    return frames


def altered_json(value: Any, rng: random.Random) -> Any:
    """The same value with something else at one place in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(sorted(value))
        match rng.randrange(5):
            case 0:
                return {
                    **value,
                    rng.choice(("shout", "", "audio", "__proto__")): rng.choice(VALUES),
                }
            case 1:
                return {**{k: v for k, v in value.items() if k != key}, key.upper(): value[key]}
            case 2:
                return {k: v for k, v in value.items() if k != key}
            case _:
                return {**value, key: altered_json(value[key], rng)}
    return rng.choice(VALUES)


_MUTATIONS = (
    _drop,
    _repeat,
    _swap,
    _reframe,
    _break,
    _alter_json,
    _alter_json,
    _other_message,
    _other_header,
    _close_early,
)


def mutated_request(address: str, rng: random.Random) -> bytes:
    """A handshake with one to three lines that are gone, twice there, or something else."""
    if rng.random() < 0.3:
        return broken(handshake(address), rng)
    lines = handshake(address).split(b"\r\n")[:-2]
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(lines))
        name = lines[at].partition(b":")[0]
        lines[at : at + 1] = rng.choice(
            (
                [],
                [lines[at]] * 2,
                [name + b": " + rng.choice((b"", b"x" * 9000, b"\xff\0", b"http://evil.example"))],
                [lines[at], b" folded"],
                [lines[at], b"Content-Length: " + rng.choice((b"5", b"-1", b"0", b"9" * 30))],
                [lines[at], b"Transfer-Encoding: chunked"],
                [b"GET /v1/languages?x=" + b"%00" * 9 + b" HTTP/1.1"],
                [b"OPTIONS * HTTP/1.1"],
                [lines[at].lower()],
            )
        ) or [b"A: b"]
    end = rng.choice((b"\r\n\r\n", b"\n\n", b"\r\n", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"))
    return b"\r\n".join(lines) + end


# ---- other ways to write the same ----


def respelled(frames: list[Frame], rng: random.Random) -> Iterator[bytes]:
    """The bytes of a session in pieces, in a form that clients rarely use."""
    data = b""
    for each in frames:
        for part in _fragments(_respelled_json(each, rng), rng):
            data += part.written()
            if rng.random() < 0.3:
                data += Frame(0x80 | rng.choice((PING, PONG)), rng.randbytes(4)).written()
        if rng.random() < 0.3:
            data += text({}).written()
    yield from _pieces(data, rng)


def _respelled_json(each: Frame, rng: random.Random) -> Frame:
    if each.first != 0x80 | TEXT:
        return each
    value = json.loads(each.content)
    if rng.random() < 0.5:
        value = _in_snake_case(value)
    spaces = rng.choice((None, 1, 7))
    return replace(each, content=json.dumps(value, indent=spaces).encode())


def _in_snake_case(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    names = {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): name for name in value}
    return {snake: _in_snake_case(value[name]) for snake, name in names.items()}


def _fragments(each: Frame, rng: random.Random) -> list[Frame]:
    if rng.random() < 0.5:
        return [each]
    cuts = sorted(rng.randrange(len(each.content) + 1) for _ in range(rng.randrange(1, 4)))
    parts = [each.content[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    opcodes = [each.first & 15] + [0] * (len(parts) - 1)
    fins = [0] * (len(parts) - 1) + [0x80]
    return [
        Frame(fin | opcode, part) for fin, opcode, part in zip(fins, opcodes, parts, strict=True)
    ]


def _pieces(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """Bytes as the network may deliver them."""
    while data:
        size = rng.choice((1, 3, 50, 1000, len(data)))
        yield data[:size]
        data = data[size:]


# ---- peers ----


@dataclass
class Answer:
    """What a gateway said: the status of HTTP, the close code, and its events."""

    status: int = 0
    code: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)


async def talk(
    address: str,
    frames: list[Frame],
    rng: random.Random,
    *,
    path: str = CONVERSE,
    answers: type[Message] = session_pb2.ServerMessage,
) -> Answer:
    """Sends a session, or a listener; returns what came back until it was ended, or left."""
    answer = Answer()
    async with raw_connection(address) as peer:
        await peer.send(handshake(address, path=path))
        answer.status = await peer.status()
        if answer.status == 101:
            for piece in _pieces(b"".join(each.written() for each in frames), rng):
                await peer.send(piece)
            await _listen(peer, answer, LEFT_S, lambda: False, answers)
    return answer


async def translate(address: str, pieces: Iterator[bytes]) -> Answer:
    """Sends a session that must work; returns what came until its first result."""
    answer = Answer()
    async with raw_connection(address) as peer:
        await peer.send(handshake(address))
        answer.status = await peer.status()
        for piece in pieces:
            await peer.send(piece)
        await _listen(peer, answer, RESULT_S, lambda: "result" in answer.events[-1])
    return answer


async def ask(address: str, data: bytes) -> Answer:
    """Sends the bytes of a request."""
    async with raw_connection(address) as peer:
        await peer.send(data)
        with contextlib.suppress(TimeoutError):
            return Answer(status=await peer.status(LEFT_S))
    return Answer()


async def _listen(
    peer: RawConnection,
    answer: Answer,
    within: float,
    enough: Callable[[], bool],
    answers: type[Message] = session_pb2.ServerMessage,
) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            while True:
                opcode, content = await peer.next_frame(RESULT_S)
                if opcode == TEXT:
                    json_format.Parse(content, answers())
                    answer.events += json.loads(content).get("events", ())
                    if answer.events and enough():
                        return
                elif opcode in (CLOSE, -1):
                    answer.code = int.from_bytes(content[:2], "big")
                    return
