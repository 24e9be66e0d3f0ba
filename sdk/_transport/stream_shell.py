"""What the shells of a node and of a session share: one stream at a time, and one timer."""

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import grpc

from lingua_scheduler.sdk._transport.channels import Channels, Lease, is_loopback
from lingua_scheduler.sdk._transport.endings import Close, Ending, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.statuses import ending_of
from lingua_scheduler.sdk._transport.tls import tls_hint
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.v1 import common_pb2

# What a stream may take to be flushed and ended by the other side.
FLUSH_S = 1.0

Said = TypeVar("Said")
Heard = TypeVar("Heard")

_log = logging.getLogger("lingua_scheduler.sdk")


class StreamShell(ABC, Generic[Said, Heard]):
    """Carries a protocol over streams. One event loop owns it all.

    Args:
        name: whose it is, for logs, such as "node gpu-1".
        service: whom it speaks with, in words.
        channels: connections to it.
        token: asked for before every stream.
        metadata: sent with each stream, beside the token.
    """

    def __init__(
        self,
        *,
        name: str,
        service: str,
        channels: Channels,
        token: TokenSource,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._name = name
        self._service = service
        self._channels = channels
        self._token = token
        self._own_metadata = tuple(metadata)
        self._loop = asyncio.get_running_loop()
        # Not a TimerHandle everywhere: uvloop gives a plain one where the time is over.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        # Set whenever there may be something to write, or a condition may have come true.
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._call: Any = None
        self._ending: Ending | None = None
        self._flushing = False
        self._stopped = False

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

    # ---- what the protocol says ----

    @abstractmethod
    def _take(self) -> Said | None:
        """The next message to write, if there is one."""

    @abstractmethod
    def _hear(self, message: Heard) -> None:
        """A message has come."""

    @abstractmethod
    def _said_ending(self) -> Ending:
        """How the stream has ended, as far as messages tell."""

    @abstractmethod
    def _next_deadline(self) -> float | None:
        """When `_on_due` is to be called."""

    @abstractmethod
    def _on_due(self) -> None:
        """It is time."""

    # ---- one stream ----

    async def _dial(self, address: str, within: float) -> Lease | Lost | Refused:
        """A token and a channel for the next stream, within so many seconds; or why not."""
        failed = await self._token.ask(within)
        if failed is not None:
            return failed
        if self._token.metadata and self._channels.tls is None and not is_loopback(address):
            _warn_of_plain_text(address)
        try:
            return await self._channels.take(address)
        except ValueError as error:
            return Lost(f"no TLS: {error}")

    @property
    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (*self._own_metadata, *self._token.metadata)

    def _begin(self, call: Any) -> "asyncio.Task[None]":
        """A stream is open; returns the task that writes to it."""
        self._call, self._ending, self._flushing = call, None, False
        self.wake()
        return self._loop.create_task(self._write(call))

    async def _read(self, call: Any) -> Ending:
        status: Ending = Lost("the stream ended")
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                self._hear(message)
        except grpc.aio.AioRpcError as error:
            hint = tls_hint(error.details() or "", self._channels.tls)
            status = ending_of(error, service=self._service, hint=hint)
        except asyncio.CancelledError:
            # Also raised where it is the call that was cancelled, by this side or the other.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        said = self._said_ending()
        if self._ending is not None:
            return self._ending
        return status if isinstance(status, Refused) or isinstance(said, Lost) else said

    async def _write(self, call: Any) -> None:
        try:
            while True:
                message = self._take()
                if message is not None:
                    await call.write(message)
                    # What was written may have been waited for.
                    self._changed.set()
                elif self._flushing:
                    await call.done_writing()
                    return
                else:
                    self._arm()
                    self._ready.clear()
                    await self._ready.wait()
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the stream is over, and the reader learns why
        except Exception:
            # A stream that only listens would look alive: better none.
            _log.exception("%s: cannot write to its stream", self._name)
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

    # ---- time ----

    def _arm(self) -> None:
        deadline = self._next_deadline()
        if deadline is None or self._stopped:
            return
        # A timer that is early does no harm, so it is moved only forward.
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._on_due()
        self.wake()

    def _stop_timer(self) -> None:
        """No timer is set any more, whatever comes."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()


# Once for each address, however many nodes and sessions there are.
@functools.cache
def _warn_of_plain_text(address: str) -> None:
    _log.warning("tokens go to %s in plain text, for all to read: use tls=Tls(...)", address)


def is_going_away(ending: Ending) -> bool:
    """Whether the other side asks to be left, or is frozen: its connection is not used again."""
    if isinstance(ending, Lost):
        return ending.silent
    return isinstance(ending, Moved) or (
        isinstance(ending, Refused) and ending.error.reason == common_pb2.ERROR_REASON_DRAINING
    )
