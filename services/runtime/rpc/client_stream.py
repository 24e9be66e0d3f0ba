"""One stream to one instance of another service, from its greeting to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import grpc

from lingua_scheduler.services.runtime.rpc.channels import in_words
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch
from lingua_scheduler.silence import Silence

# How a stream fails if its peer or its connection is gone. Any other error is a bug.
BROKEN = (grpc.RpcError, OSError, TimeoutError, asyncio.InvalidStateError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended."""

    reason: str
    clean: bool = False
    """The peer ended the stream with status OK: it has answered all that it has read."""
    frozen: bool = False
    """This side ended the stream because the peer did not answer."""


class ClientStream:
    """A stream both of whose halves are written by its user.

    Args:
        call: the call; its requests are serialized by the user.
        silence_ms: after which a watched peer that says nothing, and does not answer, is frozen.
    """

    def __init__(self, call: grpc.aio.StreamStreamCall[bytes, Any], *, silence_ms: int) -> None:
        self._call = call
        self._silence_ms = silence_ms
        self._loop = asyncio.get_running_loop()
        self._watch: StreamWatch | None = None
        self._cut = asyncio.Event()
        self._cut_reason = ""
        self._frozen = False
        self._peer_ended = False
        self._last_moment: asyncio.TimerHandle | None = None
        # The methods of the call themselves: a layer between would cost something per message.
        self.read = call.read
        self.write = call.write

    async def greet(self, within_s: float) -> Any:
        """Sends an empty message and returns the answer.

        Raises:
            TimeoutError: there is none within that time.
            ConnectionError: the peer ended the stream instead; it is draining.
            grpc.RpcError: the call failed.
        """
        async with asyncio.timeout(within_s):
            await self.write(b"")
            greeting = await self.read()
        if greeting is grpc.aio.EOF:
            raise ConnectionError("the peer is draining")
        return greeting

    def watch(self, ask: Callable[[], None]) -> Silence:
        """Watches the peer from now on: it is asked if it is silent, and left if it stays so.

        Args:
            ask: has to send what the peer answers at once.

        Returns:
            Set `heard` on it with each message.
        """
        self._watch = StreamWatch(silence_ms=self._silence_ms, ask=ask, cut=self.cut_frozen)
        return self._watch.silence

    async def run(
        self, *, read: Coroutine[Any, Any, None], write: Coroutine[Any, Any, None]
    ) -> StreamEnd:
        """Runs both halves to the end of the stream. Raises nothing but CancelledError.

        Args:
            read: returns when the peer has ended the stream.
            write: returns when nothing more will be written; the peer then ends the stream. If it
                fails because the stream is broken, `read` has the reason.
        """
        try:
            await run_duplex(
                read=self._read_to_end(read), write=self._write_to_end(write), cut=self._cut
            )
        except Exception as error:
            if not isinstance(error, BROKEN):
                _log.exception("stream failed on this side")
            return StreamEnd(self._cut_reason or in_words(error), frozen=self._frozen)
        finally:
            self.cancel()
        reason = "the peer ended the stream" if self._peer_ended else self._cut_reason
        return StreamEnd(reason, clean=self._peer_ended, frozen=self._frozen)

    def cut(self, reason: str) -> None:
        """Ends the stream at once. The first reason counts."""
        if not self._cut.is_set():
            self._cut_reason = reason
            self._cut.set()

    def cut_after(self, seconds: float, reason: str) -> None:
        """Ends the stream after that time, unless it has ended before."""
        self._last_moment = self._loop.call_later(seconds, self.cut, reason)

    def cut_frozen(self, reason: str) -> None:
        """Ends the stream at once because the peer does not answer."""
        if not self._cut.is_set():
            self._frozen = True
            self.cut(reason)

    def cancel(self) -> None:
        """Ends a stream whose halves do not run."""
        # A timer or a cycle of references would keep the stream, and so its connection.
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        if self._last_moment is not None:
            self._last_moment.cancel()
        self._call.cancel()

    async def _read_to_end(self, read: Coroutine[Any, Any, None]) -> None:
        await read
        self._peer_ended = True

    async def _write_to_end(self, write: Coroutine[Any, Any, None]) -> None:
        try:
            await write
            await self._call.done_writing()
        except BROKEN:
            # The status tells why, and `read` gets it.
            pass
        await self._cut.wait()
