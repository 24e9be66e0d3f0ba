"""The running instances of the services: each announces itself in Redis, and can find others."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.contract.announcements import (
    ALIVE_MS,
    KEEP_MS,
    address_key,
)
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.services.runtime.redis import data_format
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.script_calls import AnnounceInstance
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.version import version
from lingua_scheduler.v1 import instances_pb2

# Short, because operators watch the numbers. An announcement holds for ALIVE_MS, so that a few may
# fail.
_INTERVAL_S = 2.0

_log = logging.getLogger(__name__)


async def callable_address(bound: str) -> str:
    """Where other machines reach a server that listens at `bound`.

    0.0.0.0 and [::] are all addresses of a machine; a caller would call itself. The name of this
    machine stands for them, if it resolves: containers find each other by it.
    """
    host, port = split_address(bound)
    if host not in ("0.0.0.0", "::"):
        return bound
    name = socket.gethostname()
    try:
        await asyncio.get_running_loop().getaddrinfo(name, port)
    except OSError:
        return bound
    return join_address(name, port)


class Instances:
    """Announces this instance and finds others.

    Args:
        cells: it announces itself in each, so that each works without the others.
        settings: of this instance; they are announced, with passwords masked.
        service: "pool", "dispatcher" or "gateway".
    """

    def __init__(self, *, cells: Cells, settings: Settings, service: str) -> None:
        self._cells = cells
        self._settings = settings
        self._message = instances_pb2.Instance(
            instance_id=settings.instance_id,
            service=service,
            version=version(),
            health=instances_pb2.INSTANCE_HEALTH_SERVING,
            started_ms=int(time.time() * 1000),
        )
        self._stats: Callable[[], instances_pb2.InstanceStats] = instances_pb2.InstanceStats
        # The cells that have them.
        self._has_settings: set[Cell] = set()
        self._wake = asyncio.Event()
        self._announcement = AnnounceInstance(
            writes=data_format.WRITES,
            reads_from=data_format.READS_FROM,
            reads_to=data_format.READS_TO,
            version=version(),
        ).call

    async def announce(
        self,
        address: str,
        stats: Callable[[], instances_pb2.InstanceStats] = instances_pb2.InstanceStats,
    ) -> None:
        """Announces this instance for the first time; `run` renews the announcement.

        A service does this before it uses Redis for anything else.

        Args:
            address: where others reach it.
            stats: returns its counters, and is called with every announcement.

        Raises:
            DataFormatError: this release must not run on the data in Redis.
            DependencyDownError: Redis cannot be used.
        """
        self._message.address = address
        self._stats = stats
        await self._send()

    async def run(self) -> None:
        """Renews the announcement until cancelled; does nothing before the first one.

        Raises:
            DataFormatError: as `announce`; Redis may have got other data since.
        """
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
            await self._cells.each(lambda cell: self._call(cell, 0, b"", b""))
        except LinguaError as error:
            _log.info("instance removal failed", extra={"reason": str(error)})

    async def address_of(self, instance_id: str) -> str:
        """The address of another instance; "" if it does not run."""
        if not instance_id or instance_id == self._settings.instance_id:
            return ""

        async def look(cell: Cell) -> bytes | None:
            found: bytes | None = await cell.link.command(
                "GET", address_key(cell.prefix, instance_id)
            )
            return found

        return next((found.decode() for found in await self._cells.each(look) if found), "")

    async def _send(self) -> None:
        self._message.stats.CopyFrom(self._stats())
        message = self._message.SerializeToString()
        await self._cells.each(lambda cell: self._send_to(cell, message))

    async def _send_to(self, cell: Cell, message: bytes) -> None:
        # Redis may have lost the settings since.
        if cell in self._has_settings and await self._call(cell, ALIVE_MS, message, b""):
            return
        # Also the first time: those in Redis may be of an earlier process with this id.
        self._has_settings.discard(cell)
        if await self._call(cell, ALIVE_MS, message, announced(self._settings)):
            self._has_settings.add(cell)

    async def _call(self, cell: Cell, ttl_ms: int, message: bytes, settings: bytes) -> bool:
        reply = await cell.link.call(
            *self._announcement(
                instance=self._message.instance_id,
                address=self._message.address,
                ttl_ms=ttl_ms,
                keep_ms=KEEP_MS,
                message=message,
                settings=settings,
            )
        )
        if not isinstance(reply, list):
            return bool(reply)
        if reply[0] == b"unread":
            raise data_format.unread(reply[1].decode(), reply[2], reply[3].decode())
        raise data_format.unreadable(cell.prefix, reply[1], reply[2].decode())


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
