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
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
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

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        # The rest of a response are instances without settings: at most 0.4 MB.
        self._settings_bytes = batch_bytes(settings.max_message_bytes)

    async def list_instances(
        self, request: instances_pb2.ListInstancesRequest
    ) -> instances_pb2.ListInstancesResponse:
        """Returns the instances that announced themselves last, ordered by service and id.

        If the settings of all do not fit into a message, those of the instances that announced
        themselves first are left out.
        """
        # Each instance announces itself in all of them.
        cell = next((cell for cell in self._cells.all if cell.up), self._cells.first)
        found = {each.instance_id: each async for each in _read(cell)}
        # Read after them, so that no announcement is from the future.
        now = await redis_now_ms(cell.link)
        newest = nlargest(_MOST, found.values(), key=lambda each: each.announced_ms)
        for each in newest:
            if now - each.announced_ms > _DOWN_AFTER_MS:
                each.health = instances_pb2.INSTANCE_HEALTH_DOWN
        if request.with_settings:
            await self._add_settings(cell, newest)
        newest.sort(key=lambda each: (each.service, each.instance_id))
        return instances_pb2.ListInstancesResponse(instances=newest, as_of_ms=now)

    async def _add_settings(self, cell: Cell, instances: list[instances_pb2.Instance]) -> None:
        left = self._settings_bytes
        for at in range(0, len(instances), _SETTINGS_AT_ONCE):
            some = instances[at : at + _SETTINGS_AT_ONCE]
            for each, settings in zip(some, await _settings_of(cell, some), strict=True):
                left -= len(settings or b"")
                if left < 0:
                    return
                each.MergeFromString(settings or b"")


async def _read(cell: Cell) -> AsyncIterator[instances_pb2.Instance]:
    """The announcements, in no order, and possibly one of them twice."""
    cursor = "0"
    for _ in range(_STEPS):
        following, flat = await cell.link.command(
            "HSCAN", instances_key(cell.prefix), cursor, "COUNT", _SCAN
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


async def _settings_of(
    cell: Cell, instances: Iterable[instances_pb2.Instance]
) -> list[bytes | None]:
    keys = (settings_key(cell.prefix, each.instance_id) for each in instances)
    found: list[bytes | None] = await cell.link.command("MGET", *keys)
    return found
