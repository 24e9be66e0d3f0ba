"""A stream to another service that is opened again, on any instance, whenever it is lost.

One stream at a time is current: it gets new work. Streams before it may go on until what was given
to them is done.

                  greeted                              lost, retired, silent
    (connecting) ----------> current ------------------------------------------> (connecting)
         ^  | no answer         | a new stream was greeted: renewal, a better instance
         |  v back off          v
       (pause)               replaced, until it ends

What can go wrong, and what happens then:
- No instance answers: `down`, and it is tried again after a pause that doubles up to a second.
- An instance takes the connection but answers nothing (it is frozen, or its host is): after
  `greet_within_s`, or `silence_ms` on a running stream, the stream ends and the next one gets a new
  connection, because gRPC would go on using the old one.
- An instance drains: it ends the stream, or the owner hears it and calls `retire`. Another instance
  usually answers at once, so the client counts as up for another `handover_s`.
- The channel is old, or its certificates have changed: RenewedChannel opens a stream on a new one
  beside the current stream, which is then replaced.
- A replaced stream ends in any way: its owner moves what it had left.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor

from lingua_scheduler.services.runtime.rpc.channels import in_words, open_stream
from lingua_scheduler.services.runtime.rpc.client_stream import BROKEN, ClientStream, StreamEnd
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel

# The pause between two attempts to connect: doubled each time.
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0
# A stream that was lost sooner than this is opened again after a pause, not at once.
STEADY_S = 1.0
# Services that start together need not fail once: this is how long the first connection may take
# before the client counts as down.
FIRST_CONNECT_S = 1.0

_log = logging.getLogger(__name__)


class Peer(Protocol):
    """What the owner does on one stream."""

    @property
    def stream(self) -> ClientStream:
        """The stream."""

    async def read(self) -> None:
        """Takes in what the service sends; returns at the end of the stream."""

    async def write(self) -> None:
        """Writes what waits; returns when nothing more will be written."""


PeerT = TypeVar("PeerT", bound=Peer)


class StreamOwner(Protocol[PeerT]):
    """Gives streams their work. Nothing here may block or raise."""

    def new_peer(self, stream: ClientStream) -> PeerT:
        """Returns the peer for a stream that is being opened."""

    def is_fit(self, peer: PeerT, greeting: Any) -> bool:
        """Whether a peer that has answered with `greeting` becomes current."""

    def on_current(self, peer: PeerT, replaced: PeerT | None) -> None:
        """New work goes to this peer. The one that it replaced has to end by itself."""

    def on_end(self, peer: PeerT, end: StreamEnd) -> None:
        """A stream has ended: whatever was under way on it has failed or goes elsewhere."""

    def on_down(self, reason: str) -> None:
        """There is no stream, and none is expected in a moment: what waits for one may fail."""


class ReconnectingStream(Generic[PeerT]):
    """Keeps one stream to a service open.

    Args:
        service: who is called, for logs.
        channel: to the service.
        method: is called; it streams both ways, and answers an empty message at once.
        silence_ms: after which an instance that says nothing, and does not answer, is left.
        greet_within_s: how long an instance may take to answer the first message.
        handover_s: how long a new stream may take after an instance has drained before the client
            counts as down: nothing was lost, and what waits goes on.
        owner: gives streams their work.
    """

    def __init__(
        self,
        *,
        service: str,
        channel: RenewedChannel,
        method: MethodDescriptor,
        silence_ms: int,
        greet_within_s: float,
        handover_s: float = 0.0,
        owner: StreamOwner[PeerT],
    ) -> None:
        self._service = service
        self._method = method
        self._silence_ms = silence_ms
        self._greet_within_s = greet_within_s
        self._handover_s = handover_s
        self._owner = owner
        self._runner: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        # Until when a missing stream does not count as down.
        self._expected_until = -math.inf
        self.channel = channel
        """For other calls to the service."""
        self.current: PeerT | None = None
        """The peer that gets new work."""
        self.peers: dict[PeerT, asyncio.Task[None]] = {}
        """All that run: the current one, and those that were replaced or retired."""
        self.up = False
        """Whether the service answers, as far as is known."""
        self.accepts = False
        """Whether there is a stream, or will be in a moment."""
        self.down_reason = "it has not been opened"
        """Why the client is down, for people; empty while it is up."""
        self.on_change: list[Callable[[bool, str], None]] = []
        """Called with (up, reason) after each change; must not block."""

    @property
    def is_open(self) -> bool:
        """Whether it stays connected by itself."""
        return self._runner is not None

    async def open(self) -> None:
        """Starts to connect. Returns when it has, or after a second; then it goes on trying."""
        if self.channel.is_open:
            raise RuntimeError("this client is already open")
        self.channel.open()
        self.accepts, self._expected_until = True, _now() + FIRST_CONNECT_S
        self.down_reason = "it is not connected yet"
        connected = asyncio.Event()
        self._runner = asyncio.create_task(self._stay_connected(connected))
        try:
            async with asyncio.timeout(FIRST_CONNECT_S):
                await connected.wait()
        except TimeoutError:
            self._say(logging.WARNING, "peer unreachable", self.down_reason)

    async def close(self) -> None:
        """Ends all streams. May be opened again."""
        was_up, self.up, self.accepts = self.up, False, False
        self.down_reason = "the client is closed"
        self.current = None
        tasks = [task for task in (self._runner, *self.peers.values()) if task is not None]
        self._runner = None
        for task in tasks:
            task.cancel()
        await self.channel.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if was_up:
            self._tell()

    def retire(self, peer: PeerT, reason: str) -> None:
        """Gives no more work to this peer, because it is draining, and opens another stream."""
        if self.current is peer:
            self._lose_current(reason, handover=True)

    def look_elsewhere(self) -> None:
        """The current instance is of no use now; to be called again while that is so."""
        self.channel.look_elsewhere()

    # ---- connections ----

    async def _stay_connected(self, connected: asyncio.Event) -> None:
        pause = 0.0
        while True:
            began = _now()
            if await self.channel.reconnect(self._connect):
                connected.set()
                await self.channel.renew_until(self._lost, self._connect)
                if _now() - began > STEADY_S:
                    pause = 0.0
            # Many clients lose the same instance at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(max(2 * pause, PAUSE_MIN_S), PAUSE_MAX_S)

    async def _connect(self, channel: grpc.aio.Channel) -> bool:
        """Opens a stream that replaces the current one, if there is one."""
        call = open_stream(channel, self._method, self.channel.dialer.metadata())
        stream = ClientStream(call, silence_ms=self._silence_ms)
        peer = self._owner.new_peer(stream)
        try:
            greeting = await stream.greet(self._greet_within_s)
        except Exception as error:
            stream.cancel()
            self._not_connected(error)
            return False
        except BaseException:
            stream.cancel()
            raise
        if not self._owner.is_fit(peer, greeting):
            stream.cancel()
            return False
        self.channel.hold(channel)
        self.peers[peer] = asyncio.create_task(self._serve(peer, channel))
        replaced, self.current = self.current, peer
        self._lost.clear()
        self._set_up()
        self._owner.on_current(peer, replaced)
        return True

    def _not_connected(self, error: Exception) -> None:
        reason = in_words(error)
        if isinstance(error, TimeoutError):
            reason = f"no answer within {self._greet_within_s * 1000:.0f} ms"
            self.channel.mark_frozen()
        elif not isinstance(error, BROKEN):
            _log.exception("connecting failed on this side")
        if self.current is None:
            self._no_stream(reason)

    async def _serve(self, peer: PeerT, channel: grpc.aio.Channel) -> None:
        try:
            end = await peer.stream.run(read=peer.read(), write=peer.write())
            if end.frozen:
                self.channel.mark_frozen()
            was_current = self.current is peer
            if was_current:
                self.current = None
            self._owner.on_end(peer, end)
            if was_current:
                self._lose_current(end.reason, handover=end.clean)
            elif end.frozen:
                self._say(logging.WARNING, "replaced stream cut", end.reason)
            await self.channel.release(channel)
        finally:
            del self.peers[peer]

    # ---- up and down ----

    def _set_up(self) -> None:
        self._expected_until = -math.inf
        self.accepts = True
        if not self.up:
            self.up, self.down_reason = True, ""
            self._say(logging.INFO, "peer connected")
            self._tell()

    def _lose_current(self, reason: str, *, handover: bool) -> None:
        self.current = None
        if handover:
            self._expected_until = _now() + self._handover_s
        self._no_stream(reason, logging.INFO if handover else logging.WARNING)
        self._lost.set()

    def _no_stream(self, reason: str, level: int = logging.WARNING) -> None:
        if not self.up:
            self.down_reason = reason
        if _now() < self._expected_until:
            return
        self.down_reason = reason
        if self.accepts:
            self.accepts = False
            self._owner.on_down(reason)
        if self.up:
            self.up = False
            self._say(level, "peer disconnected", reason)
            self._tell()

    def _tell(self) -> None:
        for callback in self.on_change:
            try:
                callback(self.up, self.down_reason)
            except Exception:
                _log.exception("connection callback failed")

    def _say(self, level: int, event: str, reason: str = "") -> None:
        facts = {"peer": self._service, "address": self.channel.address}
        _log.log(level, event, extra=facts | ({"reason": reason} if reason else {}))


def _now() -> float:
    return asyncio.get_running_loop().time()
