"""One live session: feeds events to its core, and carries out the effects."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import Timers
from lingua_scheduler.services.session_gateway.dispatcher_link import DispatcherLink
from lingua_scheduler.services.session_gateway.live.client import Client
from lingua_scheduler.services.session_gateway.live.converse_stream import ConverseStream
from lingua_scheduler.services.session_gateway.live.room_speech import RoomSpeech
from lingua_scheduler.services.session_gateway.live.spans import SessionSpans
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.services.session_gateway.rooms.store import RoomStore
from lingua_scheduler.services.session_gateway.session import effects
from lingua_scheduler.services.session_gateway.session.core import SessionCore, SessionPhase
from lingua_scheduler.services.session_gateway.session.effects import Effect, TimerKey
from lingua_scheduler.services.session_gateway.session.job_specs import JobSpecs, add_timeline
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speaking.room_jobs import Place
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.turns import HeldBudget
from lingua_scheduler.services.session_gateway.session.voice_activity import Voices
from lingua_scheduler.services.session_gateway.store.session_record import SessionRecord
from lingua_scheduler.services.session_gateway.store.session_store import Renewal
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# A broken stream looks like one that the client has half-closed, until gRPC cancels its handler.
# That happens within this time.
_HALF_CLOSED_AFTER_S = 0.25

_TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER

_log = logging.getLogger(__name__)


class LiveSession:
    """One session while its client is connected here.

    Every event calls one of these methods on the thread of the event loop; nothing else touches the
    core.

    Args:
        record: of the session in the store.
        limits: quotas of its tenant, as the client's credentials state them.
        settings: of the gateway.
        rules: made from the settings.
        link: where jobs are submitted.
        timers: of all sessions; this object is the owner of its own.
        metrics: of the gateway.
        held_budget: of all sessions.
        spans: of the session; None if it is not traced.
        rooms: in Redis; None if the session is in no room.
    """

    def __init__(
        self,
        *,
        record: SessionRecord,
        limits: common_pb2.TenantLimits,
        settings: Settings,
        rules: SessionRules,
        link: DispatcherLink,
        timers: "Timers[LiveSession, TimerKey]",
        metrics: GatewayMetrics,
        held_budget: HeldBudget,
        spans: SessionSpans | None,
        rooms: RoomStore | None = None,
    ) -> None:
        self.session_id = record.session_id
        self.epoch = record.epoch
        self.ended: effects.End | None = None
        """How the session has ended here; None if it has not, or its stream broke."""
        self._record = record
        self._link = link
        self._timers = timers
        self._metrics = metrics
        self._spans = spans
        self._stream = ConverseStream(settings=settings, metrics=metrics, spans=spans)
        self._loop = asyncio.get_running_loop()
        # When the last chunk arrived before the last renewal of the record.
        self._renewed_chunk_ms = 0.0
        # Whether the client was told to resume elsewhere.
        self._sent_away = False
        # Whether its messages may be read.
        self._may_take = True
        self._room = None if rooms is None else RoomSpeech(record=record, store=rooms)
        # Set when nothing is left to do after the client has left.
        self._done = asyncio.Event()
        self._specs = JobSpecs(
            session_id=record.session_id,
            opened=record.opened if self._room is None else self._room.opened,
            epoch=record.epoch,
            rules=rules,
            limits=limits,
        )
        self._core = SessionCore(
            rules=rules,
            opened=record.opened,
            specs=self._specs,
            past=record.past,
            counts=metrics.counts,
            now=self._now(),
            listen=_listener(record.opened),
            held_budget=held_budget,
            speaker=None if self._room is None else self._room.speaker,
        )

    @property
    def room_id(self) -> str:
        """The room that the session speaks to; empty if it is in none."""
        return "" if self._room is None else self._room.room_id

    # ---- the stream ----

    async def serve(
        self,
        opened: session_pb2.Opened,
        requests: AsyncIterator[session_pb2.ClientMessage],
        client: Client,
    ) -> None:
        """Tells the client that its session is open, and serves its stream to the end."""
        if self._spans is not None:
            opened.traceparent = self._spans.traceparent
        self._send_event(session_pb2.ServerEvent(opened=opened))
        self._carry_out(self._core.start(self._now()))
        stream = self._stream
        await run_duplex(read=self._read(requests), write=stream.write(client), cut=stream.aborted)

    async def _read(self, requests: AsyncIterator[session_pb2.ClientMessage]) -> None:
        may_read = self._stream.may_read
        try:
            async for message in requests:
                for chunk in self._on_message(message):
                    # Each chunk may be the one that fills the session.
                    if not may_read.is_set():
                        await self._stream.until_may_read()
                    self._carry_out(self._core.on_chunk(self._now(), chunk))
                if not may_read.is_set():
                    await self._stream.until_may_read()
        except errors.InvalidMessageError as error:
            # The bytes are not a message.
            self.on_lost(error)
        else:
            await asyncio.sleep(_HALF_CLOSED_AFTER_S)
            self._on_half_closed()
        await self._stream.aborted.wait()

    def take(self, chunk: session_pb2.AudioChunk) -> bool:
        """Handles a chunk that came alone; False if messages are not read now."""
        if not self._may_take:
            return False
        now = self._loop.time() * 1000
        self._stream.keep_alive(now)
        if todo := self._core.on_chunk(now, chunk):
            self._carry_out(todo)
        return True

    def extend(self, seq: int, data: bytes, client_ms: int, direction: Direction) -> bool:
        """Takes a chunk that only continues its speech; False if it has to be handled by `take`."""
        if not self._may_take:
            return False
        now = self._loop.time() * 1000
        if not self._core.extend(now, seq, data, client_ms, direction):
            return False
        self._stream.keep_alive(now)
        return True

    def _on_message(self, message: session_pb2.ClientMessage) -> Iterable[session_pb2.AudioChunk]:
        """Handles a message, except for chunks that share it: it returns them."""
        now, core = self._now(), self._core
        self._stream.keep_alive(now)
        if message.results_seen:
            self._carry_out(core.on_seen(now, message.results_seen))
        match message.WhichOneof("message"):
            case "audio":
                self._carry_out(core.on_chunk(now, message.audio))
            case "audio_chunks":
                return message.audio_chunks.chunks
            case "playback_started":
                self._carry_out(core.on_playback(now, on=True))
            case "playback_ended":
                self._carry_out(core.on_playback(now, on=False))
            case "close":
                self._carry_out(core.on_close(now))
            case "open":
                problem = "must be the first message of a stream only"
                error = errors.InvalidMessageError(f"open: {problem}", fields=[("open", problem)])
                self._send_event(session_pb2.ServerEvent(error=errors.to_proto(error)))
        return ()

    def _on_half_closed(self) -> None:
        """The client sends nothing more, but still reads.

        This closes the session, unless the client was told to resume elsewhere: it is about to do
        so, and only the stream ends.
        """
        if self._sent_away and self._core.phase is SessionPhase.OPEN:
            self._stream.close()
        else:
            self._carry_out(self._core.on_close(self._now()))

    def go_away(self, after_ms: int, why: str) -> None:
        """Tells the client to resume elsewhere."""
        self._sent_away = True
        go = session_pb2.GoAway(after_ms=after_ms, why=why)
        self._send_event(session_pb2.ServerEvent(go_away=go))

    async def leave(self) -> None:
        """Signs the session off after its stream has ended: to be resumed, or deleted."""
        self._carry_out(self._core.on_left(self._now()))
        self._stream.close()
        if self._core.phase is not SessionPhase.LEFT:
            self._put_down()
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
            # Another gateway has taken it over, or Redis is unavailable and its record expires.
            _log.info("session sign-off failed", extra=self._facts(error))

    async def until_done(self) -> None:
        """Returns when the room has the outcomes of all that was said before the client left."""
        if self._core.phase is SessionPhase.LEFT:
            await self._done.wait()
            self._put_down()

    def _put_down(self) -> None:
        """The session needs nothing of this gateway any more."""
        if self._spans is not None:
            self._spans.end(self.how_it_ended)
        self._timers.clear_all(self)
        self._record.cancel()

    @property
    def how_it_ended(self) -> str:
        """A word for how the session ended here."""
        if self.ended is None:
            return "left"
        why = self.ended.why
        return "closed" if why is None else errors.reason_name(why.reason).lower()

    # ---- other events ----

    def on_job_event(self, event: dispatcher_pb2.JobEvent) -> None:
        """A dispatcher reports an event of one of the session's jobs."""
        now, core, index = self._now(), self._core, event.utterance_index
        lane = "" if self._room is None else self._room.lanes.get(event.job_id, "")
        match event.WhichOneof("event"):
            case "accepted":
                self._carry_out(core.on_accepted(now, index, event.accepted, lane))
            case "retrying":
                self._carry_out(core.on_retrying(now, index, event.retrying, lane))
            case "partial":
                self._carry_out(core.on_partial(now, index, event.partial, lane))
            case "delivered":
                job_id, delivered = event.job_id, event.delivered
                if self._spans is not None:
                    self._spans.has_result(job_id)
                self._carry_out(core.on_delivered(now, index, job_id, delivered, lane))
            case "failed":
                self._carry_out(core.on_failed(now, index, event.failed, lane))

    def on_timer(self, key: TimerKey) -> None:
        """One of the session's timers is due."""
        self._carry_out(self._core.on_timer(self._now(), key))

    def on_lost(self, why: errors.LinguaError) -> None:
        """The session cannot go on here."""
        self._carry_out(self._core.on_lost(self._now(), errors.to_proto(why)))

    def take_renewal(self) -> Renewal:
        """Returns the renewal of the record, with the time of the last chunk if it is new."""
        last_chunk_ms = self._core.last_chunk_ms
        if last_chunk_ms == self._renewed_chunk_ms:
            return Renewal(self.session_id, self.epoch)
        self._renewed_chunk_ms = last_chunk_ms
        return Renewal(self.session_id, self.epoch, self._wall_ms(last_chunk_ms))

    async def on_record_lost(self) -> None:
        """Redis has lost the record: restores it if the session is still live."""
        if self.ended is not None:
            return
        try:
            await self._record.restore()
        except errors.SessionTakenOverError as error:
            self.on_lost(error)
        except errors.LinguaError as error:
            # The next renewal tries again.
            _log.warning("session record restore failed", extra=self._facts(error))

    # ---- effects ----

    def _carry_out(self, todo: Iterable[Effect]) -> None:
        for effect in todo:
            # An effect may end the session, as a message that does not fit does.
            if self.ended is None:
                _HANDLERS[type(effect)](self, effect)

    def _set_timer(self, effect: effects.SetTimer) -> None:
        self._timers.set(self, effect.key, effect.at_ms)

    def _clear_timer(self, effect: effects.ClearTimer) -> None:
        self._timers.clear(self, effect.key)

    def _write_record(self, effect: effects.Record) -> None:
        last_chunk_ms = self._wall_ms(effect.last_chunk_ms)
        self._record.write(effect, last_chunk_ms, done=partial(self._on_recorded, effect))

    def _on_recorded(
        self,
        effect: effects.Record,
        error: errors.LinguaError | None,
        places: Sequence[Place] = (),
    ) -> None:
        if error is None:
            for cut in effect.cuts:
                if not cut.is_held and not cut.is_missing:
                    self._metrics.finalized(cut.reason, cut.audio_ms)
            self._carry_out(self._core.on_recorded(self._now(), places))
        elif isinstance(error, errors.SessionTakenOverError | errors.RoomClosedError):
            self.on_lost(error)
        else:
            self._carry_out(self._core.on_record_failed(self._now(), errors.to_proto(error)))

    def _submit(self, effect: effects.Submit) -> None:
        utterance, request = effect.utterance, dispatcher_pb2.SubmitRequest()
        submission = request.submissions.add()
        if utterance.is_attached:
            if self._spans is not None:
                self._spans.submitted(utterance)
            self._specs.fill_attach(submission.attach, utterance)
        else:
            now, spec = self._now(), submission.job
            self._specs.fill(spec, utterance, now)
            add_timeline(spec, utterance, now=now, wall_us=time.time_ns() // 1000)
            if self._spans is not None:
                spec.traceparent = self._spans.submitted(utterance, spec.steps)
        if self._room is not None:
            self._room.lanes[utterance.job_id] = utterance.direction.tgt
        self._link.submit(request, job_id=utterance.job_id, index=utterance.index, owner=self)

    def _publish(self, effect: effects.Publish) -> None:
        assert self._room is not None
        cut_at_ms = self._wall_ms(effect.utterance.cut_ms)
        self._room.publish(effect, cut_at_ms, done=partial(self._on_published, effect))

    def _on_published(self, effect: effects.Publish, error: errors.LinguaError | None) -> None:
        assert self._room is not None
        now, index = self._now(), effect.utterance.index
        if isinstance(error, errors.RoomClosedError):
            self.on_lost(error)
        elif error is not None:
            self._carry_out(self._core.on_publish_failed(now, effect.lane, index))
        else:
            self._room.lanes.pop(effect.utterance.job_id, None)
            self._metrics.published(effect.event, now - effect.utterance.cut_ms)
            if self._spans is not None:
                self._spans.published(effect.utterance.job_id, effect.event)
            self._carry_out(self._core.on_published(now, effect.lane, index))

    def _cancel(self, effect: effects.CancelJob) -> None:
        self._link.cancel(effect.job_id, effect.why)

    def _taken(self, effect: effects.Taken) -> None:
        if self._room is not None and (self._sent_away or self._core.phase is SessionPhase.LEFT):
            # The session's next gateway may have asked the room before it had this outcome. Then it
            # wants the result as well.
            self._link.leave(effect.job_id, self)
            return
        # At least 1: 0 would mean that it is not known.
        self._link.taken(effect.job_id, max(1, round(effect.held_back_ms * 1000)))

    def _leave(self, effect: effects.Leave) -> None:
        for job_id in effect.job_ids:
            self._link.leave(job_id, self)

    def _set_gate(self, effect: effects.Gate) -> None:
        (self._stream.may_read.set if effect.is_open else self._stream.may_read.clear)()
        self._may_take = effect.is_open

    def _send_event(self, event: session_pb2.ServerEvent) -> None:
        self._send(effects.Send(session_pb2.ServerMessage(events=[event])))

    def _send(self, effect: effects.Send) -> None:
        if not self._stream.send(effect.message):
            self.on_lost(errors.BackpressureError("the client does not read its messages"))

    def _end(self, end: effects.End) -> None:
        self.ended = end
        self._may_take = False
        self._done.set()
        self._stream.close()

    # ---- clocks ----

    def _now(self) -> float:
        """The time of the event loop, in ms."""
        return self._loop.time() * 1000

    def _wall_ms(self, at_ms: float) -> int:
        """Converts a time of the event loop to ms since the epoch; 0 stays 0."""
        return int(time.time() * 1000 - (self._now() - at_ms)) if at_ms else 0

    def _facts(self, error: errors.LinguaError) -> dict[str, str]:
        return {"session_id": self.session_id, "reason": str(error)}


def _listener(opened: session_pb2.NewSession) -> Callable[[Direction, bytes], float] | None:
    if opened.options.pause_detection != session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY:
        return None
    return Voices(opened.audio_format.sample_rate_hz).quiet_ms


_HANDLERS: Mapping[type[Effect], Callable[[LiveSession, Any], None]] = {
    effects.Send: LiveSession._send,
    effects.SetTimer: LiveSession._set_timer,
    effects.ClearTimer: LiveSession._clear_timer,
    effects.Record: LiveSession._write_record,
    effects.Submit: LiveSession._submit,
    effects.Publish: LiveSession._publish,
    effects.CancelJob: LiveSession._cancel,
    effects.Taken: LiveSession._taken,
    effects.Leave: LiveSession._leave,
    effects.Gate: LiveSession._set_gate,
    effects.End: LiveSession._end,
}
