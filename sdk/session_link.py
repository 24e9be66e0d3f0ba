"""The shell around a session's protocol: streams and one timer. One event loop owns it all.

A session costs two tasks (a reader and a writer), what gRPC needs for a stream, and one timer
handle.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

import grpc

from lingua_scheduler.sdk.channels import Channels
from lingua_scheduler.sdk.effects import Close, Ending, Lost, Moved, Refused
from lingua_scheduler.sdk.errors import SessionError
from lingua_scheduler.sdk.session_effects import Fail, Give, Over, Retry, SessionEffect
from lingua_scheduler.sdk.session_events import Event
from lingua_scheduler.sdk.session_protocol import SessionProtocol
from lingua_scheduler.sdk.statuses import ending_of
from lingua_scheduler.v1 import common_pb2, session_pb2, session_pb2_grpc

# What a stream may take to be flushed and ended by the other side.
FLUSH_S = 1.0

_Call = grpc.aio.StreamStreamCall[session_pb2.ClientMessage, session_pb2.ServerMessage]

_log = logging.getLogger("lingua_scheduler.sdk")


class SessionLink:
    """One session's connections, from its first stream to its last.

    Args:
        protocol: what to say.
        addresses: of gateways, all alike.
        channels: connections to them.
        metadata: sent with each stream.
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
        metadata: Sequence[tuple[str, str]],
        give: Callable[[Event], None],
        over: Callable[[], None],
        rng: random.Random,
    ) -> None:
        self._protocol = protocol
        self._addresses = addresses
        self._channels = channels
        self._metadata = tuple(metadata)
        self._give = give
        self._over = over
        self._at = rng.randrange(len(addresses))
        self._loop = asyncio.get_running_loop()
        # Not a TimerHandle everywhere: uvloop gives a plain one where the time is over.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        # Set whenever there may be something to write, or a condition may have come true.
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._call: _Call | None = None
        self._ending: Ending | None = None
        self._flushing = False
        self._retry_after = 0.0
        self._error: SessionError | None = None
        self._ended = False

    async def run(self) -> None:
        """Returns when the session is closed. Raises SessionError where it cannot go on."""
        try:
            while True:
                await self._stream(self._addresses[self._at % len(self._addresses)])
                if self._error is not None:
                    raise self._error
                if self._protocol.over:
                    return
                self._at += 1
                await asyncio.sleep(self._retry_after)
        finally:
            self._ended = True
            if self._timer is not None:
                self._timer.cancel()

    def wake(self) -> None:
        """Something has changed: there may be something to write, or a timer to set."""
        self._ready.set()
        self._changed.set()
        self._arm()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds; it is looked at whenever something has changed."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # ---- one stream ----

    async def _stream(self, address: str) -> None:
        lease = self._channels.take(address)
        call = session_pb2_grpc.SessionGatewayStub(lease.channel).Converse(metadata=self._metadata)
        self._call, self._ending, self._flushing = call, None, False
        self._protocol.on_connected(self._loop.time())
        self.wake()
        writer = self._loop.create_task(self._write(call))
        ending: Ending = Lost("the session was left")
        try:
            ending = await self._read(call)
        finally:
            self._call = None
            writer.cancel()
            call.cancel()
            await asyncio.wait([writer])
            await self._channels.release(lease, renew=_is_going_away(ending))
        _log.debug("session %s: stream to %s: %s", self._protocol.session_id, address, ending)
        self._do(self._protocol.on_disconnected(self._loop.time(), ending))
        self.wake()

    async def _read(self, call: _Call) -> Ending:
        status: Ending = Lost("the stream ended")
        try:
            while True:
                message = await call.read()
                if not isinstance(message, session_pb2.ServerMessage):
                    break
                self._do(self._protocol.on_message(self._loop.time(), message))
                self.wake()
        except grpc.aio.AioRpcError as error:
            status = ending_of(error, service="session gateway")
        except asyncio.CancelledError:
            # Also raised where it is the call that was cancelled, by this side or the other.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        if self._ending is not None:
            return self._ending
        said = self._protocol.ending(self._loop.time())
        return status if isinstance(status, Refused) or isinstance(said, Lost) else said

    async def _write(self, call: _Call) -> None:
        try:
            while True:
                message = self._protocol.take()
                if message is not None:
                    await call.write(message)
                    # A chunk that was known to be safe is forgotten when it is written again.
                    self._changed.set()
                elif self._flushing:
                    await call.done_writing()
                    return
                else:
                    self._ready.clear()
                    await self._ready.wait()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the stream is over, and the reader learns why
        except Exception:
            # A stream that only listens would look alive: better none.
            _log.exception("session %s: cannot write", self._protocol.session_id)
            call.cancel()

    def _close(self, close: Close) -> None:
        if self._call is None:
            return
        self._ending = close.ending
        if close.graceful:
            self._flushing = True
            self._ready.set()
            self._loop.call_later(FLUSH_S, self._call.cancel)
        else:
            self._call.cancel()

    # ---- effects and time ----

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

    def _arm(self) -> None:
        deadline = self._protocol.next_deadline()
        if deadline is None or self._ended:
            return
        # A timer that is early does no harm, so it is moved only forward.
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._do(self._protocol.on_timer(self._loop.time()))
        self.wake()


def _is_going_away(ending: Ending) -> bool:
    return isinstance(ending, Moved) or (
        isinstance(ending, Refused) and ending.error.reason == common_pb2.ERROR_REASON_DRAINING
    )
