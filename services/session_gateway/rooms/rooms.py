"""The rooms that have members at this gateway: who joins, stays and leaves."""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.server_link import ServerLink
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.metrics import RoomMetrics
from lingua_scheduler.services.session_gateway.rooms.admission import Door, check_language
from lingua_scheduler.services.session_gateway.rooms.listener import Listener, ListenerClient
from lingua_scheduler.services.session_gateway.rooms.news import RoomNews
from lingua_scheduler.services.session_gateway.rooms.packing import packed_event
from lingua_scheduler.services.session_gateway.rooms.records import (
    Admission,
    MemberRecord,
    RoomFacts,
    speaker_id,
)
from lingua_scheduler.services.session_gateway.rooms.renewals import RoomRenewals
from lingua_scheduler.services.session_gateway.rooms.room_here import RoomHere
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore, news_channel
from lingua_scheduler.services.session_gateway.rooms.validate import checked_listening, first_join
from lingua_scheduler.services.session_gateway.rooms.views import RoomViews
from lingua_scheduler.services.session_gateway.store.room_basics import cell_of_room
from lingua_scheduler.v1 import rooms_pb2, session_pb2

# How long a listener may take to send its first message.
_OPEN_WITHIN_S = 10.0
# A listener may change its wishes this often. Each change is written to Redis, and told to all
# gateways of the room.
_CHANGE_EVERY_S = 0.1
# Listeners that are sent away come back over this time, not all at once.
_GO_AWAY_WITHIN_MS = 1000
_DRAINING = "this gateway is draining; join elsewhere"
_MEMBER_ID_BYTES = 12

_log = logging.getLogger(__name__)


class Rooms:
    """All rooms with members here: listeners of this gateway, and speakers, which are sessions."""

    def __init__(self, *, cells: Cells, settings: Settings, metrics: RoomMetrics) -> None:
        self.store = RoomStore(cells=cells, settings=settings)
        """Rooms in Redis."""
        self.views = RoomViews(cells=cells)
        """Rooms for people."""
        self.door = Door(self.store)
        """Checks tokens."""
        self.on_closed: list[Callable[[str], None]] = []
        """Called with the id of each room that was closed, if it has members here."""
        self._settings = settings
        self._metrics = metrics
        self._here: dict[str, RoomHere] = {}
        self._cells = cells
        self._news = {server: self._news_of(server) for server in cells.servers}
        self._renewals = RoomRenewals(
            cells=cells,
            settings=settings,
            store=self.store,
            here=self._here,
            close=self._close_here,
        )
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._tasks: set[asyncio.Task[None]] = set()
        metrics.rooms.set_function(lambda: len(self._here))

    # ---- speakers ----

    async def admit_speaker(self, asked: session_pb2.RoomSpeaker, session_id: str) -> RoomFacts:
        """Lets a session speak to a room.

        Raises:
            PermissionDeniedError: its token does not allow that.
            InvalidMessageError: the room does not allow its language.
            RoomClosedError: or RoomFullError.
        """
        facts = await self.door.to_speak(asked.room_id, asked.join_token)
        check_language(facts, asked.language, "open.new.room.language")
        member = MemberRecord.speaker(session_id, language=asked.language, name=asked.name)
        await self._enter(facts, member)
        return facts

    async def readmit_speaker(
        self, room_id: str, session_id: str, *, language: str, name: str
    ) -> RoomFacts:
        """Lets a session that is resumed speak on. Raises as `admit_speaker`."""
        facts = await self.store.facts(room_id)
        await self._enter(facts, MemberRecord.speaker(session_id, language=language, name=name))
        return facts

    async def dismiss_speaker(self, room_id: str, session_id: str) -> None:
        """A session no longer speaks to its room. Raises DependencyDownError."""
        here, member_id = self._here.get(room_id), speaker_id(session_id)
        member = here.members.pop(member_id, None) if here is not None else None
        if here is not None:
            self._forget_if_empty(here)
        if member is not None:
            await self.store.leave(room_id=room_id, member_id=member_id)

    def floor(self, room_id: str) -> int:
        """The lowest room index that the next utterance of a room may have."""
        here = self._here.get(room_id)
        return here.floor if here is not None else 0

    def raise_floor(self, room_id: str, next_index: int) -> None:
        """An utterance of a room has the room index before this one."""
        here = self._here.get(room_id)
        if here is not None:
            here.raise_floor(next_index)

    # ---- listeners ----

    async def listen(
        self, requests: AsyncIterator[rooms_pb2.ListenerMessage], client: ListenerClient
    ) -> None:
        """Serves one listener until its stream ends.

        Raises:
            LinguaError: what ended the stream, which the listener has been told.
        """
        try:
            listener, here = await self._join(requests, client)
        except errors.LinguaError as error:
            self._metrics.refused(error, client.transport)
            await client.write(packed_event(error=errors.to_proto(error)))
            raise
        self._metrics.listeners.labels(client.transport).inc()
        self._empty.clear()
        try:
            await run_duplex(
                read=self._read(listener, here, requests), write=listener.write(), cut=listener.cut
            )
        finally:
            listener.end()
            here.depart(listener)
            self._metrics.listeners.labels(client.transport).dec()
            self._see_off(listener, here)
            if not any(each.listeners for each in self._here.values()):
                self._empty.set()
        if listener.ended is not None:
            raise listener.ended

    async def _join(
        self, requests: AsyncIterator[rooms_pb2.ListenerMessage], client: ListenerClient
    ) -> tuple[Listener, RoomHere]:
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                message = await anext(requests, None)
        except TimeoutError:
            message = None
        asked = first_join(message)
        if self._draining:
            raise errors.DrainingError("this gateway is draining; join at another one")
        listening = checked_listening(asked.listening, "join.listening.")
        facts = await self.door.to_listen(asked.room_id, asked.join_token)
        check_language(facts, listening.language, "join.listening.language")
        member_id = asked.member_id or secrets.token_hex(_MEMBER_ID_BYTES)
        member = MemberRecord.listener(member_id, listening, name=asked.name)
        here, admission = await self._enter(facts, member)
        listener = Listener(
            client=client, room_id=facts.room_id, member=member, wants_status=asked.status
        )
        earlier = here.listeners.get(member_id)
        if earlier is not None:
            earlier.fail(errors.SessionTakenOverError("the listener has joined again"))
        here.listeners[member_id] = listener
        position = asked.position if asked.HasField("position") else None
        listener.send(self._joined(facts, member, admission))
        here.join(listener, listening, admission, position)
        if self._draining:
            self._send_away(listener, after_ms=0)
        return listener, here

    def _joined(self, facts: RoomFacts, member: MemberRecord, admission: Admission) -> Any:
        settings = self._settings
        room = rooms_pb2.Room(
            room_id=facts.room_id,
            tenant="",
            options=facts.options,
            created_ms=facts.created_ms,
            next_index=admission.next_index,
        )
        joined = rooms_pb2.Joined(
            member_id=member.member_id,
            room=room,
            position=admission.next_index,
            resume_within_ms=settings.room_resume_ms,
            silence_ms=settings.peer_silence_ms,
        )
        return packed_event(joined=joined)

    async def _read(
        self,
        listener: Listener,
        here: RoomHere,
        requests: AsyncIterator[rooms_pb2.ListenerMessage],
    ) -> None:
        try:
            async for message in requests:
                if listener.is_over:
                    break
                match message.WhichOneof("message"):
                    case "change":
                        await self._change(listener, here, message.change.listening)
                        await asyncio.sleep(_CHANGE_EVERY_S)
                    case "leave":
                        listener.has_left = True
                        listener.end()
                    case "join":
                        problem = "must be the first message of a stream only"
                        error = errors.InvalidMessageError(problem, fields=[("join", problem)])
                        listener.send(packed_event(error=errors.to_proto(error)))
        except errors.InvalidMessageError as error:
            listener.fail(error)
        # A listener that sends nothing more still listens.
        await listener.cut.wait()

    async def _change(self, listener: Listener, here: RoomHere, asked: rooms_pb2.Listening) -> None:
        try:
            listening = checked_listening(asked, "change.listening.")
            check_language(here.facts, listening.language, "change.listening.language")
            await here.change(listener, listening)
        except errors.LinguaError as error:
            listener.send(packed_event(error=errors.to_proto(error)))

    # ---- members ----

    async def _enter(self, facts: RoomFacts, member: MemberRecord) -> tuple[RoomHere, Admission]:
        admission = await self.store.join(room_id=facts.room_id, member=member)
        here = self._here.get(facts.room_id)
        if here is None:
            here = self._here[facts.room_id] = RoomHere(
                facts=facts,
                cell=cell_of_room(self._cells, facts.room_id),
                store=self.store,
                views=self.views,
                settings=self._settings,
                metrics=self._metrics,
                on_closed=self._close_here,
            )
        here.members[member.member_id] = member
        here.raise_floor(admission.next_index)
        return here, admission

    def _see_off(self, listener: Listener, here: RoomHere) -> None:
        """Ends a membership: at once, or if the listener does not come back."""
        member = listener.member
        if here.is_closed or self._draining:
            # Nobody is left to leave, or it moves to another gateway.
            self._forget_member(here, member)
        elif listener.has_left:
            self._forget_member(here, member)
            self._start(self._leave(here, member))
        else:
            asyncio.get_running_loop().call_later(
                self._settings.room_resume_ms / 1000, self._give_up, here, member
            )

    def _give_up(self, here: RoomHere, member: MemberRecord) -> None:
        """A listener has not come back in time, unless it has."""
        is_back = member.member_id in here.listeners
        if here.members.get(member.member_id) is member and not is_back:
            self._forget_member(here, member)
            self._start(self._leave(here, member))

    def _forget_member(self, here: RoomHere, member: MemberRecord) -> None:
        if here.members.get(member.member_id) is member:
            del here.members[member.member_id]
        self._forget_if_empty(here)

    def _forget_if_empty(self, here: RoomHere) -> None:
        if not here.members and not here.listeners:
            here.close()
            if self._here.get(here.facts.room_id) is here:
                del self._here[here.facts.room_id]

    async def _leave(self, here: RoomHere, member: MemberRecord) -> None:
        try:
            await self.store.leave(
                room_id=here.facts.room_id, member_id=member.member_id, change=member.change
            )
        except errors.LinguaError as error:
            # Its membership ends with the lease of this gateway.
            _log.info("listener sign-off failed", extra={"reason": str(error)})

    # ---- the work of all rooms ----

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the gateway does."""
        news = (each.run() for each in self._news.values())
        return [*news, *self._renewals.work(), self._keep_alive()]

    def on_redis(self, cell: Cell, up: bool) -> None:
        """A cell has become available or unavailable. It may have lost rooms meanwhile."""
        if up:
            self._news[cell.link.server].restart()
            self._renewals.on_back(cell)

    def _close_here(self, here: RoomHere, utterances: int) -> None:
        room_id = here.facts.room_id
        here.end(utterances)
        here.members.clear()
        self._forget_if_empty(here)
        for callback in self.on_closed:
            callback(room_id)

    async def close_room(self, room_id: str) -> None:
        """Closes a room for good, and tells its members. Raises RoomNotFoundError."""
        utterances = await self.store.close(room_id)
        here = self._here.get(room_id)
        if here is not None:
            self._close_here(here, utterances)

    def _news_of(self, server: ServerLink) -> RoomNews:
        """News of all cells of a server, on one connection."""
        cells = [cell for cell in self._cells.all if cell.link.server is server]
        return RoomNews(
            server=server,
            channels=[news_channel(cell, self._settings.instance_id) for cell in cells],
            on_message=self._on_news,
            on_subscribed=lambda: self._poll(server),
        )

    def _on_news(self, text: str) -> None:
        room_id, _, language = text.partition(" ")
        here = self._here.get(room_id)
        if here is None:
            return
        self._metrics.news.inc()
        if language:
            here.on_news(language)
        else:
            here.on_changed()

    def _poll(self, server: ServerLink) -> None:
        for here in self._here.values():
            if here.cell.link.server is server:
                here.on_poll()

    async def _keep_alive(self) -> None:
        """Sends signs of life to all listeners, with one timer for all of them."""
        every_s = self._settings.peer_silence_ms / 1000 / 2
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(every_s / 4)
            now_s = loop.time()
            at = 0
            for here in list(self._here.values()):
                for listener in list(here.listeners.values()):
                    listener.keep_alive(now_s, every_s * 3 / 4)
                    at += 1
                    if should_yield(at):
                        await asyncio.sleep(0)

    # ---- the end ----

    async def drain(self) -> None:
        """Lets nobody join any more, sends all listeners elsewhere; returns when they have left."""
        self._draining = self._renewals.is_draining = True
        for here in list(self._here.values()):
            for listener in list(here.listeners.values()):
                self._send_away(listener, after_ms=random.randrange(_GO_AWAY_WITHIN_MS))
        await self._empty.wait()

    def _send_away(self, listener: Listener, *, after_ms: int) -> None:
        go_away = rooms_pb2.RoomGoAway(after_ms=after_ms, why=_DRAINING)
        listener.send(packed_event(go_away=go_away))

    def close(self) -> None:
        """Ends what is under way."""
        for task in self._tasks:
            task.cancel()
        for here in self._here.values():
            here.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
