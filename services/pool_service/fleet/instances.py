"""The instances of all services, as they announce themselves. Reads only."""

import logging
from collections.abc import AsyncIterator, Iterable
from heapq import nlargest

from lingua_scheduler.services.runtime.contract.announcements import (
    ALIVE_MS,
    instances_key,
    settings_key,
    unpacked,
)
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import instances_pb2

_log = logging.getLogger(__name__)

# An instance whose last announcement is older is down.
_DOWN_AFTER_MS = ALIVE_MS
# Instances that are listed, the promise of the contract.
_MOST = 1000
# Instances that one step reads, and steps. Ten times as many as are listed: more can be there only
# if processes start and die all the time.
_SCAN, _STEPS = 500, 20
# Settings that one command reads, of about 12 kB each.
_SETTINGS_AT_ONCE = 20


class AnnouncedInstances:
    """Reads the announcements of instances. Changes nothing."""

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._prefix = settings.redis_prefix
        # The rest of a response are instances without settings: at most 0.4 MB.
        self._settings_bytes = batch_bytes(settings.max_message_bytes)

    async def list_instances(
        self, request: instances_pb2.ListInstancesRequest
    ) -> instances_pb2.ListInstancesResponse:
        """Returns the instances that announced themselves last, ordered by service and id.

        If the settings of all do not fit into a message, those of the instances that announced
        themselves first are left out.
        """
        found = {each.instance_id: each async for each in self._read()}
        # Read after them, so that no announcement is from the future.
        now = await redis_now_ms(self._link)
        newest = nlargest(_MOST, found.values(), key=lambda each: each.announced_ms)
        for each in newest:
            if now - each.announced_ms > _DOWN_AFTER_MS:
                each.health = instances_pb2.INSTANCE_HEALTH_DOWN
        if request.with_settings:
            await self._add_settings(newest)
        newest.sort(key=lambda each: (each.service, each.instance_id))
        return instances_pb2.ListInstancesResponse(instances=newest, as_of_ms=now)

    async def _read(self) -> AsyncIterator[instances_pb2.Instance]:
        """The announcements, in no order, and possibly one of them twice."""
        cursor = "0"
        for _ in range(_STEPS):
            following, flat = await self._link.command(
                "HSCAN", instances_key(self._prefix), cursor, "COUNT", _SCAN
            )
            for value in flat[1::2]:
                try:
                    yield unpacked(value)
                except ValueError as error:
                    # Not a warning: a console reads them every few seconds.
                    _log.debug("announcement unreadable", extra={"reason": str(error)})
            cursor = following.decode()
            if cursor == "0":
                return

    async def _add_settings(self, instances: list[instances_pb2.Instance]) -> None:
        left = self._settings_bytes
        for at in range(0, len(instances), _SETTINGS_AT_ONCE):
            some = instances[at : at + _SETTINGS_AT_ONCE]
            for each, settings in zip(some, await self._settings_of(some), strict=True):
                left -= len(settings or b"")
                if left < 0:
                    return
                each.MergeFromString(settings or b"")

    async def _settings_of(self, instances: Iterable[instances_pb2.Instance]) -> list[bytes | None]:
        keys = (settings_key(self._prefix, each.instance_id) for each in instances)
        found: list[bytes | None] = await self._link.command("MGET", *keys)
        return found
