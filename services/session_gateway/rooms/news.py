"""Wakes this gateway up when something happens in a room: its Pub/Sub subscriptions in Redis."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.redis.primary import Wire, pack
from lingua_scheduler.services.runtime.redis.server_link import ServerLink
from lingua_scheduler.services.runtime.rpc.duplex import all_ended
from lingua_scheduler.services.runtime.rpc.stream_watch import StreamWatch

# Delay before the next try to subscribe.
_RETRY_S = 0.2
_SUBSCRIBE_WITHIN_S = 2.0
# A connection on which Redis has said nothing for this long, although it was pinged, is dead. Until
# then, renewals of rooms find what is new.
_SILENCE_MS = 6000

_log = logging.getLogger(__name__)


class RoomNews:
    """Subscribes to channels of one server, and again whenever the connection was lost.

    Messages may be lost meanwhile: `on_subscribed` is called each time messages come from then on.

    Args:
        server: knows where Redis is.
        channels: of this gateway.
        on_message: called with each message.
        on_subscribed: called after each subscription.
    """

    def __init__(
        self,
        *,
        server: ServerLink,
        channels: Sequence[str],
        on_message: Callable[[str], None],
        on_subscribed: Callable[[], None],
    ) -> None:
        self._server = server
        self._channels = channels
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._reading: asyncio.Task[None] | None = None
        # Kept, because the loop does not.
        self._pinging: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Listens until cancelled."""
        while True:
            reading = self._reading = asyncio.create_task(self._listen())
            try:
                await asyncio.wait({reading})
            finally:
                reading.cancel()
                await all_ended([reading])
            error = None if reading.cancelled() else reading.exception()
            if error is not None and not isinstance(error, RedisError | OSError):
                raise error
            if self._server.up:
                _log.info("room news interrupted", extra={"reason": str(error or "silence")})
            await asyncio.sleep(_RETRY_S)

    def restart(self) -> None:
        """Subscribes again, because another server may be the primary by now."""
        if self._reading is not None:
            self._reading.cancel()

    async def _listen(self) -> None:
        wire = self._server.new_wire()
        if wire is None:
            return
        watch = None
        try:
            async with asyncio.timeout(_SUBSCRIBE_WITHIN_S):
                await wire.connect()
                await wire.send_packed_command(pack("SUBSCRIBE", *self._channels))
                for _ in self._channels:
                    await wire.read_response()
            watch = StreamWatch(
                silence_ms=_SILENCE_MS,
                ask=lambda: self._ask(wire),
                cut=lambda _: self.restart(),
            )
            self._on_subscribed()
            while True:
                # RESP2: "message", the channel, the text; or "pong".
                kind, *rest = await wire.read_response()
                watch.silence.heard = True
                if kind == b"message":
                    self._on_message(rest[1].decode())
        finally:
            if watch is not None:
                watch.stop()
            await wire.disconnect(nowait=True)

    def _ask(self, wire: Wire) -> None:
        self._pinging = asyncio.get_running_loop().create_task(_ping(wire))


async def _ping(wire: Wire) -> None:
    with contextlib.suppress(RedisError, OSError):
        await wire.send_packed_command(pack("PING"))
