"""All sessions of this gateway: how they open, are resumed, kept and sent away."""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import own_tenant, tenant_for
from lingua_scheduler.services.runtime.auth.quotas import tenant_limits
from lingua_scheduler.services.runtime.contract.audio import MAX_CHUNK_BYTES
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import span_of, span_writer_if_on
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.services.session_gateway.dispatcher.link import DispatcherLink
from lingua_scheduler.services.session_gateway.live.live_session import LiveSession
from lingua_scheduler.services.session_gateway.live.spans import SessionSpans
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.services.session_gateway.session.effects import TimerKey
from lingua_scheduler.services.session_gateway.session.resume import Past, replay_from
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.services.session_gateway.store.session_store import SessionStore
from lingua_scheduler.services.session_gateway.validate import (
    check_open,
    check_seen,
    checked_new,
)
from lingua_scheduler.v1 import common_pb2, session_pb2

# A client that has connected opens at once.
_OPEN_WITHIN_S = 10.0
# Records are renewed so many times before they would be forgotten, and at least so often: then it
# is seen that Redis has lost one, or that another gateway has taken it.
_KEEPS_A_LIFE = 4
_KEEP_WITHIN_S = 5.0
# Clients that are sent away come back over this time, not all at once.
_GO_AWAY_WITHIN_MS = 1000

# When no more messages come, the stream may be broken; then this is known within:
_HALF_CLOSED_AFTER_S = 0.25

_TOKEN_BYTES = 24

Context = grpc.aio.ServicerContext[Any, Any]

_log = logging.getLogger(__name__)


class Sessions:
    """Serves Converse."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: SessionStore,
        link: DispatcherLink,
        metrics: GatewayMetrics,
    ) -> None:
        self._settings = settings
        self._rules = SessionRules.from_settings(settings)
        self._store = store
        self._link = link
        self._metrics = metrics
        self._live: dict[str, LiveSession] = {}
        self._timers: Timers[LiveSession, TimerKey] = Timers(
            on_due=LiveSession.on_timer, clock=lambda: asyncio.get_running_loop().time() * 1000
        )
        self._held_budget = HeldBudget(settings.held_audio_total_bytes)
        metrics.held_bytes.set_function(lambda: self._held_budget.used)
        metrics.timers.set_function(lambda: len(self._timers))
        self._spans = span_writer_if_on()
        self._draining = False
        self._redis_is_back = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    async def converse(
        self, requests: AsyncIterator[session_pb2.ClientMessage], context: Context
    ) -> None:
        """Serves one client until its stream ends."""
        try:
            session, opened = await self._open(requests)
        except errors.LinguaError as error:
            self._metrics.refused(error)
            event = session_pb2.ServerEvent(error=errors.to_proto(error))
            await context.write(session_pb2.ServerMessage(events=[event]))
            raise
        self._arrive(session)

        async def write() -> None:
            while messages := await session.outbox.take():
                await context.write(b"".join(messages))

        async def read() -> None:
            try:
                async for message in requests:
                    session.on_message(message)
                    if not session.may_read.is_set():
                        await session.until_may_read()
            except errors.InvalidMessageError as error:
                # Bytes that are no message.
                session.on_lost(error)
            else:
                # A stream that broke looks like one that was ended, until the handler is cancelled.
                await asyncio.sleep(_HALF_CLOSED_AFTER_S)
                session.on_half_closed()
            await session.cut.wait()

        try:
            session.start(opened, self._spans_of(session, context))
            await run_duplex(read=read(), write=write(), cut=session.cut)
        finally:
            self._depart(session)
            await session.leave()
        if session.ended is not None and session.ended.why is not None:
            raise errors.from_proto(session.ended.why)

    def on_redis(self, up: bool) -> None:
        """Redis is there or away. Where it comes back it may have lost the records."""
        if up:
            self._redis_is_back.set()

    async def run(self) -> None:
        """Renews the records of all sessions until cancelled."""
        every_s = min(self._settings.resume_within_ms / 1000 / _KEEPS_A_LIFE, _KEEP_WITHIN_S)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._redis_is_back.wait()
            self._redis_is_back.clear()
            try:
                await self._keep()
            except errors.LinguaError as error:
                _log.warning("sessions could not be renewed: %s", error)

    async def drain(self) -> None:
        """Takes no new session, sends the clients elsewhere, returns when all have gone."""
        self._draining = True
        for session in self._live.values():
            after_ms = random.randrange(_GO_AWAY_WITHIN_MS)
            session.go_away(after_ms, "this gateway is draining; resume elsewhere")
        await self._empty.wait()

    def close(self) -> None:
        """Forgets all timers."""
        self._timers.close()

    # ---- opening ----

    async def _open(
        self, requests: AsyncIterator[session_pb2.ClientMessage]
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
        if message.open.HasField("new"):
            return await self._open_new(message.open.new)
        return await self._resume(message.open.resume)

    async def _open_new(
        self, asked: session_pb2.NewSession
    ) -> tuple[LiveSession, session_pb2.Opened]:
        opened = checked_new(asked)
        opened.tenant = tenant_for(opened.tenant, "open.new.tenant")
        session_id, token = secrets.token_hex(12), secrets.token_urlsafe(_TOKEN_BYTES)
        now_ms = int(time.time() * 1000)
        limits = tenant_limits(self._settings)
        await self._store.open(
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=now_ms,
            most_sessions=limits.sessions,
        )
        session = self._session(
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=now_ms,
            epoch=1,
            past=Past(),
            limits=limits,
        )
        self._metrics.opened.labels("new").inc()
        return session, self._opened(session_id, token, 0, opened.options)

    async def _resume(
        self, resume: session_pb2.ResumeSession
    ) -> tuple[LiveSession, session_pb2.Opened]:
        session_id, token = resume.session_id, resume.resume_token
        limits = tenant_limits(self._settings)
        taken = await self._store.take(
            session_id=session_id,
            token=token,
            tenant=own_tenant(),
            tries=resume.tries,
        )
        # Indexes that could not even be written down, as while Redis is away, may be missing.
        created = taken.next_index + self._settings.result_queue_max
        check_seen(resume, seen=taken.seen, created=created)
        before = self._live.get(session_id)
        if before is not None and before.epoch > taken.epoch:
            # Resumed twice at once, and the later one was faster.
            raise errors.SessionTakenOverError(f"session {session_id!r} was resumed elsewhere")
        if before is not None:
            # Before the new one is there, so that its jobs are free.
            before.on_lost(
                errors.SessionTakenOverError(f"session {session_id!r} was resumed elsewhere")
            )
        seen, next_seq = resume.results_seen, max(resume.next_seq, taken.acked_seq)
        if resume.HasField("kept_seq"):
            next_seq = replay_from(
                taken.cuts,
                most_cuts=self._rules.result_queue_max,
                seen=seen,
                kept_seq=resume.kept_seq,
                next_seq=next_seq,
            )
        past = Past(
            next_index=max(taken.next_index, resume.results_seen),
            seen=resume.results_seen,
            next_seq=next_seq,
            missing=min(taken.missing, resume.results_seen),
            cuts=taken.cuts,
        )
        session = self._session(
            session_id=session_id,
            token=token,
            opened=taken.opened,
            opened_ms=taken.opened_ms,
            epoch=taken.epoch,
            past=past,
            limits=limits,
        )
        self._metrics.opened.labels("resume").inc()
        return session, self._opened(session_id, token, past.next_seq, taken.opened.options)

    def _session(
        self,
        *,
        session_id: str,
        token: str,
        opened: session_pb2.NewSession,
        opened_ms: int,
        epoch: int,
        past: Past,
        limits: common_pb2.TenantLimits,
    ) -> LiveSession:
        return LiveSession(
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=opened_ms,
            epoch=epoch,
            past=past,
            rules=self._rules,
            silence_ms=self._settings.peer_silence_ms,
            limits=limits,
            store=self._store,
            link=self._link,
            timers=self._timers,
            metrics=self._metrics,
            max_message_bytes=self._settings.max_message_bytes,
            held_budget=self._held_budget,
        )

    def _opened(
        self, session_id: str, token: str, next_seq: int, options: session_pb2.SessionOptions
    ) -> session_pb2.Opened:
        settings = self._settings
        by_voice = options.pause_detection == session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY
        return session_pb2.Opened(
            session_id=session_id,
            resume_token=token,
            next_seq=next_seq,
            limits=session_pb2.SessionLimits(
                max_chunk_bytes=MAX_CHUNK_BYTES,
                pause_ms=settings.voice_pause_ms if by_voice else settings.pause_ms,
                max_duration_ms=settings.max_duration_ms,
                max_length_bytes=settings.max_length_bytes,
                result_deadline_ms=settings.result_deadline_ms,
                resume_within_ms=settings.resume_within_ms,
                silence_ms=settings.peer_silence_ms,
            ),
        )

    def _spans_of(self, session: LiveSession, context: Context) -> SessionSpans | None:
        if self._spans is None:
            return None
        # At run time this is a plain tuple of pairs, whatever its type says.
        metadata = dict(context.invocation_metadata() or ())
        return SessionSpans(
            self._spans,
            client=span_of(str(metadata.get("traceparent", ""))),
            session_id=session.session_id,
            epoch=session.epoch,
        )

    # ---- those that are here ----

    def _arrive(self, session: LiveSession) -> None:
        self._live[session.session_id] = session
        self._metrics.sessions.inc()
        self._empty.clear()
        if self._draining:
            session.go_away(0, "this gateway is draining; resume elsewhere")

    def _depart(self, session: LiveSession) -> None:
        self._metrics.sessions.dec()
        self._metrics.ended.labels(session.how_it_ended).inc()
        # A later one of the same id may be there.
        if self._live.get(session.session_id) is session:
            del self._live[session.session_id]
        if not self._live:
            self._empty.set()

    async def _keep(self) -> None:
        live = list(self._live.values())
        answers = await self._store.keep([each.to_keep() for each in live])
        for session, answer in zip(live, answers, strict=True):
            if isinstance(answer, errors.SessionNotFoundError):
                await session.on_record_lost()
            elif answer is not None:
                session.on_lost(answer)
