"""A client of the web entry by hand: it sends the frames that a test has it send."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
from google.protobuf.json_format import MessageToDict

from lingua_scheduler.v1 import session_pb2
from tests.support.process import SOON_S
from tests.support.services import GatewayProcess

Event = dict[str, Any]


def audio_frame(
    seq: int, data: bytes = b"", *, final: bool = False, way: int = 0, client_ms: int = 0
) -> bytes:
    """A chunk of audio as a binary frame."""
    return struct.pack(">BBHQQ", 1, int(final) | way << 1, 0, seq, client_ms) + data


class WebClient:
    """One WebSocket at the web entry."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Event] = []
        self.speech: dict[int, bytes] = {}
        self.texts = 0
        """Text frames received."""
        self._changed = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def say(self, **message: Any) -> None:
        """Sends a ClientMessage as JSON."""
        await self.socket.send_str(json.dumps(message))

    async def open(self, session: session_pb2.NewSession) -> Event:
        """Opens a session; returns `opened`."""
        await self.say(open={"new": MessageToDict(session)})
        return await self.event("opened")

    async def resume(self, opened: Event, *, seen: int = 0, next_seq: int = 0) -> Event:
        """Resumes a session; returns its `opened`."""
        resume = {
            "sessionId": opened["sessionId"],
            "resumeToken": opened["resumeToken"],
            "resultsSeen": seen,
            "nextSeq": str(next_seq),
        }
        await self.say(open={"resume": resume})
        return await self.event("opened")

    async def chunk(self, seq: int, data: bytes = b"", **fields: Any) -> None:
        """Sends a chunk of audio."""
        await self.socket.send_bytes(audio_frame(seq, data, **fields))

    async def event(
        self, kind: str, accepts: Callable[[Event], bool] = lambda _: True, within: float = SOON_S
    ) -> Event:
        """Waits for an event of this kind."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    self._changed.clear()
                    for event in self.events:
                        if kind in event and accepts(event[kind]):
                            return event[kind]  # type: ignore[no-any-return]
                    if self._reader.done():
                        break
                    await self._changed.wait()
        raise AssertionError(f"no such {kind}: {self.events}, closed {self.socket.close_code}")

    async def result(self, index: int) -> Event:
        """Waits for the result of an utterance. Default values are left out of JSON."""
        return await self.event("result", lambda each: each.get("utteranceIndex", 0) == index)

    async def closed(self, within: float = SOON_S) -> int | None:
        """Waits for the end of the connection; returns the close code."""
        async with asyncio.timeout(within):
            await asyncio.wait({self._reader})
        return self.socket.close_code

    def told(self) -> list[str]:
        """The kinds of all events, in order."""
        return [next(iter(event)) for event in self.events]

    async def leave(self) -> None:
        """Closes the connection."""
        await self.socket.close()
        await asyncio.wait({self._reader})

    def cut(self) -> None:
        """Breaks the connection off."""
        transport = self.socket.get_extra_info("socket")
        assert transport is not None
        connection = self.socket._conn
        assert connection is not None
        assert connection.transport is not None
        connection.transport.abort()

    def take_audio(self, frame: bytes) -> None:
        """Keeps what is in a binary frame."""
        kind, index = struct.unpack_from(">B3xI", frame)
        assert kind == 2
        self.speech[index] = frame[8:]

    async def _read(self) -> None:
        try:
            async for frame in self.socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self.texts += 1
                    self.events += json.loads(frame.data).get("events", ())
                elif frame.type is aiohttp.WSMsgType.BINARY:
                    self.take_audio(frame.data)
                self._changed.set()
        finally:
            self._changed.set()


async def all_left(gateway: GatewayProcess) -> None:
    """Returns when the web entry has no connections."""
    async with asyncio.timeout(SOON_S):
        while await gateway.metric("lingua_gateway_web_connections"):
            pass


class WebListener(WebClient):
    """One WebSocket of a listener of a room."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(socket)
        self.originals: dict[int, bytes] = {}

    async def join(self, room_id: str, token: str, language: str = "de", **fields: Any) -> Event:
        """Joins a room; captions, unless it asks for something else."""
        wanted = {"language": language, "captions": True, **fields.pop("listening", {})}
        join = {"roomId": room_id, "joinToken": token, "listening": wanted, **fields}
        await self.say(join=join)
        return await self.event("joined")

    async def said(self, index: int) -> Event:
        """Waits for the result of an utterance. Default values are left out of JSON."""
        return await self.event("result", lambda each: int(each.get("roomIndex", 0)) == index)

    def take_audio(self, frame: bytes) -> None:
        """Keeps what is in a binary frame."""
        kind, index = struct.unpack_from(">B3xQ", frame)
        kept = {3: self.speech, 4: self.originals}[kind]
        assert index not in kept
        kept[index] = frame[12:]


@contextlib.asynccontextmanager
async def web_client(address: str, token: str = "", **options: Any) -> AsyncIterator[WebClient]:
    """A client that is connected inside the block."""
    async with _connected(address, "/v1/converse", token, options) as socket:
        client = WebClient(socket)
        try:
            yield client
        finally:
            await client.leave()


@contextlib.asynccontextmanager
async def web_listener(address: str, token: str = "", **options: Any) -> AsyncIterator[WebListener]:
    """A listener that is connected inside the block, and has not joined."""
    async with _connected(address, "/v1/listen", token, options) as socket:
        listener = WebListener(socket)
        try:
            yield listener
        finally:
            await listener.leave()


@contextlib.asynccontextmanager
async def _connected(
    address: str, path: str, token: str, options: dict[str, Any]
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    protocols = ["lingua.v1"] + ([f"bearer.{token}"] if token else [])
    scheme = "wss" if "ssl" in options else "ws"
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            f"{scheme}://{address}{path}", protocols=protocols, max_msg_size=0, **options
        ) as socket,
    ):
        yield socket
