"""One room that has members at this gateway: carries out what its audience asks for."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.metrics import RoomMetrics
from lingua_scheduler.services.session_gateway.rooms.audience import Audience
from lingua_scheduler.services.session_gateway.rooms.fanout import Fanout
from lingua_scheduler.services.session_gateway.rooms.lane_reads import Effect, Read
from lingua_scheduler.services.session_gateway.rooms.listener import Listener
from lingua_scheduler.services.session_gateway.rooms.packing import Said, form_of, packed_event
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    KeptRoom,
    MemberRecord,
    RoomFacts,
)
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.services.session_gateway.rooms.views import RoomViews
from lingua_scheduler.v1 import rooms_pb2

# How often the room is looked at while its members change, to find out whether it was closed, and
# how often listeners are told who is there.
_LOOK_EVERY_S = 0.2
_STATUS_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class RoomHere:
    """One room.

    Args:
        facts: of the room.
        cell: of the room.
        store: of rooms.
        views: of rooms.
        settings: of the gateway.
        metrics: of rooms.
        on_closed: called if the room was closed, with how many utterances it had.
    """

    def __init__(
        self,
        *,
        facts: RoomFacts,
        cell: Cell,
        store: RoomStore,
        views: RoomViews,
        settings: Settings,
        metrics: RoomMetrics,
        on_closed: "Callable[[RoomHere, int], None]",
    ) -> None:
        self.facts = facts
        self.cell = cell
        self.members: dict[str, MemberRecord] = {}
        """Speakers and listeners here, also listeners whose stream broke a moment ago."""
        self.listeners: dict[str, Listener] = {}
        """Listeners that are connected, by member id."""
        self._store = store
        self._views = views
        self._max_message_bytes = settings.max_message_bytes
        self._metrics = metrics
        self._audience: Audience[Listener] = Audience(replayed=settings.room_replay_captions)
        self._fanout = Fanout(metrics)
        self._floor = facts.next_index
        self.needs_rejoin = False
        """Whether Redis may know members of this gateway other than they are."""
        self.is_closed = False
        """Whether the room was closed."""
        self._on_closed = on_closed
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._is_changed = False
        self._owes_status = False
        self._status_due_s = 0.0
        self._version = 0

    @property
    def floor(self) -> int:
        """The lowest room index that the next utterance may have, as far as is known here."""
        return max(self._floor, self._audience.floor)

    def raise_floor(self, next_index: int) -> None:
        """The room has got this far."""
        self._floor = max(self._floor, next_index)

    def on_kept(self, kept: KeptRoom) -> None:
        """The room is there, as Redis says it is; lanes are read in any case."""
        self.raise_floor(kept.next_index)
        # The version only rises, unless Redis has lost the room and another gateway restored it.
        was_lost = kept.version < self._version
        self._version = kept.version
        if was_lost:
            self.on_restored()
        else:
            self._carry_out(self._audience.on_poll())

    # ---- listeners ----

    def join(
        self,
        listener: Listener,
        listening: rooms_pb2.Listening,
        admission: Admission,
        position: int | None,
    ) -> None:
        """A listener has joined, and has been told so."""
        self._carry_out(
            self._audience.on_join(
                listener,
                language=listening.language,
                form=form_of(listening),
                next_index=admission.next_index,
                position=position,
            )
        )
        if listener.wants_status:
            self.on_changed()

    async def change(self, listener: Listener, listening: rooms_pb2.Listening) -> None:
        """Changes what a listener listens to, from the next utterance on.

        Raises:
            BackpressureError: too many of its changes wait.
            LinguaError: as `RoomStore.change`; it goes on as before, unless it is elsewhere.
        """
        if not self._audience.may_change(listener):
            raise errors.BackpressureError("too many changes wait for utterances before them")
        self._carry_out(self._audience.on_changing(listener))
        wanted = listener.member.changed(
            language=listening.language,
            captions=listening.captions,
            speech=listening.speech,
            original_audio=listening.original_audio,
        )
        try:
            admission = await self._store.change(room_id=self.facts.room_id, member=wanted)
        except errors.SessionTakenOverError as error:
            # This gateway stood still for so long that the listener has joined another one.
            self.members.pop(wanted.member_id, None)
            listener.fail(error)
            self._carry_out(self._audience.on_unchanged(listener))
            raise
        except errors.LinguaError:
            # It may have happened all the same: the next renewal joins it again as it was.
            if listener.member.member_id in self.members:
                listener.member = self.members[listener.member.member_id] = (
                    listener.member.changed()
                )
                self.needs_rejoin = True
            self._carry_out(self._audience.on_unchanged(listener))
            raise
        listener.member = self.members[wanted.member_id] = wanted
        listener.send(
            packed_event(
                changed=rooms_pb2.ListeningChanged(
                    listening=listening, position=admission.next_index
                )
            )
        )
        self._carry_out(
            self._audience.on_change(
                listener,
                language=listening.language,
                form=form_of(listening),
                next_index=admission.next_index,
                last_open=admission.last_open,
            )
        )

    def depart(self, listener: Listener) -> None:
        """The stream of a listener has ended."""
        self._carry_out(self._audience.on_leave(listener))
        if self.listeners.get(listener.member.member_id) is listener:
            del self.listeners[listener.member.member_id]

    # ---- events of the room ----

    def on_news(self, language: str) -> None:
        """There are new outcomes of a language."""
        self._carry_out(self._audience.on_news(language))

    def on_poll(self) -> None:
        """There may be new outcomes, and news of them may be lost."""
        self._carry_out(self._audience.on_poll())

    def on_restored(self) -> None:
        """Redis had lost the room, and has it again."""
        self._carry_out(self._audience.on_restored())

    def on_changed(self) -> None:
        """Members have changed, or the room was closed."""
        self._is_changed = True
        if self._looking is None or self._looking.done():
            self._looking = self._start(self._look())

    async def _look(self) -> None:
        """Tells those who asked who is there; ends the room if it was closed."""
        loop = asyncio.get_running_loop()
        while self._is_changed or self._owes_status:
            was_changed, self._is_changed = self._is_changed, False
            curious = self._curious()
            self._owes_status = bool(curious) and (was_changed or self._owes_status)
            try:
                if self._owes_status and loop.time() >= self._status_due_s:
                    self._owes_status = False
                    self._status_due_s = loop.time() + _STATUS_EVERY_S
                    await self._send_status(curious)
                elif was_changed:
                    await self._store.facts(self.facts.room_id)
            except errors.RoomClosedError:
                self._on_closed(self, self.floor)
                return
            except errors.LinguaError as error:
                _log.debug("room status unavailable", extra={"reason": str(error)})
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _send_status(self, curious: list[Listener]) -> None:
        room = await self._views.get(self.facts.room_id)
        status = rooms_pb2.RoomStatus(
            listeners=room.listeners, languages=room.languages, speakers=room.speakers
        )
        packed = packed_event(status=status)
        for at, listener in enumerate(curious):
            if should_yield(at):
                await asyncio.sleep(0)
            listener.send(packed)

    def _curious(self) -> list[Listener]:
        return [each for each in self.listeners.values() if each.wants_status]

    def end(self, utterances: int) -> None:
        """The room was closed: everybody is told, and all streams end."""
        self.is_closed = True
        self._fanout.finish()
        closed = packed_event(closed=rooms_pb2.RoomClosed(utterances=utterances))
        for listener in list(self.listeners.values()):
            listener.has_left = True
            listener.send(closed)
            listener.end()

    def close(self) -> None:
        """Ends all reads."""
        self._fanout.close()
        for task in self._tasks:
            task.cancel()

    # ---- effects ----

    def _carry_out(self, todo: Iterable[Effect[Listener]]) -> None:
        for effect in todo:
            if isinstance(effect, Read):
                self._start(self._read(effect))
            else:
                self._fanout.add(effect)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, read: Read) -> None:
        if read.is_own:
            self._metrics.catch_ups.inc()
        try:
            entries = await self._store.read(
                room_id=self.facts.room_id,
                language=read.language,
                start=read.start,
                count=read.count,
                newest=read.newest,
                with_speech=read.with_audio,
            )
        except Exception as error:
            # Whatever it is, the next poll tries again.
            if not isinstance(error, errors.LinguaError):
                _log.exception("room read failed")
            self._carry_out(self._audience.on_read_failed(read.number))
            return
        said = [Said(entry, read.language, self._max_message_bytes) for entry in entries]
        self._carry_out(self._audience.on_read(read.number, said))
