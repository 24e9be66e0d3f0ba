"""Wakes this gateway up when something happens in a room: its Pub/Sub subscription in Redis."""

import asyncio
import logging
from collections.abc import Callable

from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.primary import pack

# Delay before the next try to subscribe.
_RETRY_S = 0.2

_log = logging.getLogger(__name__)


class RoomNews:
    """Subscribes to one channel, and subscribes again whenever the connection was lost.

    Messages may be lost meanwhile: `on_subscribed` is called each time messages come from then on.

    Args:
        link: knows where Redis is.
        channel: of this gateway.
        on_message: called with each message.
        on_subscribed: called after each subscription.
    """

    def __init__(
        self,
        *,
        link: RedisLink,
        channel: str,
        on_message: Callable[[str], None],
        on_subscribed: Callable[[], None],
    ) -> None:
        self._link = link
        self._channel = channel
        self._on_message = on_message
        self._on_subscribed = on_subscribed

    async def run(self) -> None:
        """Listens until cancelled."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as error:
                if self._link.up:
                    _log.info("room news interrupted", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        wire = self._link.new_wire()
        if wire is None:
            return
        try:
            async with asyncio.timeout(_RETRY_S * 10):
                await wire.connect()
                await wire.send_packed_command(pack("SUBSCRIBE", self._channel))
                await wire.read_response()
            self._on_subscribed()
            while True:
                # RESP2: "message", the channel, the text.
                _, _, text = await wire.read_response()
                self._on_message(text.decode())
        finally:
            await wire.disconnect(nowait=True)
