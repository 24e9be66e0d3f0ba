"""The shell around one session's core: its effects are carried out, answers become events."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S, Outbox
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.services.session_gateway.dispatcher.link import DispatcherLink
from lingua_scheduler.services.session_gateway.live.spans import SessionSpans
from lingua_scheduler.services.session_gateway.live.voice_activity import Voices
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.services.session_gateway.session import effects as effects
from lingua_scheduler.services.session_gateway.session.core import SessionCore, SessionPhase
from lingua_scheduler.services.session_gateway.session.effects import (
    ClearTimer,
    Effect,
    SetTimer,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs, add_timeline
from lingua_scheduler.services.session_gateway.session.resume import Past
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.services.session_gateway.store.session_record import SessionRecord
from lingua_scheduler.services.session_gateway.store.session_store import KeptSession, SessionStore
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# What may wait for a client that reads slowly. Partials go first; when even results do not fit, the
# stream ends, and what the client has not seen is kept for its resume.
_MAX_EVENTS = 2000
_MAX_BYTES = 16 * 1024 * 1024
# What a stream that is to end has to write the rest.
_FLUSH_S = 2.0
# What is only shown, and what the client may forget, can wait for what matters.
_PATIENT = frozenset({"utterance", "audio_ack"})
# That an utterance was cut waits for its acceptance, which under load is a while; and not so long
# that who looks at it sees that it came late.
_FINALIZED_WITHIN_S = 0.1

_TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER

_log = logging.getLogger(__name__)


class LiveSession:
    """One session while its client is connected here.

    Everything that happens to it is one of these methods, on the event loop's thread; nothing else
    touches its core.

    Args:
        session_id: of the session.
        token: proof of ownership, for a record that has to be written again.
        opened: what the client asked for.
        opened_ms: when.
        epoch: this gateway's hold on it.
        past: what was before.
        rules: the numbers.
        silence_ms: the client is told that it hears something at least every half of this time.
        limits: what its tenant may use, as far as this connection goes.
        store: where cuts are written down.
        link: where jobs go.
        timers: of all sessions; the owner of each is the session.
        metrics: of the gateway.
        max_message_bytes: what a message may have.
        held_budget: what all sessions of the gateway may keep of audio that nodes hold.
    """

    def __init__(
        self,
        *,
        session_id: str,
        token: str,
        opened: session_pb2.NewSession,
        opened_ms: int,
        epoch: int,
        past: Past,
        rules: SessionRules,
        silence_ms: int,
        limits: common_pb2.TenantLimits,
        store: SessionStore,
        link: DispatcherLink,
        timers: "Timers[LiveSession, TimerKey]",
        metrics: GatewayMetrics,
        max_message_bytes: int,
        held_budget: HeldBudget,
    ) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        """Messages for the client, serialized. One after the other they are one message."""
        self.may_read = asyncio.Event()
        """Clear: the client's messages are not read for now."""
        self.may_read.set()
        self.cut = asyncio.Event()
        """Set: the stream ends, whatever is left to write."""
        self.ended: effects.End | None = None
        """How it ended, when it has."""
        self._link = link
        self._timers = timers
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._record = SessionRecord(
            store=store,
            session_id=session_id,
            token=token,
            opened=opened,
            opened_ms=opened_ms,
            epoch=epoch,
            past=past,
            most_cuts=rules.result_queue_max,
        )
        # The client takes a gateway that says nothing for frozen.
        self._say_every_ms = silence_ms / 2
        self._said_ms = self._loop.time() * 1000
        # When audio had last come as the record was renewed.
        self._kept_chunk_ms = 0.0
        # Whether the client was told to resume elsewhere.
        self._sent_away = False
        # Cuts that are being written down.
        self._writing: asyncio.Future[Any] | None = None
        self._spans: SessionSpans | None = None
        self._specs = JobSpecs(
            session_id=session_id, opened=opened, epoch=epoch, rules=rules, limits=limits
        )
        self._core = SessionCore(
            rules=rules,
            opened=opened,
            specs=self._specs,
            past=past,
            counts=metrics.counts,
            now=self._now(),
            listen=_listener(opened),
            held_budget=held_budget,
        )

    # ---- events ----

    def start(self, opened: session_pb2.Opened, spans: SessionSpans | None = None) -> None:
        """The client is told that the session is open; with `spans` it is traced."""
        self._spans = spans
        if spans is not None:
            opened.traceparent = spans.traceparent
        self._say(session_pb2.ServerEvent(opened=opened))
        self._feed(self._core.start(self._now()))

    def on_message(self, message: session_pb2.ClientMessage) -> None:
        """The client has said something."""
        now, core = self._now(), self._core
        if now - self._said_ms >= self._say_every_ms:
            self._show_life(now)
        if message.results_seen:
            self._feed(core.on_seen(now, message.results_seen))
        match message.WhichOneof("message"):
            case "audio":
                self._feed(core.on_chunk(now, message.audio))
            case "playback_started":
                self._feed(core.on_playback(now, on=True))
            case "playback_ended":
                self._feed(core.on_playback(now, on=False))
            case "close":
                self._feed(core.on_close(now))
            case "open":
                self._send_error(
                    errors.InvalidMessageError(
                        "open: only the first message of a stream opens",
                        fields=[("open", "only the first message of a stream opens")],
                    )
                )

    async def until_may_read(self) -> None:
        """Returns when the client's messages may be read again."""
        while not self.may_read.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._say_every_ms / 1000):
                    await self.may_read.wait()
                    return
            self._show_life(self._now())

    def on_half_closed(self) -> None:
        """The client will say nothing more, but still listens.

        That closes the session, unless the client was told to go elsewhere: then it is about to
        resume there, so only the stream ends.
        """
        if self._sent_away and self._core.phase is SessionPhase.OPEN:
            self._end_stream()
        else:
            self._feed(self._core.on_close(self._now()))

    def on_job_event(self, event: dispatcher_pb2.JobEvent) -> None:
        """Something has happened to one of its jobs."""
        now, core, index = self._now(), self._core, event.utterance_index
        match event.WhichOneof("event"):
            case "accepted":
                self._feed(core.on_accepted(now, index, event.accepted))
            case "retrying":
                self._feed(core.on_retrying(now, index, event.retrying))
            case "partial":
                self._feed(core.on_partial(now, index, event.partial))
            case "delivered":
                if self._spans is not None:
                    self._spans.has_result(index)
                self._feed(core.on_delivered(now, index, event.job_id, event.delivered))
            case "failed":
                self._feed(core.on_failed(now, index, event.failed))

    def on_timer(self, key: TimerKey) -> None:
        """A timer of its own is due."""
        self._feed(self._core.on_timer(self._now(), key))

    def on_lost(self, why: errors.LinguaError) -> None:
        """It is not this gateway's any more."""
        self._feed(self._core.on_lost(self._now(), errors.to_proto(why)))

    def go_away(self, after_ms: int, why: str) -> None:
        """The client is to resume elsewhere."""
        self._sent_away = True
        go = session_pb2.GoAway(after_ms=after_ms, why=why)
        self._say(session_pb2.ServerEvent(go_away=go))

    async def leave(self) -> None:
        """The stream has ended: the session waits to be resumed, or is forgotten."""
        self._feed(self._core.on_left(self._now()))
        if self._spans is not None:
            self._spans.end(self.how_it_ended)
        self._timers.clear_all(self)
        self.outbox.close()
        if self._writing is not None:
            self._writing.cancel()
        ended = self.ended
        try:
            if ended is not None and ended.forget:
                await self._record.end()
            elif ended is None or ended.why is None or ended.why.reason != _TAKEN_OVER:
                await self._record.leave(
                    results=self._core.results,
                    missing=self._core.missing,
                    last_chunk_ms=self._wall_ms(self._core.last_chunk_ms),
                )
        except errors.LinguaError as error:
            # Taken over meanwhile, or Redis is away: then it is forgotten in its time.
            _log.info("a session was not signed off: %s", error)

    @property
    def how_it_ended(self) -> str:
        """In a word."""
        if self.ended is None:
            return "left"
        why = self.ended.why
        return "closed" if why is None else errors.reason_name(why.reason).lower()

    def to_keep(self) -> KeptSession:
        """What its record is renewed with."""
        last_chunk_ms = self._core.last_chunk_ms
        if last_chunk_ms == self._kept_chunk_ms:
            return KeptSession(self.session_id, self.epoch)
        self._kept_chunk_ms = last_chunk_ms
        return KeptSession(self.session_id, self.epoch, self._wall_ms(last_chunk_ms))

    async def on_record_lost(self) -> None:
        """Redis has lost the record: it is written anew, as long as the session lives."""
        if self.ended is not None:
            return
        try:
            await self._record.write_again()
        except errors.SessionTakenOverError as error:
            self.on_lost(error)
        except errors.LinguaError as error:
            # Tried again when it is to be renewed next.
            _log.warning("a lost session was not written down again: %s", error)

    # ---- effects ----

    def _feed(self, todo: Iterable[Effect]) -> None:
        for effect in todo:
            # What could not be sent may have ended it meanwhile.
            if self.ended is None:
                _CARRY_OUT[type(effect)](self, effect)

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers.set(self, effect.key, effect.at_ms)

    def _clear_timer(self, effect: ClearTimer) -> None:
        self._timers.clear(self, effect.key)

    def _write_down(self, effect: effects.Record) -> None:
        try:
            self._writing = self._write(effect)
        except errors.DependencyDownError as error:
            self._writing = self._loop.create_task(self._write_again(effect, error))
        else:
            self._writing.add_done_callback(partial(self._on_written, effect))

    def _on_written(self, effect: effects.Record, written: asyncio.Future[list[bytes]]) -> None:
        if written.cancelled():
            return
        try:
            self._record.wrote(effect, written.result())
        except errors.LinguaError as error:
            self._writing = self._loop.create_task(self._write_again(effect, error))
        else:
            self._on_recorded(effect)

    async def _write_again(self, effect: effects.Record, why: errors.LinguaError) -> None:
        """Cuts were not written down. Where the record is lost, that is written first."""
        try:
            if not isinstance(why, errors.SessionNotFoundError):
                raise why
            await self._record.write_again()
            self._record.wrote(effect, await self._write(effect))
        except errors.SessionTakenOverError as error:
            self.on_lost(error)
        except errors.LinguaError as error:
            self._feed(self._core.on_record_failed(self._now(), errors.to_proto(error)))
        else:
            self._on_recorded(effect)

    def _on_recorded(self, effect: effects.Record) -> None:
        for cut in effect.cuts:
            if not cut.is_held and not cut.is_missing:
                self._metrics.finalized(cut.reason, cut.audio_ms)
        self._feed(self._core.on_recorded(self._now()))

    def _submit(self, effect: effects.Submit) -> None:
        utterance, request = effect.utterance, dispatcher_pb2.SubmitRequest()
        submission = request.submissions.add()
        if utterance.is_attached:
            if self._spans is not None:
                self._spans.submitted(utterance)
            self._specs.fill_attach(submission.attach, utterance)
        else:
            self._fill_job(submission.job, utterance)
        self._link.submit(request, job_id=utterance.job_id, index=utterance.index, owner=self)

    def _fill_job(self, spec: dispatcher_pb2.JobSpec, utterance: Utterance) -> None:
        now = self._now_ms
        self._specs.fill(spec, utterance, now)
        add_timeline(spec, utterance, now=now, wall_us=time.time_ns() // 1000)
        if self._spans is not None:
            spec.traceparent = self._spans.submitted(utterance, spec.steps)

    def _cancel(self, effect: effects.CancelJob) -> None:
        self._link.cancel(effect.job_id, effect.why)

    def _taken(self, effect: effects.Taken) -> None:
        # At least 1: it is known.
        self._link.taken(effect.job_id, max(1, round(effect.held_back_ms * 1000)))

    def _leave(self, effect: effects.Leave) -> None:
        for job_id in effect.job_ids:
            self._link.leave(job_id, self)

    def _set_gate(self, effect: effects.Gate) -> None:
        (self.may_read.set if effect.is_open else self.may_read.clear)()

    def _write(self, effect: effects.Record) -> asyncio.Future[list[bytes]]:
        return self._record.write(effect, last_chunk_ms=self._wall_ms(effect.last_chunk_ms))

    def _show_life(self, now: float) -> None:
        """Says something, though there is nothing to say."""
        self._said_ms = now
        self.outbox.put(b"", 0, droppable=True, replaces="life")

    def _say(self, event: session_pb2.ServerEvent) -> None:
        self._send(effects.Send(session_pb2.ServerMessage(events=[event])))

    def _send(self, effect: effects.Send) -> None:
        message, within_s = effect.message, _FINALIZED_WITHIN_S
        self._said_ms = self._now_ms
        partial_of: int | None = None
        for event in message.events:
            kind = event.WhichOneof("event")
            if kind == "result":
                self._metrics.timed(event.result.timings)
                if self._spans is not None:
                    self._spans.delivered(event.result)
            elif kind == "missing":
                self._metrics.missing(event.missing.why.reason)
                if self._spans is not None:
                    self._spans.missing(event.missing)
            elif kind == "partial" and len(message.events) == 1:
                partial_of = event.partial.utterance_index
            if kind not in _PATIENT:
                within_s = 0.0
            elif kind != "utterance" or not event.utterance.HasField("finalized"):
                within_s = min(within_s, SHARE_WITHIN_S)
        data = message.SerializeToString()
        droppable = partial_of is not None
        # Of an utterance's partials only the last counts.
        fits = self.outbox.put(data, len(data), droppable, replaces=partial_of, within_s=within_s)
        if not fits and not droppable and not self.outbox.closed:
            self.on_lost(errors.BackpressureError("the client does not read what is sent to it"))

    def _send_error(self, error: errors.LinguaError) -> None:
        self._say(session_pb2.ServerEvent(error=errors.to_proto(error)))

    def _end(self, end: effects.End) -> None:
        """The stream ends after what is queued, and soon in any case."""
        self.ended = end
        self.may_read.set()
        self._end_stream()

    def _end_stream(self) -> None:
        self.outbox.close()
        self._loop.call_later(_FLUSH_S, self.cut.set)

    def _wall_ms(self, at_ms: float) -> int:
        """A moment of the loop's clock as a time since the epoch; 0 stays 0."""
        return int(time.time() * 1000 - (self._loop.time() * 1000 - at_ms)) if at_ms else 0

    def _now(self) -> float:
        """The moment of an event, and of all that it has done."""
        self._now_ms = self._loop.time() * 1000
        return self._now_ms


def _listener(opened: session_pb2.NewSession) -> Callable[[Direction, bytes], float] | None:
    if opened.options.pause_detection != session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY:
        return None
    return Voices(opened.audio_format.sample_rate_hz).quiet_ms


_CARRY_OUT: Mapping[type[Effect], Callable[[LiveSession, Any], None]] = {
    effects.Send: LiveSession._send,
    SetTimer: LiveSession._set_timer,
    ClearTimer: LiveSession._clear_timer,
    effects.Record: LiveSession._write_down,
    effects.Submit: LiveSession._submit,
    effects.CancelJob: LiveSession._cancel,
    effects.Taken: LiveSession._taken,
    effects.Leave: LiveSession._leave,
    effects.Gate: LiveSession._set_gate,
    effects.End: LiveSession._end,
}
