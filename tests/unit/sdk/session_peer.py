"""A gateway for tests of sessions, which does what the test tells it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.sdk import Session
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2, session_pb2_grpc
from lingua_scheduler.v1.session_pb2 import ClientMessage, ServerEvent, ServerMessage

PATIENCE_S = 10.0
KIND = dispatcher_pb2.JobResult


class PeerStream:
    """The gateway's side of one stream, controlled by the test."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self._heard: asyncio.Queue[ClientMessage | None] = asyncio.Queue()
        self.said: asyncio.Queue[ServerMessage | tuple[grpc.StatusCode, str] | None] = (
            asyncio.Queue()
        )

    def put(self, message: ClientMessage | None) -> None:
        self._heard.put_nowait(message)

    async def hear(self) -> ClientMessage | None:
        """Returns the next message; None if the client has ended its side."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._heard.get()

    async def hear_kind(self, kind: str) -> Any:
        """Returns the next message, which must be of this kind."""
        message = await self.hear()
        assert message is not None, f"the stream ended where {kind} was expected"
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    def has_heard(self) -> int:
        """Returns the number of messages that the test has not read."""
        return self._heard.qsize()

    def say(self, *events: ServerEvent) -> None:
        self.said.put_nowait(ServerMessage(events=events))

    def end(self, code: grpc.StatusCode | None = None, details: str = "") -> None:
        """Ends the stream, with OK unless a code is given."""
        self.said.put_nowait(None if code is None else (code, details))

    async def opens(self, **limits: int) -> session_pb2.Open:
        """Reads Open and answers it as a gateway does. Returns what was asked for."""
        asked: session_pb2.Open = await self.hear_kind("open")
        self.say(opened(next_seq=asked.resume.next_seq, **limits))
        return asked


class Peer(session_pb2_grpc.SessionGatewayServicer):
    """A gateway that the test controls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.metadata: dict[str, str] = {}
        self._streams: asyncio.Queue[PeerStream] = asyncio.Queue()

    async def stream(self) -> PeerStream:
        """Returns the next stream that a client opens."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._streams.get()

    def waiting(self) -> int:
        """Returns the number of streams that the test has not asked for."""
        return self._streams.qsize()

    async def Converse(  # noqa: N802 (gRPC names it)
        self,
        request_iterator: AsyncIterator[ClientMessage],
        context: grpc.aio.ServicerContext[ClientMessage, ServerMessage],
    ) -> None:
        stream = PeerStream()
        self.metadata = {
            key: str(value) for key, value in context.invocation_metadata() or () if key
        }
        self._streams.put_nowait(stream)

        async def read() -> None:
            async for message in request_iterator:
                stream.put(message)
            stream.put(None)

        reader = asyncio.create_task(read())
        try:
            while (said := await stream.said.get()) is not None:
                if isinstance(said, tuple):
                    await context.abort(*said)
                else:
                    await context.write(said)
        finally:
            stream.gone.set()
            reader.cancel()
            await asyncio.wait([reader])


@contextlib.asynccontextmanager
async def peers(
    *names: str, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[list[Peer]]:
    """Runs peers, each on its own port, with TLS if there are credentials."""
    made, servers = [Peer(name) for name in names], []
    try:
        for peer in made:
            server = grpc.aio.server()
            session_pb2_grpc.add_SessionGatewayServicer_to_server(peer, server)
            if credentials is None:
                port = server.add_insecure_port("127.0.0.1:0")
            else:
                port = server.add_secure_port("127.0.0.1:0", credentials)
            peer.address = f"127.0.0.1:{port}"
            await server.start()
            servers.append(server)
        yield made
    finally:
        for server in servers:
            await server.stop(None)


def opened(next_seq: int = 0, **limits: int) -> ServerEvent:
    return ServerEvent(
        opened=session_pb2.Opened(
            session_id="s-1",
            resume_token="secret",
            next_seq=next_seq,
            limits=session_pb2.SessionLimits(
                **{"max_chunk_bytes": 65536, "resume_within_ms": 20_000, **limits}
            ),
        )
    )


def ack(next_seq: int) -> ServerEvent:
    return ServerEvent(audio_ack=session_pb2.AudioAck(next_seq=next_seq))


def result(index: int, text: str = "hola", speech: bytes = b"") -> ServerEvent:
    return ServerEvent(
        result=session_pb2.Result(
            utterance_index=index,
            direction=common_pb2.LanguagePair(src="en", tgt="es"),
            kind=KIND.KIND_TRANSLATED,
            texts=dispatcher_pb2.Texts(translated=text),
            speech=speech,
        )
    )


def missing(index: int) -> ServerEvent:
    why = common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_TIMEOUT, message="too late")
    return ServerEvent(missing=session_pb2.Missing(utterance_index=index, why=why))


def finalized(index: int) -> ServerEvent:
    return ServerEvent(
        utterance=session_pb2.UtteranceEvent(
            utterance_index=index, finalized=session_pb2.UtteranceFinalized(audio_ms=900)
        )
    )


def partial(index: int, text: str) -> ServerEvent:
    texts = dispatcher_pb2.Texts(source=text)
    return ServerEvent(partial=session_pb2.Partial(utterance_index=index, texts=texts))


def go_away(after_ms: int = 0) -> ServerEvent:
    return ServerEvent(go_away=session_pb2.GoAway(after_ms=after_ms, why="draining"))


def closed(results: int = 0, missing_ones: int = 0) -> ServerEvent:
    return ServerEvent(closed=session_pb2.Closed(results=results, missing=missing_ones))


def failed(
    reason: common_pb2.ErrorReason.ValueType, retry_after_ms: int = 0, **metadata: str
) -> ServerEvent:
    return ServerEvent(
        error=common_pb2.Error(
            reason=reason, message="no", retry_after_ms=retry_after_ms, metadata=metadata
        )
    )


async def entered(session: Session, peer: Peer, **limits: int) -> PeerStream:
    """Opens a session and returns its stream."""
    entering = asyncio.create_task(session.__aenter__())
    stream = await peer.stream()
    await stream.opens(**limits)
    await entering
    return stream


def english(peer: Peer, **options: Any) -> Session:
    return Session(peer.address, src="en", tgt="es", **options)


async def leave(session: Session) -> None:
    """Leaves a session as an exception does."""
    await session.__aexit__(KeyError, None, None)
