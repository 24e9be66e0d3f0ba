"""Runs one stream at a time, with one timer. Nodes and sessions share it."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import grpc

from lingua_scheduler.sdk._transport.channels import Channels, Lease, is_loopback
from lingua_scheduler.sdk._transport.endings import Close, Ending, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk._transport.statuses import ending_of
from lingua_scheduler.sdk._transport.tls import tls_hint
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.v1 import common_pb2

# How long a stream may take to be flushed and ended by the server.
FLUSH_S = 1.0
# uvloop rounds timers to whole milliseconds. Half a millisecond too early, nothing would be due,
# and the timer would be set for now again and again until the time has come.
ROUNDING_S = 0.0005

Metadata = tuple[tuple[str, str], ...]

Said = TypeVar("Said", covariant=True)
Heard = TypeVar("Heard", contravariant=True)


class Speaker(Protocol[Said, Heard]):
    """What speaks on the streams: a protocol, and what carries out its effects."""

    def take(self) -> Said | None:
        """Returns the next message to write; None if there is none."""

    def hear(self, message: Heard) -> None:
        """Handles a message that has arrived."""

    def ending(self) -> Ending:
        """Returns how the stream ended, by the messages that arrived."""

    def next_deadline(self) -> float | None:
        """Returns when to call `on_due`; None: never."""

    def on_due(self) -> None:
        """Handles the deadline."""


class StreamRunner(Generic[Said, Heard]):
    """Carries a speaker over streams, in one event loop.

    Args:
        speaker: decides what to send.
        name: whose streams they are, for logs, such as "node gpu-1".
        service: the name of the service at the other end, for error messages.
        channels: connections to it.
        token: asked before every stream.
        metadata: sent with each stream, beside the token.
    """

    def __init__(
        self,
        *,
        speaker: Speaker[Said, Heard],
        name: str,
        service: str,
        channels: Channels,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._speaker = speaker
        self._name = name
        self._service = service
        self._channels = channels
        self._token = token
        self._own_metadata = tuple(metadata)
        self._loop = asyncio.get_running_loop()
        # Not always a TimerHandle: uvloop returns a plain Handle for a time in the past.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        # Set when there may be something to write, and when a condition may have come true.
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        # Whether the writer waits for `_ready`. It sets the timer before it waits again, so several
        # wake-ups in one iteration of the loop set it once.
        self._idle = False
        self._call: Any = None
        self._ending: Ending | None = None
        self._flushing = False
        self._stopped = False

    def wake(self) -> None:
        """Checks again what there is to write and when the timer is due."""
        self._ready.set()
        self._changed.set()
        if not self._idle:
            self._arm()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds. It is checked after every change."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # ---- one stream ----

    async def dial(self, address: str, within: float) -> Lease | Lost | Refused:
        """Returns a channel for the next stream, or why there is none; also fetches a token."""
        return await dial(address, channels=self._channels, token=self._token, within=within)

    async def run(
        self,
        lease: Lease,
        connect: Callable[[grpc.aio.Channel, Metadata], Any],
        *,
        on_ended: Callable[[], None] = lambda: None,
    ) -> Ending:
        """Runs one stream to its end, and releases its channel.

        Args:
            lease: from `dial`.
            connect: opens the stream on a channel, with this metadata.
            on_ended: called when the stream has ended, also if this task was cancelled.
        """
        call = connect(lease.channel, (*self._own_metadata, *self._token.metadata))
        self._call, self._ending, self._flushing = call, None, False
        self.wake()
        writer = self._loop.create_task(self._write(call))
        ending: Ending = Lost("the stream was abandoned")
        try:
            ending = await self._read(call)
        finally:
            self._call = None
            on_ended()
            writer.cancel()
            call.cancel()
            await asyncio.wait([writer])
            # The writer may have ended before it could do that after a wake-up.
            self._arm()
            await self._channels.release(lease, renew=is_going_away(ending))
        return ending

    async def _read(self, call: Any) -> Ending:
        status: Ending = Lost("the stream ended")
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self._speaker.hear(message)
        except grpc.aio.AioRpcError as error:
            hint = tls_hint(error.details() or "", self._channels.tls)
            status = ending_of(error, service=self._service, hint=hint)
        except asyncio.CancelledError:
            # Also raised if the call, and not this task, was cancelled, by either side.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        said = self._speaker.ending()
        if self._ending is not None:
            return self._ending
        return status if isinstance(status, Refused) or isinstance(said, Lost) else said

    async def _write(self, call: Any) -> None:
        try:
            while True:
                message = self._speaker.take()
                # A message may need an answer by some time, and a write may wait for long.
                if message is not None or self._ready.is_set():
                    self._arm()
                self._ready.clear()
                if message is not None:
                    await call.write(message)
                    # Somebody may be waiting for what was written.
                    self._changed.set()
                elif self._flushing:
                    await call.done_writing()
                    return
                else:
                    await self._idle_until_ready()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the stream is over; the reader finds out why
        except Exception:
            # A stream that only reads would look alive, so end it.
            log.exception("writing to the stream failed", extra={"client": self._name})
            call.cancel()

    async def _idle_until_ready(self) -> None:
        self._idle = True
        try:
            await self._ready.wait()
        finally:
            self._idle = False

    def close(self, close: Close) -> None:
        """Ends the current stream, if there is one."""
        if self._call is None:
            return
        self._ending = close.ending
        if close.graceful:
            self._flushing = True
            self._ready.set()
            self._loop.call_later(FLUSH_S, self._call.cancel)
        else:
            self._call.cancel()

    # ---- time ----

    def _arm(self) -> None:
        deadline = self._speaker.next_deadline()
        if deadline is None or self._stopped:
            return
        # An early timer does no harm, so it is only moved to an earlier time.
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline + ROUNDING_S, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._speaker.on_due()
        self.wake()

    def stop_timer(self) -> None:
        """Stops the timer for good."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()


async def dial(
    address: str, *, channels: Channels, token: TokenSource, within: float
) -> Lease | Lost | Refused:
    """Returns a channel to a server, or why there is none; also fetches a token for it.

    Args:
        address: of the server.
        channels: connections.
        token: asked first.
        within: how many seconds the token may take.
    """
    failed = await token.ask(within)
    if failed is not None:
        return failed
    if token.metadata and channels.tls is None and not is_loopback(address):
        _warn_of_plain_text(address)
    try:
        return await channels.take(address)
    except ValueError as error:
        return Lost(f"TLS files: {error}")


# Cached: once for each address, however many nodes and sessions there are.
@functools.cache
def _warn_of_plain_text(address: str) -> None:
    log.warning("token sent in plain text", extra={"address": address, "hint": "use tls=Tls(...)"})


def is_going_away(ending: Ending) -> bool:
    """Whether the server is leaving or frozen, so that its connection must not be reused."""
    if isinstance(ending, Lost):
        return ending.silent
    return isinstance(ending, Moved) or (
        isinstance(ending, Refused) and ending.error.reason == common_pb2.ERROR_REASON_DRAINING
    )
