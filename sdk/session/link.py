"""Runs a session's protocol over streams, with one timer, in one event loop.

A session costs two tasks (a reader and a writer), what gRPC needs for a stream, and one timer
handle.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from lingua_scheduler.sdk._transport.channels import Channels, Lease
from lingua_scheduler.sdk._transport.endings import Close, Ending
from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk._transport.stream_runner import Metadata, StreamRunner
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import SessionError, SessionLostError
from lingua_scheduler.sdk.session.events import Event
from lingua_scheduler.sdk.session.inbox import Inbox
from lingua_scheduler.sdk.session.protocol.effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.machine import SessionProtocol
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc


class SessionLink:
    """Carries a session from its first stream to its last.

    Args:
        protocol: decides what to send.
        addresses: the addresses of equivalent gateways.
        channels: connections to them.
        token: asked before every stream.
        metadata: sent with each stream, beside the token.
        give: called with each event for the app.
        over: called when the session is closed, after the last event.
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
        self._loop = asyncio.get_running_loop()
        self._streams: StreamRunner[session_pb2.ClientMessage, session_pb2.ServerMessage]
        self._streams = StreamRunner(
            speaker=self,
            name="session",
            service="session gateway",
            channels=channels,
            token=token,
            metadata=metadata,
        )
        self._token = token
        self._protocol = protocol
        self._addresses = addresses
        self._give = give
        self._over = over
        self._at = rng.randrange(len(addresses))
        self._retry_after = 0.0
        self._error: SessionError | None = None

    async def run(self) -> None:
        """Returns when the session is closed. Raises SessionError if it cannot continue."""
        try:
            while True:
                await self._stream(self._addresses[self._at % len(self._addresses)])
                if self._error is not None:
                    raise self._error from self._token.failure
                if self._protocol.state.over:
                    return
                self._at += 1
                await asyncio.sleep(self._retry_after)
        finally:
            self._streams.stop_timer()

    def wake(self) -> None:
        """There may be something to write."""
        self._streams.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds. It is checked after every change."""
        await self._streams.until(condition)

    # ---- one stream ----

    async def _stream(self, address: str) -> None:
        now = self._loop.time()
        within = self._protocol.on_connecting(now) - now
        dialled = await self._streams.dial(address, within)
        self._protocol.on_connected(self._loop.time())
        ending = await self._converse(dialled) if isinstance(dialled, Lease) else dialled
        session_id = self._protocol.state.session_id
        fields = {"session_id": session_id, "address": address, "ending": ending}
        log.debug("session stream ended", extra=fields)
        self._do(self._protocol.on_disconnected(self._loop.time(), ending))
        self.wake()

    async def _converse(self, lease: Lease) -> Ending:
        ending = await self._streams.run(lease, _open_stream)
        return self._token.judge(ending, good=self._protocol.opened)

    # ---- what the streams ask ----

    def take(self) -> session_pb2.ClientMessage | None:
        """See Speaker."""
        return self._protocol.take()

    def hear(self, message: session_pb2.ServerMessage) -> None:
        """See Speaker."""
        self._do(self._protocol.on_message(self._loop.time(), message))
        self.wake()

    def ending(self) -> Ending:
        """See Speaker."""
        return self._protocol.ending(self._loop.time())

    def next_deadline(self) -> float | None:
        """See Speaker."""
        return self._protocol.next_deadline()

    def on_due(self) -> None:
        """See Speaker."""
        self._do(self._protocol.on_timer(self._loop.time()))

    # ---- effects ----

    def _do(self, effects: Iterable[SessionEffect]) -> None:
        for effect in effects:
            match effect:
                case Give():
                    self._give(effect.event)
                case Close():
                    self._streams.close(effect)
                case Retry():
                    self._retry_after = effect.after
                case Over():
                    self._over()
                case Fail():
                    self._error = effect.error


def _open_stream(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return session_pb2_grpc.SessionGatewayStub(channel).Converse(metadata=metadata)


class Connection:
    """Runs a session's link until the session is closed or lost. Starts at once.

    Args:
        protocol: the session's protocol.
        inbox: receives what the app is to read.
        addresses: the addresses of equivalent gateways.
        channels: connections to them.
        token: asked before every stream.
        metadata: sent with each stream, beside the token.
    """

    def __init__(
        self,
        *,
        protocol: SessionProtocol,
        inbox: Inbox,
        addresses: Sequence[str],
        channels: Channels,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]],
    ) -> None:
        self._state = protocol.state
        self._inbox = inbox
        self._done = False
        self._failure: Exception | None = None
        self._link = SessionLink(
            protocol=protocol,
            addresses=addresses,
            channels=channels,
            token=token,
            metadata=metadata,
            give=inbox.put,
            over=inbox.end,
            rng=random.Random(),
        )
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(self._on_done)

    def wake(self) -> None:
        """There may be something to write."""
        self._link.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds or the session is over. Raises if it was lost."""
        await self._link.until(lambda: self._done or condition())
        if self._failure is not None:
            raise self._failure

    def check_writable(self) -> None:
        """Raises if nothing can be sent."""
        if self._failure is not None:
            raise self._failure
        if self._state.closing:
            raise RuntimeError("the session is closed: nothing more can be sent")
        if self._state.over:
            raise SessionLostError(
                "CLOSED", "the server has closed the session", results_seen=self._state.seen
            )

    async def abort(self) -> None:
        """Ends the task, whatever it is doing. Does nothing if it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._failure = self._state.lost("ABORTED", "the session was left before its end")
        elif (error := task.exception()) is not None:
            # A BaseException that is no Exception, such as an interrupt, ends the loop itself.
            self._failure = error if isinstance(error, Exception) else RuntimeError(str(error))
        self._done = True
        self._inbox.end(self._failure)
        self.wake()
