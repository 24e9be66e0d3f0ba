"""Renews the leases of this gateway in its rooms, and restores what Redis has lost of them."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.cells.rounds import CellRounds
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.rooms.mercy import Mercy
from lingua_scheduler.services.session_gateway.rooms.records import KeptRoom, next_change
from lingua_scheduler.services.session_gateway.rooms.room_here import RoomHere
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.services.session_gateway.store.room_basics import due_ms

# How often a lease is renewed before it would end, and how often at least: a renewal also reads all
# lanes, in case news were lost.
_RENEWALS_PER_LEASE = 4
_RENEW_WITHIN_S = 5.0
# For so long after Redis was away, utterances that are overdue may still get their outcome.
_AFTER_OUTAGE_S = 10.0

_log = logging.getLogger(__name__)


class RoomRenewals:
    """The renewals of all rooms with members here, cell by cell.

    Args:
        cells: in which rooms are.
        settings: of the gateway.
        store: of rooms.
        here: the rooms with members here, by id.
        close: called with a room that was closed, and how many utterances it had.
    """

    def __init__(
        self,
        *,
        cells: Cells,
        settings: Settings,
        store: RoomStore,
        here: Mapping[str, RoomHere],
        close: Callable[[RoomHere, int], None],
    ) -> None:
        self.is_draining = False
        """Whether members that are not here are left alone, because they move."""
        self._store = store
        self._here = here
        self._close = close
        # The clocks of cells differ.
        self._mercy = {
            cell: Mercy(after_outage_s=_AFTER_OUTAGE_S, after_jump_s=due_ms(settings) / 1000)
            for cell in cells.all
        }
        # A change from before the last renewal of all rooms of a cell.
        self._last_round = dict.fromkeys(cells.all, 0)
        every_s = min(settings.room_lease_ms / 1000 / _RENEWALS_PER_LEASE, _RENEW_WITHIN_S)
        self._rounds = CellRounds(cells, every_s=every_s, do=self._renew)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the gateway does."""
        return self._rounds.work()

    def on_back(self, cell: Cell) -> None:
        """A cell is available again. It may have lost rooms meanwhile."""
        self._mercy[cell].on_redis_back(asyncio.get_running_loop().time())
        self._rounds.on_back(cell)

    async def _renew(self, cell: Cell) -> None:
        rooms = [here for here in self._here.values() if here.cell is cell]
        if not rooms:
            return
        try:
            await self._renew_all(cell, rooms)
        except errors.LinguaError as error:
            _log.warning("room renewal failed", extra={"reason": str(error)})

    async def _renew_all(self, cell: Cell, rooms: list[RoomHere]) -> None:
        now_s = asyncio.get_running_loop().time()
        ahead_ms = await self._store.clock_ahead_ms(cell, 1000 * now_s)
        kept = await self._store.keep(
            cell,
            [(each.facts.room_id, each.floor) for each in rooms],
            expire=self._mercy[cell].is_over(now_s, ahead_ms / 1000),
        )
        for here, answer in zip(rooms, kept, strict=True):
            if self._here.get(here.facts.room_id) is here:
                await self._on_kept(here, answer)
        self._last_round[cell] = next_change()

    async def _on_kept(self, here: RoomHere, answer: KeptRoom) -> None:
        if answer.word == "ROOM_CLOSED":
            self._close(here, answer.next_index)
            return
        if answer.word == "ROOM_NOT_FOUND":
            await self._restore(here)
            return
        here.on_kept(answer)
        if answer.members != len(here.members) or here.needs_rejoin:
            await self._rejoin(here)
        if answer.members > len(here.members) and not self.is_draining:
            # A sign-off has failed. While this gateway drains, members stay until they move.
            await self._store.leave_others(
                here.facts.room_id, here.members, change=self._last_round[here.cell]
            )

    async def _restore(self, here: RoomHere) -> None:
        _log.warning("room restored", extra={"reason": "Redis has lost it"})
        facts = here.facts
        try:
            await self._store.create(
                room_id=facts.room_id,
                tenant=facts.tenant,
                options=facts.options,
                secret=facts.secret,
                created_ms=facts.created_ms,
                next_index=here.floor,
            )
        except errors.RoomClosedError:
            self._close(here, here.floor)
            return
        here.on_restored()
        await self._rejoin(here)

    async def _rejoin(self, here: RoomHere) -> None:
        """Tells Redis of all members here, except for those who have moved elsewhere."""
        here.needs_rejoin = False
        for at, member in enumerate(list(here.members.values())):
            if should_yield(at):
                await asyncio.sleep(0)
            try:
                is_here = await self._store.rejoin(room_id=here.facts.room_id, member=member)
                if not is_here and member.member_id not in here.listeners:
                    here.members.pop(member.member_id, None)
            except errors.RoomFullError as error:
                _log.warning("member could not join again", extra={"reason": str(error)})
