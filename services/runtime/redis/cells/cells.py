"""The cells of a deployment: parts of its state that share nothing, each under its own prefix.

Which cell has what is decided here and in `contract/cell_names`; docs/cells.md has the table.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from lingua_scheduler.services.runtime.contract.cell_names import (
    cell_of_id,
    cell_of_job,
    ranked,
)
from lingua_scheduler.services.runtime.errors import DependencyDownError, InvalidMessageError
from lingua_scheduler.services.runtime.redis.cells.prefixes import cell_prefix
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.server_link import ServerLink
from lingua_scheduler.services.runtime.settings.redis_url import Topology, parse_redis_url
from lingua_scheduler.services.runtime.settings.settings import Settings

# How often the states of cells are read.
_READ_EVERY_S = 1.0

_log = logging.getLogger(__name__)

T = TypeVar("T")


class CellState(StrEnum):
    """What an operator wants with a cell. Kept in the cell itself, in the hash `P:cell`."""

    NEW = "new"
    """It was added while others were in use: nothing is put into it yet."""
    READY = "ready"
    DRAINING = "draining"
    """It gets no new sessions, rooms and nodes, and its nodes move to other cells."""


class Cell:
    """One cell.

    Attributes:
        number: from 0.
        link: to its Redis; cells on the same server may share the connection.
        state: as last read.
    """

    def __init__(self, number: int, link: RedisLink) -> None:
        self.number = number
        self.link = link
        self.prefix = link.prefix
        self.state = CellState.READY
        self._state_key = f"{link.prefix}:cell"

    @property
    def up(self) -> bool:
        """Whether its Redis answers."""
        return self.link.up

    @property
    def is_open(self) -> bool:
        """Whether new sessions, rooms and nodes may be put into it."""
        return self.state is CellState.READY and self.link.up

    async def read_state(self) -> CellState:
        """Reads its state. Raises DependencyDownError."""
        state = await self.link.command("HGET", self._state_key, "state")
        # A cell that has lost its data stays what it was.
        if state is not None:
            self.state = CellState(state.decode())
        return self.state

    async def write_state(self, state: CellState, *, replace: bool = True) -> None:
        """Changes its state for all instances. Raises DependencyDownError."""
        command = "HSET" if replace else "HSETNX"
        await self.link.command(command, self._state_key, "state", state.value)
        await self.read_state()


class Cells:
    """All cells, and which of them something belongs to.

    Args:
        settings: have the number of cells, the prefix and the URLs.
        scripts: name and Lua source.

    Raises:
        BadRedisUrlError: a URL or a prefix cannot be used.
    """

    def __init__(self, settings: Settings, scripts: Mapping[str, str]) -> None:
        urls = settings.redis_url.split()
        if len(urls) == 1:
            urls *= settings.cells
        shared: dict[str, ServerLink] = {}
        cells: list[Cell] = []
        for number, url in enumerate(urls):
            # The cells of a cluster are on different servers, and move independently.
            is_cluster = parse_redis_url(url).topology is Topology.CLUSTER
            one_of_many = is_cluster and settings.cells > 1
            link = RedisLink(
                url=url,
                prefix=cell_prefix(settings.redis_prefix, number, is_cluster=one_of_many),
                scripts=scripts,
                timeout_ms=settings.redis_timeout_ms,
                server=None if is_cluster else shared.get(url),
            )
            shared[url] = link.server
            cells.append(Cell(number, link))
        self.all: Sequence[Cell] = tuple(cells)
        self.first = self.all[0]
        self.one = len(self.all) == 1
        """Whether there is only one, so that nothing is ever elsewhere."""
        self.servers: Sequence[ServerLink] = tuple(
            dict.fromkeys(cell.link.server for cell in self.all)
        )

    # ---- which cell has what ----

    def of_number(self, number: int, field: str = "cell") -> Cell:
        """The cell with this number. Raises InvalidMessageError if there is none."""
        if 0 <= number < len(self.all):
            return self.all[number]
        count = len(self.all)
        problem = f"names cell {number}, and there are only {count} (LINGUA_CELLS)"
        raise InvalidMessageError(f"{field}: {problem}", fields=[(field, problem)])

    def of_session(self, session_id: str) -> Cell:
        """The cell of a session. Raises InvalidMessageError if there is no such cell."""
        return self.first if self.one else self.of_number(cell_of_id(session_id), "session_id")

    def of_room(self, room_id: str) -> Cell:
        """The cell of a room. Raises InvalidMessageError if there is no such cell."""
        return self.first if self.one else self.of_number(cell_of_id(room_id), "room_id")

    def of_job(self, job_id: str) -> Cell:
        """The cell of a job. Raises InvalidMessageError if there is no such cell."""
        return self.first if self.one else self.of_number(cell_of_job(job_id), "job_id")

    def of_tenant(self, tenant: str) -> Cell:
        """The cell that counts the jobs and the speech of a tenant, if the tenant has limits."""
        return self.first if self.one else self.all[ranked(tenant, range(len(self.all)))[0]]

    def of_new_node(self, node_id: str) -> Cell:
        """The cell in which a node should be: of those that are not drained, whether up or not."""
        if self.one:
            return self.first
        ready = [cell.number for cell in self.all if cell.state is CellState.READY]
        return self.all[ranked(node_id, ready or range(len(self.all)))[0]]

    async def in_new(self, make: Callable[[Cell], Awaitable[T]]) -> T:
        """Makes a new session or room in a cell `for_new`.

        If that cell fails, one other cell that is open is tried. What `make` may have left in the
        first one has to expire by itself.

        Raises:
            DependencyDownError: from `make`, or no cell is open.
        """
        cell = self.for_new()
        try:
            return await make(cell)
        except DependencyDownError:
            others = [each for each in self.all if each.is_open and each is not cell]
            if not others:
                raise
        return await make(random.choice(others))

    def for_new(self) -> Cell:
        """A cell for a new session or room: a random one of those that are open.

        Raises:
            DependencyDownError: none is open.
        """
        if self.one:
            return self.first
        if not (ready := [cell for cell in self.all if cell.is_open]):
            reasons = {cell.link.down_reason for cell in self.all if not cell.up}
            why = "; ".join(sorted(reasons)) or "all cells are drained"
            raise DependencyDownError("no cell takes new sessions", why=why)
        return random.choice(ready)

    # ---- the links ----

    @property
    def up(self) -> bool:
        """Whether at least one cell can be used."""
        return any(server.up for server in self.servers)

    def on_change(self, callback: Callable[[Cell, bool, str], None]) -> None:
        """Calls back with (cell, up, reason) after each change of a cell; must not block."""
        for cell in self.all:

            def changed(up: bool, reason: str, cell: Cell = cell) -> None:
                callback(cell, up, reason)

            cell.link.on_change.append(changed)

    async def open(self) -> None:
        """Opens the links. One that cannot be reached comes up by itself later.

        Raises:
            RedisUnfitError, ScriptError: as `ServerLink.open`.
            DependencyDownError: none can be reached.
        """
        if self.one:
            await self.first.link.open()
            return
        opened = await asyncio.gather(
            *(server.open(wait=False) for server in self.servers), return_exceptions=True
        )
        if failures := [each for each in opened if isinstance(each, BaseException)]:
            await self.close()
            raise failures[0]
        if not self.up:
            reasons = "; ".join(sorted({server.down_reason for server in self.servers}))
            await self.close()
            raise DependencyDownError("Redis cannot be used", why=reasons)
        await self.read_states()

    async def close(self) -> None:
        """Closes the links. They can be opened again."""
        await asyncio.gather(*(server.close() for server in self.servers))

    async def read_states(self) -> None:
        """Reads the states of all cells that can be reached."""
        await self.each(Cell.read_state)

    async def run(self) -> None:
        """Keeps the states of the cells up to date, until cancelled."""
        while True:
            await asyncio.sleep(_READ_EVERY_S)
            if not self.one:
                await self.read_states()

    async def each(self, call: Callable[[Cell], Any]) -> list[Any]:
        """Calls something for each cell at the same time, and leaves out cells that are away.

        With one cell, the error is raised instead.
        """
        if self.one:
            return [await call(self.first)]
        replies = await asyncio.gather(*(call(cell) for cell in self.all), return_exceptions=True)
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, DependencyDownError):
                raise reply
        return [reply for reply in replies if not isinstance(reply, BaseException)]
