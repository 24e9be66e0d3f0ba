"""The running instances of the services: each announces itself in Redis, and can find others."""

import asyncio
import logging
import time
from collections.abc import Callable

from lingua_scheduler.services.runtime.contract.announcements import (
    ALIVE_MS,
    KEEP_MS,
    address_key,
)
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.script_calls import announce_instance
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.version import version
from lingua_scheduler.v1 import instances_pb2

# Short, because operators watch the numbers. An announcement holds for ALIVE_MS, so that a few may
# fail.
_INTERVAL_S = 2.0

_log = logging.getLogger(__name__)


class Instances:
    """Announces this instance and finds others.

    Args:
        link: to Redis.
        settings: of this instance; they are announced, with passwords masked.
        service: "pool", "dispatcher" or "gateway".
    """

    def __init__(self, *, link: RedisLink, settings: Settings, service: str) -> None:
        self._link = link
        self._settings = settings
        self._message = instances_pb2.Instance(
            instance_id=settings.instance_id,
            service=service,
            version=version(),
            health=instances_pb2.INSTANCE_HEALTH_SERVING,
            started_ms=int(time.time() * 1000),
        )
        self._stats: Callable[[], instances_pb2.InstanceStats] = instances_pb2.InstanceStats
        self._has_settings = False
        self._wake = asyncio.Event()

    async def announce(
        self,
        address: str,
        stats: Callable[[], instances_pb2.InstanceStats] = instances_pb2.InstanceStats,
    ) -> None:
        """Announces this instance for the first time; `run` renews the announcement.

        Args:
            address: where others reach it.
            stats: returns its counters, and is called with every announcement.

        Raises:
            DependencyDownError: Redis cannot be used.
        """
        self._message.address = address
        self._stats = stats
        await self._send()

    async def run(self) -> None:
        """Renews the announcement until cancelled; does nothing before the first one."""
        while True:
            try:
                async with asyncio.timeout(_INTERVAL_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._message.address:
                continue
            try:
                await self._send()
            except LinguaError as error:
                _log.warning("instance announcement failed", extra={"reason": str(error)})

    def drain(self) -> None:
        """From now on, and at once, announces that this instance shuts down."""
        self._message.health = instances_pb2.INSTANCE_HEALTH_DRAINING
        self._wake.set()

    async def leave(self) -> None:
        """Withdraws the announcement, because this instance ends. `run` must have ended."""
        if not self._message.address:
            return
        try:
            await self._call(ttl_ms=0, message=b"", settings=b"")
        except LinguaError as error:
            _log.info("instance removal failed", extra={"reason": str(error)})

    async def address_of(self, instance_id: str) -> str:
        """The address of another instance; "" if it does not run."""
        if not instance_id or instance_id == self._settings.instance_id:
            return ""
        found = await self._link.command(
            "GET", address_key(self._settings.redis_prefix, instance_id)
        )
        return found.decode() if found else ""

    async def _send(self) -> None:
        self._message.stats.CopyFrom(self._stats())
        message = self._message.SerializeToString()
        if self._has_settings:
            # Redis may have lost them since.
            self._has_settings = await self._call(ALIVE_MS, message, settings=b"")
        if not self._has_settings:
            # Also the first time: those in Redis may be of an earlier process with this id.
            self._has_settings = await self._call(ALIVE_MS, message, announced(self._settings))

    async def _call(self, ttl_ms: int, message: bytes, settings: bytes) -> bool:
        reply = await self._link.call(
            *announce_instance(
                instance=self._message.instance_id,
                address=self._message.address,
                ttl_ms=ttl_ms,
                keep_ms=KEEP_MS,
                message=message,
                settings=settings,
            )
        )
        return bool(reply)


def announced(settings: Settings) -> bytes:
    """The settings as a part of a serialized Instance. Secrets are masked."""
    rows = (
        instances_pb2.InstanceSetting(
            group=row.group,
            name=row.name,
            value=row.value,
            origin=row.origin,
            description=row.description,
        )
        for row in settings.rows()
    )
    return instances_pb2.Instance(settings=rows).SerializeToString()
