"""The running instances of a service and their addresses, kept in Redis."""

import asyncio
import logging

from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.script_calls import announce_instance
from lingua_scheduler.services.runtime.settings.settings import Settings

# An announcement expires after three intervals.
_INTERVAL_S = 5.0
_TTL_MS = 15_000

_log = logging.getLogger(__name__)


class Instances:
    """Announces this instance and finds others."""

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._instance_id = settings.instance_id
        self._prefix = f"{settings.redis_prefix}:instance:"

    async def announce(self, address: str) -> None:
        """Announces the address of this instance. Raises DependencyDownError."""
        await self._link.call(
            *announce_instance(instance=self._instance_id, address=address, ttl_ms=_TTL_MS)
        )

    async def run(self, address: str) -> None:
        """Renews the announcement until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            try:
                await self.announce(address)
            except LinguaError as error:
                _log.warning("instance announcement failed", extra={"reason": str(error)})

    async def leave(self) -> None:
        """Withdraws the announcement, because this instance ends."""
        try:
            await self._link.call(
                *announce_instance(instance=self._instance_id, address="", ttl_ms=0)
            )
        except LinguaError as error:
            _log.info("instance removal failed", extra={"reason": str(error)})

    async def address_of(self, instance_id: str) -> str:
        """The address of another instance; "" if it does not run."""
        if not instance_id or instance_id == self._instance_id:
            return ""
        found = await self._link.command("GET", self._prefix + instance_id)
        return found.decode() if found else ""
