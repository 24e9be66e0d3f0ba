"""All sessions that this gateway serves: how they open, resume, are renewed, and are sent away."""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import own_tenant, tenant_for
from lingua_scheduler.services.runtime.auth.quotas import tenant_limits
from lingua_scheduler.services.runtime.contract.audio import MAX_CHUNK_BYTES, MAX_CHUNKS
from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id, id_in_cell
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.cells.rounds import CellRounds
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import span_of, span_writer_if_on
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.services.session_gateway.dispatcher_link import DispatcherLink
from lingua_scheduler.services.session_gateway.live.client import Client
from lingua_scheduler.services.session_gateway.live.live_session import LiveSession
from lingua_scheduler.services.session_gateway.live.spans import SessionSpans
from lingua_scheduler.services.session_gateway.live.speakers import Speakers
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.services.session_gateway.rooms.rooms import Rooms
from lingua_scheduler.services.session_gateway.session.effects import TimerKey
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.services.session_gateway.store.session_record import SessionRecord, SpokenTo
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore
from lingua_scheduler.services.session_gateway.validate import (
    check_open,
    check_seen,
    checked_new,
)
from lingua_scheduler.v1 import common_pb2, session_pb2

# How long a client may take to send its first message.
_OPEN_WITHIN_S = 10.0
# How often a record is renewed before it would expire, and how often at least. A renewal also finds
# out that Redis has lost the record, or that another gateway has taken the session over.
_RENEWALS_PER_LIFE = 4
_RENEW_WITHIN_S = 5.0
# Clients that are sent away reconnect over this time, not all at once.
_GO_AWAY_WITHIN_MS = 1000
_DRAINING = "this gateway is draining; resume elsewhere"

_ID_BYTES = 12
_TOKEN_BYTES = 24

_log = logging.getLogger(__name__)


class Sessions:
    """Serves Converse."""

    def __init__(
        self,
        *,
        settings: Settings,
        cells: Cells,
        store: SessionStore,
        link: DispatcherLink,
        metrics: GatewayMetrics,
        rooms: Rooms,
    ) -> None:
        self._settings = settings
        self._rules = SessionRules.from_settings(settings)
        self._cells = cells
        self._store = store
        self._link = link
        self._metrics = metrics
        self._speakers = Speakers(settings=settings, store=store, rooms=rooms)
        rooms.on_closed.append(self._on_room_closed)
        self._live: dict[str, LiveSession] = {}
        self._live_in: dict[Cell, dict[str, LiveSession]] = {cell: {} for cell in cells.all}
        # Sessions without a client whose room waits for the rest of what was said.
        self._left: set[asyncio.Task[None]] = set()
        self._timers: Timers[LiveSession, TimerKey] = Timers(
            on_due=LiveSession.on_timer, clock=lambda: asyncio.get_running_loop().time() * 1000
        )
        self._held_budget = HeldBudget(settings.held_audio_total_bytes)
        metrics.held_bytes.set_function(lambda: self._held_budget.used)
        metrics.timers.set_function(lambda: len(self._timers))
        self._span_writer = span_writer_if_on()
        self._draining = False
        every_s = min(settings.resume_within_ms / 1000 / _RENEWALS_PER_LIFE, _RENEW_WITHIN_S)
        self._renewals = CellRounds(cells, every_s=every_s, do=self._renew)
        self._empty = asyncio.Event()
        self._empty.set()

    async def converse(
        self, requests: AsyncIterator[session_pb2.ClientMessage], client: Client
    ) -> None:
        """Serves one client until its stream ends.

        Raises:
            LinguaError: what ended the session, which the client has been told.
        """
        try:
            session, opened = await self._open(requests, client)
        except errors.LinguaError as error:
            self._metrics.refused(error, client.transport)
            event = session_pb2.ServerEvent(error=errors.to_proto(error))
            await client.write(session_pb2.ServerMessage(events=[event]).SerializeToString())
            raise
        self._arrive(session, client)
        try:
            await session.serve(opened, requests, client)
        finally:
            self._depart(session, client)
            await session.leave()
            if session.room_id:
                self._see_off(session)
        if session.ended is not None and session.ended.why is not None:
            raise errors.from_proto(session.ended.why)

    def on_redis(self, cell: Cell, up: bool) -> None:
        """A cell has become available or unavailable. It may have lost records meanwhile."""
        if up:
            self._renewals.on_back(cell)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """The renewal of the records of all sessions."""
        return self._renewals.work()

    async def drain(self) -> None:
        """Opens no more sessions, sends all clients elsewhere, and returns when all have left."""
        self._draining = True
        for session in self._live.values():
            session.go_away(random.randrange(_GO_AWAY_WITHIN_MS), _DRAINING)
        await self._empty.wait()

    def close(self) -> None:
        """Clears all timers."""
        for task in self._left:
            task.cancel()
        self._speakers.close()
        self._timers.close()

    # ---- opening ----

    async def _open(
        self, requests: AsyncIterator[session_pb2.ClientMessage], client: Client
    ) -> tuple[LiveSession, session_pb2.Opened]:
        try:
            async with asyncio.timeout(_OPEN_WITHIN_S):
                message = await anext(requests, None)
        except TimeoutError:
            message = None
        check_open(message or session_pb2.ClientMessage())
        assert message is not None
        if self._draining:
            raise errors.DrainingError("this gateway is draining; connect to another one")
        limits = tenant_limits(self._settings)
        if message.open.HasField("new"):
            how, token = "new", secrets.token_urlsafe(_TOKEN_BYTES)
            record = await self._create(message.open.new, token, limits)
        else:
            how, token = "resume", message.open.resume.resume_token
            record = await self._resume(message.open.resume)
        session = LiveSession(
            record=record,
            limits=limits,
            settings=self._settings,
            rules=self._rules,
            link=self._link,
            timers=self._timers,
            metrics=self._metrics,
            held_budget=self._held_budget,
            spans=self._spans_of(record, client),
            rooms=self._speakers.store if record.room is not None else None,
        )
        client.opened(record.opened, session.take, session.extend)
        self._metrics.opened.labels(how, client.transport).inc()
        return session, self._opened(record, token)

    async def _create(
        self, asked: session_pb2.NewSession, token: str, limits: common_pb2.TenantLimits
    ) -> SessionRecord:
        opened = checked_new(asked)
        if opened.HasField("room"):
            return await self._create_speaker(opened, token, limits)
        opened.tenant = tenant_for(opened.tenant, "open.new.tenant")
        return await self._cells.in_new(
            lambda cell: self._write_new(_new_id(cell.number), opened, token, limits)
        )

    async def _create_speaker(
        self, opened: session_pb2.NewSession, token: str, limits: common_pb2.TenantLimits
    ) -> SessionRecord:
        # In the cell of its room: one script writes to both. Who may not enter gets no other answer
        # if there is no such cell.
        session_id = _new_id(0 if self._cells.one else cell_of_id(opened.room.room_id))
        room = await self._speakers.enter(opened, session_id)
        try:
            return await self._write_new(session_id, opened, token, limits, room)
        except errors.LinguaError:
            await self._speakers.exit(room.room_id, session_id)
            raise

    async def _write_new(
        self,
        session_id: str,
        opened: session_pb2.NewSession,
        token: str,
        limits: common_pb2.TenantLimits,
        room: SpokenTo | None = None,
    ) -> SessionRecord:
        now_ms = int(time.time() * 1000)
        await self._store.open(
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=now_ms,
            most_sessions=limits.sessions,
        )
        return SessionRecord(
            store=self._store,
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=now_ms,
            epoch=1,
            past=Past(),
            most_cuts=self._rules.result_queue_max,
            room=room,
        )

    async def _resume(self, resume: session_pb2.ResumeSession) -> SessionRecord:
        session_id = resume.session_id
        taken = await self._store.take_over(
            session_id=session_id,
            token=resume.resume_token,
            tenant=own_tenant(),
            tries=resume.tries,
        )
        # The client may have been told that indexes are missing whose cuts could not be recorded
        # because Redis was unavailable.
        created = taken.next_index + self._settings.result_queue_max
        check_seen(resume, seen=taken.seen, created=created)
        self._end_earlier(session_id, taken.epoch)
        resumed = await self._speakers.resume(session_id, taken)
        seen, next_seq = resume.results_seen, max(resume.next_seq, taken.acked_seq)
        if resume.HasField("kept_seq"):
            next_seq = replay_from(
                resumed.cuts,
                most_cuts=self._rules.result_queue_max,
                seen=seen,
                kept_seq=resume.kept_seq,
                next_seq=next_seq,
            )
        past = Past(
            next_index=max(taken.next_index, seen),
            seen=seen,
            next_seq=next_seq,
            missing=min(taken.missing, seen),
            cuts=taken.cuts,
            left=resumed.left,
            lost=resumed.lost,
        )
        return SessionRecord(
            store=self._store,
            session_id=session_id,
            token=resume.resume_token,
            opened=taken.opened,
            opened_ms=taken.opened_ms,
            epoch=taken.epoch,
            past=past,
            most_cuts=self._rules.result_queue_max,
            room=resumed.room,
        )

    def _end_earlier(self, session_id: str, epoch: int) -> None:
        """Ends an earlier stream of a session here, which frees its jobs.

        Raises:
            SessionTakenOverError: the session has been resumed here with a later epoch.
        """
        earlier = self._live.get(session_id)
        if earlier is None:
            return
        error = errors.SessionTakenOverError(f"session {session_id!r} was resumed elsewhere")
        if earlier.epoch > epoch:
            raise error
        earlier.on_lost(error)

    def _opened(self, record: SessionRecord, token: str) -> session_pb2.Opened:
        settings, options = self._settings, record.opened.options
        by_voice = options.pause_detection == session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY
        return session_pb2.Opened(
            session_id=record.session_id,
            resume_token=token,
            next_seq=record.past.next_seq,
            limits=session_pb2.SessionLimits(
                max_chunk_bytes=MAX_CHUNK_BYTES,
                pause_ms=settings.voice_pause_ms if by_voice else settings.pause_ms,
                max_duration_ms=settings.max_duration_ms,
                max_length_bytes=settings.max_length_bytes,
                result_deadline_ms=settings.result_deadline_ms,
                resume_within_ms=settings.resume_within_ms,
                silence_ms=settings.peer_silence_ms,
                max_chunks=MAX_CHUNKS,
            ),
        )

    def _spans_of(self, record: SessionRecord, client: Client) -> SessionSpans | None:
        if self._span_writer is None:
            return None
        return SessionSpans(
            self._span_writer,
            client=span_of(client.traceparent),
            transport=client.transport,
            session_id=record.session_id,
            epoch=record.epoch,
        )

    # ---- live sessions ----

    def _arrive(self, session: LiveSession, client: Client) -> None:
        self._live[session.session_id] = session
        self._live_in[self._cells.of_session(session.session_id)][session.session_id] = session
        self._metrics.connected(client.transport)
        self._empty.clear()
        if self._draining:
            session.go_away(0, _DRAINING)

    def _depart(self, session: LiveSession, client: Client) -> None:
        self._metrics.disconnected(client.transport)
        self._metrics.ended.labels(session.how_it_ended, client.transport).inc()
        # The client may have resumed the same session here.
        if self._live.get(session.session_id) is session:
            del self._live[session.session_id]
            del self._live_in[self._cells.of_session(session.session_id)][session.session_id]
        self._check_empty()

    def _check_empty(self) -> None:
        if not self._live and not self._left:
            self._empty.set()

    def _see_off(self, session: LiveSession) -> None:
        """Keeps a session until its room has all that its client has said."""
        task = asyncio.create_task(self._until_over(session))
        self._left.add(task)
        self._empty.clear()

        def over(task: asyncio.Task[None]) -> None:
            self._left.discard(task)
            self._check_empty()

        task.add_done_callback(over)

    async def _until_over(self, session: LiveSession) -> None:
        await session.until_done()
        ended = session.ended
        if ended is not None and ended.forget:
            await self._speakers.exit(session.room_id, session.session_id)
        else:
            # Its client may be about to resume it, here or elsewhere.
            self._speakers.exit_later(
                session.room_id, session.session_id, unless=self._live.__contains__
            )

    def _on_room_closed(self, room_id: str) -> None:
        for session in [each for each in self._live.values() if each.room_id == room_id]:
            session.on_lost(errors.RoomClosedError(f"room {room_id!r} was closed"))

    async def _renew(self, cell: Cell) -> None:
        live = list(self._live_in[cell].values())
        try:
            answers = await self._store.renew(cell, [each.take_renewal() for each in live])
        except errors.LinguaError as error:
            _log.warning("session renewal failed", extra={"reason": str(error)})
            return
        for session, answer in zip(live, answers, strict=True):
            if isinstance(answer, errors.SessionNotFoundError):
                await session.on_record_lost()
            elif answer is not None:
                session.on_lost(answer)


def _new_id(cell: int) -> str:
    return id_in_cell(secrets.token_hex(_ID_BYTES), cell)
