"""The state of a call, which its two sides share.

          the handler returns or aborts
open ------------------------------------> ended: the caller reads what is left, then the status
  |
  |  the caller cancels; the deadline passes; a message is too large; the server stops
  +------------------------------------> broken off: messages are dropped, the handler is
                                         cancelled, and the caller gets the status at once
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc

from lingua_scheduler.services.runtime.rpc.in_process.pipe import Pipe

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
Identity: TypeAlias = Mapping[str, Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended."""

    code: grpc.StatusCode
    details: str = ""
    trailing: Metadata = ()


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a caller says about a call."""

    path: str
    """`/package.Service/Method`."""
    metadata: Metadata = ()
    timeout_s: float | None = None
    identity: Identity = field(default_factory=dict)
    """What the certificate of this process says, as a server's context would report it."""
    max_response_bytes: int | None = None


class InProcessCall:
    """One call, from its start to its status.

    Args:
        options: what the caller says about it.
    """

    def __init__(self, options: CallOptions) -> None:
        loop = asyncio.get_running_loop()
        self.options = options
        self.requests, self.responses = Pipe(loop), Pipe(loop)
        self.initial_metadata: Metadata = ()
        self.status: Status | None = None
        """None while the call is open."""
        self.is_cancelled = False
        """The caller itself has cancelled the call."""
        self.handler: asyncio.Task[None] | None = None
        """Serves the call."""
        self.ended = asyncio.Event()
        self.begun = asyncio.Event()
        """The server has sent its metadata, a response, or the status."""
        self.on_end: list[Callable[[], None]] = []
        self._loop = loop
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        if options.timeout_s is not None:
            self._deadline = loop.time() + options.timeout_s
            self._timer = loop.call_at(self._deadline, self._expire)

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def end(self, status: Status) -> None:
        """Ends the call with the status of its handler; what was sent can still be read."""
        if self.status is None:
            self.responses.close()
            self._end(status)

    def break_off(self, code: grpc.StatusCode, details: str) -> None:
        """Ends the call in the middle."""
        if self.status is not None:
            return
        # First: the tasks of the handler should see their cancellation, not the end of a stream.
        if self.handler is not None:
            self.handler.cancel()
        self.responses.break_off()
        self._end(Status(code, details))

    def cancel(self) -> bool:
        """Ends the call because the caller has no more use for it. Returns whether it was open."""
        if self.status is not None:
            return False
        self.is_cancelled = True
        self.break_off(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def _expire(self) -> None:
        self.break_off(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")

    def _end(self, status: Status) -> None:
        self.status = status
        self.requests.break_off()
        self.begun.set()
        self.ended.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Without this, the call and its task would be a cycle of references.
        self.handler = None
        callbacks, self.on_end = self.on_end, []
        for callback in callbacks:
            self._loop.call_soon(callback)
