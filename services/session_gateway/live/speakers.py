"""Sessions that speak to rooms: how they enter a room, come back to it, and leave it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import own_tenant
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.rooms.packing import event_of
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.session.speaking.lane_turns import cuts_in_lanes
from lingua_scheduler.services.session_gateway.store.session_record import SpokenTo
from lingua_scheduler.services.session_gateway.store.session_store import (
    SessionStore,
    TakenOverSession,
)
from lingua_scheduler.v1 import common_pb2, session_pb2, session_record_pb2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A session that is resumed.

    Attributes:
        room: that it speaks to; None if it is in none.
        cuts: as `replay_from` needs them.
        left, lost: as in `Past`.
    """

    room: SpokenTo | None
    cuts: Sequence[session_record_pb2.Cut]
    left: frozenset[tuple[int, str]] = frozenset()
    lost: Mapping[tuple[int, str], common_pb2.Error] = field(default_factory=dict)


class Speakers:
    """The sessions of this gateway that speak to rooms."""

    def __init__(self, *, settings: Settings, store: SessionStore, rooms: Rooms) -> None:
        self._settings = settings
        self._store = store
        self._rooms = rooms
        self.store = rooms.store
        """Rooms in Redis."""
        self._leaving: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    async def enter(self, opened: session_pb2.NewSession, session_id: str) -> SpokenTo:
        """Lets a new session into its room, and gives it the room's tenant.

        Raises:
            PermissionDeniedError: the token is not one of a speaker, or the caller is a client of
                another tenant.
            RoomNotFoundError: or RoomClosedError, RoomFullError.
        """
        facts = await self._rooms.admit_speaker(opened.room, session_id)
        if (own := own_tenant()) and own != facts.tenant:
            await self.exit(facts.room_id, session_id)
            raise errors.PermissionDeniedError(
                "the room belongs to another tenant: to speak there, send the join token as the "
                "bearer token of the call, and no other"
            )
        opened.tenant = facts.tenant
        opened.room.ClearField("join_token")
        return self._spoken_to(opened.room)

    async def resume(self, session_id: str, taken: TakenOverSession) -> Resumed:
        """Brings a session back to its room, and adds to its cuts what the room said of them.

        A session that is in no room is returned as it is.

        Raises:
            RoomNotFoundError: or RoomClosedError, RoomFullError.
        """
        if not taken.opened.HasField("room"):
            return Resumed(None, taken.cuts)
        asked = taken.opened.room
        await self._rooms.readmit_speaker(
            asked.room_id, session_id, language=asked.language, name=asked.name
        )
        room = self._spoken_to(asked)
        await self._place(session_id, taken, room)
        wanted = {
            (cut.room_index, each.language): (cut.utterance_index, each.language)
            for cut in taken.cuts
            for each in cut.languages
        }
        left = await self.store.left(asked.room_id, wanted)
        return Resumed(
            room,
            cuts_in_lanes(taken.cuts),
            frozenset(wanted[each] for each in left),
            {
                wanted[each]: why
                for each in wanted
                if each not in left and wanted[each][0] >= taken.seen
                if (why := await self._why_missing(asked.room_id, *each)) is not None
            },
        )

    async def _why_missing(
        self, room_id: str, room_index: int, language: str
    ) -> common_pb2.Error | None:
        """Why an utterance with an outcome has no result; None if it has one, or is forgotten."""
        found = await self.store.read(
            room_id=room_id, language=language, start=room_index, count=1, with_speech=False
        )
        for entry in found:
            event = event_of(entry, language)
            if entry.index == room_index and event.HasField("missing"):
                return event.missing.why
        return None

    async def _place(self, session_id: str, taken: TakenOverSession, room: SpokenTo) -> None:
        """Asks for the places of cuts that were recorded, by repeating that."""
        cuts = [cut for cut in taken.cuts if not cut.HasField("room_index")]
        if not cuts:
            return
        reply = await self._store.record_spoken(
            session_id=session_id,
            epoch=taken.epoch,
            cuts=cuts,
            first_index=0,
            acked_seq=taken.acked_seq,
            seen=taken.seen,
            results=taken.results,
            missing=taken.missing,
            last_chunk_ms=0,
            room_id=room.room_id,
            language=room.language,
            floor=room.floor(),
            only={cut.utterance_index: [each.language for each in cut.languages] for cut in cuts},
        )
        for cut, spoken in zip(
            cuts, self._store.spoken(session_id, room.room_id, reply), strict=True
        ):
            room.place(cut, spoken)

    def _spoken_to(self, asked: session_pb2.RoomSpeaker) -> SpokenTo:
        room_id = asked.room_id
        return SpokenTo(
            room_id=room_id,
            language=asked.language,
            floor=partial(self._rooms.floor, room_id),
            raise_floor=partial(self._rooms.raise_floor, room_id),
        )

    # ---- leaving ----

    async def exit(self, room_id: str, session_id: str) -> None:
        """A session has ended, or its client has not come back."""
        try:
            await self._rooms.dismiss_speaker(room_id, session_id)
        except errors.LinguaError as error:
            # Its membership ends with the lease of this gateway.
            _log.info("speaker sign-off failed", extra={"reason": str(error)})

    def exit_later(self, room_id: str, session_id: str, *, unless: Callable[[str], bool]) -> None:
        """Lets a session leave its room if its client does not come back in time.

        Args:
            room_id: of the room.
            session_id: of the session.
            unless: says whether the session is here again.
        """
        loop = asyncio.get_running_loop()

        def due() -> None:
            self._timers.discard(timer)
            if not unless(session_id):
                task = loop.create_task(self.exit(room_id, session_id))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

        timer = loop.call_later(self._settings.room_resume_ms / 1000, due)
        self._timers.add(timer)

    def close(self) -> None:
        """Forgets who may come back."""
        for timer in self._timers:
            timer.cancel()
        for task in self._leaving:
            task.cancel()
