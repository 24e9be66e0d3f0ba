"""Speakers who send a chunk of 100 ms ten times a second, for `ingest.py`.

`ingest.py` runs this as a process. It opens its sessions, prints READY, and then reads commands
from stdin. `speak SECONDS` lets everyone speak. `finish` ends every utterance and waits for the
results. The answer to each is one line of JSON.

All transports keep the same rhythm: the speakers take turns, evenly spread over 100 ms. A speaker
who cannot send in time goes on from there, and does not send faster to catch up.
"""

import argparse
import asyncio
import json
import struct
import sys
from typing import Protocol

import aiohttp
import grpc
import uvloop

from lingua_scheduler.sdk import Result, Session
from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc

CHUNK = bytes(3200)
WEB_HEADER = struct.Struct(">BBHQQ")
WEB_SESSION = {
    "direction": {"src": "en", "tgt": "es"},
    "audioFormat": {
        "encoding": "AUDIO_ENCODING_PCM_S16LE",
        "sampleRateHz": 16_000,
        "channels": 1,
    },
    "options": {"requireTts": True},
}
EVERY_S = 0.1
# Sessions that open at the same time, with a new connection each.
OPENING = 20
LAST_WAIT_S = 120.0


class Transport(Protocol):
    """The session of one client."""

    async def open(self) -> None:
        """Returns when the session is open."""

    async def send(self, seq: int, data: bytes, *, is_final: bool) -> None:
        """Sends a chunk."""

    async def result(self) -> None:
        """Returns when the next result has arrived."""


class Grpc:
    """A session over a gRPC connection."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = session_pb2_grpc.SessionGatewayStub(channel)
        # Results that the next message confirms; 0 for none.
        self._seen = 0

    async def open(self) -> None:
        """Returns when the session is open."""
        new = session_pb2.NewSession(
            direction=common_pb2.LanguagePair(src="en", tgt="es"),
            audio_format=common_pb2.AudioFormat(
                encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16_000, channels=1
            ),
            options=session_pb2.SessionOptions(require_tts=True),
        )
        self._stream = self._stub.Converse()
        await self._stream.write(session_pb2.ClientMessage(open=session_pb2.Open(new=new)))
        assert (await self._read()).events[0].HasField("opened")

    async def send(self, seq: int, data: bytes, *, is_final: bool) -> None:
        """Sends a chunk."""
        chunk = session_pb2.AudioChunk(seq=seq, data=data, is_final=is_final)
        # Once per result, as the clients of the other transports do.
        seen, self._seen = self._seen, 0
        await self._stream.write(session_pb2.ClientMessage(audio=chunk, results_seen=seen))

    async def result(self) -> None:
        """Returns when the next result has arrived."""
        while True:
            for event in (await self._read()).events:
                kind = event.WhichOneof("event")
                if kind == "result":
                    self._seen = event.result.utterance_index + 1
                    return
                if kind in ("missing", "error"):
                    sys.exit(f"{kind}: {event}")

    async def _read(self) -> session_pb2.ServerMessage:
        message = await self._stream.read()
        if not isinstance(message, session_pb2.ServerMessage):
            sys.exit(f"the stream has ended: {await self._stream.details()}")
        return message


def grpc_transports(address: str, sessions: int, connections: int) -> list[Transport]:
    """One transport per session, spread over this many connections."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
    return [Grpc(channels[at % connections]) for at in range(sessions)]


class Sdk:
    """A session of the SDK, which lets chunks share messages."""

    def __init__(self, address: str) -> None:
        self._session = Session(address, src="en", tgt="es", require_tts=True)

    async def open(self) -> None:
        """Returns when the session is open."""
        await self._session.__aenter__()
        self._results = self._session.results()

    async def send(self, seq: int, data: bytes, *, is_final: bool) -> None:
        """Sends a chunk, or the end of the utterance."""
        del seq  # the SDK counts by itself
        if data:
            await self._session.send(data)
        if is_final:
            await self._session.finish()

    async def result(self) -> None:
        """Returns when the next result has arrived."""
        outcome = await anext(self._results)
        if not isinstance(outcome, Result):
            sys.exit(f"missing: {outcome.message}")


def sdk_transports(address: str, sessions: int, connections: int) -> list[Transport]:
    """One session of the SDK each; it makes its own connections."""
    del connections
    return [Sdk(address) for _ in range(sessions)]


class WebSocket:
    """A session over a WebSocket of its own (docs/web.md)."""

    def __init__(self, address: str, http: aiohttp.ClientSession) -> None:
        self._url = f"ws://{address}/v1/converse"
        self._http = http
        self._results = 0
        self._arrived: asyncio.Queue[str] = asyncio.Queue()

    async def open(self) -> None:
        """Returns when the session is open."""
        await self._connect()
        await self._socket.send_str(json.dumps({"open": {"new": WEB_SESSION}}))
        assert await self._arrived.get() == "opened"

    async def _connect(self) -> None:
        self._socket = await self._http.ws_connect(
            self._url, protocols=("lingua.v1",), compress=0, max_msg_size=0
        )
        # Reads all the time, as browsers do, and so answers pings.
        self._reading = asyncio.create_task(self._read())

    async def send(self, seq: int, data: bytes, *, is_final: bool) -> None:
        """Sends a chunk."""
        await self._socket.send_bytes(WEB_HEADER.pack(1, is_final, 0, seq, 0) + data)

    async def result(self) -> None:
        """Returns when the next result has arrived."""
        while (kind := await self._arrived.get()) != "result":
            if kind in ("missing", "error"):
                sys.exit(kind)
        self._results += 1
        await self._socket.send_str(json.dumps({"resultsSeen": self._results}))

    async def _read(self) -> None:
        async for frame in self._socket:
            if frame.type is aiohttp.WSMsgType.TEXT:
                for event in json.loads(frame.data).get("events", ()):
                    self._arrived.put_nowait(next(iter(event)))
        self._arrived.put_nowait("error")


class Echo(WebSocket):
    """A WebSocket of which every frame comes back."""

    async def open(self) -> None:
        """Returns when the connection is open."""
        await self._connect()

    async def result(self) -> None:
        """Returns when the last frame has come back."""
        await self._arrived.get()

    async def _read(self) -> None:
        async for frame in self._socket:
            if frame.data[1] == 1:
                self._arrived.put_nowait("last")


def websockets(address: str, sessions: int, connections: int) -> list[Transport]:
    """A connection for each session."""
    del connections
    http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    return [WebSocket(address, http) for _ in range(sessions)]


def echoes(address: str, sessions: int, connections: int) -> list[Transport]:
    """The same to a server that only echoes."""
    del connections
    http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    return [Echo(address, http) for _ in range(sessions)]


# All chunks of `grpc` have a message of their own.
TRANSPORTS = {
    "grpc": grpc_transports,
    "sdk": sdk_transports,
    "websocket": websockets,
    "echo": echoes,
}


class Speaker:
    """Somebody who speaks without a pause."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._seq = 0

    async def open(self, places: asyncio.Semaphore) -> None:
        """Returns when the session is open."""
        async with places:
            await self._transport.open()

    async def speak(self, begin: float, end: float) -> int:
        """Sends chunks during that time of the event loop; returns how many."""
        loop = asyncio.get_running_loop()
        due, first = begin, self._seq
        while due < end:
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            await self._send(CHUNK)
            due = max(due + EVERY_S, loop.time())
        return self._seq - first

    async def finish(self) -> None:
        """Ends the utterance, and returns when its result has arrived."""
        await self._send(b"", is_final=True)
        await self._transport.result()

    async def _send(self, data: bytes, *, is_final: bool = False) -> None:
        seq, self._seq = self._seq, self._seq + 1
        await self._transport.send(seq, data, is_final=is_final)


async def speak(speakers: list[Speaker], seconds: float) -> dict[str, float]:
    """Lets everyone speak; returns the number of chunks and the duration."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    offsets = [EVERY_S * at / len(speakers) for at in range(len(speakers))]
    sent = await asyncio.gather(
        *(
            speaker.speak(began + offset, began + offset + seconds)
            for speaker, offset in zip(speakers, offsets, strict=True)
        )
    )
    return {"chunks": sum(sent), "took_s": loop.time() - began}


async def finish(speakers: list[Speaker]) -> dict[str, float]:
    """Ends every utterance; returns the number of results."""
    async with asyncio.timeout(LAST_WAIT_S):
        await asyncio.gather(*(speaker.finish() for speaker in speakers))
    return {"results": len(speakers)}


async def main(transports: list[Transport]) -> None:
    """Runs commands until stdin ends."""
    speakers = [Speaker(each) for each in transports]
    places = asyncio.Semaphore(OPENING)
    await asyncio.gather(*(speaker.open(places) for speaker in speakers))
    print("READY", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        if line[0] == "speak":
            told = await speak(speakers, float(line[1]))
        else:
            told = await finish(speakers)
        print(json.dumps(told), flush=True)


async def run(address: str, transport: str, sessions: int, connections: int) -> None:
    """Opens the transports on the running loop."""
    await main(TRANSPORTS[transport](address, sessions, connections))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("address", help="of the gateway")
    parser.add_argument("--transport", choices=TRANSPORTS, default="grpc")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--connections", type=int, default=100)
    given = parser.parse_args()
    uvloop.run(run(given.address, given.transport, given.sessions, given.connections))
