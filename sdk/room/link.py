"""Runs a listener's protocol over streams, with one timer, in one event loop."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import grpc

from lingua_scheduler.sdk._transport.channels import Channels, Lease
from lingua_scheduler.sdk._transport.endings import Close, Ending
from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk._transport.stream_runner import FLUSH_S, Metadata, StreamRunner
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import RoomError
from lingua_scheduler.sdk.room.events import RoomStatus
from lingua_scheduler.sdk.room.inbox import Inbox
from lingua_scheduler.sdk.room.protocol.effects import Fail, Give, ListenerEffect, Show
from lingua_scheduler.sdk.room.protocol.machine import ListenerProtocol
from lingua_scheduler.sdk.session.protocol.effects import Over, Retry
from lingua_scheduler.v1 import rooms_pb2, session_pb2_grpc

OnStatus = Callable[[RoomStatus], None]


class ListenerLink:
    """Runs a listener until it has left, or its room is closed or lost. Starts at once.

    Args:
        protocol: decides what to send.
        inbox: receives what the app is to read.
        on_status: called with every status of the room; None: none is asked for.
        addresses: the addresses of equivalent gateways.
        channels: connections to them.
        token: asked before every stream.
        metadata: sent with each stream, beside the token.
        rng: chooses the first address.
    """

    def __init__(
        self,
        *,
        protocol: ListenerProtocol,
        inbox: Inbox,
        on_status: OnStatus | None,
        addresses: Sequence[str],
        channels: Channels,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]],
        rng: random.Random,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: StreamRunner[rooms_pb2.ListenerMessage, rooms_pb2.RoomMessage]
        self._streams = StreamRunner(
            speaker=self,
            name="listener",
            service="session gateway",
            channels=channels,
            token=token,
            metadata=metadata,
        )
        self._token = token
        self._protocol = protocol
        self._inbox = inbox
        self._on_status = on_status
        self._addresses = addresses
        self._at = rng.randrange(len(addresses))
        self._retry_after = 0.0
        self._error: RoomError | None = None
        self._done = False
        self._failure: Exception | None = None
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._on_done)

    # ---- what the listener asks ----

    def wake(self) -> None:
        """There may be something to write."""
        self._streams.wake()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds or the listener is over. Raises if it was lost."""
        await self._streams.until(lambda: self._done or condition())
        if self._failure is not None:
            raise self._failure

    async def leave(self) -> None:
        """Leaves the room. Returns when the gateway knows, or after about a second."""
        is_joined = self._protocol.joined
        self._do(self._protocol.leave())
        self.wake()
        if is_joined and not self._done:
            with contextlib.suppress(TimeoutError):
                # The stream itself is given FLUSH_S to end.
                async with asyncio.timeout(2 * FLUSH_S):
                    await asyncio.wait([self._task])
        await self.abort()

    async def abort(self) -> None:
        """Ends the task, whatever it is doing. Does nothing if it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])

    # ---- streams ----

    async def _run(self) -> None:
        """Returns when the listener is over. Raises RoomError if it cannot continue."""
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

    async def _stream(self, address: str) -> None:
        now = self._loop.time()
        within = self._protocol.on_connecting(now) - now
        dialled = await self._streams.dial(address, within)
        self._protocol.on_connected(self._loop.time())
        ending = await self._listen(dialled) if isinstance(dialled, Lease) else dialled
        fields = {
            "member_id": self._protocol.state.member_id,
            "address": address,
            "ending": ending,
        }
        log.debug("listener stream ended", extra=fields)
        self._do(self._protocol.on_disconnected(self._loop.time(), ending))
        self.wake()

    async def _listen(self, lease: Lease) -> Ending:
        ending = await self._streams.run(lease, _open_stream)
        return self._token.judge(ending, good=self._protocol.joined)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        state = self._protocol.state
        if task.cancelled():
            if not state.over:
                self._failure = state.lost("ABORTED", "the listener was dropped")
        elif (error := task.exception()) is not None:
            # A BaseException that is no Exception, such as an interrupt, ends the loop itself.
            self._failure = error if isinstance(error, Exception) else RuntimeError(str(error))
        self._done = True
        self._inbox.end(self._failure)
        self.wake()

    # ---- what the streams ask ----

    def take(self) -> rooms_pb2.ListenerMessage | None:
        """See Speaker."""
        return self._protocol.take()

    def hear(self, message: rooms_pb2.RoomMessage) -> None:
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

    def _do(self, effects: Iterable[ListenerEffect]) -> None:
        for effect in effects:
            match effect:
                case Give():
                    self._inbox.put(effect.event)
                case Show():
                    self._show(effect.status)
                case Close():
                    self._streams.close(effect)
                case Retry():
                    self._retry_after = effect.after
                case Over():
                    self._inbox.end()
                case Fail():
                    self._error = effect.error

    def _show(self, status: RoomStatus) -> None:
        if self._on_status is None:
            return
        try:
            self._on_status(status)
        except Exception:
            # The app's function must not end the app's listener.
            log.exception(
                "status callback failed", extra={"member_id": self._protocol.state.member_id}
            )


def _open_stream(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return session_pb2_grpc.SessionGatewayStub(channel).Listen(metadata=metadata)
