"""A gateway for tests of rooms, which does what the test tells it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.sdk import Listener, Room
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import rooms_pb2, session_pb2_grpc
from lingua_scheduler.v1.rooms_pb2 import ListenerMessage, RoomEvent, RoomMessage
from tests.unit.sdk.room_driver import joined

PATIENCE_S = 10.0
Context = grpc.aio.ServicerContext[Any, Any]
Answer = Any | errors.LinguaError | grpc.StatusCode


class PeerStream:
    """The gateway's side of one stream, controlled by the test."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._heard: asyncio.Queue[ListenerMessage | None] = asyncio.Queue()
        self.said: asyncio.Queue[RoomMessage | errors.LinguaError | None] = asyncio.Queue()

    def put(self, message: ListenerMessage | None) -> None:
        self._heard.put_nowait(message)

    async def hear(self) -> ListenerMessage | None:
        """Returns the next message; None if the client has ended its side."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._heard.get()

    async def hear_kind(self, kind: str) -> Any:
        """Returns the next message, which must be of this kind."""
        message = await self.hear()
        assert message is not None, f"the stream ended where {kind} was expected"
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    def say(self, *events: RoomEvent) -> None:
        self.said.put_nowait(RoomMessage(events=events))

    def end(self, error: errors.LinguaError | None = None) -> None:
        """Ends the stream; with OK unless there is an error, which comes as an event first."""
        if error is not None:
            self.say(RoomEvent(error=errors.to_proto(error)))
        self.said.put_nowait(error)

    async def joins(self, **fields: Any) -> rooms_pb2.JoinRoom:
        """Reads JoinRoom and answers it as a gateway does. Returns what was asked for."""
        asked: rooms_pb2.JoinRoom = await self.hear_kind("join")
        self.say(joined(**fields))
        return asked


class Peer(session_pb2_grpc.SessionGatewayServicer):
    """A gateway that the test controls.

    Attributes:
        answers: to single calls, in order: a response, an error, or a status.
        asked: the requests of single calls.
        metadata: of the last call.
    """

    def __init__(self) -> None:
        self.address = ""
        self.metadata: dict[str, str] = {}
        self.answers: list[Answer] = []
        self.asked: list[Any] = []
        self._streams: asyncio.Queue[PeerStream] = asyncio.Queue()

    async def stream(self) -> PeerStream:
        """Returns the next stream that a listener opens."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._streams.get()

    async def Listen(  # noqa: N802 (gRPC names it)
        self, request_iterator: AsyncIterator[ListenerMessage], context: Context
    ) -> None:
        stream = PeerStream()
        self._note(context)
        self._streams.put_nowait(stream)

        async def read() -> None:
            async for message in request_iterator:
                stream.put(message)
            stream.put(None)

        reader = asyncio.create_task(read())
        try:
            while isinstance(said := await stream.said.get(), RoomMessage):
                await context.write(said)
            if said is not None:
                await _abort(context, said)
        finally:
            stream.gone.set()
            reader.cancel()
            await asyncio.wait([reader])

    async def CreateRoom(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(request, context)

    async def CreateJoinToken(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(request, context)

    async def GetRoom(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(request, context)

    async def ListMembers(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(request, context)

    async def CloseRoom(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(request, context)

    async def _answer(self, request: Any, context: Context) -> Any:
        self._note(context)
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, errors.LinguaError):
            await _abort(context, answer)
        if isinstance(answer, grpc.StatusCode):
            await context.abort(answer, "no")
        return answer

    def _note(self, context: Context) -> None:
        self.metadata = {
            key: str(value) for key, value in context.invocation_metadata() or () if key
        }


async def _abort(context: Context, error: errors.LinguaError) -> None:
    await context.abort(error.code, error.message, errors.to_trailing_metadata(error))


@contextlib.asynccontextmanager
async def peers(count: int = 1) -> AsyncIterator[list[Peer]]:
    """Runs peers, each on its own port."""
    made, servers = [Peer() for _ in range(count)], []
    try:
        for peer in made:
            server = grpc.aio.server()
            session_pb2_grpc.add_SessionGatewayServicer_to_server(peer, server)
            peer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            servers.append(server)
        yield made
    finally:
        for server in servers:
            await server.stop(None)


def room_at(*made: Peer, **options: Any) -> Room:
    """Returns a room of these gateways."""
    token = "room.r-1.l.1.n.mac"
    return Room([peer.address for peer in made], room_id="r-1", **{"token": token, **options})


async def entered(listener: Listener, peer: Peer, **fields: Any) -> PeerStream:
    """Joins, and returns the stream."""
    entering = asyncio.create_task(listener.__aenter__())
    stream = await peer.stream()
    await stream.joins(**fields)
    await entering
    return stream


async def leave(listener: Listener, stream: PeerStream | None = None) -> None:
    """Leaves the room as the end of a block does; the gateway ends the stream."""
    if stream is not None:
        stream.end()
    await listener.__aexit__(None, None, None)


async def some(listener: Listener, count: int) -> list[Any]:
    """Returns the next things that are heard."""
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        async for each in listener:
            found.append(each)
            if len(found) == count:
                break
    return found
