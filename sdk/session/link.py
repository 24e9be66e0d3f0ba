"""The shell around a session's protocol: streams and one timer. One event loop owns it all.

A session costs two tasks (a reader and a writer), what gRPC needs for a stream, and one timer
handle.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

from lingua_scheduler.sdk._transport.channels import Channels, Lease
from lingua_scheduler.sdk._transport.endings import Close, Ending, Lost
from lingua_scheduler.sdk._transport.stream_shell import StreamShell, is_going_away
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import SessionError
from lingua_scheduler.sdk.session.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.events import Event
from lingua_scheduler.sdk.session.protocol import SessionProtocol
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc

_log = logging.getLogger("lingua_scheduler.sdk")


class SessionLink(StreamShell[session_pb2.ClientMessage, session_pb2.ServerMessage]):
    """One session's connections, from its first stream to its last.

    Args:
        protocol: what to say.
        addresses: of gateways, all alike.
        channels: connections to them.
        token: asked for before every stream.
        metadata: sent with each stream, beside the token.
        give: called with what the app is to hear.
        over: called when the session is closed: all has been given.
        rng: chooses the first address.
    """

    def __init__(
        self,
        *,
        protocol: SessionProtocol,
        addresses: Sequence[str],
        channels: Channels,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]],
        give: Callable[[Event], None],
        over: Callable[[], None],
        rng: random.Random,
    ) -> None:
        super().__init__(
            name="session",
            service="session gateway",
            channels=channels,
            token=token,
            metadata=metadata,
        )
        self._protocol = protocol
        self._addresses = addresses
        self._give = give
        self._over = over
        self._at = rng.randrange(len(addresses))
        self._retry_after = 0.0
        self._error: SessionError | None = None

    async def run(self) -> None:
        """Returns when the session is closed. Raises SessionError where it cannot go on."""
        try:
            while True:
                await self._stream(self._addresses[self._at % len(self._addresses)])
                if self._error is not None:
                    raise self._error from self._token.failure
                if self._protocol.over:
                    return
                self._at += 1
                await asyncio.sleep(self._retry_after)
        finally:
            self._stop_timer()

    # ---- one stream ----

    async def _stream(self, address: str) -> None:
        now = self._loop.time()
        dialled = await self._dial(address, self._protocol.on_connecting(now) - now)
        self._protocol.on_connected(self._loop.time())
        ending = await self._converse(dialled) if isinstance(dialled, Lease) else dialled
        _log.debug("session %s: stream to %s: %s", self._protocol.session_id, address, ending)
        self._do(self._protocol.on_disconnected(self._loop.time(), ending))
        self.wake()

    async def _converse(self, lease: Lease) -> Ending:
        call = session_pb2_grpc.SessionGatewayStub(lease.channel).Converse(metadata=self._metadata)
        writer = self._begin(call)
        ending: Ending = Lost("the session was left")
        try:
            ending = await self._read(call)
        finally:
            self._call = None
            writer.cancel()
            call.cancel()
            await asyncio.wait([writer])
            await self._channels.release(lease, renew=is_going_away(ending))
        return self._token.judge(ending, good=self._protocol.opened)

    def _take(self) -> session_pb2.ClientMessage | None:
        return self._protocol.take()

    def _hear(self, message: session_pb2.ServerMessage) -> None:
        self._do(self._protocol.on_message(self._loop.time(), message))
        self.wake()

    def _said_ending(self) -> Ending:
        return self._protocol.ending(self._loop.time())

    def _next_deadline(self) -> float | None:
        return self._protocol.next_deadline()

    def _on_due(self) -> None:
        self._do(self._protocol.on_timer(self._loop.time()))

    # ---- effects ----

    def _do(self, effects: Iterable[SessionEffect]) -> None:
        for effect in effects:
            match effect:
                case Give():
                    self._give(effect.event)
                case Close():
                    self._close(effect)
                case Retry():
                    self._retry_after = effect.after
                case Over():
                    self._over()
                case Fail():
                    self._error = effect.error
